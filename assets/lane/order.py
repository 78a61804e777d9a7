"""Who is next, and what stands before a newcomer. Pure.

Class first, then the caller who was served least, then arrival. Who is overdue has every other turn, the oldest first:
so nobody starves, and a crowd of old background work does not starve those who are in a hurry.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from lane.estimates import Span
from relay.lane_headers import INTERACTIVE

FORGOTTEN_SECONDS = 0.5  # of service: who has used less has used nothing


@dataclass
class Entry:
    """One request in the line or at the engine. Times on one clock that never goes back, seconds."""

    id: str
    caller: str
    kind: str
    arrived: float
    deadline: float  # streaming: of its first token; else of the whole answer
    stream: bool
    limit: int
    prompt_tokens: int
    sliceable: bool = False
    continued: bool = False  # where it is cut, another target goes on
    queued: float = 0.0  # since when it waits: its arrival, or its last pause
    began: Optional[float] = None  # its turn at the engine; None: it waits
    first_token: Optional[float] = None  # of this turn
    decoded: int = 0
    delivered: int = 0  # tokens that its caller has
    how: str = ""  # it left the line; empty: it is here

    def __post_init__(self) -> None:
        self.queued = self.queued or self.arrived

    @property
    def keeps_its_place(self) -> bool:
        """Its caller has part of the answer: it can be ended, but not sent elsewhere."""
        return self.stream and self.delivered > 0


class Served:
    """Seconds of the engine that each caller had, halved every half life."""

    def __init__(self, half_life_seconds: float) -> None:
        self._half_life = half_life_seconds
        self._seconds: dict[str, float] = {}
        self._at = 0.0

    def charge(self, caller: str, seconds: float, now: float) -> None:
        """That caller had so much more."""
        faded = 0.5 ** (max(0.0, now - self._at) / self._half_life)
        self._at = max(now, self._at)
        kept = {each: had * faded for each, had in self._seconds.items() if had * faded > FORGOTTEN_SECONDS}
        kept[caller] = kept.get(caller, 0.0) + max(0.0, seconds)
        self._seconds = kept

    def seconds(self) -> dict[str, float]:
        """By caller; all have faded alike since."""
        return dict(self._seconds)


def pick(
    waiting: Sequence[Entry], served: Mapping[str, float], now: float, overdue_seconds: float, *, old_turn: bool
) -> Optional[Entry]:
    """Who is next. `old_turn`: the last turn was not one that age alone had given."""
    if not waiting:
        return None
    overdue = [entry for entry in waiting if now - entry.queued >= overdue_seconds]
    if overdue and old_turn:
        return min(overdue, key=lambda entry: entry.queued)
    return min(
        waiting, key=lambda entry: (entry.kind != INTERACTIVE, served.get(entry.caller, 0.0), entry.queued, entry.id)
    )


def by_age(entry: Entry, now: float, overdue_seconds: float) -> bool:
    """Whether a turn that it gets now is one of the old."""
    return now - entry.queued >= overdue_seconds


def turns(
    waiting: Sequence[Entry],
    served: Mapping[str, float],
    now: float,
    overdue_seconds: float,
    left: Callable[[Entry], Span],
    *,
    old_turn: bool,
) -> Iterator[tuple[Entry, Span]]:
    """All in the order of their turns, each with what those take that are before it, if nobody comes or goes."""
    rest, had, total = list(waiting), dict(served), Span()
    while True:
        at = now + total.mean
        entry = pick(rest, had, at, overdue_seconds, old_turn=old_turn)
        if entry is None:
            return
        yield entry, total
        rest.remove(entry)
        span = left(entry)
        old_turn = not by_age(entry, at, overdue_seconds)
        had[entry.caller] = had.get(entry.caller, 0.0) + span.mean
        total = total + span
