"""The commands `pin`, `arm`, `resume`, `scan`, `probe`: only these invoke the watchdog; each records who and why."""

import getpass
import json
import socket
import time
from typing import Any

from fleet.account.access import Aws
from fleet.account.aws_errors import OperatorError, RateExceededError, UnreachableError
from fleet.core import names

# The function is its own mutex: while it works, another invocation answers 429. It ends well inside its timeout.
BUSY_TRIES = 8
BUSY_PAUSE_SECONDS = 5.0

EFFECT = {
    "pin": "moves the fleet to on-demand and keeps it there until `fleetctl arm`",
    "arm": "lets the watchdog return to spot as soon as the placement scores allow it",
    "resume": "lets the group launch boxes again and begins the count of failed boots anew",
    "scan": "runs the watchdog's scan now; it may fail over or re-arm as the scheduled one would",
    "probe": "sends the group's own distribution again and changes nothing",
}
HELP = {
    "pin": """Move to on-demand and stay there.

    The fleet pays the on-demand price (about 2.4 times spot) and the watchdog decides nothing until `fleetctl arm`.
    For a day that must not be disturbed, or when you want to look for yourself.""",
    "arm": """Let the watchdog return to spot.

    From pinned or failover: history cleared, cooldown waived. It flips only after the placement scores were good on the
    running scans, and launch-first: nothing that serves ends before its successor serves.""",
    "resume": """Let the group launch boxes again.

    After a boot loop, once its cause is mended: Launch is resumed and failed boots are counted anew. Mode, failover
    history and cooldown stay as they are.""",
    "scan": """Run the watchdog's scan now.

    It does what the scheduled scan would do: retry a skipped failover, repair disagreement, re-arm, give up.""",
    "probe": """Prove that the watchdog's role can make the call that matters.

    Sends the group's current distribution again, with all the permission checks that AWS makes inside that call.
    Changes nothing; refuses during a deploy or a refresh.""",
}


def caller(aws: Aws) -> str:
    """Who presses: the AWS identity, and the person at the keyboard."""
    return f"{getpass.getuser()}@{socket.gethostname()} as {aws.call('sts', 'GetCallerIdentity')['Arn']}"


def press(aws: Aws, fleet: str, command: str, *, who: str, why: str) -> dict[str, Any]:
    """Invoke the watchdog and return its decision record; retried while the function is busy."""
    payload = json.dumps({"command": command, "who": who, "why": why}).encode()
    for attempt in range(1, BUSY_TRIES + 1):
        try:
            answer = aws.call(
                "lambda",
                "Invoke",
                FunctionName=names.watchdog_function(fleet),
                InvocationType="RequestResponse",
                Payload=payload,
            )
            break
        except RateExceededError:
            if attempt == BUSY_TRIES:
                raise
            time.sleep(BUSY_PAUSE_SECONDS)
        except UnreachableError as error:
            raise UnreachableError(
                f"{error.message}; the watchdog may have carried it out all the same",
                "read the last decisions in `fleetctl status` before you press again",
            ) from None
    text = answer["Payload"].read().decode()
    if answer.get("FunctionError"):
        raise OperatorError(
            f"{command}: the watchdog failed: {_cause(text)}",
            "read the last decisions in `fleetctl status`; docs/runbook/function-failed.md",
        )
    record: dict[str, Any] = json.loads(text)
    return record


def _cause(text: str) -> str:
    try:
        raw = json.loads(text)
        return f"{raw.get('errorType', 'error')}: {raw['errorMessage']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return text[-500:]
