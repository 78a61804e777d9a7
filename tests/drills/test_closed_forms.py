"""What can be worked out by hand: first boots, markets that never sell, one outage of length L, the bill."""

import math
from dataclasses import replace
from itertools import accumulate

import pytest

from fleet.config.settings import Capacity, Settings
from fleet.sim.cloud.behaviour import Behaviour, Scores
from fleet.sim.drills import drill
from fleet.sim.drills.drill import Drill
from fleet.sim.markets.market import Step, pool
from fleet.sim.policies.catalogue import COMPARED, POLICIES, dynamic_fallback, watchdog
from fleet.sim.policies.clairvoyant import clairvoyant
from tests.drills.by_hand import BOOT_SECONDS, HOUR, START, exact, lived, market, with_steps

SPOT_USD, ON_DEMAND_USD = 0.34, 0.8048
FIRST_ATTEMPT, NOTICE, HEARD = 2, 120, 5
FLIP_TO_LAUNCH, EVENT_DELAY = 7, 1
ALARM_WINDOW, ALARM_LAG = 12 * 60, 300
EXACT = replace(exact(), scores=Scores(wrong_share=0))


@pytest.mark.parametrize("name", [*COMPARED, "timer-30"])
def test_no_reclaims_no_degraded_minute_after_the_first_boot(name: str, settings: Settings) -> None:
    result = drill.run(Drill(market(hours=72), settings, EXACT), POLICIES[name])
    assert result.measure.degraded_seconds == pytest.approx(BOOT_SECONDS, abs=FIRST_ATTEMPT)
    assert len(result.measure.windows) == 1


def test_a_market_that_never_sells_costs_on_demand_from_the_failover_on(settings: Settings) -> None:
    """The group never served, so its alarm is met by the 1500 s of a cold boot; the scan at 30 min fails over."""
    hours = 24
    result = drill.run(Drill(market((0, 0), hours=hours), settings, EXACT), watchdog)
    failover = settings.watchdog.scan_seconds
    ran = hours * HOUR - failover - FLIP_TO_LAUNCH
    assert result.measure.cost_usd == pytest.approx(ON_DEMAND_USD * ran / HOUR, rel=1e-6)
    assert result.measure.degraded_seconds == failover + FLIP_TO_LAUNCH + BOOT_SECONDS


def window_of_an_outage(length: float, notice: float) -> float:
    """Seconds without a healthy target when the market takes the box at `notice` and sells again after `length`."""
    backoff = EXACT.launch_retry_gaps
    gaps = [*backoff, *[backoff[-1]] * 100]
    attempts = sorted([*accumulate([15.0, *gaps]), NOTICE + 2.0])  # rebalancing tries first; once more when it is gone
    spot = next(at for at in attempts if at >= length)
    down = notice + HEARD
    lit = math.ceil(down / 60) * 60 + ALARM_WINDOW + ALARM_LAG - notice
    on_demand = lit + EVENT_DELAY + FLIP_TO_LAUNCH
    launched = spot if spot <= lit + EVENT_DELAY else on_demand
    return launched + BOOT_SECONDS - HEARD


@pytest.mark.parametrize("length", [10, 20, 60, 130, 200, 300, 500, 900, 3600, 4 * 3600])
@pytest.mark.parametrize("offset", [0, 17, 59])
def test_one_outage_is_the_window_that_backoff_alarm_and_boot_add_up_to(
    length: int, offset: int, settings: Settings
) -> None:
    notice = 2 * HOUR + offset
    scene = market((notice, 0), (notice + length, 1000), hours=12)
    result = drill.run(Drill(scene, settings, EXACT), watchdog)
    _, window = result.measure.windows
    assert window.seconds == pytest.approx(window_of_an_outage(length, notice), abs=0.01)


def test_cost_is_the_integral_of_what_ran(settings: Settings) -> None:
    scene = market((5 * HOUR, 0), (6 * HOUR, 1000), hours=10)
    result = drill.run(Drill(scene, settings, EXACT), POLICIES["spot-only"])
    first = 5 * HOUR + NOTICE - FIRST_ATTEMPT
    attempts = accumulate([5 * HOUR + 15.0, *EXACT.launch_retry_gaps, 600, 600, 600, 600])
    second = 10 * HOUR - next(at for at in attempts if at >= 6 * HOUR)
    assert result.measure.cost_usd == pytest.approx(SPOT_USD * (first + second) / HOUR, rel=1e-9)
    alone = drill.run(Drill(scene, settings, EXACT), POLICIES["on-demand"])
    assert alone.measure.cost_usd == pytest.approx(ON_DEMAND_USD * (10 * HOUR - FIRST_ATTEMPT) / HOUR, rel=1e-9)


def test_the_fallback_is_degraded_for_one_boot_per_reclaim(settings: Settings) -> None:
    scene = market((5 * HOUR, 0), (9 * HOUR, 1000), hours=12)
    result = drill.run(Drill(scene, settings, EXACT), dynamic_fallback)
    assert [window.seconds for window in result.measure.windows] == [BOOT_SECONDS, BOOT_SECONDS]


def test_the_clairvoyant_pays_for_one_boot_more_per_change_and_is_never_dark(settings: Settings) -> None:
    scene = market((5 * HOUR, 0), (9 * HOUR, 1000), hours=12)
    boot = 30 + 267 + 20
    result = drill.run(Drill(scene, settings, EXACT), clairvoyant)
    assert len(result.measure.windows) == 1, "the first boot"
    on_demand = 4 * HOUR + boot + boot - HEARD  # a boot ahead of the take; until the spot successor serves
    spot = 12 * HOUR - 4 * HOUR + HEARD
    assert result.measure.usd["on-demand"] == pytest.approx(ON_DEMAND_USD * on_demand / HOUR, rel=1e-3)
    assert result.measure.usd["spot"] == pytest.approx(SPOT_USD * spot / HOUR, rel=1e-3)


def test_the_clairvoyant_stays_dark_only_while_nothing_at_all_is_sold(settings: Settings) -> None:
    steps = [Step(START, "g6.xlarge", 0, purchase="on-demand")]
    scene = with_steps(market((5 * HOUR, 0), (6 * HOUR, 1000), hours=12), steps)
    result = drill.run(Drill(scene, settings, EXACT), clairvoyant)
    _, dark = result.measure.windows
    assert dark.seconds == pytest.approx(HOUR + BOOT_SECONDS - HEARD, abs=1)


def test_the_clairvoyant_takes_the_pool_that_is_cheap_from_now_on(settings: Settings) -> None:
    """g6 turns dear at once, g5 cheap: eight hours at $0.20."""
    prices = [Step(START, label, None, usd_per_hour=usd) for label, usd in (("g6.xlarge", 0.90), ("g5.xlarge", 0.20))]
    scene = with_steps(market(hours=8, pools=(pool("g6.xlarge"), pool("g5.xlarge"))), prices)
    assert drill.run(Drill(scene, settings, EXACT), clairvoyant).measure.cost_usd == pytest.approx(1.6)


def test_the_clairvoyant_places_two_boxes_on_two_pools_that_carry_one_each(settings: Settings) -> None:
    two = replace(settings, capacity=Capacity(min=2, max=4))
    scene = market((0, 1), hours=24, pools=(pool("g6.xlarge"), pool("g5.xlarge")))
    assert drill.run(Drill(scene, two, EXACT), clairvoyant).measure.cost_usd == pytest.approx(24 * (0.34 + 0.42))


def test_a_fleet_of_three_is_degraded_by_the_share_that_is_missing(settings: Settings) -> None:
    """One on-demand box as the floor, two spot boxes taken together: two thirds are missing for one relaunch."""
    three = replace(settings, capacity=Capacity(min=3, max=6, on_demand_base=1))
    notice = 5 * HOUR
    result = drill.run(Drill(market((notice, 0), (notice + 10, 1000), hours=12), three, EXACT), POLICIES["spot-only"])
    first, window = result.measure.windows
    assert first.seconds == FIRST_ATTEMPT + BOOT_SECONDS
    assert window.seconds == 15 + BOOT_SECONDS - HEARD
    assert result.measure.degraded_seconds == pytest.approx(first.seconds + window.seconds * 2 / 3)


def test_missing_data_that_does_not_breach_never_lights_the_alarm(settings: Settings) -> None:
    """The default of healthy_host_count(): with no target registered the metric vanishes and nobody is told."""

    def alarms(behaviour: Behaviour) -> list[str]:
        log, _ = lived(market((HOUR, 0), hours=6), POLICIES["spot-only"], settings=settings, behaviour=behaviour)
        return [event.fields["state"] for event in log if event.kind == "alarm"]

    assert "ALARM" in alarms(EXACT)
    silent = replace(EXACT, alarm=replace(EXACT.alarm, missing_breaches=False))
    assert "ALARM" not in alarms(silent)
