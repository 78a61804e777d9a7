"""What the watchdog remembers between invocations: one JSON text in one SSM parameter, read first and written first.

A text that this version cannot read completely (damaged, newer, absent) is never overwritten: `loads` raises.
"""

import functools
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from fleet.config.settings import Settings
from fleet.core.untrusted import one_line

VERSION = 1
LIMIT_BYTES = 4096  # of a standard SSM parameter
WHY_BYTES = 120  # of a transition's reason, which may quote an operator
SHORT_WHY_BYTES = 40  # of the same in a mail that is owed, where the state is full: the code of a failed launch remains
DOUBLED = str.maketrans('"\\', "'/")  # what JSON would write as two
KEPT_PARTS = 8  # failovers of a part of the fleet: of more in one window, the oldest are no longer counted
OWED_MAILS = 4  # while SNS is down; past it the oldest is dropped, its decision record remains
HOURS_OF_A_DAY = 24


class StateError(Exception):
    """The state parameter is absent, damaged or newer than this code: a human looks before anything is changed."""


class Mode(StrEnum):
    """The three modes, in the order of the `Mode` metric's values 0, 1, 2."""

    ARMED = "spot-armed"
    FAILOVER = "on-demand-failover"
    PINNED = "on-demand-pinned"


class Kind(StrEnum):
    """Every transition: written first, then carried out, then mailed (unless it is one of `SILENT`)."""

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
    REFUSED = "launch-refused"
    TURNED = "turned"
    REMINDED = "still-on-demand"
    REPLACED = "many-replacements"


SILENT = {Kind.REARM, Kind.TURNED}  # what they come to is mailed
MOVES_LEVERS = frozenset(Kind) - {
    Kind.BOOT_LOOP, Kind.DRY, Kind.RESUMED, Kind.UNSUSPENDED, Kind.SUSPENDED, Kind.REPAIR_WAITS, Kind.REFUSED,
    Kind.REMINDED, Kind.REPLACED,
}  # fmt: skip
RESUMES_LAUNCH = {Kind.ARMED, Kind.RESUMED}
# Times of the state, and of its evidence, that a later group has to forget.
OF_A_GROUP = ("rearm_from", "launched_at", "dry_at", "repair_waits_since", "suspended_at")
OF_ITS_MARKET = ("drought_at", "dark_at", "warned_at")


@dataclass(frozen=True)
class Transition:
    """One transition, unfinished or with its mail owed. `why` holds the numbers it was decided on."""

    kind: Kind
    at: datetime
    why: str
    part: int = 0  # the lever that it left the fleet at, where that is neither all spot nor all on-demand


@dataclass(frozen=True)
class Evidence:
    """What is remembered of the market: the first two under both policies, the rest under the bridge policy."""

    drought_at: datetime | None = None  # first failed launch of what the lever asks for, boxes missing and none coming
    noticed: tuple[str, ...] = ()  # the last boxes with an interruption notice
    calm_seconds: int = 0  # how long spot has sold, less what flickers cost
    selling: tuple[str, ...] = ()  # zone ids that sold at the last reading
    warned: tuple[str, ...] = ()  # the last boxes with a rebalance recommendation, as many as should serve
    warned_at: datetime | None = None  # when, until it is decided on
    false_warnings: int = 0  # bridges running whose box had no notice in the end
    dark_at: datetime | None = None  # since when boxes were seen to be missing, while on spot


@dataclass(frozen=True)
class State:
    """Schema version 1. Times are UTC, whole seconds."""

    mode: Mode
    since: datetime | None = None  # when mode or expected lever last changed
    part: int = 0  # the lever where it stands between all spot and all on-demand; 0: at one of its ends
    failovers: tuple[datetime, ...] = ()  # those that the valve may still count, oldest first
    parts: tuple[tuple[datetime, int], ...] = ()  # of those, what bought less than the whole fleet, in percent of it
    cooldown_from: datetime | None = None  # last failover or failed re-arm; None: waived
    streak: int = 0  # scans running with a score that is good enough
    scored_at: datetime | None = None
    rearm_from: datetime | None = None  # the re-arm phase is under way since
    trial: bool = False  # that re-arm asks a market that its scores, or a refusal, speak against
    blocked: str = ""  # row of the table of failures that refused the last return, which time does not mend
    on_demand_since: datetime | None = None  # off spot, whatever was tried meanwhile
    reminders: int = 0  # days of that which have been mailed
    replaced_on: str = ""  # the UTC day of which recommendations are counted
    replaced: int = 0
    recommended: tuple[str, ...] = ()  # ends of the last ids among them
    refresh_id: str | None = None  # the instance refresh that the re-arm started
    launched_at: datetime | None = None  # last launch that reached service
    abandoned: tuple[tuple[str, datetime], ...] = ()  # boxes that failed in their boot since then
    dry_at: datetime | None = None  # first launch since then whose refusal was mailed
    refused: tuple[str, ...] = ()  # what those mails were of: purchase and row of the table of failures
    evidence: Evidence = Evidence()
    turns: int = 0  # of the lever since a failover, while neither kind has sold
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
    def exposed(self) -> bool:
        """Whether any of the fleet should run on spot now, so that what is missing may have to be bought."""
        return self.armed or (self.mode is Mode.FAILOVER and self.part > 0)

    @property
    def expected_lever(self) -> int:
        """On-demand percentage that parameter and group should show."""
        return self.part or (0 if self.armed or self.turns % 2 else 100)

    def with_notice(self, box: str, listed: Collection[str]) -> Self:
        """This state, once AWS or we told that box to go: its boot, abandoned for that, tells nothing of boots.

        Other notices are forgotten with their boxes: `listed` are those that the group still has.
        """
        seen = self.evidence
        if box not in seen.noticed:
            seen = replace(seen, noticed=(*(other for other in seen.noticed if other in listed), box))
        abandoned = tuple((other, at) for other, at in self.abandoned if other != box)
        return replace(self, evidence=seen, abandoned=abandoned)

    @functools.cached_property
    def _begun(self) -> tuple[datetime, ...]:
        """When began what a later group has to forget."""
        begun = [getattr(self, name) for name in OF_A_GROUP] + [getattr(self.evidence, name) for name in OF_ITS_MARKET]
        begun += [self.unfinished.at if self.unfinished else None, self.since if self.turns else None]
        return tuple(filter(None, [*begun, *[at for _, at in self.abandoned]]))

    def of_group(self, created_at: datetime) -> Self:
        """This state less what an earlier group began: the parameter outlives a fleet. Mode and history stay."""

        def ours(at: datetime | None) -> datetime | None:
            return at if at and at >= created_at else None

        if all(map(ours, self._begun)) and (self.dry_at or not self.refused):
            return self  # as nearly always, at every wake
        kept: dict[str, Any] = {name: ours(getattr(self, name)) for name in OF_A_GROUP}
        seen: dict[str, Any] = {name: ours(getattr(self.evidence, name)) for name in OF_ITS_MARKET}
        return replace(
            self,
            **kept,
            refresh_id=self.refresh_id if kept["rearm_from"] or not self.rearm_from else None,
            abandoned=tuple((box, at) for box, at in self.abandoned if ours(at)),
            refused=self.refused if kept["dry_at"] else (),
            turns=self.turns if ours(self.since) else 0,
            evidence=replace(self.evidence, **seen),
            unfinished=self.unfinished if self.unfinished and ours(self.unfinished.at) else None,
        )

    def recent_failovers(self, settings: Settings, now: datetime) -> tuple[datetime, ...]:
        """Those that the valve counts."""
        window = timedelta(seconds=settings.watchdog.valve_window_seconds)
        return tuple(at for at in self.failovers if now - at <= window)

    def fleets_bought(self, settings: Settings, now: datetime) -> float:
        """What the valve counts: failovers in its window, each as the share of the fleet that it bought."""
        parts = dict(self.parts)
        return sum(parts.get(at, 100) for at in self.recent_failovers(settings, now)) / 100

    def failed_over(self, percent: int, settings: Settings, now: datetime, *, weight: int = 1) -> Self:
        """This state with one more failover, of that share of the fleet; those that no longer count are forgotten."""
        recent, parts = self.recent_failovers(settings, now), dict(self.parts)
        while sum(parts.get(at, 100) for at in recent[1:]) >= 100 * settings.valve_failovers:
            recent = recent[1:]
        forgotten = [at for at in recent if at in parts][:-KEPT_PARTS]
        recent = tuple(at for at in recent if at not in forgotten)
        parts = {at: parts[at] for at in recent if at in parts}
        if percent < 100:
            parts[now] = percent
        return replace(self, failovers=(*recent, *[now] * weight), parts=tuple(parts.items()))

    def widened(self, percent: int) -> Self:
        """This state, once the last failover has bought that much more of the fleet."""
        parts = dict(self.parts)
        if not self.failovers or (last := self.failovers[-1]) not in parts:
            return self
        parts[last] += percent
        return replace(self, parts=tuple((at, share) for at, share in parts.items() if share < 100))

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

    def begin(self, kind: Kind, at: datetime, why: str, *, silent: bool = False) -> Self:
        """This state with a transition to carry out, and its mail owed."""
        transition = Transition(kind, at, cut(one_line(why).translate(DOUBLED), WHY_BYTES), self.part)
        owed = self.owed if silent or kind in SILENT else (*self.owed, transition)[-OWED_MAILS:]
        return replace(self, unfinished=transition, owed=owed)

    def dumps(self) -> str:
        """The JSON text, within LIMIT_BYTES.

        What is too long (forty boxes at once) loses, in this order and only as much as it must: the ends of the
        reasons of mails that are owed; the oldest notices, which the evidence of a boot makes up for; the oldest
        warnings.
        """
        return next(text for state in self._shorter() if len((text := state._text()).encode()) <= LIMIT_BYTES)

    def _shorter(self) -> Iterator[Self]:
        yield self
        state = replace(self, owed=tuple(replace(mail, why=cut(mail.why, SHORT_WHY_BYTES)) for mail in self.owed))
        for dropped in range(len(self.evidence.noticed) + 1):
            yield replace(state, evidence=replace(self.evidence, noticed=self.evidence.noticed[dropped:]))
        for dropped in range(len(self.evidence.warned)):
            warned = self.evidence.warned[dropped:]
            yield replace(state, evidence=replace(self.evidence, noticed=(), warned=warned))

    def _text(self) -> str:
        """All of it, defaults left out."""
        raw, parts = {"version": VERSION, **_plain(self)}, dict(self.parts)
        raw |= {
            "failovers": [_failover(at, parts) for at in self.failovers],
            "abandoned": dict(raw.get("abandoned", ())),
        }
        raw.pop("parts", None)  # they stand beside their failovers
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
        failovers = raw.pop("failovers", ())
        known: dict[str, Any] = {
            "mode": Mode(raw.pop("mode")),
            "failovers": tuple(_time(text.partition(" ")[0]) for text in failovers),
            "parts": tuple(map(_part, dict.fromkeys(text for text in failovers if " " in text))),
            "abandoned": tuple((box, _time(at)) for box, at in raw.pop("abandoned", {}).items()),
            "refresh_id": raw.pop("refresh_id", None),
            "evidence": Evidence(**_values(Evidence, raw.pop("evidence", {}))),
            "unfinished": _transition(unfinished) if (unfinished := raw.pop("unfinished", None)) else None,
            "owed": tuple(map(_transition, raw.pop("owed", ()))),
        }
        return State(**known, **_values(State, raw))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise StateError(f"the state cannot be read ({type(error).__name__}: {error})") from error


def cut(text: str, most: int) -> str:
    """The text's first bytes, to a whole character."""
    return text.encode()[:most].decode(errors="ignore")


DEFAULTS: dict[type, dict[str, Any]] = {
    kind: {each.name: each.default for each in fields(kind)} for kind in (State, Evidence, Transition)
}


def _plain(value: Any) -> Any:
    """In JSON's own types; of what has fields, those that are not at their default."""
    if isinstance(value, datetime):
        return _text(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if (defaults := DEFAULTS.get(type(value))) is None:
        return value
    return {name: _plain(held) for name, held in vars(value).items() if held != defaults.get(name, held)}


def _values(kind: Any, raw: dict[str, Any]) -> dict[str, Any]:
    """Each of the type that its field's default has, a time where that is None; an unknown key is a KeyError."""
    defaults = DEFAULTS[kind]
    return {key: _time(value) if defaults[key] is None else type(defaults[key])(value) for key, value in raw.items()}


@functools.lru_cache(maxsize=64)  # most times of a state stay as they were
def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@functools.lru_cache(maxsize=64)
def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"no time zone in {text!r}")
    return at


def _failover(at: datetime, parts: dict[datetime, int]) -> str:
    """Its time; where it bought a part of the fleet, the percent behind it."""
    return f"{_text(at)} {parts[at]}" if at in parts else _text(at)


def _part(text: str) -> tuple[datetime, int]:
    at, percent = text.split(" ")
    return _time(at), int(percent)


def _transition(raw: dict[str, Any]) -> Transition:
    return Transition(Kind(raw["kind"]), _time(raw["at"]), raw["why"], int(raw.get("part", 0)))
