"""What the watchdog remembers between invocations: one JSON text in one SSM parameter, read first and written first.

A text that this version cannot read completely (damaged, newer, absent) is never overwritten: `loads` raises.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from lambdas.watchdog.signals import one_line

VERSION = 1
LIMIT_BYTES = 4096  # of a standard SSM parameter
WHY_BYTES = 160  # of a transition's reason, which may quote an operator
OWED_MAILS = 5  # while SNS is down; past it the oldest is dropped, its decision record remains


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
    REPAIRED = "repaired"
    BOOT_LOOP = "boot-loop"
    DRY = "on-demand-dry"


@dataclass(frozen=True)
class Transition:
    """One transition, unfinished or with its mail owed. `why` holds the numbers it was decided on."""

    kind: Kind
    at: datetime
    why: str


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

    def begin(self, kind: Kind, at: datetime, why: str) -> Self:
        """This state with a transition to carry out, and its mail owed."""
        transition = Transition(kind, at, one_line(why).encode()[:WHY_BYTES].decode(errors="ignore"))
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
            abandoned=tuple((box, _time(at)) for box, at in raw.pop("abandoned", {}).items()),
            unfinished=_transition(unfinished) if (unfinished := raw.pop("unfinished", None)) else None,
            owed=tuple(map(_transition, raw.pop("owed", ()))),
            **{key: _time(value) for key, value in raw.items()},  # an unknown key is a TypeError: unreadable
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"the state cannot be read ({type(error).__name__}: {error})") from error


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
