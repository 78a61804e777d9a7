"""Reads markets from files: availability JSON, node add/remove CSV, hand-written ones; each error names its place."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from fleet.core.errors import UserError
from fleet.sim.markets import reading
from fleet.sim.markets.market import PLENTY, ZONE, Market, MarketPool, Purchase, Step, merged, pool, with_notice
from fleet.sim.markets.reading import LONGEST_SECONDS
from fleet.sim.markets.synthetic import START

Changes = list[tuple[float, int]]


def load(paths: Sequence[Path]) -> Market:
    """One market from one file, or from several of one kind: each its own pool. Raises UserError."""
    kinds = {path.suffix for path in paths}
    if kinds == {".market"} and len(paths) == 1:
        return _hand_written(paths[0])
    if len(kinds) != 1 or kinds & {".json", ".csv"} != kinds:
        given = ", ".join(map(str, paths))
        raise UserError(f"{given}: allowed are one .market file, or files of one kind, .json or .csv, one per pool")
    read = _availability if kinds == {".json"} else _nodes
    series = [read(path) for path in paths]
    labels = [path.stem for path in paths]
    if len(set(labels)) != len(labels):
        raise UserError(f"{', '.join(map(str, paths))}: two files of one name would be one pool")
    ends = [at for _, at in series]
    end = min(ends)
    longer = [label for label, at in zip(labels, ends, strict=True) if at > end]
    notes = (f"{', '.join(longer)}: cut to the {_hours(end - START)} of the shortest file",) if longer else ()

    def steps() -> Iterator[Step]:
        return merged(with_notice(label, changes) for label, (changes, _) in zip(labels, series, strict=True))

    pools = tuple(pool(_type_in(label), _zone_in(label), label) for label in labels)
    return Market(" + ".join(labels), pools, START, end, steps, notes)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h"


def _type_in(label: str) -> str:
    return next((part for part in label.split("_") if "." in part), "g6.xlarge")


def _zone_in(label: str) -> str:
    """A zone named in the file's name, else the one zone of a market without any."""
    return next((part for part in label.replace("_", " ").split() if ZONE.fullmatch(part)), "us-east-2a")


def _availability(path: Path) -> tuple[Changes, float]:
    """`{"metadata": {"gap_seconds": 195}, "data": [1, 1, 0]}`: how many instances could be had at each tick."""
    raw = reading.parsed(path)
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if not isinstance(gap, int | float) or isinstance(gap, bool) or not 0 < gap <= 86400:
        raise UserError(f"{path}: metadata.gap_seconds: {gap!r}; allowed are seconds above 0, at most a day")
    data = raw.get("data")
    if not isinstance(data, list) or not data:
        raise UserError(f"{path}: data: expected a list with at least one reading")
    if len(data) * gap > LONGEST_SECONDS:
        raise UserError(f"{path}: data: {len(data)} readings of {gap:g} s each; at most ten years are drilled")
    changes: Changes = []
    for i, supply in enumerate(data):
        if not isinstance(supply, int) or isinstance(supply, bool) or not 0 <= supply < 10**9:
            raise UserError(f"{path}: data[{i}]: {supply!r:.40}; allowed are whole numbers from 0, below 10**9")
        if not changes or changes[-1][1] != supply:
            changes.append((START + i * gap, supply))
    return changes, START + len(data) * gap


def _nodes(path: Path) -> tuple[Changes, float]:
    """`milliseconds,add|remove,node`: a node that was held could be had."""
    held: set[str] = set()
    changes: Changes = [(START, 0)]
    last = 0.0
    for number, line in enumerate(reading.text(path).splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split(",")
        place = f"{path}: line {number}"
        if len(fields) != 3:
            raise UserError(f"{place}: {line!r}; expected milliseconds,add|remove,node")
        stamp, verb, node = (field.strip() for field in fields)
        if not reading.is_whole(stamp) or int(stamp) / 1000 > LONGEST_SECONDS:
            raise UserError(f"{place}: {stamp!r}; expected a whole number of milliseconds, at most ten years")
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
    lines = [(number, line.partition("#")[0].split()) for number, line in enumerate(reading.text(path).splitlines(), 1)]
    pools = _pools(path, [(f"{path}: line {number}", words[1:]) for number, words in lines if words[:1] == ["pool"]])
    steps: list[Step] = []
    last, end = 0.0, None
    for number, words in lines:
        if not words:
            continue
        place = f"{path}: line {number}"
        if end is not None:
            raise UserError(f"{place}: nothing may follow the end")
        if words[0] == "pool":
            continue
        at = _time(words[0], place)
        if at < last:
            raise UserError(f"{place}: {words[0]} is earlier than the line before")
        last = at
        if words[1:] == ["end"]:
            end = START + at
            continue
        labels = [p.label for p in pools if len(words) > 2 and words[1] in ("all", p.label, p.instance_type)]
        if not labels:
            known = ", ".join(["all", *(p.label for p in pools)])
            raise UserError(f"{place}: expected TIME POOL VERB; pools: {known}; verbs: {VERBS}")
        steps += [_step(START + at, label, words[2:], place) for label in labels]
    if end is None:
        raise UserError(f"{path}: no end; expected a last line: TIME end")
    return Market(path.stem, pools, START, end, lambda: iter(steps))


def _pools(path: Path, lines: list[tuple[str, list[str]]]) -> tuple[MarketPool, ...]:
    """Named by their type; by type@zone where a type has several."""
    given: list[tuple[str, str]] = []
    for place, words in lines:
        if len(words) not in (1, 2):
            raise UserError(f"{place}: expected: pool TYPE [ZONE]")
        instance_type, zone = (*words, "us-east-2a")[:2]
        if problem := reading.pool_problem(instance_type, zone):
            raise UserError(f"{place}: {problem}")
        if (instance_type, zone) in given:
            raise UserError(f"{place}: pool {instance_type} {zone} stands twice")
        given.append((instance_type, zone))
    if not given:
        raise UserError(f"{path}: no pool in it; expected a line: pool TYPE [ZONE]")
    types = [instance_type for instance_type, _ in given]
    return tuple(pool(t, zone, t if types.count(t) == 1 else f"{t}@{zone}") for t, zone in given)


def _step(at: float, label: str, words: list[str], place: str) -> Step:
    purchase: Purchase = "spot"
    if words[0] == "on-demand":
        purchase, words = "on-demand", words[1:]
    match words:
        case ["sells"]:
            return Step(at, label, PLENTY, purchase=purchase)
        case ["sells", count] if reading.is_whole(count) and int(count) > 0:
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
    return reading.is_whole(text.replace(".", "", 1)) and float(text) > 0


def _time(text: str, place: str) -> float:
    """`90`, `1d2h30m` or `02:30[:15]` as seconds."""
    try:
        seconds = _clock(text) if ":" in text else _units(text)
    except ValueError:
        raise UserError(f"{place}: {text!r} is no time; write 02:30, 02:30:15 or 1d2h30m") from None
    if seconds > LONGEST_SECONDS:
        raise UserError(f"{place}: {text!r}; at most ten years are drilled")
    return float(seconds)


def _clock(text: str) -> int:
    hours, minutes, seconds, *more = (*map(_int, text.split(":")), *([0] if text.count(":") == 1 else []))
    if more or minutes > 59 or seconds > 59:
        raise ValueError(text)
    return hours * 3600 + minutes * 60 + seconds


def _units(text: str) -> int:
    if reading.is_whole(text):
        return int(text)
    if not re.fullmatch(r"([0-9]+[dhms])+", text):
        raise ValueError(text)
    return sum(_int(number) * UNITS[unit] for number, unit in re.findall(r"([0-9]+)([dhms])", text))


def _int(text: str) -> int:
    if not reading.is_whole(text):
        raise ValueError(text)
    return int(text)


def is_history(path: Path) -> bool:
    """Whether a JSON file is a recorded history rather than readings of availability; raises UserError."""
    if path.suffix != ".json":
        return False
    raw = reading.parsed(path)
    return isinstance(raw, dict) and "fleet" in raw and "data" not in raw
