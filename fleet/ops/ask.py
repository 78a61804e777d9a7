"""Puts one prompt to a serving box through Run Command: the first success needs no network set-up.

The fleet owns the document (`ask_document`): the right to ask is the right to run that one script and no other.
"""

import json
from dataclasses import dataclass

from fleet.account.access import Aws
from fleet.account.aws_errors import OperatorError
from fleet.core import names
from fleet.core.ask_document import ANSWER_SECONDS, encode
from fleet.core.untrusted import one_line
from fleet.ops import run_command


@dataclass(frozen=True)
class Answer:
    """What the model said, and where."""

    box: str
    model: str
    text: str
    seconds: float


def ask(aws: Aws, fleet: str, prompt: str, *, wait_seconds: float = ANSWER_SECONDS + 30) -> Answer:
    """Ask a serving box and wait for the answer."""
    encoded = encode(prompt)
    box = run_command.serving_boxes(aws, fleet, "ask")[0]
    command = run_command.send(aws, "ask", names.ask_document(fleet), [box], {"prompt": encoded})
    late = "one request runs at a time: a long one may be in front; `fleetctl status` shows the box"
    return said(box, run_command.output(aws, fleet, "ask", command, box, wait_seconds=wait_seconds, late=late))


def said(box: str, output: str) -> Answer:
    """What the script on the box printed; the box is not trusted to have run it."""
    try:
        told = json.loads(output)
        return Answer(box, str(told["model"]), str(told["answer"]), float(told["seconds"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise OperatorError(
            f"ask: {box} answered what `fleetctl ask` does not: {one_line(output)}",
            "ask again; if it stays so, end the box: its successor starts from the published files",
        ) from None
