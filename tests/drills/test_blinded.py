"""The blinded clairvoyant: by hand on small markets, and beside the simulated cloud."""

from dataclasses import replace

import pytest

from fleet.config.settings import Settings
from fleet.sim.cloud.behaviour import Behaviour
from fleet.sim.drills import drill
from fleet.sim.drills.drill import Drill
from fleet.sim.experiments import blinded
from fleet.sim.markets import synthetic
from fleet.sim.policies.catalogue import POLICIES
from tests.drills.by_hand import HOUR, exact, market

SPOT, ON_DEMAND = 0.34, 0.8048
LAGS = blinded.lags(exact())


def test_calm_goes_out_at_the_notice_and_comes_back_after_its_time_of_supply() -> None:
    scene = market((HOUR, 0), (5 * HOUR, 1000), hours=10)
    usd, minutes = blinded.calm(scene, exact(), 1800)
    left, returned = HOUR, 5.5 * HOUR
    assert minutes * 60 == pytest.approx(LAGS.spot + LAGS.on_demand)
    on_demand = returned + LAGS.boot - left
    assert usd * 3600 == pytest.approx(SPOT * (left + 10 * HOUR - returned) + ON_DEMAND * on_demand)


def test_foreseeing_pays_for_a_return_only_where_it_saves_more_than_its_loss_is_worth() -> None:
    scene = market((HOUR, 0), (2 * HOUR, 1000), (4 * HOUR, 0), hours=10)
    cheap, dear = (blinded.foreseeing(scene, exact(), weight) for weight in (0.001, 10))
    assert cheap[1] * 60 == pytest.approx(LAGS.spot + 2 * LAGS.on_demand)
    assert dear == (pytest.approx(ON_DEMAND * 10), pytest.approx(LAGS.on_demand / 60))
    assert cheap[0] < dear[0]


def test_a_pool_that_closes_within_a_boot_is_no_return() -> None:
    scene = market((HOUR, 0), (2 * HOUR, 1000), (2 * HOUR + 200, 0), hours=10)
    assert blinded.calm(scene, exact(), 0)[1] * 60 == pytest.approx(LAGS.spot + LAGS.on_demand)


def test_the_reckoning_comes_near_what_the_simulated_cloud_makes_of_the_fixed_timer(settings: Settings) -> None:
    unwarned = replace(Behaviour(), recommendation_ahead_share=0)
    scene = synthetic.market(synthetic.region("us-east-2"), 5, days=12)
    lived = drill.run(Drill(scene, settings, unwarned, seed=5), POLICIES["timer-30"]).measure
    usd, minutes = blinded.calm(scene, unwarned, 1800, late=12.5)
    assert minutes == pytest.approx(lived.degraded_minutes, rel=0.06)
    assert usd == pytest.approx(lived.cost_usd, rel=0.03)
