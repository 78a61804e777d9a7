"""What the box decides, without touching anything: notices, budgets, wedge, streams, warm-up."""

import dataclasses
import itertools
import json
import subprocess
from datetime import UTC, datetime
from typing import Any

import config
import engine
import line
import notices
import pytest
import readiness
import streams
import wedge
from hypothesis import given
from hypothesis import strategies as st

from tests.box.conftest import a_box

NOW = datetime(2026, 7, 28, 9, 0, tzinfo=UTC)


# --- notices --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stamp", "since_clear", "holds", "left"),
    [
        ("2026-07-28T09:01:57Z", 5.0, True, 117.0),  # seen at the next poll: the notice's own time counts
        ("2026-07-28T09:01:00Z", 61.0, True, 60.0),  # metadata was away for a minute
        ("2026-07-28T09:00:39Z", 5.0, True, 39.0),  # it came late
        ("2026-07-28T09:00:39Z", 60.0, False, 60.0),  # the wall clock has moved: at least a minute is left
        ("2026-07-28T10:01:57Z", 5.0, True, 115.0),  # the wall clock is an hour behind
        ("2026-07-28T08:01:57Z", 5.0, True, 115.0),  # ... or ahead
        ("2026-07-28T08:01:57Z", 500.0, True, 0.0),
        ("2026-07-28T09:00:40Z", None, True, 40.0),  # an agent that was restarted amid the notice
        ("2026-07-28T09:00:40Z", None, False, 0.0),
        ("2026-07-28T10:00:40Z", None, True, 0.0),
        ("tomorrow", None, True, 0.0),
        ("tomorrow", 4.0, True, 116.0),
        (None, 4.0, True, 116.0),
    ],
)
def test_time_left_on_a_notice_is_its_own_unless_a_clock_jumped(
    stamp: str | None, since_clear: float | None, holds: bool, left: float
) -> None:
    text = json.dumps({"action": "terminate", "time": stamp})
    assert notices.interruption(text, NOW, since_clear, holds) == notices.Interruption("terminate", left)


def test_clock_holds_while_it_runs_with_the_other_and_metadata_agrees() -> None:
    before, later = 1000.0 - 10.0, 1005.0 - 15.2
    assert notices.clock_holds(1005.0, later, before, None)
    assert notices.clock_holds(1005.0, later, None, None)
    assert not notices.clock_holds(1065.0, 1065.0 - 15.0, before, None)
    assert not notices.clock_holds(945.0, 945.0 - 15.0, before, None)
    assert notices.clock_holds(1005.0, later, before, datetime.fromtimestamp(1004, UTC))
    assert not notices.clock_holds(1005.0, later, before, datetime.fromtimestamp(1065, UTC))
    assert not notices.clock_holds(1005.0, later, None, datetime.fromtimestamp(945, UTC))


STOP = {"Code": "instance-stop", "NotBefore": "28 Jul 2026 09:10:00 GMT", "State": "active"}


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([STOP], "instance-stop scheduled for 09:10:00"),
        ([{**STOP, "Code": "system-reboot"}], "system-reboot scheduled for 09:10:00"),
        ([{**STOP, "Code": "instance-retirement"}], "instance-retirement scheduled for 09:10:00"),
        ([{**STOP, "Code": "system-maintenance"}, STOP], "instance-stop scheduled for 09:10:00"),
        ([{**STOP, "NotBefore": "28 Jul 2026 09:30:00 GMT"}], None),  # not within a quarter of an hour
        ([{**STOP, "State": "completed"}], None),
        ([{**STOP, "State": "canceled"}], None),
        ([{**STOP, "NotBefore": "soon"}], None),
        ([{"Code": "instance-stop"}], None),
        ([[]], None),
        ([], None),
        ({"Code": "instance-stop"}, None),
        (7, None),
    ],
)
def test_scheduled_event_counts_once_it_is_minutes_away_and_ends_a_box(events: Any, told: str | None) -> None:
    assert notices.scheduled(json.dumps(events), NOW, 915) == told


NO_NOTICE = ["", "nonsense", "[]", "3", "null", '{"time": "2026-07-28T09:01:57Z"}', "[" * 100_000]


@pytest.mark.parametrize("text", NO_NOTICE, ids=lambda text: text[:10])
def test_text_that_is_no_notice_is_none(text: str) -> None:
    assert notices.interruption(text, NOW, 5, True) is None
    assert notices.recommended_at(text) is None
    assert notices.scheduled(text, NOW, 915) is None


# --- streams --------------------------------------------------------------------------------------------------

SS = """\
ESTAB 0 0 [::ffff:10.77.0.1]:11434 [::ffff:10.77.0.2]:4001 bytes_sent:900 bytes_received:200 lastsnd:100 lastrcv:4000
ESTAB 0 0 [::ffff:10.77.0.1]:11434 [::ffff:10.77.0.2]:4003 lastsnd:900 lastrcv:900
CLOSE-WAIT 1 0 [fd77::1]:11434 [fd77::2]:4005 bytes_sent:900 bytes_received:400 lastsnd:9000 lastrcv:10
ESTAB 0 0 [::ffff:127.0.0.1]:11434 [::ffff:127.0.0.1]:4006 bytes_sent:900 bytes_received:400 lastsnd:10 lastrcv:10
ESTAB 0 0 [::ffff:10.77.0.1]:11434 [::ffff:10.77.0.1]:4007 bytes_sent:900 bytes_received:400 lastsnd:10 lastrcv:10
"""


def test_callers_are_who_sent_bytes_from_outside() -> None:
    assert {peer.rsplit(":", 1)[1] for peer in streams.parse(SS)} == {"4001", "4005"}  # 4003: a balancer's probe


def test_connections_that_the_kernel_alone_still_sends_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, SS, "")

    monkeypatch.setattr(streams.subprocess, "run", run)
    assert len(streams.callers(11434)) == 2
    states = {word for before, word in itertools.pairwise(asked[0]) if before == "state"}
    assert states == {"established", "close-wait", "fin-wait-1", "last-ack"}


def test_line_is_told_by_who_is_served_and_how_many_wait() -> None:
    served = {"id": "a", "state": "served", "tokens": 7, "served_seconds": 3.5}
    waits = {"id": "b", "state": "paused", "tokens": 3, "served_seconds": 0.0}
    answer = {"streams": 2, "cut": 1, "counts": {"answered": 5, "draining": 4}, "line": [served, waits]}
    told = line.Told(2, 1, ("a", 7), 3.5, answered=5, cut=1, handed_back=3)
    assert line.told(answer) == told
    assert line.told({**answer, "line": [], "streams": 0}).served is None


# --- wedge ----------------------------------------------------------------------------------------------------

STUCK = {"streams": 1, "served": ("a", 3), "gpu_busy": False}
ABSENT = engine.Loaded(absent=True, said="not loaded")
PARTLY = engine.Loaded(differs=True, said="only 5 of 9 bytes are in GPU memory")
Action = wedge.Action


def looks(box: config.Box, states: list[dict[str, Any]], every: float = 5.0) -> list[wedge.Action]:
    """The actions for a series of looks, one every poll. A proof that is asked for is pending until a state tells."""
    memory, actions, token = wedge.fresh(0), [], None
    well = {"answers": True, "loaded": engine.Loaded(), "gate_shut": False}
    for number, state in enumerate(states, 1):
        token = state.get("token", token)
        seen = wedge.Look(at=number * every, **{**well, "token": token, **state})
        memory, action, _ = wedge.decide(box, memory, seen)
        token = token if token is wedge.Asked.PENDING else None
        if action is Action.PROVE:
            token = wedge.Asked.PENDING
        actions.append(action)
    return actions


def test_silence_of_half_a_minute_shuts_and_another_minute_starts_the_engine_anew(box: config.Box) -> None:
    actions = looks(box, [{"answers": False, "loaded": None}] * 20)
    assert actions.index(Action.SHUT) == 5  # the look at 30 s
    assert actions.index(Action.RECOVER) == 5 + 12


def test_request_without_tokens_on_an_idle_gpu_is_wedged_after_two_minutes(box: config.Box) -> None:
    actions = looks(box, [STUCK] * 41)
    assert (
        actions.index(Action.PROVE) == 12
    )  # it was seen at 5 s; a minute later a token of its own has a minute to come
    assert actions.index(Action.SHUT) == 24
    assert actions.index(Action.RECOVER) == 24 + 12
    assert actions.count(Action.PROVE) == 1


def test_proof_that_nobody_waits_beside_is_wedged_after_its_minute(box: config.Box) -> None:
    idle = [{"gpu_busy": False}] * 740
    actions = looks(dataclasses.replace(box, self_prime_seconds=10_000.0), idle)
    assert actions.index(Action.PROVE) == 719  # the hour
    assert actions.index(Action.SHUT) == 719 + 12


def test_stuck_caller_is_no_wedge_where_the_engine_gives_a_token(box: config.Box) -> None:
    unfinished = [STUCK] * 14 + [{**STUCK, "token": wedge.Asked.CAME}]
    actions = looks(box, unfinished * 20)
    assert set(actions) == {Action.NOTHING, Action.PROVE}


def test_callers_who_are_answered_one_after_another_are_no_wedge_whatever_the_gpu_says(box: config.Box) -> None:
    flowing = [{**STUCK, "served": (f"{number // 3}", number)} for number in range(1, 700)]
    assert set(looks(box, flowing)) == {Action.NOTHING}


@given(st.integers(1, 60))
def test_load_in_progress_is_not_stuck_and_a_proof_that_waits_for_it_has_its_time_from_its_end(length: int) -> None:
    reading = {**STUCK, "reading": True}
    came = {**STUCK, "token": wedge.Asked.CAME}
    actions = looks(a_box(), [STUCK] * 13 + [reading] * length + [STUCK] * 11 + [came])
    assert not {Action.SHUT, Action.RECOVER} & set(actions)
    hangs = looks(a_box(), [reading] * length + [STUCK] * 40)
    assert hangs.index(Action.SHUT) == length + 23


@given(st.lists(st.sampled_from([True, None]), min_size=60, max_size=120))
def test_busy_gpu_or_one_unknown_for_ten_minutes_is_not_wedged_while_the_engine_answers(
    busy: list[bool | None],
) -> None:
    assert set(looks(a_box(), [{**STUCK, "gpu_busy": one} for one in busy])) == {Action.NOTHING}


def test_gpu_of_which_nobody_can_tell_counts_as_idle_after_a_quarter_of_an_hour(box: config.Box) -> None:
    unknown = {**STUCK, "gpu_busy": None}
    actions = looks(box, [STUCK] + [unknown] * 260)
    told = [(number * 5, action) for number, action in enumerate(actions, 1) if action is not Action.NOTHING]
    first = 5 + box.gpu_unknown_seconds - 5  # the look before it still counted as busy
    assert told[:3] == [(first + 60, Action.PROVE), (first + 120, Action.SHUT), (first + 180, Action.RECOVER)]
    one_after_another = [{**unknown, "served": (str(number // 150), 0)} for number in range(600)]
    assert set(looks(box, one_after_another)) == {Action.NOTHING}
    told_now_and_then = ([unknown] * 179 + [{**STUCK, "gpu_busy": True}]) * 3
    assert set(looks(box, told_now_and_then)) == {Action.NOTHING}


def test_engine_that_recovers_is_warmed_before_it_opens(box: config.Box) -> None:
    silent, back = {"answers": False, "loaded": None}, {"loaded": ABSENT, "gate_shut": True}
    assert looks(box, [silent] * 7 + [back])[-1] is Action.WARM_UP


def test_engine_that_recovered_behind_a_gate_that_could_not_be_shut_has_its_minute_again(box: config.Box) -> None:
    silent = {"answers": False, "loaded": None}
    actions = looks(box, [silent] * 7 + [{}] + [silent] * 20)
    assert [action for action in actions if action is not Action.NOTHING][:2] == [Action.SHUT] * 2


def test_model_that_is_gone_is_loaded_by_a_token_beside_the_open_gate_on_the_second_look(box: config.Box) -> None:
    assert looks(box, [{"loaded": ABSENT}] * 2) == [Action.NOTHING, Action.PROVE]
    assert looks(box, [{"loaded": ABSENT}, {}, {"loaded": ABSENT}]) == [Action.NOTHING] * 3
    served = {"loaded": ABSENT, "streams": 1, "served": ("a", 0), "gpu_busy": True}
    assert looks(box, [served] * 31).index(Action.PROVE) == 29  # a caller's own load has two and a half minutes


def test_model_that_is_another_or_not_whole_has_the_engine_started_anew_once_nobody_is_served(box: config.Box) -> None:
    in_use = [{"loaded": PARTLY, "streams": 1, "served": ("a", 0), "gpu_busy": True}] * 100
    assert set(looks(box, in_use)) == {Action.NOTHING}
    assert looks(box, [*in_use, {"loaded": PARTLY}])[-1] is Action.RECOVER
    assert looks(box, [{"loaded": PARTLY}] * 2)[-1] is Action.RECOVER


@given(st.lists(st.sampled_from([engine.Loaded(), ABSENT, PARTLY, None]), min_size=10, max_size=29))
def test_gate_stays_open_for_who_waits_for_a_load_whatever_the_engine_says_of_its_models(
    said: list[engine.Loaded | None],
) -> None:
    states = [{"streams": 1, "served": ("a", n), "loaded": one} for n, one in enumerate(said)]
    assert set(looks(a_box(), states)) == {Action.NOTHING}


def test_engine_that_refuses_three_of_our_own_requests_is_warmed_and_one_refusal_is_asked_again(
    box: config.Box,
) -> None:
    refused, came = {"token": wedge.Asked.REFUSED, "streams": 1}, {"token": wedge.Asked.CAME, "streams": 1}
    assert looks(box, [refused] * 3) == [Action.PROVE, Action.PROVE, Action.WARM_UP]
    assert Action.WARM_UP not in looks(box, [refused, refused, came, refused, refused, came])


def test_engine_that_does_not_say_what_is_loaded_is_left_alone(box: config.Box) -> None:
    assert set(looks(box, [{"loaded": None}] * 50)) == {Action.NOTHING}


def test_self_prime_comes_after_twenty_idle_minutes_and_a_proof_every_hour_whatever_the_traffic(
    box: config.Box,
) -> None:
    idle = looks(box, [{}] * 500)
    assert [number for number, action in enumerate(idle, 1) if action is Action.PRIME] == [240, 480]
    busy = looks(box, [{"streams": 1}] * 721)
    assert [number * 5 for number, action in enumerate(busy, 1) if action is not Action.NOTHING] == [3600]
    assert busy[719] is Action.PROVE


# --- warm-up --------------------------------------------------------------------------------------------------

TOKENS = {"model": "tiny", "response": "hi", "done": True, "eval_count": 8}
LOADED = {"name": "tiny:latest", "digest": "d", "size": 9, "size_vram": 9, "context_length": 256}


@pytest.mark.parametrize(
    ("generated", "loaded", "problem"),
    [
        ({}, {}, None),
        ({"response": "", "thinking": "The user says hello. They"}, {}, None),  # thoughts are tokens
        ({"response": ""}, {}, None),  # whatever field they are in
        ({"eval_count": 0}, {}, "generate returned no tokens"),
        ({"done": False}, {}, "generate returned no tokens"),
        ({"model": "other"}, {}, "other answered, not tiny"),
        ({}, {"name": "other:latest"}, "tiny is not loaded, but ['other:latest']"),
        ({}, {"digest": "x"}, "the loaded model is x, the store holds d"),
        ({}, {"context_length": 128}, "context length is 128, not 256"),
        ({}, {"context_length": None}, "context length is None, not 256"),
        ({}, {"size_vram": 5}, "only 5 of 9 bytes are in GPU memory"),
        ({}, {"size": 0, "size_vram": 0}, "only 0 of 0 bytes are in GPU memory"),
    ],
)
def test_gate_opens_only_for_tokens_of_the_exact_model_wholly_loaded(
    box: config.Box, generated: dict[str, Any], loaded: dict[str, Any], problem: str | None
) -> None:
    assert readiness.problem(box, "d", {**TOKENS, **generated}, {"models": [{**LOADED, **loaded}]}) == problem


def test_requests_of_our_own_ask_for_nothing_that_a_caller_does_not_get(box: config.Box) -> None:
    assert readiness.tokens(box, 1)["options"] == {"num_predict": 1}
    assert readiness.load(box) == {"model": box.model, "stream": False}  # an empty prompt
