"""The line's decisions: order, bounds, slices, drain; on a simulated engine and clock."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lane.estimates import Estimates
from lane.line import REFUSED_MOST, Line, Why
from lane.order import Entry
from relay.lane_headers import BACKGROUND, INTERACTIVE
from tests.lane.simulated import CONFIG, Simulation


def a_line(token_seconds: float = 0.1, lengths: tuple[int, ...] = (100,) * 40, **changes: Any) -> Line:
    """A line that knows its engine: 0.1 s a token, 100 tokens an answer, prompts for nothing."""
    import dataclasses

    config = dataclasses.replace(CONFIG, **changes)
    estimates = Estimates(config)
    for length in lengths:
        estimates.answered(prompt_tokens=100, prompt_seconds=0.0, tokens=101, token_seconds=100 * token_seconds)
        estimates.length(length)
    for _ in range(200):
        estimates.answered(prompt_tokens=100, prompt_seconds=0.0, tokens=101, token_seconds=100 * token_seconds)
    return Line(config, estimates)


def entry(id: str, arrived: float = 0.0, **changes: Any) -> Entry:
    """One that may wait for ten minutes."""
    given = {"caller": "ann", "kind": INTERACTIVE, "deadline": arrived + 600, "stream": True, "limit": 1000}
    return Entry(**{"id": id, "arrived": arrived, "prompt_tokens": 1, **given, **changes})


def turns(line: Line, now: float, each: float = 10.0) -> list[str]:
    """Who is served, one after the other."""
    found = []
    while (taken := line.take(now)) is not None:
        found.append(taken.id)
        now += each
        line.leave(taken, now, "answered")
    return found


def test_interactive_goes_before_background_whoever_came_first() -> None:
    line = a_line()
    for one in (entry("b1", 0, kind=BACKGROUND), entry("b2", 1, kind=BACKGROUND), entry("i", 2)):
        assert line.arrive(one, one.arrived) is None
    assert turns(line, 3, each=1) == ["i", "b1", "b2"]


def test_the_line_is_told_in_the_order_of_its_turns_each_with_the_seconds_until_it_is_done() -> None:
    line = a_line()
    line.arrive(entry("served", caller="bob"), 0)
    line.take(0)
    for number, one in enumerate((entry("b", kind=BACKGROUND), entry("i"), entry("short", limit=50))):
        line.arrive(one, 0)
        one.queued = number / 10
    expected = line.expected(0)
    assert [one.id for one, _ in expected] == ["served", "i", "short", "b"]
    assert [seconds for _, seconds in expected] == pytest.approx([10, 20, 25, 35], rel=0.05)


def test_the_least_served_caller_goes_first_and_a_crowd_of_one_does_not_hold_up_another() -> None:
    line = a_line()
    for number in range(5):
        line.arrive(entry(f"ann{number}", number * 0.1), number * 0.1)
    line.arrive(entry("bob", 1, caller="bob"), 1)
    assert turns(line, 2, each=5) == ["ann0", "bob", "ann1", "ann2", "ann3", "ann4"]


def test_who_is_overdue_has_every_other_turn() -> None:
    line = a_line(overdue_seconds=50)
    for number in range(3):
        line.arrive(entry(f"old{number}", number, kind=BACKGROUND), number)
    for number in range(3):
        line.arrive(entry(f"new{number}", 60 + number), 60 + number)
    assert turns(line, 65, each=1) == ["old0", "new0", "old1", "new1", "old2", "new2"]


def test_a_request_that_would_be_late_is_told_at_second_zero_with_the_wait() -> None:
    line = a_line()
    for number in range(4):
        assert line.arrive(entry(f"{number}", deadline=1e6), 0) is None
    line.take(0)
    busy = line.arrive(entry("late", deadline=30), 0)
    assert busy is not None
    assert busy.why is Why.LATE
    assert busy.wait_seconds == pytest.approx(40, rel=0.05)
    assert 10 <= busy.retry_after_seconds <= 12
    assert line.arrive(entry("in time", deadline=45), 0) is None


def test_a_full_line_takes_nobody_however_patient_and_says_when_to_come_back() -> None:
    line = a_line(depth_most=3)
    for number in range(4):
        assert line.arrive(entry(f"{number}"), 0) is None
        line.take(0)  # the first one is served
    busy = line.arrive(entry("one too many", deadline=1e6), 0)
    assert busy is not None
    assert (busy.why, busy.retry_after_seconds) == (Why.FULL, 10)


def test_who_asks_again_and_again_is_refused_as_often_and_counted_once() -> None:
    line = a_line()
    line.arrive(entry("first"), 0)
    line.take(0)
    assert all(line.arrive(entry("late", deadline=1), 0) for _ in range(5))
    assert line.arrive(entry("other", deadline=1), 0)
    assert line.counts == {"arrived": 3, Why.LATE.value: 2}
    line.leaving(1)
    assert line.arrive(entry("late", deadline=1), 0)
    assert line.counts[Why.DRAINING.value] == 1, "another reason"
    for number in range(REFUSED_MOST):
        line.arrive(entry(f"{number}"), 0)
    assert len(line._refused) == REFUSED_MOST, "memory has a bound"
    assert line.arrive(entry("late", deadline=1), 0)
    assert line.counts[Why.DRAINING.value] == REFUSED_MOST + 2, "forgotten by then, and so counted again"


def test_who_would_be_in_time_on_average_alone_is_told_to_go_elsewhere() -> None:
    line = a_line(lengths=(50, 150))
    line.arrive(entry("first"), 0)
    line.take(0)
    waits = line.wait(entry("second"), 0)
    assert waits.p95 > 1.3 * waits.mean
    assert line.arrive(entry("on average", deadline=1.2 * waits.mean), 0) is not None
    assert line.arrive(entry("in 19 of 20 cases", deadline=1.1 * waits.p95), 0) is None


def test_an_answer_that_is_not_streamed_must_be_whole_by_its_deadline() -> None:
    line = a_line()
    line.arrive(entry("first"), 0)
    line.take(0)
    assert line.arrive(entry("a stream", deadline=12), 0) is None
    assert line.arrive(entry("whole, too late", stream=False, deadline=12), 0) is not None


def test_nobody_is_turned_away_from_an_idle_engine_but_who_cannot_be_in_time() -> None:
    line = a_line()
    assert line.arrive(entry("past", deadline=0), 0) is not None
    assert line.arrive(entry("whole", stream=False, deadline=9), 0) is not None
    assert line.arrive(entry("stream", deadline=1), 0) is None


def test_who_waits_at_its_deadline_is_told_and_who_has_part_of_its_answer_stays() -> None:
    line = a_line(lengths=(10,) * 40)
    line.arrive(entry("first", sliceable=True, deadline=5), 0)
    first = line.take(0)
    assert first is not None
    line.arrive(entry("second", deadline=9), 0)
    line.decoded(first, 20, 1)
    first.delivered = 20
    line.pause(first, 2)
    assert [late.id for late in line.late(8)] == []
    assert [late.id for late in line.late(9)] == ["second"]
    assert line.next_deadline() == 9


def test_a_slice_yields_to_a_higher_class_and_to_who_has_far_less_to_do_alone() -> None:
    line = a_line(lengths=(1000,) * 40)
    line.arrive(entry("long", limit=1000, sliceable=True), 0)
    line.take(0)
    line.arrive(entry("as long", limit=1000), 1)
    assert not line.yields(8)
    line.arrive(entry("short", limit=50), 2)
    assert line.yields(8)
    background = a_line(lengths=(1000,) * 40)
    background.arrive(entry("long", kind=BACKGROUND, sliceable=True), 0)
    background.take(0)
    background.arrive(entry("as long", limit=1000), 1)
    assert background.yields(8)


def test_what_cannot_be_sliced_yields_to_nobody() -> None:
    line = a_line(lengths=(1000,) * 40)
    line.arrive(entry("an image", kind=BACKGROUND), 0)
    line.take(0)
    line.arrive(entry("short", limit=5), 1)
    assert not line.yields(8)


def test_who_paused_comes_after_those_who_waited_and_before_those_who_come() -> None:
    line = a_line(lengths=(1000,) * 40)
    line.arrive(entry("long", sliceable=True), 0)
    long = line.take(0)
    assert long is not None
    line.arrive(entry("short", 1, limit=50), 1)
    line.pause(long, 8)
    line.arrive(entry("later", 9, limit=50), 9)
    assert turns(line, 9) == ["short", "long", "later"]


def test_the_wait_behind_a_slice_is_the_slice() -> None:
    line = a_line(lengths=(1000,) * 40)
    line.arrive(entry("long", sliceable=True), 0)
    line.take(0)
    assert line.wait(entry("short", 3, limit=50), 3).mean == pytest.approx(5, abs=0.01)
    assert line.wait(entry("as long", 3), 3).mean > 60


def test_leaving_hands_back_at_once_who_has_nothing_and_cannot_finish_and_keeps_who_can() -> None:
    line = a_line()
    for number in range(4):
        line.arrive(entry(f"{number}", stream=number != 1), 0)
    first = line.take(0)
    assert first is not None
    line.decoded(first, 90, 9)
    first.delivered = 90
    line.leaving(20)  # 11 s left: one second for the first, 11.8 s (10 / 0.85) for each of the others
    assert [back.id for back in line.handed_back(9)] == ["1", "2", "3"]
    busy = line.arrive(entry("new", 9), 9)
    assert busy is not None
    assert busy.why is Why.DRAINING
    line = a_line()
    line.arrive(entry("0"), 0)
    line.arrive(entry("1"), 0)
    line.take(0)
    line.leaving(24)
    assert line.handed_back(0) == []


def test_leaving_ends_what_is_not_streamed_though_it_has_tokens_and_lets_a_stream_run_to_the_end_of_its_time() -> None:
    line = a_line(lengths=(1000,) * 40)
    line.arrive(entry("whole", stream=False), 0)
    whole = line.take(0)
    assert whole is not None
    line.leaving(30)
    assert line.handed_back(5) == [whole]
    line.leave(whole, 5, "draining")
    line.resumed()
    line.arrive(entry("stream"), 5)
    stream = line.take(5)
    assert stream is not None
    line.decoded(stream, 10, 6)
    stream.delivered = 10
    line.leaving(30)
    assert line.handed_back(6) == []
    stream.continued = True
    assert line.handed_back(6) == [stream]


def test_a_prompt_far_longer_than_any_that_was_read_is_handed_back_where_the_time_may_not_do() -> None:
    line = a_line(lengths=(10,) * 40)
    long = entry("long", prompt_tokens=1020, deadline=600)
    line.arrive(long, 0)
    line.take(0)
    line.leaving(4)
    assert line.handed_back(0.1) == [long]
    line.leaves_at = 100  # of an account's notice
    assert line.handed_back(0.1) == []
    line.leaves_at = 4
    line.estimates.answered(prompt_tokens=300, prompt_seconds=0.1, tokens=1, token_seconds=0)
    assert line.handed_back(0.1) == []  # its pace is known


def test_a_second_word_brings_the_end_forward_and_never_back() -> None:
    line = a_line()
    line.leaving(100)
    line.leaving(50)
    line.leaving(200)
    assert line.leaves_at == 50


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_happens_nobody_starves_no_token_is_lost_and_the_counts_agree(seed: int) -> None:
    simulation = Simulation(seed)
    for _ in range(120):
        simulation.step()
    assert simulation.told["arrived"]
