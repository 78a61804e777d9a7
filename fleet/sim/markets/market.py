"""What a spot market is to the fleet: pools and the steps of their supply over time.

`Step.supply` is how many boxes the pool carries. A launch succeeds while fewer run there. A fall takes boxes back,
unless it `spares` them: then the pool only stops selling. `Market.steps` come in order of time; every reader of a
file and every generator makes these same two things.
"""

import functools
import heapq
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

from fleet.config.pools import POOLS
from fleet.core import names

Purchase = Literal["spot", "on-demand"]
PLENTY = 1000
ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-[1-9][a-z]")  # us-east-2a


@dataclass(frozen=True)
class MarketPool:
    """One instance type in one zone. USD per hour."""

    label: str
    instance_type: str = "g6.xlarge"
    zone: str = "us-east-2a"
    spot_usd: float = POOLS["g6.xlarge"].spot_usd
    on_demand_usd: float = POOLS["g6.xlarge"].on_demand_usd
    vcpus: int = POOLS["g6.xlarge"].vcpus

    def usd(self, purchase: Purchase) -> float:
        return self.spot_usd if purchase == "spot" else self.on_demand_usd


def pool(instance_type: str, zone: str = "us-east-2a", label: str | None = None) -> MarketPool:
    """A pool at the prices of its type; a type that the fleet does not know is priced as the default one."""
    known = POOLS.get(instance_type, POOLS["g6.xlarge"])
    return MarketPool(label or instance_type, instance_type, zone, known.spot_usd, known.on_demand_usd, known.vcpus)


@dataclass(frozen=True, slots=True)
class Step:
    """From `at` (epoch seconds) on, the pool carries `supply` boxes of this kind; None: as many as before."""

    at: float
    pool: str
    supply: int | None
    spares: bool = False
    purchase: Purchase = "spot"
    usd_per_hour: float | None = None  # a new price for launches from here on


@dataclass(frozen=True)
class Market:
    """Pools, and a fresh stream of their steps per reading. Spot supply is nothing until a step says otherwise;
    on-demand is plenty until one says otherwise."""

    name: str
    pools: tuple[MarketPool, ...]
    start: float
    end: float
    read: Callable[[], Iterable[Step]]
    notes: tuple[str, ...] = ()  # what a reader of results must know of it

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(sorted({pool.zone for pool in self.pools}))

    def steps(self) -> Iterator[Step]:
        return iter(self.read())


@functools.cache
def zone_id(zone: str) -> str:
    """A zone id in AWS's form (use2-az1). Which letter is which id differs per account, so nothing may rely on it."""
    area, direction, number = zone[:-1].split("-")[-3:]
    short = "".join(word[0] for word in ("north", "south", "east", "west", "central") if word in direction)
    return f"{area}{short}{number}-az{ord(zone[-1]) - ord('a') + 1}"


def with_notice(pool: str, changes: Iterable[tuple[float, int]]) -> Iterator[Step]:
    """Readings of what could be had, as what is sold: a fall is known, and closes the pool, one notice earlier.

    What is sold at t is the least that can be had in [t, t + notice]. Changes must be in order of time; lazily, in
    constant memory.
    """
    window: deque[tuple[int, float]] = deque()  # supplies in the window and when each ends; ascending supplies
    first: float | None = None
    sold: int | None = None
    for (at, supply), (until, _) in pairwise(chain(changes, [(math.inf, 0)])):
        first = at if first is None else first
        enters = max(at - names.NOTICE_SECONDS, first)
        while window and window[0][1] <= enters:
            _, left = window.popleft()
            if window and window[0][0] != sold:
                sold = window[0][0]
                yield Step(left, pool, sold)
        while window and window[-1][0] >= supply:
            window.pop()
        window.append((supply, until))
        if window[0][0] != sold:
            sold = window[0][0]
            yield Step(enters, pool, sold)
    while len(window) > 1:
        _, left = window.popleft()
        if window[0][0] != sold:
            sold = window[0][0]
            yield Step(left, pool, sold)


def merged(streams: Iterable[Iterable[Step]]) -> Iterator[Step]:
    """Streams of steps, each in order of time, as one."""
    return heapq.merge(*streams, key=lambda step: step.at)
