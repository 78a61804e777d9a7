"""The ways to run boxes that `fleetctl worth` compares, each drilled on a market; their callers beside them, or not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from fleet.config.settings import Settings
from fleet.sim.callers import worth
from fleet.sim.callers.listener import Plan
from fleet.sim.callers.tally import Tally, merged
from fleet.sim.callers.traffic import DAY_SECONDS, Traffic
from fleet.sim.drills import scene
from fleet.sim.experiments.experiment import Job, run
from fleet.sim.markets import synthetic
from fleet.sim.policies import catalogue

MARKET = "us-east-2"  # where the fleet's own region has no published statistics


@dataclass(frozen=True)
class Way:
    """A policy, and how many boxes."""

    name: str
    policy: str
    settings: Settings

    def jobs(self, days: float, seeds: int, callers: Plan | None = None) -> list[Job]:
        """Its drills."""
        place = scene.named([market(self.settings)], days=days)
        return [Job(place, self.policy, seed, self.settings, callers=callers) for seed in range(seeds)]


def ways(settings: Settings) -> Sequence[Way]:
    """The first is the fleet as set."""
    settings, capacity = catalogue.without_valve(settings), settings.capacity
    more = replace(capacity, min=capacity.min + 1, max=max(capacity.max, 2 * (capacity.min + 1)))
    return (
        Way("the fleet as set", settings.policy, settings),
        Way("on-demand only", "on-demand", settings),
        Way("one box more", settings.policy, replace(settings, capacity=more)),
    )


def options(settings: Settings, traffic: Traffic, days: float, seeds: int) -> Sequence[worth.Option]:
    """What each costs a day, how many of its boxes serve when, and what so many answer."""
    most = settings.capacity.min + 1
    curves = tuple(worth.steady(traffic, settings, settings.pools[0], boxes) for boxes in range(1, most + 1))
    found = []
    for way in ways(settings):
        lived = [result.measure for _, result in run(way.jobs(days, seeds))]
        boxes = way.settings.capacity.min
        usd = fmean(each.cost_usd / (each.end - each.start) * DAY_SECONDS for each in lived)
        seconds = sum((each.serving_seconds for each in lived), Counter[int]())
        serving = tuple(seconds[many] / seconds.total() for many in range(boxes + 1))
        found.append(worth.Option(way.name, boxes, usd, serving, curves[:boxes]))
    return found


def together(way: Way, traffic: Traffic, days: float, seeds: int) -> Tally:
    """The same with callers who live through its market: what the curves leave out is in it."""
    open_to_all = replace(way, settings=worth.without_caps(way.settings))
    return merged(result.callers for _, result in run(open_to_all.jobs(days, seeds, Plan(traffic))) if result.callers)


def market(settings: Settings) -> str:
    """That is drilled."""
    return settings.region if settings.region in synthetic.regions() else MARKET
