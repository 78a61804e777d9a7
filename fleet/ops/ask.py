"""Puts one prompt to a serving box through Run Command: the first success needs no network set-up.

The fleet owns the document (`fleet.ask_document`): the right to ask is the right to run that one script and no other.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

from fleet import names
from fleet.ask_document import ANSWER_SECONDS, encode
from fleet.ops.aws import Aws
from fleet.ops.errors import MissingError, OperatorError
from fleet.ops.observe import target_health
from fleet.outsiders import one_line

POLL_SECONDS = 1.0


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
    box = serving_box(aws, fleet)
    command = aws.call(
        "ssm",
        "SendCommand",
        InstanceIds=[box],
        DocumentName=names.ask_document(fleet),
        Parameters={"prompt": [encoded]},
        Comment="fleetctl ask",
    )["Command"]["CommandId"]
    deadline = time.monotonic() + wait_seconds
    while time.monotonic() < deadline:
        result = _invocation(aws, command, box)
        status = result["Status"] if result else "Pending"
        if result and status == "Success":
            return said(box, result["StandardOutputContent"])
        if result and status not in ("Pending", "InProgress", "Delayed"):
            reason = result.get("StandardErrorContent", "").strip().splitlines()
            raise OperatorError(
                f"ask: the command on {box} ended as {status}: {reason[-1] if reason else 'no output'}",
                f"read the box's log group {names.box_log_group(fleet)}, or open a session on the box",
            )
        time.sleep(POLL_SECONDS)
    raise OperatorError(
        f"ask: {box} has not answered within {wait_seconds:.0f} s",
        "one request runs at a time: a long one may be in front; `fleetctl status` shows the box",
    )


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


def serving_box(aws: Aws, fleet: str) -> str:
    """A box that the balancer calls healthy."""
    serving = [box for box, state in target_health(aws, fleet).items() if state == "healthy"]
    if not serving:
        raise OperatorError(
            f"ask: no box of {fleet} serves now", "run `fleetctl status`: a boot takes 4 to 6 min, a drought longer"
        )
    return min(serving)


def _invocation(aws: Aws, command: str, box: str) -> dict[str, Any] | None:
    """The command's state on the box; None in the first moments, when AWS does not know it yet."""
    try:
        return aws.call("ssm", "GetCommandInvocation", CommandId=command, InstanceId=box)
    except MissingError:
        return None
