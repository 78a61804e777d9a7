"""Puts one prompt to a serving box through Run Command: the first success needs no network set-up.

The fleet owns the document (`ask_document`): the right to ask is the right to run that one script and no other.
"""

from dataclasses import dataclass
from typing import Any

from fleet.account.access import Aws
from fleet.core import names
from fleet.core.ask_document import ANSWER_SECONDS, encode
from fleet.ops import run_command

WAIT_SECONDS = ANSWER_SECONDS + 30.0


@dataclass(frozen=True)
class Answer:
    """What the model said, and where."""

    box: str
    model: str
    text: str
    seconds: float


def ask(aws: Aws, fleet: str, prompt: str) -> Answer:
    """Ask a serving box and wait for the answer."""
    encoded = encode(prompt)
    box = run_command.serving_boxes(aws, fleet, "ask")[0]
    command = run_command.send(aws, "ask", names.ask_document(fleet), [box], {"prompt": encoded})
    late = "one request runs at a time: a long one may be in front; `fleetctl status` shows the box"
    return said(box, run_command.output(aws, fleet, "ask", command, box, wait_seconds=WAIT_SECONDS, late=late))


def said(box: str, output: str) -> Answer:
    """What the box printed."""

    def parse(told: Any) -> Answer:
        return Answer(box, str(told["model"]), str(told["answer"]), float(told["seconds"]))

    return run_command.read("ask", box, output, parse)
