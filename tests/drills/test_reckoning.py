"""The dynamic fallback reckoned apart from the simulated cloud: markets, launches and losses alone, boots all alike."""

from bisect import bisect_right
from itertools import accumulate, chain, repeat

import pytest

from fleet.sim.cloud.behaviour import Boots
from fleet.sim.drills import drill
from fleet.sim.drills.drill import Drill
from fleet.sim.markets import synthetic
from fleet.sim.markets.market import Market
from fleet.sim.policies.catalogue import dynamic_fallback
from tests.drills.by_hand import exact

pytestmark = pytest.mark.slow  # drills whole regions

BOOT, HEARD, REBALANCING, ONCE_GONE = 390.0, 5.0, 15.0, 122.0
GAPS = (11, 11, 65, 65, 120, 120, 240, 480)  # as measured in a drought; then every 600 s


def reckoned(market: Market) -> float:
    """Degraded seconds. On-demand is bought when the spot box leaves, and serves one boot later; spot is held until its
    zone falls, and bought in the first zone that sells at an attempt.
    """
    zones = [pool.label for pool in market.pools]
    changes = {zone: [(s.at, s.supply != 0) for s in market.steps() if s.pool == zone] for zone in zones}

    def sells(zone: str, at: float) -> bool:
        i = bisect_right(changes[zone], (at, True)) - 1
        return i >= 0 and changes[zone][i][1]

    def falls(zone: str, after: float) -> float:
        return next((at for at, up in changes[zone] if at > after and not up), market.end)

    def bought(first: float, gone: float) -> tuple[float, str] | None:
        backoff = accumulate(chain([first], GAPS, repeat(600)))
        attempts = sorted([gone, *(at for at, _ in zip(backoff, range(10_000), strict=False))])
        tries = (at for at in attempts if at < market.end)
        return next(((at, zone) for at in tries for zone in zones if sells(zone, at)), None)

    dark, box = BOOT, bought(market.start + 2, market.end)
    while box:
        launched, zone = box
        notice = falls(zone, launched)
        if launched + BOOT < notice + HEARD < market.end:
            dark += min(BOOT, market.end - notice - HEARD)
        box = bought(notice + REBALANCING, notice + ONCE_GONE)
    return dark


@pytest.mark.parametrize("region", synthetic.regions())
def test_the_fallback_of_the_drills_agrees_with_a_reckoning_of_its_own_at_equal_constants(region: str) -> None:
    market = synthetic.market(synthetic.region(region), 201, days=15)
    boots = Boots(launch_to_kernel=(60, 60, 60), kernel_to_serving=(310, 310, 310))
    lived = drill.run(Drill(market, behaviour=exact(boots=boots, registration=(60, 60))), dynamic_fallback)
    assert lived.measure.degraded_seconds == pytest.approx(reckoned(market), rel=0.03)
