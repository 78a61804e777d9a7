"""The lane's measures, small: `make bench-lane` takes them whole."""

import pytest

from tests.lane import lengths
from tests.lane.notices import BUDGET_SECONDS, LATE_SECONDS, Outcome, notices
from tests.lane.running import on_loop

pytestmark = pytest.mark.slow  # seconds of load a test


def test_estimates_hold_with_the_fleets_lengths() -> None:
    for each in (lengths.A10G, lengths.L4):
        told = lengths.Day(7, each, (1, 4, 10), gap_seconds=60).run(1000).rows()
        assert told["median error share"] <= 0.15
        assert told["of these in time"] >= 0.98
        assert told["told busy"] > 0


@on_loop
async def test_ten_notices_end_every_request_with_an_answer_a_reroute_or_a_clean_break_inside_the_budget() -> None:
    outcomes: list[Outcome] = await notices(10, hands_back=True)
    for outcome in outcomes:
        assert set(outcome.how) <= {"finished", "rerouted", "broken"}, outcome
        assert sum(outcome.how.values()) > 0
        assert outcome.left_after <= BUDGET_SECONDS + LATE_SECONDS
        assert outcome.delivered <= outcome.decoded
