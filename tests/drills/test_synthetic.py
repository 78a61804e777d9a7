"""Synthetic markets against the published statistics they are shaped by."""

import pytest

from fleet.sim.markets import synthetic
from fleet.sim.markets.market import PLENTY, Step, with_notice
from tests.drills import fitting

pytestmark = pytest.mark.slow  # draws whole regions

DAYS = 1000  # long enough that luck is not what a bound measures
SEED = 4711  # none that the fit has seen


@pytest.mark.parametrize("name", synthetic.regions())
def test_synthetic_region_shows_the_published_figures(name: str) -> None:
    published = synthetic.statistics()
    shown = fitting.observed(synthetic.region(name), SEED, DAYS)
    any_zone = published[f"{name} (any zone)"]
    assert shown["any"].available_share == pytest.approx(any_zone["available_share"], abs=0.02)
    assert shown["any"].transitions_per_day == pytest.approx(2 * any_zone["outages"] / 45, rel=0.12)
    for percentile, minutes in any_zone["outage_minutes"].items():
        assert shown["any"].quantile("down", int(percentile[1:]) / 100) == pytest.approx(minutes, rel=0.35)
    for zone in set(shown) - {"any"}:
        figures = published[zone]
        assert shown[zone].available_share == pytest.approx(figures["available_share"], abs=0.03)
        assert shown[zone].transitions_per_day == pytest.approx(figures["transitions_per_day"], rel=0.12)
        for which in ("up", "down"):
            for percentile in ("p50", "p90"):
                found = shown[zone].quantile(which, int(percentile[1:]) / 100)
                assert found == pytest.approx(figures[f"{which}_minutes"][percentile], rel=0.5), (
                    zone,
                    which,
                    percentile,
                )


def test_pools_of_a_region_are_correlated_as_published() -> None:
    """Independent zones of us-east-1 would leave 10 % of the time without any; published are 29 %."""
    name = "us-east-1"
    published = synthetic.statistics()
    alone = 1.0
    for zone in synthetic.region(name).zones:
        alone *= 1 - published[zone]["available_share"]
    shown = fitting.observed(synthetic.region(name), SEED, DAYS)["any"]
    assert 1 - shown.available_share > 2.5 * alone


def test_same_seed_same_market_and_another_seed_another() -> None:
    region = synthetic.region("us-west-2")
    assert list(synthetic.market(region, 1).steps()) == list(synthetic.market(region, 1).steps())
    assert list(synthetic.market(region, 1).steps()) != list(synthetic.market(region, 2).steps())


def test_a_fall_closes_the_pool_one_notice_before_the_reading_that_shows_it() -> None:
    readings = [(0.0, 2), (390.0, 0), (585.0, 1)]
    assert list(with_notice("a", readings)) == [Step(0.0, "a", 2), Step(270.0, "a", 0), Step(585.0, "a", 1)]


def test_a_rise_shorter_than_a_notice_is_never_sold() -> None:
    readings = [(0.0, 0), (500.0, PLENTY), (560.0, 0), (900.0, 1)]
    assert list(with_notice("a", readings)) == [Step(0.0, "a", 0), Step(900.0, "a", 1)]
