"""The clairvoyant bound: the cheapest schedule, the whole market known, with no degraded time but unavoidable boots.

It launches every successor a boot ahead of the reclaim, holds one box per replica, and pays for nothing else: no policy
that has to wait for news can be cheaper and serve as much. Replicas count on a pool only while it carries all of them.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from fleet.drills.behaviour import Boots
from fleet.drills.clock import utc
from fleet.drills.drill import Drill
from fleet.drills.market import Market, Purchase
from fleet.events import Event

DARK_USD_PER_SECOND = 1e6  # nothing serves: dearer than any schedule that does
AGENT_SECONDS = 3.0  # a noticed box serves until its agent has heard


@dataclass
class _Source:
    """One pool of one kind: when it sells, and when it takes all that runs there."""

    purchase: Purchase
    pool: str
    usd_per_second: float
    opens: list[float] = field(default_factory=list)
    closes: list[float] = field(default_factory=list)
    takes: list[float] = field(default_factory=list)

    def serves_from(self, at: float, boot: float) -> bool:
        """Whether a box launched one boot before `at` serves at `at`."""
        launched = at - boot
        i = bisect_right(self.opens, launched) - 1
        if i < 0 or launched >= self.closes[i]:
            return False
        return bisect_left(self.takes, at) == bisect_right(self.takes, launched)


@dataclass(frozen=True)
class Stay:
    """One box of the schedule; None: dark."""

    source: _Source | None
    serving: float
    until: float


@dataclass(frozen=True)
class Clairvoyant:
    """Knows what comes. Not a policy that anybody can run."""

    name: str = "clairvoyant bound"

    def live(self, drill: Drill) -> None:
        """Write the log of the cheapest schedule."""
        replicas = drill.settings.capacity.min
        base = min(drill.settings.capacity.on_demand_base, replicas)
        boot = median_boot_seconds(drill.physics.boots) + sum(drill.physics.probes) / 2
        market = drill.market
        sources = _sources(market, replicas - base) if replicas > base else []
        running = not isinstance(drill.scene, Market)  # a history begins with boxes that serve
        always = [source for source in _sources(market, 1) if source.purchase == "on-demand"]
        schedules = [_cheapest(market, sources, boot, running=running)] * (replicas - base)
        schedules += [_cheapest(market, always, boot, running=running)] * base
        for event in _events(market, schedules, boot, replicas):
            drill.emit(event)


def median_boot_seconds(boots: Boots) -> float:
    """Launch to gate: the sum of both medians."""
    return _median(boots.launch_to_kernel) + _median(boots.kernel_to_serving) * boots.factor


def _median(triangle: tuple[float, float, float]) -> float:
    low, high, mode = triangle
    if low == high:
        return low
    if mode >= (low + high) / 2:
        return low + math.sqrt((high - low) * (mode - low) / 2)
    return high - math.sqrt((high - low) * (high - mode) / 2)


def _sources(market: Market, boxes: int) -> list[_Source]:
    """Every pool and kind as windows in which all of `boxes` can be had there."""
    sources: dict[tuple[Purchase, str], _Source] = {}
    carries: dict[tuple[Purchase, str], bool] = {}
    purchases: tuple[Purchase, ...] = ("spot", "on-demand")
    for pool in market.pools:
        for purchase in purchases:
            sources[purchase, pool.label] = _Source(purchase, pool.label, pool.usd(purchase) / 3600)
            carries[purchase, pool.label] = False
            if purchase == "on-demand":
                sources[purchase, pool.label].opens.append(market.start)
                carries[purchase, pool.label] = True
    for step in market.steps():
        if step.supply is None:
            continue
        key = (step.purchase, step.pool)
        source, at, now = sources[key], max(step.at, market.start), step.supply >= boxes
        if now and not carries[key]:
            source.opens.append(at)
        elif not now and carries[key]:
            source.closes.append(at)
        if not now and not step.spares and step.purchase == "spot":
            source.takes.append(at)
        carries[key] = now
    for source in sources.values():
        source.closes.append(math.inf)
    return list(sources.values())


def _cheapest(market: Market, sources: list[_Source], boot: float, *, running: bool) -> list[Stay]:
    """Viterbi over the moments at which anything can change: who serves, at least cost, to the end."""
    moments = {market.start if running else market.start + boot, market.end}
    for source in sources:
        moments.update(at + boot for at in (*source.opens, *source.closes) if at < market.end)
        moments.update(at + AGENT_SECONDS for at in source.takes)
    times = sorted(at for at in moments if market.start <= at <= market.end)
    dark = len(sources)
    cost = [math.inf] * dark + [DARK_USD_PER_SECOND * (times[0] - market.start)]
    came_from: list[list[int]] = []
    for i, at in enumerate(times):
        cheapest = min(range(dark + 1), key=cost.__getitem__)
        after, origin = list(cost), list(range(dark + 1))
        for j, source in enumerate(sources):
            taken = bisect_right(source.takes, at - AGENT_SECONDS) - 1
            if taken >= 0 and source.takes[taken] + AGENT_SECONDS == at:
                after[j] = math.inf
            at_start = running and i == 0 and source.serves_from(at, 0.0)
            if at_start or source.serves_from(at, boot):
                moved = cost[cheapest] + (0.0 if at_start else source.usd_per_second * boot)
                if moved < after[j]:
                    after[j], origin[j] = moved, cheapest
        if cost[cheapest] < after[dark]:
            after[dark], origin[dark] = cost[cheapest], cheapest
        seconds = (times[i + 1] if i + 1 < len(times) else market.end) - at
        rates = [source.usd_per_second for source in sources] + [DARK_USD_PER_SECOND]
        cost = [value + rate * seconds for value, rate in zip(after, rates, strict=True)]
        came_from.append(origin)
    stays: list[Stay] = []
    state, until = min(range(dark + 1), key=cost.__getitem__), market.end
    for i in range(len(times) - 1, -1, -1):
        before = came_from[i][state]
        if before != state:
            stays.append(Stay(sources[state] if state < dark else None, times[i], until))
            state, until = before, times[i]
    stays.reverse()
    return stays


def _events(market: Market, schedules: list[list[Stay]], boot: float, desired: int) -> Iterator[Event]:
    lines: list[tuple[float, int, str, dict[str, object]]] = []

    def line(at: float, kind: str, **fields: object) -> None:
        lines.append((at, len(lines), kind, fields))

    line(market.start, "start", name=market.name, desired=desired)
    carries: dict[str, bool] = {}
    for step in market.steps():
        if step.purchase == "spot" and step.supply is not None and carries.get(step.pool) != (step.supply > 0):
            carries[step.pool] = step.supply > 0
            line(max(step.at, market.start), "market", pool=step.pool, sells=step.supply > 0)
    number = 0
    for stays in schedules:
        for stay in stays:
            if stay.source is None or stay.serving >= market.end:
                continue
            number += 1
            box, source = f"i-{number:017x}", stay.source
            usd = source.usd_per_second * 3600
            line(
                max(stay.serving - boot, market.start),
                "box.launched",
                box=box,
                purchase=source.purchase,
                pool=source.pool,
                usd_per_hour=round(usd, 6),
            )
            line(stay.serving, "box.serving", box=box)
            if stay.until < market.end:
                line(stay.until, "box.unserving", box=box, why="replaced")
                line(stay.until, "box.ended", box=box, why="replaced")
    line(market.end, "end", name=market.name, desired=desired)
    order = {"start": -4, "market": -3, "box.launched": -2, "box.serving": -1}  # a successor serves before the end
    lines.sort(key=lambda item: (item[0], order.get(item[2], 0), item[1]))
    return (Event(utc(at), kind, fields) for at, _, kind, fields in lines if at <= market.end)
