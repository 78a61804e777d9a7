"""The receipt: a fleet's recorded past as data, read by the drills and the demo, written by `fleetctl history`.

What happened stands in `market`, in order of time. Its events are those of the event log (docs/event-log.md), box by
box: with them a life is replayed as it was. The histories of July 2026 know less, and say it in words of their own.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import Field
from pydantic.dataclasses import dataclass

from fleet.core.errors import UserError
from fleet.core.untrusted import one_line

Logged = Literal[
    "box.launched",
    "box.serving",
    "box.in_service",
    "box.unserving",
    "box.ended",
    "notice",
    "rebalance",
    "launch.failed",
    "market",
]
LOGGED: tuple[Logged, ...] = get_args(Logged)
# `reclaim`, `refuses_from`, `sells_from`: of every pool; a reclaim is the notice. The others tell of one box.
Spoken = Literal["reclaim", "sells_from", "kernel_starts_from", "refuses_from", "no_healthy_target_from", "rearm"]
Modes = Literal["spot-armed", "on-demand-failover", "on-demand-pinned"]


def _utc(at: datetime) -> datetime:
    if at.utcoffset() != timedelta(0):
        raise ValueError("not UTC")
    return at.astimezone(UTC)


Time = Annotated[pydantic.AwareDatetime, pydantic.AfterValidator(_utc)]
Text = Annotated[str, Field(max_length=2000), pydantic.AfterValidator(one_line)]
LONGEST_SECONDS = 7200  # of a boot: its hook gives it no more
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]
Count = Annotated[int, Field(ge=0, le=10)]
Label = Annotated[
    str,
    Field(
        pattern=r"^([a-z0-9-]+\.[a-z0-9-]+(@[a-z]{2}(-[a-z]+)+-[1-9][a-z])?|[a-z]{2}(-[a-z]+)+-[1-9][a-z])$",
        description="an instance type such as g6.xlarge, a zone, or TYPE@ZONE",
    ),
]
CONFIG = pydantic.ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Happening:
    """One thing that happened. `box` and what follows it belong to the events of the log."""

    at: Time | None
    event: Logged | Spoken
    count: Annotated[int, Field(ge=1, le=1000)] = 1  # reclaims between two times, their own unknown
    box: Text = ""
    purchase: Literal["spot", "on-demand"] | None = None
    pool: Text | None = None
    usd_per_hour: Annotated[float, Field(gt=0, le=500)] | None = None
    sells: bool | None = None
    why: Text = ""
    note: Text = ""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class AlarmTold:
    """A transition of the alarm, when it was told."""

    at: Time | None
    state: Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
    note: Text = ""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Reading:
    """Placement scores that a decision read: by zone id, or the best of them."""

    at: Time
    score: Annotated[int, Field(ge=1, le=10)] | None = None
    zones: dict[str, Annotated[int, Field(ge=1, le=10)]] = field(default_factory=dict)
    note: Text = ""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Woken:
    """When the watchdog heard of something: `of` is the event's own time."""

    at: Time
    wake: Text
    box: Text = ""
    of: Time | None = None


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Scan:
    """The schedule and what it read."""

    first: Time | None
    every_seconds: Annotated[int, Field(ge=60, le=3600)]
    scores: tuple[Reading, ...]
    note: Text = ""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Fleet:
    """The fleet at the start."""

    desired: Annotated[int, Field(ge=1, le=20)]
    pools: Annotated[tuple[Label, ...], Field(min_length=1)]
    lever_at_start: Annotated[int, Field(ge=0, le=100)]
    mode_at_start: Modes
    rearming_at_start: bool = False
    failovers_in_last_24h_at_start: Count = 0
    policy: Literal["alarm", "bridge"] = "alarm"
    thresholds: dict[str, int | bool] = field(default_factory=dict)  # of `watchdog` in cdk.json
    bridge: dict[str, int | bool] = field(default_factory=dict)
    note: Text = ""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class RecordedWindow:
    """What was observed, from when to when."""

    since: Time
    until: Time


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Receipt:
    """One recorded stretch of a fleet's life."""

    name: Text
    fleet: Fleet
    market: tuple[Happening, ...]
    boots: tuple[Seconds | None, ...]  # kernel to serving, in the order of the launches
    alarm: tuple[AlarmTold, ...]
    scan: Scan
    outcome: dict[str, Any]
    window: RecordedWindow | None = None  # None: from some time before the first thing that happens
    wakes: tuple[Woken, ...] = ()
    note: Text = ""

    def dumps(self) -> str:
        """The JSON text, defaults left out. Times keep their fractions."""
        return json.dumps(_plain(asdict(self)), indent=1) + "\n"


_SCHEMA = pydantic.TypeAdapter(Receipt)


def parsed(path: Path, raw: Any) -> Receipt:
    """A checked receipt; raises UserError with the first odd place."""
    try:
        return _SCHEMA.validate_json(json.dumps(raw))
    except pydantic.ValidationError as error:
        raise UserError(f"{path}: {_problem(error.errors(include_url=False)[0])}") from None


def _problem(detail: Any) -> str:
    parts = [part for part in detail["loc"] if not str(part).startswith(("function", "literal", "nullable"))]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
    match detail["type"]:
        case "missing":
            return f"{place}: missing"
        case "unexpected_keyword_argument" | "extra_forbidden":
            return f"{place}: unknown key"
    return one_line(f"{place or '(top)'}: {detail['input']!r:.40}: {detail['msg']}", 300)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case Mapping():
            return {key: _plain(item) for key, item in value.items() if item not in ("", None, (), {}) or key in KEPT}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value


KEPT = {"at", "first", "market", "boots", "alarm", "scores", "lever_at_start", "pinned", "rearm", "outcome"}
