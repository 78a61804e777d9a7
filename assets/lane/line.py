"""The line: arrivals, turns, slices, deadlines and drain of one engine that serves one request at a time. Pure.

Nobody waits without a bound: who would not be served in time is told at once, and who was not is told at its deadline.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Optional

from lane.config import Config
from lane.estimates import Estimates, Span
from lane.order import Entry, Served, by_age, pick, turns
from relay.lane_headers import INTERACTIVE

RETRY_MOST_SECONDS = 120  # SDKs give up above it
FAR_LESS = 0.5  # of what the running one has left: who needs no more is let by
REFUSED_MOST = 1000  # requests whose refusal is remembered: each counts once, however often it is asked for
LOOK_SECONDS = 0.1  # while leaving: who cannot finish is handed back within it
NOBODY: Mapping[str, float] = {}
SURE = 0.85  # of the time left is counted on, when leaving


class Why(str, Enum):
    """Why a request is not, or no longer, in the line."""

    FULL = "line_full"
    LATE = "would_be_late"  # at its arrival, by the estimate
    DEADLINE = "deadline"  # it waited until then
    DRAINING = "draining"
    DROPPED = "dropped"  # by an operator
    REFUSED = "refused"  # it asked what is not served
    ENGINE = "engine"  # which failed
    SLOW = "slow_reader"


@dataclass(frozen=True)
class Busy:
    """A refusal of the line: the wait that is expected, and when trying again may help."""

    why: Why
    wait_seconds: float
    retry_after_seconds: int


class Line:
    """Everybody who waits, and the one who is served."""

    def __init__(self, config: Config, estimates: Estimates) -> None:
        self._config, self.estimates = config, estimates
        self._served = Served(config.served_half_life_seconds)
        self._old_turn = True
        self._slice_ends: Optional[float] = None
        self.waiting: list[Entry] = []
        self.running: Optional[Entry] = None
        self.leaves_at: Optional[float] = None  # draining: the engine is gone then
        self.counts: Counter[str] = Counter()
        self._refused: dict[tuple[str, Why], None] = {}  # the last ones, by request, in their order

    # --- who comes ---

    def arrive(self, entry: Entry, now: float) -> Optional[Busy]:
        """Take it in; or say why not. Its id must be new."""
        busy = self._busy(entry, now)
        if busy:
            entry.how = busy.why.value
            if (entry.id, busy.why) in self._refused:  # a gateway asks for it again, many times a second
                return busy
            self._refused[entry.id, busy.why] = None
            if len(self._refused) > REFUSED_MOST:
                del self._refused[next(iter(self._refused))]
            self.counts[busy.why.value] += 1
        else:
            self.waiting.append(entry)
        self.counts["arrived"] += 1
        return busy

    def _busy(self, entry: Entry, now: float) -> Optional[Busy]:
        wait = self.wait(entry, now)
        needs = wait + self.estimates.prompt(entry.prompt_tokens)
        if not entry.stream:
            needs = needs + self.estimates.answer(entry.limit)
        late = now + needs.p95 - entry.deadline
        if self.leaves_at is not None:
            return Busy(Why.DRAINING, wait.mean, 1)  # another box is asked at once
        if len(self.waiting) >= self._config.depth_most:
            return Busy(Why.FULL, wait.mean, _retry(max(late, self.estimates.answer(entry.limit).mean)))
        if not (self.running or self.waiting):
            late = now + needs.mean - entry.deadline  # nobody could begin sooner
        if late > 0:
            return Busy(Why.LATE, wait.mean, _retry(late))
        return None

    def wait(self, entry: Entry, now: float, *, last: bool = False) -> Span:
        """Until a newcomer's turn begins. `last`: he was served more than anybody who waits."""
        most = {entry.caller: math.inf} if last else {}
        ahead = next(ahead for each, ahead in self._turns([*self.waiting, entry], now, most) if each is entry)
        return self._running_left(entry, now) + ahead

    def _turns(
        self, waiting: list[Entry], now: float, most: Mapping[str, float] = NOBODY
    ) -> Iterator[tuple[Entry, Span]]:
        served, overdue = {**self._served.seconds(), **most}, self._config.overdue_seconds
        return turns(waiting, served, now, overdue, lambda each: self.left(each, now), old_turn=self._old_turn)

    def expected(self, now: float) -> list[tuple[Entry, float]]:
        """Everybody in the order of the turns, each with the seconds until it is done, if nobody comes or goes."""
        running = [(self.running, Span())] if self.running else []
        waiting = ((entry, self._running_left(entry, now) + ahead) for entry, ahead in self._turns(self.waiting, now))
        order = [*running, *waiting]
        return [(entry, (ahead + self.left(entry, now)).mean) for entry, ahead in order]

    def _running_left(self, entry: Entry, now: float) -> Span:
        if self.running is None:
            return Span()
        left = self.left(self.running, now)
        if self._slice_ends is not None and self._lets_by(entry, now):
            return Span(min(left.mean, max(0.0, self._slice_ends - now)), 0.0)
        return left

    def left(self, entry: Entry, now: float) -> Span:
        """Seconds of the engine that an entry still needs."""
        decoded, prompt = entry.decoded, Span()
        if not decoded:
            prompt = self.estimates.prompt(entry.prompt_tokens)
        if entry.began is not None and not decoded:
            spent = now - entry.began
            if not entry.stream and spent > prompt.mean:  # it tells nothing on the way
                decoded = int((spent - prompt.mean) / self.estimates.token_seconds)
            prompt = prompt.minus(spent)
        return prompt + self.estimates.answer(entry.limit, min(decoded, entry.limit))

    # --- who is served ---

    def take(self, now: float) -> Optional[Entry]:
        """The next one begins its turn; None while somebody is served or nobody waits."""
        if self.running is not None:
            return None
        entry = pick(self.waiting, self._served.seconds(), now, self._config.overdue_seconds, old_turn=self._old_turn)
        if entry is None:
            return None
        self._old_turn = not by_age(entry, now, self._config.overdue_seconds)
        self.waiting.remove(entry)
        self.running, entry.began, entry.first_token = entry, now, None
        self._slice_ends = now + self._config.slice_seconds if entry.sliceable else None
        return entry

    def decoded(self, entry: Entry, tokens: int, now: float) -> None:
        """The engine gave so many more."""
        if entry.first_token is None:
            entry.first_token = now
        entry.decoded += tokens

    def yields(self, now: float) -> bool:
        """After its slice, whether the running one lets somebody by."""
        return any(self._lets_by(entry, now) for entry in self.waiting)

    def _lets_by(self, entry: Entry, now: float) -> bool:
        running = self.running
        if running is None or not running.sliceable:
            return False
        if entry.kind != running.kind:
            higher = entry.kind == INTERACTIVE
            return higher or by_age(entry, now, self._config.overdue_seconds)
        return self.left(entry, now).mean <= FAR_LESS * self.left(running, now).mean

    def goes_on(self, now: float) -> None:
        """The running one has another slice, since nobody is let by."""
        self._slice_ends = now + self._config.slice_seconds

    def pause(self, entry: Entry, now: float) -> None:
        """Back into the line: behind those who waited already, ahead of those who come."""
        self._charge(entry, now)
        entry.began, entry.queued = None, now
        self.running = None
        self.waiting.append(entry)
        self.counts["paused"] += 1

    def leave(self, entry: Entry, now: float, how: str) -> None:
        """It is over: answered, handed back, dropped, left by its caller. Whoever is not here has left already."""
        if entry is self.running:
            self._charge(entry, now)
            self.running = None
        elif entry in self.waiting:
            self.waiting.remove(entry)
        else:
            return
        entry.how = how
        self.counts[how] += 1

    def _charge(self, entry: Entry, now: float) -> None:
        self._served.charge(entry.caller, now - (now if entry.began is None else entry.began), now)

    # --- who has waited too long, and who cannot finish ---

    def late(self, now: float) -> list[Entry]:
        """Those whose deadline came while they waited; with part of an answer out, the deadline is kept already."""
        return [entry for entry in self.waiting if now >= entry.deadline and not entry.keeps_its_place]

    def next_deadline(self) -> Optional[float]:
        """When `late` is next to be asked."""
        return min((entry.deadline for entry in self.waiting if not entry.keeps_its_place), default=None)

    def leaving(self, leaves_at: float) -> None:
        """The engine goes at that time: nobody new comes in. A second word can only bring it forward."""
        self.leaves_at = leaves_at if self.leaves_at is None else min(self.leaves_at, leaves_at)

    def handed_back(self, now: float) -> list[Entry]:
        """While leaving: who cannot finish, and has delivered nothing or is continued elsewhere. Other streams stay."""
        if self.leaves_at is None:
            return []
        budget, back = self.leaves_at - now, []
        served, waiting, old_turn = self._served.seconds(), list(self.waiting), self._old_turn
        entry: Optional[Entry] = self.running
        while True:
            if entry is not None:
                needs = max(self.left(entry, now).mean, self._unmeasured(entry, now)) / SURE
                if needs > budget and (entry.continued or not entry.keeps_its_place):
                    back.append(entry)
                else:
                    budget -= needs
                    served[entry.caller] = served.get(entry.caller, 0.0) + needs
            entry = pick(waiting, served, now, self._config.overdue_seconds, old_turn=old_turn)
            if entry is None:
                return back
            old_turn = not by_age(entry, now, self._config.overdue_seconds)
            waiting.remove(entry)

    def _unmeasured(self, entry: Entry, now: float) -> float:
        """Seconds that its prompt may still take, where the estimate is none: the engine may be busy to the end."""
        spent = 0.0 if entry.began is None else now - entry.began
        return 0.0 if entry.decoded else max(0.0, self.estimates.unmeasured(entry.prompt_tokens) - spent)

    def resumed(self) -> None:
        """The engine stays after all."""
        self.leaves_at = None


def _retry(seconds: float) -> int:
    return int(min(RETRY_MOST_SECONDS, max(1, math.ceil(seconds))))
