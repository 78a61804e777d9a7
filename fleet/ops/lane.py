"""Shows who is in line at the serving boxes, and ends one request there: through Run Command, without any prompt."""

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


def lines(aws: Aws, fleet: str) -> list[Line]:
    """Of every serving box; one that does not tell hides no other."""
    boxes = run_command.serving_boxes(aws, fleet, "lane")
    command = run_command.send(aws, "lane", names.lane_document(fleet), boxes, {})
    found = []
    for box in boxes:
        try:
            output = run_command.output(aws, fleet, "lane", command, box, wait_seconds=WAIT_SECONDS, late=LATE)
            found.append(said(box, output))
        except OperatorError as error:
            found.append(Line(box, problem=str(error)))
    return found


def said(box: str, output: str) -> Line:
    """What the box printed."""

    def parse(told: Any) -> Line:
        line = tuple(_waiting(each) for each in told["line"])
        return Line(box, line, _seconds(told["expected_wait_seconds"]), told["draining"] is True)

    return run_command.read("lane", box, output, parse)


def _waiting(each: dict[str, Any]) -> Waiting:
    id, caller, kind, state = (one_line(each[name], 64) for name in ("id", "caller", "class", "state"))
    waited, expected = (_seconds(each[name]) for name in ("waited_seconds", "expected_seconds"))
    return Waiting(id, caller, kind, state, waited, expected, int(each["tokens"]), int(each["limit"]))


def _seconds(said: Any) -> float:
    seconds = float(said)
    if not math.isfinite(seconds):
        raise ValueError(said)
    return seconds


def drop(aws: Aws, fleet: str, request: str) -> str:
    """End this request, at whichever box has it; that box. MissingError where none has."""
    boxes = run_command.serving_boxes(aws, fleet, "lane drop")
    document, parameters = names.lane_drop_document(fleet), {"id": lane_documents.checked(request)}
    command = run_command.send(aws, "lane drop", document, boxes, parameters)
    problems = []
    for box in boxes:
        try:
            output = run_command.output(aws, fleet, "lane drop", command, box, wait_seconds=WAIT_SECONDS, late=LATE)
            if run_command.read("lane drop", box, output, lambda told: told["dropped"] is True):
                return box
        except OperatorError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    raise MissingError(f"lane drop: no box has {request} in line", "it may have ended by itself: `fleetctl lane`")
