"""Ratios of policies on the same markets and luck, each with the interval that pairing by seed leaves."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from statistics import fmean

from fleet.sim.experiments.benchmark_matrix import Outcome
from fleet.sim.experiments.experiment import Mean, t95

Of = Callable[[Outcome], float]
Kept = Sequence[int]

minutes: Of = attrgetter("degraded_minutes")
usd: Of = attrgetter("cost_usd")


@dataclass(frozen=True)
class Compared:
    """The outcomes of one case: by place, then by policy, each in the same order of seeds."""

    outcomes: Mapping[str, Mapping[str, Sequence[Outcome]]]

    def seeds(self, place: str) -> int:
        return min((len(lived) for lived in self.outcomes[place].values()), default=0)

    @property
    def complete(self) -> bool:
        """Whether every place has been lived in."""
        return all(self.seeds(place) for place in self.outcomes)

    def mean(self, place: str, policy: str, of: Of, kept: Kept | None = None) -> float:
        lived = self.outcomes[place][policy]
        return fmean(of(lived[i]) for i in (range(self.seeds(place)) if kept is None else kept))

    def ratio(self, policy: str, against: str, of: Of, *places: str) -> Mean:
        """Mean over the places of `policy` in times of `against`. Nothing in times of nothing is 1."""

        def value(place: str, kept: Kept) -> float:
            one, other = self.mean(place, policy, of, kept), self.mean(place, against, of, kept)
            return 1.0 if one == other else one / other if other else math.inf

        return pooled({partial(value, place): self.seeds(place) for place in places})

    def against_front(self, policy: str, rivals: Sequence[str], *places: str) -> Mean:
        """Mean over the places of the minutes in times of the rivals' at the same cost; NaN: not comparable."""
        return pooled({partial(self._at_equal_cost, policy, rivals, place): self.seeds(place) for place in places})

    def _at_equal_cost(self, policy: str, rivals: Sequence[str], place: str, kept: Kept) -> float:
        points = [(self.mean(place, r, usd, kept), self.mean(place, r, minutes, kept)) for r in rivals]
        theirs = interpolated(front(points), self.mean(place, policy, usd, kept))
        return self.mean(place, policy, minutes, kept) / theirs if theirs else math.nan


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """(cost, degraded minutes) of those that no other undercuts in both, dearest last."""
    best: list[tuple[float, float]] = []
    for cost, degraded in sorted(points):
        if not best or degraded < best[-1][1]:
            best.append((cost, degraded))
    return best


def interpolated(points: Sequence[tuple[float, float]], cost: float) -> float:
    """Degraded minutes of a front at that cost, straight between its points; NaN outside, where it tells nothing."""
    for (left, high), (right, low) in pairwise(points):
        if left <= cost <= right:
            return high + (low - high) * (cost - left) / (right - left)
    return math.nan


def pooled(values: Mapping[Callable[[Kept], float], int]) -> Mean:
    """The mean of values, each over its seeds; half the width of its 95 % interval: what leaving out one seed moves.

    Markets of two places are independent of each other, so their variances add up, and so do their degrees of freedom.
    """
    whole, variance = fmean(value(range(seeds)) if seeds else math.nan for value, seeds in values.items()), 0.0
    if min(values.values()) < 2 or math.isnan(whole):
        return Mean(whole, math.inf)
    for value, seeds in values.items():
        without = [value([i for i in range(seeds) if i != left_out]) for left_out in range(seeds)]
        middle = fmean(without)
        variance += (seeds - 1) / seeds * sum((one - middle) ** 2 for one in without)
    width = t95(sum(seeds - 1 for seeds in values.values())) * math.sqrt(variance) / len(values)
    return Mean(whole, width if not math.isnan(width) else math.inf)
