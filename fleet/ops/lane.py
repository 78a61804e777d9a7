"""Shows who is in line at the serving boxes, and ends one request there: through Run Command, without any prompt."""

import json
import math
from dataclasses import dataclass
from typing import Any

from fleet.account.access import Aws
from fleet.account.aws_errors import MissingError, OperatorError
from fleet.core import lane_documents, names
from fleet.core.untrusted import one_line
from fleet.ops import run_command

LATE = "Run Command has not reached it: `fleetctl status` shows whether the box still stands"
WAIT_SECONDS = lane_documents.ANSWER_SECONDS + 30.0


@dataclass(frozen=True)
class Waiting:
    """One request in line. Seconds; `expected`: until it is done."""

    id: str
    caller: str
    kind: str
    state: str  # served, waiting, paused
    waited: float
    expected: float
    tokens: int
    limit: int


@dataclass(frozen=True)
class Line:
    """One box's line, in the order of the turns; or why the box tells none."""

    box: str
    line: tuple[Waiting, ...] = ()
    expected_wait: float = 0.0  # seconds, of a caller who came now
    draining: bool = False
    problem: str = ""


def lines(aws: Aws, fleet: str, *, wait_seconds: float = WAIT_SECONDS) -> list[Line]:
    """Of every serving box; one that does not tell hides no other."""
    boxes = run_command.serving_boxes(aws, fleet, "lane")
    command = run_command.send(aws, "lane", names.lane_document(fleet), boxes, {})
    found = []
    for box in boxes:
        try:
            output = run_command.output(aws, fleet, "lane", command, box, wait_seconds=wait_seconds, late=LATE)
            found.append(said(box, output))
        except OperatorError as error:
            found.append(Line(box, problem=str(error)))
    return found


def said(box: str, output: str) -> Line:
    """What the script on the box printed; the box is not trusted to have run it."""
    try:
        told = json.loads(output)
        line = tuple(_waiting(each) for each in told["line"])
        return Line(box, line, _seconds(told["expected_wait_seconds"]), told["draining"] is True)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise _unlike(box, output) from None


def _waiting(each: dict[str, Any]) -> Waiting:
    id, caller, kind, state = (one_line(each[name], 64) for name in ("id", "caller", "class", "state"))
    waited, expected = (_seconds(each[name]) for name in ("waited_seconds", "expected_seconds"))
    return Waiting(id, caller, kind, state, waited, expected, int(each["tokens"]), int(each["limit"]))


def _seconds(said: Any) -> float:
    seconds = float(said)
    if not math.isfinite(seconds):
        raise ValueError(said)
    return seconds


def drop(aws: Aws, fleet: str, request: str, *, wait_seconds: float = WAIT_SECONDS) -> str:
    """End this request, at whichever box has it; that box. MissingError where none has."""
    boxes = run_command.serving_boxes(aws, fleet, "lane drop")
    document, parameters = names.lane_drop_document(fleet), {"id": lane_documents.checked(request)}
    command = run_command.send(aws, "lane drop", document, boxes, parameters)
    problems = []
    for box in boxes:
        try:
            output = run_command.output(aws, fleet, "lane drop", command, box, wait_seconds=wait_seconds, late=LATE)
            if dropped(box, output):
                return box
        except OperatorError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    raise MissingError(f"lane drop: no box has {request} in line", "it may have ended by itself: `fleetctl lane`")


def dropped(box: str, output: str) -> bool:
    """Whether that box had it."""
    try:
        return json.loads(output)["dropped"] is True
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _unlike(box, output) from None


def _unlike(box: str, output: str) -> OperatorError:
    return OperatorError(
        f"lane: {box} answered what its lane does not: {one_line(output)}",
        "ask again; if it stays so, end the box: its successor starts from the published files",
    )
