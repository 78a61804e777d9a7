"""Reads markets from files: availability JSON, node add/remove CSV, hand-written ones; each error names its place."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fleet.drills.market import PLENTY, Market, MarketPool, Purchase, Step, merged, pool, with_notice
from fleet.drills.synthetic import NOTICE_SECONDS, START
from fleet.errors import UserError

Changes = list[tuple[float, int]]


def load(paths: Sequence[Path]) -> Market:
    """One market from one file, or from several of one kind: each its own pool. Raises UserError."""
    if not paths:
        raise UserError("no market file given")
    kinds = {path.suffix for path in paths}
    if kinds == {".market"} and len(paths) == 1:
        return _hand_written(paths[0])
    if len(kinds) != 1 or kinds & {".json", ".csv"} != kinds:
        given = ", ".join(map(str, paths))
        raise UserError(f"{given}: allowed are one .market file, or files of one kind, .json or .csv, one per pool")
    read = _availability if kinds == {".json"} else _nodes
    series = [read(path, _text(path)) for path in paths]
    labels = [path.stem for path in paths]
    if len(set(labels)) != len(labels):
        raise UserError(f"{', '.join(map(str, paths))}: two files of one name would be one pool")
    end = max(at for _, at in series)

    def steps() -> Iterator[Step]:
        return merged(_sold(label, changes) for label, (changes, _) in zip(labels, series, strict=True))

    pools = tuple(pool(_type_in(label), _zone_in(label), label) for label in labels)
    return Market(" + ".join(labels), pools, START, end, steps)


def _sold(label: str, changes: Changes) -> Iterator[Step]:
    return (Step(at, label, supply) for at, supply in with_notice(iter(changes), NOTICE_SECONDS))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8 text") from None


def _type_in(label: str) -> str:
    return next((part for part in label.split("_") if "." in part), "g6.xlarge")


def _zone_in(label: str) -> str:
    """A zone named in the file's name, else the one zone of a market without any."""
    for part in label.replace("_", " ").split():
        pieces = part.split("-")
        if len(pieces) >= 3 and pieces[-1][:-1].isdigit() and pieces[-1][-1].isalpha():
            return part
    return "us-east-2a"


def _availability(path: Path, text: str) -> tuple[Changes, float]:
    """`{"metadata": {"gap_seconds": 195}, "data": [1, 1, 0]}`: how many instances could be had at each tick."""
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: line {error.lineno} column {error.colno}: {error.msg}") from None
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if not isinstance(gap, int | float) or isinstance(gap, bool) or not 0 < gap <= 86400:
        raise UserError(f"{path}: metadata.gap_seconds: {gap!r}; allowed are seconds above 0, at most a day")
    data = raw.get("data")
    if not isinstance(data, list) or not data:
        raise UserError(f"{path}: data: expected a list with at least one reading")
    changes: Changes = []
    for i, supply in enumerate(data):
        if not isinstance(supply, int) or isinstance(supply, bool) or supply < 0:
            raise UserError(f"{path}: data[{i}]: {supply!r}; allowed are whole numbers from 0")
        if not changes or changes[-1][1] != supply:
            changes.append((START + i * gap, supply))
    return changes, START + len(data) * gap


def _nodes(path: Path, text: str) -> tuple[Changes, float]:
    """`milliseconds,add|remove,node`: a node that was held could be had."""
    held: set[str] = set()
    changes: Changes = [(START, 0)]
    last = 0.0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split(",")
        place = f"{path}: line {number}"
        if len(fields) != 3:
            raise UserError(f"{place}: {line!r}; expected milliseconds,add|remove,node")
        stamp, verb, node = (field.strip() for field in fields)
        if not stamp.isdigit():
            raise UserError(f"{place}: {stamp!r} is no whole number of milliseconds")
        at = int(stamp) / 1000
        if at < last:
            raise UserError(f"{place}: {stamp} ms is earlier than the line before")
        last = at
        if verb == "add" and node not in held:
            held.add(node)
        elif verb == "remove" and node in held:
            held.discard(node)
        else:
            known = {"add": "is held already", "remove": "is not held"}.get(verb, "")
            raise UserError(f"{place}: {verb} {node}: {known or 'allowed are add and remove'}")
        if changes[-1][0] == START + at:
            changes[-1] = (START + at, len(held))
        else:
            changes.append((START + at, len(held)))
    if not held and last == 0:
        raise UserError(f"{path}: no line in it")
    return changes, START + last + 3600


# --- the hand-written form: `pool g6.xlarge us-east-2a`, then `<time> <pool|all> <verb>`, then `<time> end` ---

VERBS = "sells [BOXES], refuses, takes, price USD, on-demand sells, on-demand refuses"
UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def _hand_written(path: Path) -> Market:
    """Lines of a person's own: see docs/drills.md. A `takes` gives its notice at the time of the line."""
    pools: dict[str, MarketPool] = {}
    steps: list[Step] = []
    last, end = 0.0, None
    for number, line in enumerate(_text(path).splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"{path}: line {number}"
        if end is not None:
            raise UserError(f"{place}: nothing may follow the end")
        if words[0] == "pool":
            if len(words) not in (2, 3) or words[1] in pools:
                raise UserError(f"{place}: expected: pool TYPE [ZONE], each type once")
            pools[words[1]] = pool(words[1], words[2] if len(words) == 3 else "us-east-2a")
            continue
        at = _time(words[0], place)
        if at < last:
            raise UserError(f"{place}: {words[0]} is earlier than the line before")
        last = at
        if words[1:] == ["end"]:
            end = START + at
            continue
        if len(words) < 3 or (words[1] != "all" and words[1] not in pools):
            raise UserError(f"{place}: expected TIME POOL VERB; pools: all, {', '.join(pools)}; verbs: {VERBS}")
        if not pools:
            raise UserError(f"{place}: no pool yet; expected first a line: pool TYPE [ZONE]")
        labels = list(pools) if words[1] == "all" else [words[1]]
        steps += [_step(START + at, label, words[2:], place) for label in labels]
    if not pools:
        raise UserError(f"{path}: no pool in it; expected a line: pool TYPE [ZONE]")
    if end is None:
        raise UserError(f"{path}: no end; expected a last line: TIME end")
    return Market(path.stem, tuple(pools.values()), START, end, lambda: iter(steps))


def _step(at: float, label: str, words: list[str], place: str) -> Step:
    purchase: Purchase = "spot"
    if words[0] == "on-demand":
        purchase, words = "on-demand", words[1:]
    match words:
        case ["sells"]:
            return Step(at, label, PLENTY, purchase=purchase)
        case ["sells", count] if count.isdigit():
            return Step(at, label, int(count), purchase=purchase)
        case ["refuses"]:
            return Step(at, label, 0, spares=True, purchase=purchase)
        case ["price", usd] if _is_price(usd):
            return Step(at, label, None, usd_per_hour=float(usd), purchase=purchase)
        case ["takes"] if purchase == "spot":
            return Step(at, label, 0)
        case _:
            raise UserError(f"{place}: {' '.join(words)!r}; verbs: {VERBS}")


def _is_price(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() and float(text) > 0


def _time(text: str, place: str) -> float:
    """`90`, `1d2h30m` or `02:30[:15]` as seconds."""
    try:
        if ":" in text:
            parts = [int(part) for part in text.split(":")]
            hours, minutes, seconds = (*parts, 0)[:3]
            if len(parts) in (2, 3) and 0 <= minutes < 60 and 0 <= seconds < 60 and hours >= 0:
                return hours * 3600 + minutes * 60 + seconds
        else:
            return float(_units(text))
    except ValueError:
        pass
    raise UserError(f"{place}: {text!r} is no time; write 02:30, 02:30:15 or 1d2h30m")


def _units(text: str) -> int:
    if text.isdigit():
        return int(text)
    total, number = 0, ""
    for char in text:
        if char.isdigit():
            number += char
        elif number and char in UNITS:
            total, number = total + int(number) * UNITS[char], ""
        else:
            raise ValueError(text)
    if number:
        raise ValueError(text)
    return total


def is_history(path: Path) -> bool:
    """Whether a JSON file is a recorded history rather than readings of availability."""
    if path.suffix != ".json":
        return False
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and "fleet" in raw and "data" not in raw
