"""What the watchdog remembers between invocations: one JSON text in one SSM parameter, read first and written first.

A text that this version cannot read completely (damaged, newer, absent) is never overwritten: `loads` raises.
"""

import functools
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from fleet.outsiders import one_line
from fleet.settings import Settings

VERSION = 1
LIMIT_BYTES = 4096  # of a standard SSM parameter
WHY_BYTES = 120  # of a transition's reason, which may quote an operator
DOUBLED = str.maketrans('"\\', "'/")  # what JSON would write as two
OWED_MAILS = 4  # while SNS is down; past it the oldest is dropped, its decision record remains
REMEMBERED_NOTICES = 20  # boxes with two minutes to live: as many as a boot loop may count
HOURS_OF_A_DAY = 24


class StateError(Exception):
    """The state parameter is absent, damaged or newer than this code: a human looks before anything is changed."""


class Mode(StrEnum):
    """The three modes, in the order of the `Mode` metric's values 0, 1, 2."""

    ARMED = "spot-armed"
    FAILOVER = "on-demand-failover"
    PINNED = "on-demand-pinned"


class Kind(StrEnum):
    """Every transition: written first, then carried out, then mailed (all but REARM: its phase mails when it ends)."""

    FAILOVER = "failover"
    REARM = "re-arm"
    REARMED = "re-armed"
    FELL_BACK = "fell-back"
    GAVE_UP = "gave-up"
    PINNED = "pinned"
    ARMED = "armed"
    RESUMED = "resumed"
    UNSUSPENDED = "unsuspended"
    SUSPENDED = "suspended"
    REPAIRED = "repaired"
    REPAIR_WAITS = "repair-waits"
    BOOT_LOOP = "boot-loop"
    DRY = "on-demand-dry"
    BRIDGED = "bridged"
    LIMITED = "on-demand-limit"


MOVES_LEVERS = frozenset(Kind) - {
    Kind.BOOT_LOOP, Kind.DRY, Kind.RESUMED, Kind.UNSUSPENDED, Kind.SUSPENDED, Kind.REPAIR_WAITS,
}  # fmt: skip
RESUMES_LAUNCH = {Kind.ARMED, Kind.RESUMED}


@dataclass(frozen=True)
class Transition:
    """One transition, unfinished or with its mail owed. `why` holds the numbers it was decided on."""

    kind: Kind
    at: datetime
    why: str


@dataclass(frozen=True)
class Evidence:
    """What is remembered of the market: `noticed` under both policies, the rest under the bridge policy."""

    drought_at: datetime | None = None  # first launch that failed with nothing serving and nothing on its way
    noticed: tuple[str, ...] = ()  # the last boxes with an interruption notice
    calm_seconds: int = 0  # how long spot has sold, less what flickers cost
    selling: tuple[str, ...] = ()  # zone ids that sold at the last reading
    bar_seconds: int = 0  # calm that a return needs; 0: as set
    warned: str = ""  # the last box with a rebalance recommendation
    warned_at: datetime | None = None  # when, until it is decided on
    idle_warnings: int = 0  # bridges running whose box had no notice in the end


@dataclass(frozen=True)
class State:
    """Schema version 1. Times are UTC, whole seconds."""

    mode: Mode
    since: datetime | None = None  # when mode or expected lever last changed
    failovers: tuple[datetime, ...] = ()  # those that the valve may still count, oldest first
    cooldown_from: datetime | None = None  # last failover or failed re-arm; None: waived
    streak: int = 0  # scans running with a score that is good enough
    scored_at: datetime | None = None
    rearm_from: datetime | None = None  # the re-arm phase is under way since
    refresh_id: str | None = None  # the instance refresh that the re-arm started
    launched_at: datetime | None = None  # last launch that reached service
    abandoned: tuple[tuple[str, datetime], ...] = ()  # boxes given up by their launch hook since then
    dry_at: datetime | None = None  # first on-demand launch refused since then
    evidence: Evidence = Evidence()
    metered_at: datetime | None = None  # on-demand hours are counted up to here; only where the day has a limit
    metered_seconds: int = 0  # of that day
    repair_waits_since: datetime | None = None  # for a deploy, while a box serves: mailed then
    suspended_at: datetime | None = None  # a suspension of ours or of others: mailed then; of AWS: seen first
    resumed: int = 0  # suspensions of AWS that were resumed since a box last came into service
    unfinished: Transition | None = None
    owed: tuple[Transition, ...] = ()  # mails

    @property
    def armed(self) -> bool:
        """Whether spot is what the fleet should run on now, so that a drought calls for a failover."""
        return self.mode is Mode.ARMED or self.rearm_from is not None

    @property
    def expected_lever(self) -> int:
        """On-demand percentage that parameter and group should show."""
        return 0 if self.armed else 100

    def with_notice(self, box: str) -> Self:
        """This state, once AWS or we told that box to go: its boot, abandoned for that, tells nothing of boots."""
        seen = self.evidence
        if box not in seen.noticed:
            seen = replace(seen, noticed=(*seen.noticed, box)[-REMEMBERED_NOTICES:])
        abandoned = tuple((other, at) for other, at in self.abandoned if other != box)
        return replace(self, evidence=seen, abandoned=abandoned)

    def of_group(self, created_at: datetime) -> Self:
        """This state less what an earlier group began: the parameter outlives a fleet. Mode and history stay."""

        def ours(at: datetime | None) -> datetime | None:
            return at if at and at >= created_at else None

        rearm_from = ours(self.rearm_from)
        return replace(
            self,
            rearm_from=rearm_from,
            refresh_id=self.refresh_id if rearm_from or not self.rearm_from else None,
            launched_at=ours(self.launched_at),
            abandoned=tuple((box, at) for box, at in self.abandoned if ours(at)),
            dry_at=ours(self.dry_at),
            repair_waits_since=ours(self.repair_waits_since),
            suspended_at=ours(self.suspended_at),
            evidence=replace(
                self.evidence, drought_at=ours(self.evidence.drought_at), warned_at=ours(self.evidence.warned_at)
            ),
            unfinished=self.unfinished if self.unfinished and ours(self.unfinished.at) else None,
        )

    def recent_failovers(self, settings: Settings, now: datetime) -> tuple[datetime, ...]:
        """Those that the valve counts."""
        window = timedelta(seconds=settings.watchdog.valve_window_seconds)
        return tuple(at for at in self.failovers if now - at <= window)

    def on_demand_seconds(self, now: datetime) -> int:
        """On-demand time of this UTC day so far, from failover to the end of the re-arm."""
        if self.metered_at is None:
            return 0
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        before = self.metered_seconds if self.metered_at >= midnight else 0
        runs = self.mode is Mode.FAILOVER
        return before + (int((now - max(self.metered_at, midnight)).total_seconds()) if runs else 0)

    def metered(self, before: Self, now: datetime) -> Self:
        """This state, which follows `before`, with the day's on-demand time brought up to now."""
        if Mode.FAILOVER not in {self.mode, before.mode}:
            return self
        return replace(self, metered_at=now, metered_seconds=before.on_demand_seconds(now))

    def on_demand_spent(self, settings: Settings, now: datetime) -> str:
        """Why no on-demand box may run for the rest of the UTC day; empty: one may."""
        hours, used = settings.watchdog.on_demand_hours_per_day, self.on_demand_seconds(now)
        if hours >= HOURS_OF_A_DAY or used < hours * 3600:
            return ""
        return f"{used / 3600:.1f} h on-demand today, limit {hours} h"

    def begin(self, kind: Kind, at: datetime, why: str) -> Self:
        """This state with a transition to carry out, and its mail owed."""
        transition = Transition(kind, at, one_line(why).translate(DOUBLED).encode()[:WHY_BYTES].decode(errors="ignore"))
        owed = self.owed if kind is Kind.REARM else (*self.owed, transition)[-OWED_MAILS:]
        return replace(self, unfinished=transition, owed=owed)

    def dumps(self) -> str:
        """The JSON text, defaults left out. Fits LIMIT_BYTES whatever happened (the tests hold it to that)."""
        raw: dict[str, Any] = {
            "version": VERSION,
            "mode": self.mode,
            "since": _text(self.since),
            "failovers": [_text(at) for at in self.failovers],
            "cooldown_from": _text(self.cooldown_from),
            "streak": self.streak,
            "scored_at": _text(self.scored_at),
            "rearm_from": _text(self.rearm_from),
            "refresh_id": self.refresh_id,
            "launched_at": _text(self.launched_at),
            "abandoned": {box: _text(at) for box, at in self.abandoned},
            "dry_at": _text(self.dry_at),
            "repair_waits_since": _text(self.repair_waits_since),
            "suspended_at": _text(self.suspended_at),
            "resumed": self.resumed,
            "evidence": _plain(self.evidence),
            "metered_at": _text(self.metered_at),
            "metered_seconds": self.metered_seconds,
            "unfinished": self.unfinished and _raw(self.unfinished),
            "owed": [_raw(mail) for mail in self.owed],
        }
        return json.dumps(
            {key: value for key, value in raw.items() if value}, ensure_ascii=False, separators=(",", ":")
        )


def loads(text: str | None) -> State:
    """Read what `dumps` wrote; raises StateError."""
    if text is None:
        raise StateError("the state parameter does not exist")
    return _read(text)


@functools.lru_cache(maxsize=4)  # most invocations find what the last one left
def _read(text: str) -> State:
    try:
        raw = json.loads(text)
        version = raw.pop("version")
        if version != VERSION:
            raise StateError(f"the state has schema version {version!r}, this watchdog reads {VERSION}")
        return State(
            mode=Mode(raw.pop("mode")),
            failovers=tuple(map(_time, raw.pop("failovers", ()))),
            streak=int(raw.pop("streak", 0)),
            refresh_id=raw.pop("refresh_id", None),
            evidence=_evidence(raw.pop("evidence", {})),
            metered_seconds=int(raw.pop("metered_seconds", 0)),
            resumed=int(raw.pop("resumed", 0)),
            abandoned=tuple((box, _time(at)) for box, at in raw.pop("abandoned", {}).items()),
            unfinished=_transition(unfinished) if (unfinished := raw.pop("unfinished", None)) else None,
            owed=tuple(map(_transition, raw.pop("owed", ()))),
            **{key: _time(value) for key, value in raw.items()},  # an unknown key is a TypeError: unreadable
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise StateError(f"the state cannot be read ({type(error).__name__}: {error})") from error


def _plain(evidence: Evidence) -> dict[str, Any]:
    raw = {
        **vars(evidence),
        "drought_at": _text(evidence.drought_at),
        "warned_at": _text(evidence.warned_at),
    }
    return {key: value for key, value in raw.items() if value}


def _evidence(raw: dict[str, Any]) -> Evidence:
    known: dict[str, Any] = {key: _time(raw.pop(key)) for key in ("drought_at", "warned_at") if key in raw}
    known |= {key: tuple(raw.pop(key)) for key in ("noticed", "selling") if key in raw}
    return Evidence(**known, **raw)


def _text(at: datetime | None) -> str | None:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"no time zone in {text!r}")
    return at


def _raw(transition: Transition) -> dict[str, str | None]:
    return {"kind": transition.kind, "at": _text(transition.at), "why": transition.why}


def _transition(raw: dict[str, str]) -> Transition:
    return Transition(Kind(raw["kind"]), _time(raw["at"]), raw["why"])
