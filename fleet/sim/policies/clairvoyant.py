"""The clairvoyant bound: the cheapest schedule, the whole market known, with no degraded time but unavoidable boots.

It launches every successor one shortest boot ahead of the reclaim, holds one box per replica, and pays for nothing
else: no policy that has to wait for news can be cheaper and serve as much. Replicas of a fleet are placed one after the
other on what is left of each pool: the cheapest for one box; off for several where two should trade places, by a boot,
or by more where a price moves.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Behaviour
from fleet.sim.cloud.virtual_clock import utc
from fleet.sim.drills.drill import Drill
from fleet.sim.markets.market import PLENTY, Market, MarketPool, Purchase, Step

DARK_USD_PER_SECOND = 1e6  # nothing serves: dearer than any schedule that does


@dataclass
class _Source:
    """A pool and kind at one price: when it sells one box more, and when it takes that box."""

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
    launched: float
    serving: float
    until: float


Change = tuple[float, Step | int]  # when, and a step of the market or how many boxes of other replicas come or go


def clairvoyant(drill: Drill) -> None:
    """Writes the log of the cheapest schedule. Not a policy that anybody can run: it knows what comes."""
    replicas = drill.settings.capacity.min
    base = min(drill.settings.capacity.on_demand_base, replicas)
    boot, heard = shortest_boot_seconds(drill.physics), drill.physics.agent_poll[1]
    running = not isinstance(drill.scene, Market)  # a history begins with boxes that serve
    steps, stays = list(drill.market.steps()), list[Stay]()
    for number in range(replicas):
        purchases: tuple[Purchase, ...] = ("on-demand",) if number < base else ("spot", "on-demand")
        sources = [
            source
            for pool in drill.market.pools
            for kind in purchases
            for source in _sources(pool, kind, drill.market.start, _changes(steps, pool, kind, stays))
        ]
        stays += _cheapest(drill.market, sources, boot, heard, running=running)
    for event in _events(drill.market, stays, replicas):
        drill.emit(event)


def shortest_boot_seconds(behaviour: Behaviour) -> float:
    """Launch to healthy target, if all goes as well as it can."""
    boots = behaviour.boots
    recorded = [seconds for seconds in boots.recorded_kernel_to_serving if seconds is not None]
    open_gate = min(boots.kernel_to_serving[0], *recorded, math.inf) * boots.factor
    checked = behaviour.register_after_kernel[0] + behaviour.registration[0]
    return boots.launch_to_kernel[0] + max(open_gate, checked) + behaviour.probes[0]


def _sources(pool: MarketPool, purchase: Purchase, start: float, changes: list[Change]) -> list[_Source]:
    """One source per price of this pool: room for one box beside the stays there are."""
    supply, used, spares = (PLENTY if purchase == "on-demand" else 0), 0, False
    source = _Source(purchase, pool.label, pool.usd(purchase) / 3600)
    sources, sells = [source], supply > 0
    if sells:
        source.opens.append(start)
    for moment, change in changes:
        at, dearer = max(moment, start), False
        if isinstance(change, int):
            used, spares = used + change, change < 0
        else:
            supply = supply if change.supply is None else change.supply
            spares = change.spares or change.supply is None or purchase == "on-demand"
            usd = source.usd_per_second if change.usd_per_hour is None else change.usd_per_hour / 3600
            dearer = usd != source.usd_per_second
        now = supply > used
        if sells and (dearer or not now):
            source.closes.append(at)
        if dearer:
            source = _Source(purchase, pool.label, usd, takes=source.takes)
            sources.append(source)
        if now and (dearer or not sells):
            source.opens.append(at)
        if not now and not spares:
            source.takes.append(at)
        sells = now
    source.closes.append(math.inf)
    return sources


def _changes(steps: list[Step], pool: MarketPool, purchase: Purchase, stays: list[Stay]) -> list[Change]:
    """What changes in this pool, in order of time."""
    changes: list[Change] = [(s.at, s) for s in steps if (s.pool, s.purchase) == (pool.label, purchase)]
    for stay in stays:
        if stay.source is not None and (stay.source.pool, stay.source.purchase) == (pool.label, purchase):
            changes += [(stay.launched, 1), (stay.until, -1)]
    return sorted(changes, key=lambda change: change[0])


def _cheapest(market: Market, sources: list[_Source], boot: float, heard: float, *, running: bool) -> list[Stay]:
    """Viterbi over the moments at which anything can change: who serves, at least cost, to the end."""
    moments = {market.start if running else market.start + boot, market.end}
    for source in sources:
        moments.update(at + boot for at in (*source.opens, *source.closes) if at < market.end)
        moments.update(at + heard for at in source.takes)
    times = sorted(at for at in moments if market.start <= at <= market.end)
    dark = len(sources)
    cost = [math.inf] * dark + [DARK_USD_PER_SECOND * (times[0] - market.start)]
    came_from: list[list[int]] = []
    for i, at in enumerate(times):
        cheapest = min(range(dark + 1), key=cost.__getitem__)
        after, origin = list(cost), list(range(dark + 1))
        for j, source in enumerate(sources):
            taken = bisect_right(source.takes, at - heard) - 1
            if taken >= 0 and source.takes[taken] + heard == at:
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
            launched = max(times[i] - boot, market.start)
            stays.append(Stay(sources[state] if state < dark else None, launched, times[i], until))
            state, until = before, times[i]
    stays.reverse()
    return stays


def _events(market: Market, stays: list[Stay], desired: int) -> Iterator[Event]:
    lines: list[tuple[float, int, str, dict[str, object]]] = []

    def line(at: float, kind: str, **fields: object) -> None:
        lines.append((at, len(lines), kind, fields))

    line(market.start, "start", name=market.name, desired=desired)
    carries: dict[str, bool] = {}
    for step in market.steps():
        if step.purchase == "spot" and step.supply is not None and carries.get(step.pool) != (step.supply > 0):
            carries[step.pool] = step.supply > 0
            line(max(step.at, market.start), "market", pool=step.pool, sells=step.supply > 0)
    for number, stay in enumerate(stays, 1):
        if stay.source is None or stay.serving >= market.end:
            continue
        box, source = f"i-{number:017x}", stay.source
        usd = round(source.usd_per_second * 3600, 6)
        line(stay.launched, "box.launched", box=box, purchase=source.purchase, pool=source.pool, usd_per_hour=usd)
        line(stay.serving, "box.serving", box=box)
        if stay.until < market.end:
            line(stay.until, "box.unserving", box=box, why="replaced")
            line(stay.until, "box.ended", box=box, why="replaced")
    line(market.end, "end", name=market.name, desired=desired)
    order = {"start": -4, "market": -3, "box.launched": -2, "box.serving": -1}  # a successor serves before the end
    lines.sort(key=lambda item: (item[0], order.get(item[2], 0), item[1]))
    return (Event(utc(at), kind, fields) for at, _, kind, fields in lines if at <= market.end)
