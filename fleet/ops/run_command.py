"""Runs one of the fleet's own documents on boxes, through Run Command, and hands back what each printed."""

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from fleet.account.access import Aws
from fleet.account.aws_errors import OperatorError
from fleet.core import names
from fleet.core.untrusted import one_line
from fleet.ops.fleet_view import target_health

POLL_SECONDS = 1.0
Told = TypeVar("Told")


def serving_boxes(aws: Aws, fleet: str, verb: str) -> list[str]:
    """Those that the balancer calls healthy, at least one."""
    serving = sorted(box for box, state in target_health(aws, fleet).items() if state == "healthy")
    if not serving:
        raise OperatorError(
            f"{verb}: no box of {fleet} serves now", "run `fleetctl status`: a boot takes 4 to 6 min, a drought longer"
        )
    return serving


def send(aws: Aws, verb: str, document: str, boxes: list[str], parameters: dict[str, str]) -> str:
    """Start it; the command's id."""
    given = {name: [value] for name, value in parameters.items()}
    sent = aws.call(
        "ssm",
        "SendCommand",
        InstanceIds=boxes,
        DocumentName=document,
        Comment=f"fleetctl {verb}",
        **({"Parameters": given} if given else {}),
    )
    return str(sent["Command"]["CommandId"])


def output(aws: Aws, fleet: str, verb: str, command: str, box: str, *, wait_seconds: float, late: str) -> str:
    """What it printed on that box; OperatorError where it failed, or where it has not ended by then (`late`: why)."""
    deadline = time.monotonic() + wait_seconds
    while time.monotonic() < deadline:
        # Not there in the first moments, when AWS does not know it yet.
        result = aws.find("ssm", "GetCommandInvocation", CommandId=command, InstanceId=box)
        status = result["Status"] if result else "Pending"
        if result and status == "Success":
            return str(result["StandardOutputContent"])
        if result and status not in ("Pending", "InProgress", "Delayed"):
            reason = result.get("StandardErrorContent", "").strip().splitlines()
            raise OperatorError(
                f"{verb}: the command on {box} ended as {status}: {reason[-1] if reason else 'no output'}",
                f"read the box's log group {names.box_log_group(fleet)}, or open a session on the box",
            )
        time.sleep(POLL_SECONDS)
    raise OperatorError(f"{verb}: {box} has not answered within {wait_seconds:.0f} s", late)


def read(verb: str, box: str, output: str, parse: Callable[[Any], Told]) -> Told:
    """What the script on the box printed, parsed; the box is not trusted to have run it."""
    try:
        return parse(json.loads(output))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise OperatorError(
            f"{verb}: {box} answered what our script there never does: {one_line(output)}",
            "ask again; if it stays so, end the box: its successor starts from the published files",
        ) from None
