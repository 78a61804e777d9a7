"""What the box decides, without touching anything: notices, budgets, wedge, streams, warm-up, graph."""

import itertools
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import aws
import boot
import config
import drain
import graph
import imds
import notices
import pytest
import stages
import streams
import telemetry
import warm
import wedge
from hypothesis import given
from hypothesis import strategies as st

from fleet import names
from tests.box import world
from tests.box.conftest import a_box

NOW = datetime(2026, 7, 28, 9, 0, tzinfo=UTC)


# --- notices and the drain budget -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stamp", "since_clear", "left"),
    [
        ("2026-07-28T09:01:57Z", 5.0, 117.0),  # seen at the next poll: the notice's own time counts
        ("2026-07-28T09:01:00Z", 61.0, 60.0),  # metadata was away for a minute
        ("2026-07-28T10:01:57Z", 5.0, 115.0),  # the wall clock is an hour behind
        ("2026-07-28T08:01:57Z", 5.0, 115.0),  # ... or ahead
        ("2026-07-28T08:01:57Z", 500.0, 0.0),
        ("2026-07-28T09:00:40Z", None, 40.0),  # an agent that was restarted amid the notice
        ("2026-07-28T10:00:40Z", None, 0.0),
        ("tomorrow", None, 0.0),
        ("tomorrow", 4.0, 116.0),
        (None, 4.0, 116.0),
    ],
)
def test_time_left_on_a_notice_never_falls_for_a_clock_that_jumped(
    stamp: str | None, since_clear: float | None, left: float
) -> None:
    text = json.dumps({"action": "terminate", "time": stamp})
    assert notices.interruption(text, NOW, since_clear) == notices.Interruption("terminate", left)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "3", "null", '{"time": "2026-07-28T09:01:57Z"}'])
def test_text_that_is_no_notice_is_none(text: str) -> None:
    assert notices.interruption(text, NOW, 5) is None
    assert notices.recommended_at(text) is None


@given(st.floats(0, 200), st.floats(0, 30), st.floats(5, 60), st.floats(10, 3600))
def test_drain_budget_is_the_time_left_less_removal_and_margin(
    left: float, removal: float, margin: float, cap: float
) -> None:
    budget = drain.budget_seconds(left, removal, margin, cap)
    assert 0 <= budget <= cap
    assert budget == 0 or budget + removal + margin <= left + 1e-9
    assert budget == cap or budget == max(0.0, left - removal - margin)


def test_two_minutes_less_a_millisecond_and_the_margin_are_the_whole_budget() -> None:
    assert drain.budget_seconds(120, 0.001, 15, 105) == pytest.approx(104.999)


# --- streams --------------------------------------------------------------------------------------------------

SS = """\
ESTAB 0 0 [::ffff:10.77.0.1]:11434 [::ffff:10.77.0.2]:4001 bytes_sent:900 bytes_received:200 lastsnd:100 lastrcv:4000
ESTAB 0 0 [::ffff:10.77.0.1]:11434 [::ffff:10.77.0.2]:4002 bytes_received:200 lastsnd:60000 lastrcv:60000
ESTAB 0 0 [::ffff:10.77.0.1]:11434 [::ffff:10.77.0.2]:4003 lastsnd:900 lastrcv:900
ESTAB 0 0 [fd77::1]:11434 [fd77::2]:4004 bytes_sent:900 bytes_received:200 lastsnd:9000 lastrcv:9500
CLOSE-WAIT 1 0 [fd77::1]:11434 [fd77::2]:4005 bytes_sent:900 bytes_received:400 lastsnd:9000 lastrcv:10
ESTAB 0 0 [::ffff:127.0.0.1]:11434 [::ffff:127.0.0.1]:4006 bytes_sent:900 bytes_received:400 lastsnd:10 lastrcv:10
ESTAB 0 0 [::ffff:10.77.0.1]:11434 [::ffff:10.77.0.1]:4007 bytes_sent:900 bytes_received:400 lastsnd:10 lastrcv:10
"""


def test_streams_are_requests_outstanding_or_bytes_out_lately_and_nothing_from_loopback() -> None:
    found = {connection.peer.rsplit(":", 1)[1]: connection for connection in streams.parse(SS)}
    assert set(found) == {"4001", "4002", "4003", "4004", "4005"}
    assert {port for port, connection in found.items() if connection.stream} == {"4001", "4002", "4005"}
    assert {port for port, connection in found.items() if connection.outstanding} == {"4002", "4005"}
    assert not found["4003"].stream  # a balancer's probe: no bytes either way


# --- wedge ----------------------------------------------------------------------------------------------------

STUCK = {"active": True, "waiting": True, "gpu_busy": False}


def looks(box: config.Box, states: list[dict[str, Any]], every: float = 5.0) -> list[wedge.Action]:
    """The actions for a series of looks, one every poll."""
    memory, actions = wedge.fresh(0), []
    well = {"answers": True, "loaded": True, "gate_shut": False, "active": False, "waiting": False, "gpu_busy": None}
    for number, state in enumerate(states, 1):
        memory, action, _ = wedge.decide(box, memory, wedge.Look(at=number * every, **{**well, **state}))
        actions.append(action)
    return actions


def test_silence_of_half_a_minute_shuts_and_another_minute_replaces(box: config.Box) -> None:
    actions = looks(box, [{"answers": False, "loaded": None}] * 20)
    assert actions.index(wedge.Action.SHUT) == 5  # the look at 30 s
    assert actions.index(wedge.Action.REPLACE) == 5 + 12


def test_open_request_without_bytes_on_an_idle_gpu_is_wedged_after_two_minutes(box: config.Box) -> None:
    actions = looks(box, [STUCK] * 40)
    assert actions.index(wedge.Action.PROVE) == 11  # the look at 60 s: a token of its own has a minute to come
    assert actions.index(wedge.Action.SHUT) == 23  # the look at 120 s
    assert actions.index(wedge.Action.REPLACE) == 23 + 12
    assert actions.count(wedge.Action.PROVE) == 1


def test_request_that_its_caller_never_finishes_is_no_wedge_where_the_engine_gives_a_token(box: config.Box) -> None:
    unfinished = [STUCK] * 13 + [{**STUCK, "proven": True}]  # asked at 60 s, answered by the next look but one
    actions = looks(box, unfinished * 20)
    assert set(actions) == {wedge.Action.NOTHING, wedge.Action.PROVE}
    assert actions.count(wedge.Action.PROVE) == 20


def test_reload_of_two_minutes_less_a_moment_is_no_wedge(box: config.Box) -> None:
    reloading = [STUCK] * 23 + [{"active": True, "waiting": True, "gpu_busy": True}]
    actions = looks(box, reloading + [{"active": True}] * 5 + [{}] * 5)
    assert actions.count(wedge.Action.PROVE) == 1
    assert set(actions) == {wedge.Action.NOTHING, wedge.Action.PROVE}


@given(st.lists(st.sampled_from([True, None]), min_size=60, max_size=120))
def test_busy_gpu_or_one_unknown_for_ten_minutes_is_not_wedged_while_the_engine_answers(
    busy: list[bool | None],
) -> None:
    states = [{"active": True, "waiting": True, "gpu_busy": one} for one in busy]
    assert set(looks(a_box(), states)) == {wedge.Action.NOTHING}


def test_gpu_of_which_nobody_can_tell_counts_as_idle_after_a_quarter_of_an_hour(box: config.Box) -> None:
    unknown = {**STUCK, "gpu_busy": None}
    actions = looks(box, [STUCK] + [unknown] * 260)
    told = [(number * 5, action) for number, action in enumerate(actions, 1) if action is not wedge.Action.NOTHING]
    first = 5 + wedge.GPU_UNKNOWN_SECONDS - 5  # the look before it still counted as busy
    assert told[:3] == [
        (first + 60, wedge.Action.PROVE),
        (first + 120, wedge.Action.SHUT),
        (first + 180, wedge.Action.REPLACE),
    ]
    told_now_and_then = ([unknown] * 179 + [{**STUCK, "gpu_busy": True}]) * 3
    assert set(looks(box, told_now_and_then)) == {wedge.Action.NOTHING}


def test_engine_that_recovers_is_warmed_before_it_opens(box: config.Box) -> None:
    silent, back = {"answers": False, "loaded": None}, {"loaded": False, "gate_shut": True}
    assert looks(box, [silent] * 7 + [back])[-1] is wedge.Action.WARM


def test_engine_that_recovered_behind_a_gate_that_could_not_be_shut_has_its_minute_again(box: config.Box) -> None:
    silent = {"answers": False, "loaded": None}
    actions = looks(box, [silent] * 7 + [{}] + [silent] * 20)
    assert [action for action in actions if action is not wedge.Action.NOTHING][:2] == [wedge.Action.SHUT] * 2


def test_engine_that_lost_its_model_is_warmed_on_the_second_look(box: config.Box) -> None:
    assert looks(box, [{"loaded": False}] * 2) == [wedge.Action.NOTHING, wedge.Action.WARM]
    assert looks(box, [{"loaded": False}, {}, {"loaded": False}]) == [wedge.Action.NOTHING] * 3


@given(st.lists(st.sampled_from([True, False, None]), min_size=10, max_size=59))
def test_gate_stays_open_for_who_waits_for_a_load_whatever_the_engine_says_of_its_models(
    said: list[bool | None],
) -> None:
    assert set(looks(a_box(), [{"active": True, "loaded": one} for one in said])) == {wedge.Action.NOTHING}


def test_engine_whose_loads_fail_is_warmed_after_five_minutes_however_many_callers_it_answers(box: config.Box) -> None:
    actions = looks(box, [{"active": True, "loaded": False}] * 61)
    assert actions.index(wedge.Action.WARM) == 59  # the look at 300 s


def test_engine_that_does_not_say_what_is_loaded_is_left_alone(box: config.Box) -> None:
    assert set(looks(box, [{"loaded": None}] * 50)) == {wedge.Action.NOTHING}


def test_self_prime_comes_after_twenty_idle_minutes_and_not_while_requests_run(box: config.Box) -> None:
    idle = looks(box, [{}] * 500)
    assert [number for number, action in enumerate(idle, 1) if action is wedge.Action.PRIME] == [240, 480]
    assert set(looks(box, [{"active": True}] * 500)) == {wedge.Action.NOTHING}


# --- warm-up --------------------------------------------------------------------------------------------------

TOKENS = {"model": "tiny", "response": "hi", "done": True, "eval_count": 8}
LOADED = {"name": "tiny:latest", "digest": "d", "size": 9, "size_vram": 9, "context_length": 256}


@pytest.mark.parametrize(
    ("generated", "loaded", "problem"),
    [
        ({}, {}, None),
        ({"response": ""}, {}, "generate returned no tokens"),
        ({"eval_count": 0}, {}, "generate returned no tokens"),
        ({"done": False}, {}, "generate returned no tokens"),
        ({"model": "other"}, {}, "other answered, not tiny"),
        ({}, {"name": "other:latest"}, "tiny is not loaded, but ['other:latest']"),
        ({}, {"digest": "x"}, "the loaded model is x, the store holds d"),
        ({}, {"context_length": 128}, "context length is 128, not 256"),
        ({}, {"size_vram": 5}, "only 5 of 9 bytes are in GPU memory"),
    ],
)
def test_gate_opens_only_for_tokens_of_the_exact_model_wholly_loaded(
    box: config.Box, generated: dict[str, Any], loaded: dict[str, Any], problem: str | None
) -> None:
    assert warm.problem(box, "d", {**TOKENS, **generated}, {"models": [{**LOADED, **loaded}]}) == problem


# --- the graph ------------------------------------------------------------------------------------------------


def run(table: tuple[stages.Stage, ...], bodies: dict[str, graph.Body], **more: Any) -> list[graph.Run]:
    options: dict[str, Any] = {"clock": time.monotonic, "deadline": lambda: time.monotonic() + 60, "on_end": id, **more}
    return graph.run(table, bodies, **options)


def sleeper(seconds: float) -> graph.Body:
    def body() -> graph.Detail:
        time.sleep(seconds)
        return {}

    return body


DIAMOND = (
    stages.Stage("a", (), 9),
    stages.Stage("b", ("a",), 9),
    stages.Stage("c", ("a",), 9),
    stages.Stage("aside", ("a",), 9, serving=False),
    stages.Stage("d", ("b", "c"), 9),
)


def test_stages_start_once_what_they_need_has_ended_and_side_by_side() -> None:
    met = threading.Barrier(2, timeout=5)  # b and c must run at once, or this breaks

    def meet() -> graph.Detail:
        met.wait()
        return {}

    runs = run(DIAMOND, {"a": sleeper(0), "b": meet, "c": meet, "aside": sleeper(0), "d": sleeper(0)})
    by_name = {done.name: done for done in runs}
    assert all(done.outcome == graph.DONE for done in runs)
    for stage in DIAMOND:
        for need in stage.needs:
            assert by_name[need].ended <= by_name[stage.name].started


def test_serial_order_runs_one_stage_at_a_time_as_declared() -> None:
    runs = run(DIAMOND, {stage.name: sleeper(0.01) for stage in DIAMOND}, serial=True)
    assert [done.name for done in runs] == [stage.name for stage in DIAMOND]
    for before, after in itertools.pairwise(runs):
        assert before.ended <= after.started


def test_failing_stage_names_itself_and_what_does_not_serve_may_fail() -> None:
    def fail() -> graph.Detail:
        raise RuntimeError("no such thing")

    fine = {stage.name: sleeper(0) for stage in DIAMOND}
    with pytest.raises(graph.StageError, match=r"^c failed: no such thing$"):
        run(DIAMOND, {**fine, "c": fail})
    runs = run(DIAMOND, {**fine, "aside": fail})
    assert {done.name: done.outcome for done in runs}["aside"] == graph.FAILED
    assert {done.name: done.outcome for done in runs}["d"] == graph.DONE


def test_stage_over_its_own_budget_or_the_boots_ends_the_boot() -> None:
    slow = (stages.Stage("slow", (), 0.1),)
    with pytest.raises(graph.StageError, match=r"^slow over budget: exceeded its budget of 0 s$"):
        run(slow, {"slow": sleeper(5)})
    end = time.monotonic() + 0.1
    with pytest.raises(graph.StageError, match=r"^slow over budget"):
        run((stages.Stage("slow", (), 60),), {"slow": sleeper(5)}, deadline=lambda: end)


def test_critical_path_is_the_longest_chain_of_needs_by_measured_time() -> None:
    runs = [
        graph.Run("a", 0, 1, graph.DONE),
        graph.Run("b", 1, 3, graph.DONE),
        graph.Run("c", 1, 7, graph.DONE),
        graph.Run("aside", 1, 99, graph.DONE),
        graph.Run("d", 7, 9, graph.DONE),
    ]
    assert graph.critical_path(DIAMOND, runs) == (["a", "c", "d"], 9)


def test_declared_stages_need_only_what_is_declared_before_them_and_each_has_its_method() -> None:
    known: set[str] = set()
    for stage in stages.STAGES:
        assert set(stage.needs) <= known
        assert callable(getattr(boot.Boot, stage.method))
        known.add(stage.name)
    needed = {need for stage in stages.STAGES for need in stage.needs}
    assert "telemetry" not in needed
    assert stages.STAGES[0].name == "gate"
    assert all(stage.needs for stage in stages.STAGES[1:])  # nothing runs before the gate is shut


@pytest.mark.parametrize(("ago", "up", "seconds"), [(60, 20, 40), (None, 20, 0), (-3600, 20, 0), (86400, 20, 0)])
def test_time_before_the_kernel_counts_unless_the_clock_is_off(ago: float | None, up: float, seconds: float) -> None:
    launched = None if ago is None else NOW - timedelta(seconds=ago)
    assert boot.before_kernel_seconds(launched, NOW, up) == seconds


def test_slow_warm_tag_never_overwrites_the_cold_one(box: config.Box, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    cold_written = threading.Event()

    def tag_boot(_: aws.Aws, tag: str, patience_seconds: float) -> None:
        if tag == names.BOOT_WARM:
            cold_written.wait(0.3)  # the first call hangs while the cache turns out to be damaged
        written.append(tag)
        if tag == names.BOOT_COLD:
            cold_written.set()

    monkeypatch.setattr(aws.Aws, "tag_boot", tag_boot)
    one = boot.Boot(box, imds.Imds(), imds.Identity("i-1", None))
    one._turn(warm=True)
    one._turn(warm=False)
    world.wait(lambda: len(written) == 2, 5)
    assert written[-1] == names.BOOT_COLD


# --- what it tells --------------------------------------------------------------------------------------------


def test_bootstage_line_carries_stage_times_bytes_rate_and_reason() -> None:
    line = telemetry.bootstage(graph.Run("restore", 48.1, 148.9, graph.DONE, {"bytes": 18_200_000_000}))
    assert line == (
        "BOOTSTAGE stage=restore outcome=done start=48.10 end=148.90 seconds=100.80 bytes=18200000000 mb_per_s=180.6"
    )
    failed = telemetry.bootstage(graph.Run("warm", 1, 2, graph.OVER_BUDGET, {"why": "no answer"}))
    assert failed == 'BOOTSTAGE stage=warm outcome=over-budget start=1.00 end=2.00 seconds=1.00 why="no answer"'


def test_long_log_is_shipped_by_its_end_within_one_argument() -> None:
    lines = [f"{number} is a short line of the log" for number in range(5000)]
    text = aws.log_events(lines, 12.0)
    assert len(text) < 128 << 10
    messages = [event["message"] for event in json.loads(text)]
    assert len(messages) > 1000
    assert messages == lines[-len(messages) :]
    assert json.loads(aws.log_events(["", "é" * 200_000], 12.0)) == [{"timestamp": 12000, "message": "é" * 10_000}]


def test_metrics_carry_the_fleet_and_the_stage(box: config.Box) -> None:
    datum = telemetry.metric(box, names.METRIC_BOOT_STAGE_SECONDS, 1.23456, stage="warm")
    assert datum["Value"] == 1.235
    assert datum["Dimensions"] == [
        {"Name": names.DIMENSION_FLEET, "Value": "boxes"},
        {"Name": names.DIMENSION_STAGE, "Value": "warm"},
    ]
