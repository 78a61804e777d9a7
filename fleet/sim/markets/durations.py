"""Lengths of a market's up and down times, shaped by published quantiles and scaled to a mean; seconds throughout."""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from random import Random

GAP_SECONDS = 195.0  # one reading of the public history
STRETCH_FROM = 0.5
BURN_IN_SECONDS = 20 * 86400.0  # so that a market does not begin at the beginning of one


@dataclass(frozen=True)
class Durations:
    """A distribution given by (share, seconds) points, straight in the logarithm between them, with a chosen mean.

    Lengths above the median are stretched, the longest the most, until the mean is right; so the quantiles hold
    as far as the mean lets them.
    """

    points: tuple[tuple[float, float], ...]
    mean: float

    @cached_property
    def _logs(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return tuple(share for share, _ in self.points), tuple(math.log(seconds) for _, seconds in self.points)

    @cached_property
    def _stretch(self) -> float:
        low, high = -12.0, 12.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self._mean_at(middle) < self.mean else (low, middle)
        return (low + high) / 2

    def _mean_at(self, stretch: float) -> float:
        """The mean of the log-linear pieces, each in closed form."""
        total = 0.0
        for (share, log), (next_share, next_log) in pairwise(zip(*self._logs, strict=True)):
            a = log + stretch * max(0.0, share - STRETCH_FROM)
            b = next_log + stretch * max(0.0, next_share - STRETCH_FROM)
            width = next_share - share
            total += width * (math.exp(a) if abs(b - a) < 1e-9 else (math.exp(b) - math.exp(a)) / (b - a))
        return total

    def quantile(self, share: float) -> float:
        shares, logs = self._logs
        i = min(max(bisect_right(shares, share), 1), len(shares) - 1)
        at = (share - shares[i - 1]) / (shares[i] - shares[i - 1])
        log = logs[i - 1] + at * (logs[i] - logs[i - 1])
        return math.exp(log + self._stretch * max(0.0, share - STRETCH_FROM))

    def draw(self, stream: Random) -> float:
        """A whole number of readings, at least one."""
        return max(1, round(self.quantile(stream.random()) / GAP_SECONDS)) * GAP_SECONDS


def from_quantiles(minutes: dict[str, float], mean_minutes: float) -> Durations:
    """Published `{"p50": ..}` quantiles; the longest time is taken as twice the 99th percentile."""
    known = {int(name[1:]) / 100: value * 60 for name, value in minutes.items()}
    known.setdefault(0.0, GAP_SECONDS)
    known.setdefault(1.0, 2 * known[max(known)])
    return Durations(tuple(sorted(known.items())), mean_minutes * 60)


@dataclass(frozen=True)
class Renewal:
    """Up and down in turn."""

    up: Durations
    down: Durations

    @property
    def share_up(self) -> float:
        return self.up.mean / (self.up.mean + self.down.mean)

    def changes(self, stream: Random, start: float, end: float) -> Iterator[tuple[float, bool]]:
        """(time, up) from `start` on; the first is what holds there."""
        up = stream.random() < self.share_up
        at = start - BURN_IN_SECONDS
        while at < end:
            length = (self.up if up else self.down).draw(stream)
            if at + length > start:
                yield max(at, start), up
            at += length
            up = not up
