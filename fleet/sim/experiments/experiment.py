"""Lives through many drills, policies against seeds, on all cores; the numbers of each, and their averages."""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from fleet.config.settings import Settings
from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Behaviour, Boots
from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from fleet.sim.drills import drill
from fleet.sim.drills.drill import Drill, Result
from fleet.sim.drills.scene import Scene
from fleet.sim.policies import catalogue

if TYPE_CHECKING:
    from fleet.sim.callers.listener import Callers, Plan

AHEAD = 8  # jobs a worker: some take ten times as long as others, and results come in order

# Student's t, two-sided 95 %, by degrees of freedom 1 to 30; beyond, the normal's.
T95: tuple[float, ...] = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
T95 += (2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04)


@dataclass(frozen=True)
class Variation:
    """What an operator turns in the simulated cloud."""

    boots_factor: float = 1.0
    kernel_to_serving_seconds: float | None = None  # of every warm boot; None: as measured
    events_lost_share: float = 0.0
    warned_share: float | None = None  # of losses that a recommendation announces minutes ahead; None: as assumed
    scores_wrong_share: float | None = None
    scores_late_seconds: float = 0.0
    spot_vcpu_quota: int | None = None  # None: never in the way
    on_demand_vcpu_quota: int | None = None

    def apply(self, behaviour: Behaviour) -> Behaviour:
        warned, wrong = behaviour.recommendation_ahead_share, behaviour.scores.wrong_share
        return replace(
            behaviour,
            recommendation_ahead_share=warned if self.warned_share is None else self.warned_share,
            scores=replace(
                behaviour.scores,
                wrong_share=wrong if self.scores_wrong_share is None else self.scores_wrong_share,
                late_seconds=self.scores_late_seconds,
            ),
            boots=self._boots(behaviour.boots),
            events=replace(behaviour.events, lost_share=self.events_lost_share),
            spot_vcpu_quota=self.spot_vcpu_quota,
            on_demand_vcpu_quota=self.on_demand_vcpu_quota,
        )

    def _boots(self, boots: Boots) -> Boots:
        seconds = self.kernel_to_serving_seconds
        if seconds is not None:
            boots = replace(boots, kernel_to_serving=(seconds, seconds, seconds))
        return replace(boots, factor=self.boots_factor)


@dataclass(frozen=True)
class Job:
    """One drill as a value that travels to a worker."""

    scene: Scene
    policy: str
    seed: int
    settings: Settings
    variation: Variation = Variation()
    variant: str = ""  # of a sweep: the threshold's value
    keeps_log: bool = False
    callers: "Plan | None" = None  # who asks, beside it
    brisk: bool = False  # see SimulatedCloud.brisk: the same figures in less than half the time

    def drill(self, emit: Callable[[Event], None] = lambda event: None) -> Drill:
        """The drill itself; raises UserError where its files are odd."""
        settings = catalogue.POLICIES[self.policy].adjust(self.settings)
        plain = Drill(self.scene.build(self.seed), settings, seed=self.seed, emit=emit)
        return replace(plain, behaviour=self.variation.apply(plain.physics), prepare=self._prepare)

    def _prepare(self, cloud: SimulatedCloud) -> None:
        cloud.brisk = self.brisk

    def run(self) -> Result:
        log: list[Event] = []
        people: Callers | None = None
        if self.callers is not None:
            people = self.callers.live(self.settings, self.seed)

        def emit(event: Event) -> None:
            if self.keeps_log:
                log.append(event)
            if people is not None:
                people.add(event)

        result = drill.run(self.drill(emit), catalogue.POLICIES[self.policy])
        return replace(result, log=tuple(log), callers=people.tally if people else None)


def run(jobs: Sequence[Job], *, workers: int | None = None, until: float = math.inf) -> Iterator[tuple[Job, Result]]:
    """Every job with its result, in order, as they are done; none is begun after `until` (monotonic seconds)."""
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    if workers <= 1:
        for job in jobs:
            if time.monotonic() >= until:
                return
            yield job, job.run()
        return
    with ProcessPoolExecutor(workers) as pool:
        waiting: deque[tuple[Job, Future[Result]]] = deque()
        for job in jobs:
            if time.monotonic() >= until:
                break
            waiting.append((job, pool.submit(Job.run, job)))
            if len(waiting) > AHEAD * workers:
                job, running = waiting.popleft()
                yield job, running.result()
        for job, running in waiting:
            yield job, running.result()


@dataclass(frozen=True)
class Mean:
    """An average over seeds and the half width of its 95 % interval (0 for one seed: nothing is known of it)."""

    value: float
    half_width: float

    def __str__(self) -> str:
        return f"{self.value:.1f}" + (f" ± {self.half_width:.1f}" if self.half_width else "")


def mean(values: Iterable[float]) -> Mean:
    values = list(values)
    if len(values) < 2:
        return Mean(values[0] if values else math.nan, 0.0)
    return Mean(fmean(values), t95(len(values) - 1) * stdev(values) / math.sqrt(len(values)))


def t95(degrees: int) -> float:
    """Student's t, two-sided 95 %, for that many degrees of freedom."""
    return T95[degrees - 1] if degrees <= len(T95) else 1.96


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share lies."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@dataclass(frozen=True)
class Row:
    """One policy (or one value of a threshold) over all its seeds."""

    name: str
    results: tuple[Result, ...]

    @property
    def degraded_minutes(self) -> Mean:
        return mean(r.measure.degraded_minutes for r in self.results)

    @property
    def desired(self) -> int:
        """How many boxes should serve."""
        return max((r.measure.desired for r in self.results), default=1)

    @property
    def box_minutes(self) -> Mean:
        return mean(r.measure.box_minutes for r in self.results)

    @property
    def dark_minutes(self) -> Mean:
        """Without any box."""
        return mean(r.measure.dark_minutes for r in self.results)

    @property
    def cost_usd(self) -> Mean:
        return mean(r.measure.cost_usd for r in self.results)

    @property
    def window_minutes(self) -> list[float]:
        """Every degraded window of every seed."""
        return [window.seconds / 60 for r in self.results for window in r.measure.windows]

    @property
    def failovers(self) -> Mean:
        return mean(r.measure.counts["action failover"] for r in self.results)

    @property
    def bridges(self) -> Mean:
        """Moves to on-demand ahead of a loss that AWS had warned of."""
        return mean(r.measure.counts["action bridged"] for r in self.results)

    @property
    def on_demand_share(self) -> float:
        """Of all box hours."""
        spot = sum(r.measure.box_seconds["spot"] for r in self.results)
        on_demand = sum(r.measure.box_seconds["on-demand"] for r in self.results)
        return on_demand / (spot + on_demand) if spot + on_demand else 0.0


def front(rows: Sequence[Row]) -> list[Row]:
    """The rows that no other beats in both cost and degraded minutes, the cheapest first."""
    best: list[Row] = []
    for row in sorted(rows, key=lambda r: (r.cost_usd.value, r.degraded_minutes.value)):
        if not best or row.degraded_minutes.value < best[-1].degraded_minutes.value:
            best.append(row)
    return best
