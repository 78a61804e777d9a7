"""Seeded markets of another build than `synthetic`: a zone sells while its wandering level stands above a mark.

Times come in clusters, as a level that has just crossed its mark crosses it again, and zones fall one after the
other. The marks give each zone its published share; how fast the level forgets, and how much of it the zones have in
common, were chosen by hand so that transitions and common outages come near the published ones.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from fleet.sim.markets.durations import GAP_SECONDS
from fleet.sim.markets.market import PLENTY, Market, Step, merged, pool, with_notice
from fleet.sim.markets.synthetic import DAY_SECONDS, START, statistics

MIN_READINGS = 3  # the published history has no time below three readings


@dataclass(frozen=True)
class Levels:
    """Parameters of one region."""

    in_common: float  # share of a level's variance that all zones have in common
    memory_days: float  # after which a level has forgotten all but 1/e of where it stood


REGIONS = {
    "us-east-1": Levels(0.86, 0.11),
    "us-east-2": Levels(0.86, 0.28),
    "us-west-2": Levels(0.72, 0.11),
}


def market(region: str, seed: int, *, days: float = 45) -> Market:
    """A market of that region, plenty in each zone that sells."""
    end = START + days * DAY_SECONDS
    zones = [zone for zone in statistics() if zone[:-1] == region]

    def read() -> Iterator[Step]:
        return merged(_pool(region, zone, seed, end) for zone in zones)

    pools = tuple(pool("g6.xlarge", zone, zone) for zone in zones)
    return Market(f"{region} by levels, seed {seed}", pools, START, end, read)


def _pool(region: str, zone: str, seed: int, end: float) -> Iterator[Step]:
    return with_notice(zone, ((at, PLENTY if up else 0) for at, up in _changes(region, zone, seed, end)))


def _changes(region: str, zone: str, seed: int, end: float) -> Iterator[tuple[float, bool]]:
    """(time, up): a level that stays on the other side of the mark for the shortest published time."""
    levels = REGIONS[region]
    mark = NormalDist().inv_cdf(1 - statistics()[zone]["available_share"])
    shared, own = (_wander(seed, f"{region}/{name}", levels.memory_days) for name in ("common", zone))
    weight, other = math.sqrt(levels.in_common), math.sqrt(1 - levels.in_common)
    up: bool | None = None
    crossed, since = 0, START
    at = START
    while at < end:
        above = weight * next(shared) + other * next(own) > mark
        if up is None or above == up:
            crossed = 0
            if up is None:
                up = above
                yield at, up
        else:
            since = at if crossed == 0 else since
            crossed += 1
            if crossed == MIN_READINGS:
                up, crossed = above, 0
                yield since, up
        at += GAP_SECONDS


def _wander(seed: int, name: str, memory_days: float) -> Iterator[float]:
    """A level of mean 0 and variance 1, reading by reading."""
    stream = Random(f"levels/{seed}/{name}")  # noqa: S311 - a simulation, no secret
    keeps = math.exp(-GAP_SECONDS / (memory_days * DAY_SECONDS))
    fresh = math.sqrt(1 - keeps * keeps)
    level = stream.gauss(0, 1)
    while True:
        yield level
        level = keeps * level + fresh * stream.gauss(0, 1)
