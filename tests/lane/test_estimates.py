"""What the lane learns of its box."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lane.estimates import Estimates, Rate, Span
from tests.lane.simulated import CONFIG


def learned(lengths: list[int], token_seconds: float = 0.05) -> Estimates:
    found = Estimates(CONFIG)
    for length in lengths:
        found.answered(
            prompt_tokens=1000, prompt_seconds=2.0, tokens=length, token_seconds=(length - 1) * token_seconds
        )
        found.length(length)
    return found


def test_rates_of_this_box_replace_what_was_assumed() -> None:
    found = learned([150] * 60)
    assert found.token_seconds == pytest.approx(0.05, rel=0.01)
    assert found.prompt(1000).mean == pytest.approx(2.0, rel=0.1)
    assert found.answer(4096).mean == pytest.approx(7.5, rel=0.05)


def test_first_prompt_after_idle_hours_turns_nobody_away() -> None:
    for found in (learned([]), learned([150] * 60), learned([])):
        before = found.prompt(4000).mean
        found.answered(prompt_tokens=3, prompt_seconds=29.3, tokens=1, token_seconds=0.0)
        assert found.prompt(4000).mean <= 2 * before
    cached = learned([])
    for _ in range(200):
        cached.answered(prompt_tokens=1000, prompt_seconds=0.0, tokens=1, token_seconds=0.0)
    for _ in range(60):
        cached.answered(prompt_tokens=1000, prompt_seconds=2.0, tokens=1, token_seconds=0.0)
    assert cached.prompt(1000).mean == pytest.approx(2.0, rel=0.2)


def test_another_card_is_known_after_some_answers() -> None:
    found = learned([150] * 60)
    for _ in range(60):
        found.answered(prompt_tokens=1000, prompt_seconds=2.0, tokens=150, token_seconds=149 * 0.1)
    assert found.token_seconds == pytest.approx(0.1, rel=0.05)


def test_the_callers_limit_bounds_the_answer_and_what_is_decoded_is_done() -> None:
    found = learned([100, 200, 300] * 20, token_seconds=0.1)
    assert found.answer(50).mean == pytest.approx(5, rel=0.01)
    assert found.answer(4096, decoded=250).mean == pytest.approx(5, rel=0.01)  # the longest alone is still possible
    assert 0 < found.answer(4096, decoded=500).mean < 40  # longer than any


def test_a_wait_that_is_the_sum_of_many_has_a_p95_below_the_sum_of_theirs() -> None:
    one = Span(10, 4)
    four = one + one + one + one
    assert four.p95 < 4 * one.p95
    assert four.mean == 40


@given(st.lists(st.tuples(st.floats(-1, 1e9), st.floats(-1, 1e6)), max_size=50))
def test_no_measurement_makes_a_rate_that_is_none(measured: list[tuple[float, float]]) -> None:
    rate = Rate(0.1, 3.0)
    for seconds, count in measured:
        rate.learn(seconds, count)
    assert 0 <= rate.seconds < float("inf")


@given(st.lists(st.integers(1, 10_000), max_size=300), st.integers(1, 8192), st.integers(0, 8192))
def test_what_is_left_is_between_nothing_and_the_limit(lengths: list[int], limit: int, decoded: int) -> None:
    found = Estimates(CONFIG)
    for length in lengths:
        found.length(length)
    mean, variance = found.tokens_left(limit, min(decoded, limit))
    assert 0 <= mean <= limit
    assert variance >= 0


def test_lengths_as_measured_give_their_own_p95() -> None:
    draw = random.Random(1)  # noqa: S311  no secret
    found = learned([max(1, round(188 * draw.lognormvariate(0, 0.22))) for _ in range(200)])
    assert found.answer(4096).mean == pytest.approx(9.6, rel=0.06)
    assert found.answer(4096).p95 == pytest.approx(13.5, rel=0.08)
