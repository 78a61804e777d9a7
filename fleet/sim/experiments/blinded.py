"""How far a policy could get: the clairvoyant, blinded step by step, reckoned from a market's steps alone; one box.

Two steps. `foreseeing` hears of a loss by its notice and no sooner, but knows all that comes after it: no policy
without early warnings does better. `calm` knows nothing of what comes: it sees supply as it is, goes out at the notice
if nothing sells, and comes back once something has sold for a fixed time. Lags and boots are the behaviour's means.
"""

import functools
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from statistics import fmean

from fleet.sim.cloud.behaviour import Behaviour, Range
from fleet.sim.experiments.ratios import front, interpolated
from fleet.sim.markets.market import Market

WEIGHTS = tuple(0.002 * 2**i for i in range(10))  # USD that a degraded minute is worth, from far too little to too much
CALM_MINUTES = (0, 10, 20, 30, 40, 60, 120)
HELD_AGAINST = 40.0  # minutes of calm: where the bridge policy's bar stands
Point = tuple[float, float]  # USD, degraded minutes


@dataclass(frozen=True)
class Lags:
    """Seconds: of a boot, and from the loss of service to that of a successor of either kind."""

    boot: float
    spot: float
    on_demand: float


@functools.cache
def lags(behaviour: Behaviour) -> Lags:
    """Means; a boot's by many draws, as the simulated EC2 and balancer draw it."""
    boots, luck = behaviour.boots, Random("boots")  # noqa: S311 - a simulation, no secret

    def drawn() -> float:
        kernel = luck.triangular(*boots.launch_to_kernel)
        opens = luck.triangular(*boots.kernel_to_serving) * boots.factor
        checked = luck.uniform(*behaviour.register_after_kernel) + luck.uniform(*behaviour.registration)
        return kernel + max(opens, checked) + luck.uniform(*behaviour.probes)

    boot = fmean(drawn() for _ in range(2000))
    shut = fmean(behaviour.agent_poll)
    flipped = fmean(behaviour.events.delay) + fmean(behaviour.flip_attempt)
    return Lags(boot, boot + fmean(behaviour.rebalance_attempt) - shut, boot + flipped - shut)


def _offers(market: Market) -> list[list[Range]]:
    """When each pool sells spot, from and until, in order of pools."""
    offers: dict[str, list[Range]] = {pool.label: [] for pool in market.pools}
    since: dict[str, float] = {}
    for step in market.steps():
        if step.purchase != "spot" or step.supply is None or (step.supply > 0) == (step.pool in since):
            continue
        if step.supply:
            since[step.pool] = max(step.at, market.start)
        else:
            offers[step.pool].append((since.pop(step.pool), step.at))
    for label, at in since.items():
        offers[label].append((at, market.end))
    return [[(at, until) for at, until in offer if until > market.start] for offer in offers.values()]


def _open(offers: list[list[Range]], at: float) -> list[float]:
    """Until when each of the pools sells that sell now."""
    found = []
    for offer in offers:
        i = bisect_right(offer, (at, float("inf"))) - 1
        if i >= 0 and offer[i][1] > at:
            found.append(offer[i][1])
    return found


def foreseeing(market: Market, behaviour: Behaviour, weight: float) -> Point:
    """The schedule of least cost, a degraded minute counted at `weight`; found from the market's end backwards."""
    lag, offers = lags(behaviour), _offers(market)
    spot, on_demand = (market.pools[0].usd(kind) / 3600 for kind in ("spot", "on-demand"))
    times = sorted({market.start, market.end, *(at for offer in offers for span in offer for at in span)})
    dark = weight / 60
    best = {market.end: ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))}  # by time: (value, USD, seconds) once lost, on on-demand

    def then(after: tuple[float, float, float], usd: float, seconds: float) -> tuple[float, float, float]:
        return after[0] + usd + dark * seconds, after[1] + usd, after[2] + seconds

    for at, following in reversed(list(pairwise(times))):
        closes = _open(offers, at)
        stays = then(best[following][1], on_demand * (following - at), 0)
        swaps = [
            then(best[until][0], on_demand * lag.boot + spot * (until - at), 0)
            for until in closes
            if until > at + lag.boot
        ]
        bought = min([stays, *swaps])
        replaced = [then(best[until][0], spot * (until - at), min(lag.spot, until - at)) for until in closes]
        best[at] = min([then(bought, 0, lag.on_demand), *replaced]), bought
    _, usd, seconds = best[market.start][0]
    return usd, seconds / 60


def calm(market: Market, behaviour: Behaviour, calm_seconds: float, *, late: float = 0.0) -> Point:
    """A return after that much supply. `late`: by how much it goes out later than at the notice, seconds."""
    lag, offers = lags(behaviour), _offers(market)
    spot, on_demand = (market.pools[0].usd(kind) / 3600 for kind in ("spot", "on-demand"))
    times = sorted({market.end, *(at for offer in offers for span in offer for at in span)})
    at, usd, seconds = market.start, 0.0, 0.0
    while at < market.end:
        if closes := _open(offers, at):
            usd += spot * (closes[0] - at)
            seconds += min(lag.spot, closes[0] - at)
            at = closes[0]
            continue
        seconds += min(lag.on_demand + late, market.end - at)
        back = at + lag.on_demand + late
        since: float | None = None
        for time in times[bisect_right(times, at) :]:
            if since is not None and max(since + calm_seconds, back) <= time:
                returns = max(since + calm_seconds, back)
                until = _open(offers, returns)[0]
                if until > returns + lag.boot:
                    break
                back = time  # that pool is about to close: the next change of supply is looked at anew
            since = (time if since is None else since) if _open(offers, time) else None
        else:
            return usd + on_demand * (market.end - at), seconds / 60
        usd += on_demand * (returns + lag.boot - at) + spot * (until - returns)
        at = until
    return usd, seconds / 60


def within_reach(market: Market, behaviour: Behaviour) -> tuple[float, float]:
    """Minutes of `calm` and `foreseeing`, in times of those of a timer that goes out on the first failed launch.

    At that timer's cost.
    """
    failed = fmean(behaviour.rebalance_attempt)  # after the notice
    cost, minutes = calm(market, behaviour, HELD_AGAINST * 60, late=failed)
    sighted = [calm(market, behaviour, wait * 60) for wait in CALM_MINUTES]
    knowing = [foreseeing(market, behaviour, weight) for weight in WEIGHTS]
    one, other = (interpolated(front(points), cost) / minutes for points in (sighted, knowing))
    return one, other
