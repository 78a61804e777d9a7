"""Lengths as the fleet's answers have them: median 9.4 s, p95 13.5 s on an A10G; the L4's are the same, slower."""

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fleet.config import cards
from lane.estimates import Estimates
from lane.line import Line
from lane.order import Entry
from relay.lane_headers import INTERACTIVE
from tests.lane.simulated import CONFIG

MEDIAN_TOKENS, SPREAD = cards.ANSWER_TOKENS, cards.SPREAD
A10G, L4 = (card.answer_seconds / MEDIAN_TOKENS for card in (cards.A10G, cards.L4))  # seconds a token


def tokens(draw: random.Random) -> int:
    """Of one answer."""
    return max(1, round(MEDIAN_TOKENS * draw.lognormvariate(0, SPREAD)))


@dataclass
class Told:
    """What requests were told, and what came of it. Times in seconds."""

    errors: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)  # errors as a part of the wait
    counts: Counter[str] = field(default_factory=Counter)

    def rows(self) -> dict[str, Any]:
        """For a table."""
        middle = len(self.errors) // 2
        taken, busy = self.counts["taken"], self.counts["busy"]
        return {
            "waits": len(self.errors),
            "median error s": round(sorted(self.errors)[middle], 2),
            "median error share": round(sorted(self.shares)[middle], 3),
            "told in time": taken,
            "of these in time": round(self.counts["in time"] / max(1, taken), 4),
            "told busy": busy,
            "each alone would have made it": round(self.counts["alone"] / max(1, busy), 4),
            "would have, had nobody been refused": round(self.counts["together"] / max(1, busy), 4),
        }


class Day:
    """One box, bursts of callers, lengths as above: what each is told at its arrival against what then happens."""

    def __init__(self, seed: int, token_seconds: float, bursts: tuple[int, ...], gap_seconds: float) -> None:
        self._draw = random.Random(seed)  # noqa: S311  no secret
        self._each, self._bursts, self._gap = token_seconds, bursts, gap_seconds
        self.line = Line(CONFIG, Estimates(CONFIG))
        self._lengths: dict[str, int] = {}
        self._hoped: dict[str, float] = {}
        self._ends = math.inf
        self.told = Told()
        self.now = self._free = 0.0

    def run(self, requests: int, learn: int = 60) -> Told:
        """So many requests, after some that only teach."""
        due, number = self._draw.expovariate(1 / self._gap), 0
        while number < requests + learn:
            if self._ends <= due:
                self._finish()
                continue
            self.now = due
            due += self._draw.expovariate(1 / self._gap)
            for _ in range(self._draw.choice(self._bursts)):
                number += 1
                self._arrive(str(number), counts=number > learn)
            self._begin()
        return self.told

    def _arrive(self, id: str, *, counts: bool) -> None:
        self._look()
        stream = self._draw.random() < 0.5
        deadline = self.now + (30.0 if stream else 84.0)
        entry = Entry(id, "", INTERACTIVE, self.now, deadline, stream, 4096, 20)
        self._lengths[id] = tokens(self._draw)
        hoped, ahead = self.line.wait(entry, self.now).mean, self._ahead()
        busy, together = self.line.arrive(entry, self.now), self._without_refusals(entry)
        made_it = self.now + ahead + (0 if stream else self._lengths[id] * self._each) <= deadline
        if busy is None:
            self._begin()
        if not counts:
            return
        if busy:
            self.told.counts["busy"] += 1
            self.told.counts["alone"] += made_it
            self.told.counts["together"] += together
        else:
            self.told.counts["taken"] += 1
            self.told.counts["in time"] += made_it
            if ahead > 0:
                self.told.errors.append(abs(ahead - hoped))
                self.told.shares.append(abs(ahead - hoped) / ahead)

    def _without_refusals(self, entry: Entry) -> bool:
        """Whether it would be in time in a line that takes everybody, first come, until each one's deadline."""
        begins, length = max(self.now, self._free), self._lengths[entry.id] * self._each
        ends = begins + length
        if begins > entry.deadline:
            return False
        self._free = ends if entry.stream else min(ends, entry.deadline)
        return entry.stream or ends <= entry.deadline

    def _ahead(self) -> float:
        """What really stands before a newcomer."""
        waiting = sum(self._lengths[entry.id] for entry in self.line.waiting) * self._each
        return waiting + (self._ends - self.now if self.line.running else 0.0)

    def _look(self) -> None:
        running = self.line.running
        if running and running.stream and running.began is not None:
            running.decoded = min(self._lengths[running.id] - 1, int((self.now - running.began) / self._each))

    def _begin(self) -> None:
        taken = self.line.take(self.now)
        if taken:
            self._ends = self.now + self._lengths[taken.id] * self._each

    def _finish(self) -> None:
        self.now, running = self._ends, self.line.running
        assert running is not None
        length = self._lengths.pop(running.id)
        estimates = self.line.estimates
        estimates.answered(prompt_tokens=20, prompt_seconds=0.0, tokens=length, token_seconds=(length - 1) * self._each)
        estimates.length(length)
        self.line.leave(running, self.now, "answered")
        self._ends = math.inf
        self._begin()
