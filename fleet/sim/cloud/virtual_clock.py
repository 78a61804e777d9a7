"""The virtual clock: calls due at a time, run in order; ties run in the order in which they were asked for."""

import functools
import heapq
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any


class Clock:
    """Seconds since the epoch, moved only by the calls that are due."""

    def __init__(self, start: float) -> None:
        self.now = start
        self._due: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = count()

    def at(self, when: float, call: Callable[..., object], *args: Any) -> None:
        """Run `call(*args)` at `when`, or now if that has passed."""
        heapq.heappush(self._due, (max(when, self.now), next(self._order), call, args))

    def after(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        self.at(self.now + seconds, call, *args)

    def run(self, until: float) -> None:
        """Run everything due up to and including `until`."""
        due, pop = self._due, heapq.heappop
        while due and due[0][0] <= until:
            self.now, _, call, args = pop(due)
            call(*args)
        self.now = until

    def utc(self) -> datetime:
        return utc(self.now)


@functools.lru_cache(maxsize=256)  # a wake asks for the same few times again and again
def utc(seconds: float) -> datetime:
    """An epoch time as the timezone-aware datetime that the rest of the fleet speaks."""
    return datetime.fromtimestamp(seconds, UTC)
