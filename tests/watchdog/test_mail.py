"""A mail says what happened, why, what it costs per day and what the reader may do."""

from dataclasses import replace

import pytest

from fleet.config.pools import Pool
from fleet.config.settings import Settings
from lambdas.watchdog.mail import TEXTS, compose
from lambdas.watchdog.state import SILENT, Kind, Transition
from tests.watchdog.still_cloud import NOW, SETTINGS


def body(kind: Kind, settings: Settings = SETTINGS) -> str:
    return compose(Transition(kind, NOW, "the numbers"), settings)[1]


def test_every_transition_but_the_silent_ones_has_its_own_words() -> None:
    assert set(TEXTS) == set(Kind) - SILENT
    assert len({text.subject for text in TEXTS.values()}) == len(TEXTS)


@pytest.mark.parametrize("kind", TEXTS)
def test_mail_has_its_four_parts_and_a_subject_that_sns_takes(kind: Kind) -> None:
    subject, text = compose(Transition(kind, NOW, "the numbers"), SETTINGS)
    assert subject.startswith("[llm] ")
    assert subject.isascii()
    assert len(subject) <= 100
    assert "When: 2026-07-22 00:35:43 UTC" in text
    assert "Why: the numbers" in text
    assert "\nCost: " in text
    assert "\nWhat you may do: " in text
    assert text.endswith(f"\nMore: docs/runbook/mail-{kind}.md\n")


def test_failover_names_both_prices_per_day() -> None:
    assert "Cost: $19.32 to $24.14 a day for 1 box (on spot: $8.16 to $10.08)" in body(Kind.FAILOVER)


def test_return_to_spot_names_both_prices_the_other_way_round() -> None:
    assert "Cost: $8.16 to $10.08 a day for 1 box (on-demand: $19.32 to $24.14)" in body(Kind.REARMED)


def test_cost_counts_all_boxes_of_the_fleet() -> None:
    three = replace(SETTINGS, capacity=replace(SETTINGS.capacity, min=3), pools=("g6.xlarge",))
    assert "Cost: $57.95 a day for 3 boxes (on spot: $24.48)" in body(Kind.FAILOVER, three)


def test_cost_takes_the_operators_own_prices() -> None:
    own = Pool("p9.huge", 80, 8, 10.0, 4.0)
    settings = replace(SETTINGS, pools=("p9.huge",), own_pools=(own,))
    assert "Cost: $240.00 a day for 1 box (on spot: $96.00)" in body(Kind.FAILOVER, settings)


def test_cost_on_spot_holds_the_boxes_that_are_always_on_demand() -> None:
    capacity = replace(SETTINGS.capacity, min=3, max=4, on_demand_base=1)
    settings = replace(SETTINGS, capacity=capacity, pools=("g6.xlarge",))
    assert "Cost: $35.64 a day for 3 boxes (on-demand: $57.95)" in body(Kind.REARMED, settings)


def test_what_changes_no_price_says_so() -> None:
    assert "Cost: unchanged; 1 box: $19.32 to $24.14 a day on-demand, $8.16 to $10.08 on spot" in body(Kind.REPAIRED)
