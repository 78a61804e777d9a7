"""Callers from a file: a CSV of times and lengths, or a gateway's ledger, a line of JSON a request."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic

from fleet.config import cards, validation
from fleet.core.errors import UserError
from fleet.sim.callers.tally import CUT, LEFT, NOBODY, REFUSED, Tally
from fleet.sim.callers.traffic import Asked
from fleet.sim.markets import reading
from gateway.ledger import State

COLUMNS = {each.name: each for each in fields(Asked)}
PROBLEMS_MOST = 10  # told at once
YEAR_2000 = 946684800.0  # a number above it is a moment
LATEST = 32503680000.0  # the year 3000
_SCHEMA = pydantic.TypeAdapter(Asked)


def read(path: Path, start: float, end: float) -> tuple[Asked, ...]:
    """The requests in order of time, those between `start` and `end`; raises UserError naming every odd line.

    A time is seconds from the start, or a moment in ISO 8601, or (a ledger's) seconds since 1970.
    """
    text = reading.text(path)
    rows = _ledger(text) if text.lstrip().startswith("{") else _table(text)
    found, problems = list[Asked](), list[str]()
    for number, row in rows:
        try:
            found.append(_asked(row, start))
        except ValueError as error:
            problems.append(f"{path}, line {number}: {error}")
    if problems:
        more = len(problems) - PROBLEMS_MOST
        raise UserError("\n".join([*problems[:PROBLEMS_MOST], *([f"and {more} more"] if more > 0 else [])]))
    inside = sorted((asked for asked in found if start <= asked.at <= end), key=lambda asked: asked.at)
    if not inside:
        a, b = (datetime.fromtimestamp(at, UTC).isoformat(timespec="minutes") for at in (start, end))
        raise UserError(f"{path}: no request between {a} and {b}, which is what the drill lives through")
    return tuple(inside)


def ledger_tally(path: Path, asked: Sequence[Asked]) -> Tally | None:
    """What a ledger says came of those that were read from it; None of a table, which does not say."""
    text = reading.text(path)
    if not text.lstrip().startswith("{"):
        return None
    start, end = asked[0].at, asked[-1].at
    tally = Tally(start)
    for line in map(json.loads, filter(str.strip, text.splitlines())):
        at = float(line["began"])
        if start <= at <= end:
            tally.asked += 1
            tally.micro_dollars += int(line.get("micro_dollars", 0))
            tally.over(_outcome(line), at)
    return tally


def _outcome(line: dict[str, Any]) -> str:
    """Of a line as `gateway.record` ends it; whose gateway was killed has no end, and is as one that failed."""
    by, state = str(line.get("answered_by", "")), line.get("state", State.RESERVED)
    if state == State.CANCELLED:
        return LEFT
    if state == State.DONE and by:
        return by
    if line.get("tokens"):
        return CUT
    return REFUSED if by and state == State.FAILED else NOBODY  # by a target's own error, or told that nobody can


def _table(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(text.splitlines())
    named = [name.strip() for name in reader.fieldnames or ()]
    wrong = [name for name in named if name not in COLUMNS]
    if "at" not in named or wrong:
        raise UserError(f"callers: columns are {', '.join(named)}; allowed: at, and any of {', '.join([*COLUMNS][1:])}")
    reader.fieldnames = named
    for row in reader:
        if None in row or None in row.values():
            row = {"at": "as many values as columns"}  # which no time is
        yield reader.line_num, {name: value.strip() for name, value in row.items() if value.strip()}


def _ledger(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """A line of JSON a request. What it answered is its length; a prompt's is not in it."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            yield number, {"at": "no JSON object"}
            continue
        caller = str(said.get("caller", ""))
        tier = "pro" if caller.startswith("key:") else "anonymous"
        row = {"at": said.get("began", ""), "caller": caller, "tier": said.get("tier", tier)}
        row |= {"stream": said.get("stream", False), "tokens": said.get("tokens") or cards.ANSWER_TOKENS}
        yield number, row


def _asked(row: dict[str, Any], start: float) -> Asked:
    """A row as the fields of `Asked` bound it; raises ValueError."""
    try:
        return _SCHEMA.validate_python({**row, "at": _time(row.get("at", ""), start)})
    except pydantic.ValidationError as error:
        detail = error.errors(include_url=False)[0]
        name = str(detail["loc"][0])
        raise ValueError(f"{name} is {detail['input']!r}; allowed: {validation.allowed(COLUMNS[name])}") from None


def _time(value: Any, start: float) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            raise ValueError(f"at is {value!r}; allowed: seconds from the start, or ISO 8601") from None
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds <= LATEST:
        raise ValueError(f"at is {value!r}; allowed: seconds from the start, or since 1970")
    return seconds if seconds >= YEAR_2000 else start + seconds
