"""The boot's graph of stages, run and measured, and what the box tells of it in lines, logs and metrics."""

import dataclasses
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import aws
import boot
import config
import graph
import imds
import log
import pytest
import stages
import telemetry

from fleet.core import boot_length, names
from tests.box import world


def run(
    table: tuple[stages.Stage, ...],
    bodies: dict[str, graph.Body],
    deadline: Callable[[], float] = lambda: log.uptime() + 60,
) -> list[graph.Run]:
    return list(graph.run(table, bodies, deadline))


def sleeper(seconds: float) -> graph.Body:
    return lambda: time.sleep(seconds)


DIAMOND = (
    stages.Stage("a", (), 9),
    stages.Stage("b", ("a",), 9),
    stages.Stage("c", ("a",), 9),
    stages.Stage("aside", ("a",), 9, serving=False),
    stages.Stage("d", ("b", "c"), 9),
)


def test_stages_start_once_what_they_need_has_ended_and_side_by_side() -> None:
    met = threading.Barrier(2, timeout=5)  # b and c must run at once, or this breaks

    def meet() -> None:
        met.wait()

    runs = run(DIAMOND, {"a": sleeper(0), "b": meet, "c": meet, "aside": sleeper(0), "d": sleeper(0)})
    by_name = {done.name: done for done in runs}
    assert all(done.outcome == graph.DONE for done in runs)
    for stage in DIAMOND:
        for need in stage.needs:
            assert by_name[need].ended <= by_name[stage.name].started


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
    end = log.uptime() + 0.1
    with pytest.raises(graph.StageError, match=r"^slow over budget"):
        run((stages.Stage("slow", (), 60),), {"slow": sleeper(5)}, lambda: end)


def test_stage_that_turns_the_boot_cold_has_the_cold_boots_budget() -> None:
    end = [log.uptime() + 0.2]

    def turns_cold() -> None:
        time.sleep(0.1)  # the runner waits until the warm end by now
        end[0] += 60
        time.sleep(0.3)

    (done,) = run((stages.Stage("load", (), 60),), {"load": turns_cold}, lambda: end[0])
    assert done.outcome == graph.DONE


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
    now = datetime.now(UTC)
    launched = None if ago is None else now - timedelta(seconds=ago)
    assert boot.before_kernel_seconds(launched, now, up) == seconds


def test_slow_warm_tag_never_overwrites_the_cold_one(box: config.Box, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    cold_written = threading.Event()
    fails = iter([True])

    def tag_boot(_: aws.Aws, tag: str, patience_seconds: float) -> None:
        if tag == names.BOOT_WARM:
            cold_written.wait(0.3)  # the first call hangs while the cache turns out to be damaged
        elif next(fails, False):
            raise aws.AwsError("ec2 create-tags: (RequestLimitExceeded)")  # tried again
        written.append(tag)
        if tag == names.BOOT_COLD:
            cold_written.set()

    monkeypatch.setattr(aws.Aws, "tag_boot", tag_boot)
    one = boot.Boot(dataclasses.replace(box, health_poll_seconds=0.01), imds.Imds(), imds.Identity("i-1", None))
    one._turn(warm=True)
    one._turn(warm=False)
    world.wait(lambda: len(written) == 2, 5)
    assert written[-1] == names.BOOT_COLD


def test_tag_that_the_role_may_not_set_is_not_tried_again(box: config.Box, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def tag_boot(_: aws.Aws, tag: str, patience_seconds: float) -> None:
        tried.append(tag)
        raise aws.DeniedError("ec2 create-tags: (UnauthorizedOperation)")

    monkeypatch.setattr(aws.Aws, "tag_boot", tag_boot)
    boot.Boot(dataclasses.replace(box, health_poll_seconds=0.01), imds.Imds(), imds.Identity("i-1", None))._tag()
    assert tried == [names.BOOT_WARM]


# --- what the page says of it ---------------------------------------------------------------------------------

PAGE = (world.CHECKOUT / "docs" / "box.md").read_text()


def test_page_predicts_what_the_measured_stages_come_to() -> None:
    rates = [boot_length.Streamed(rate) for rate in (boot_length.BASELINE, boot_length.BURST)]
    for figures in ("begins", "engine", "arrived", "read"):
        assert "| {:.1f} | {:.1f} |".format(*(getattr(rate, figures) for rate in rates)) in PAGE
    assert "| **{:.1f}** | **{:.1f}** |".format(*(rate.serving for rate in rates)) in PAGE
    assert max(rate.serving for rate in rates) <= 110


# --- what it tells --------------------------------------------------------------------------------------------


def test_bootstage_line_carries_stage_times_bytes_rate_and_reason() -> None:
    line = telemetry.bootstage(graph.Run("restore", 48.1, 148.9, graph.DONE, {"bytes": 18_200_000_000}))
    assert line == (
        "BOOTSTAGE stage=restore outcome=done start=48.10 end=148.90 seconds=100.80 bytes=18200000000 mb_per_s=180.6"
    )
    failed = telemetry.bootstage(graph.Run("warm_up", 1, 2, graph.OVER_BUDGET, {"why": "no answer"}))
    assert failed == 'BOOTSTAGE stage=warm_up outcome=over-budget start=1.00 end=2.00 seconds=1.00 why="no answer"'


def test_long_log_is_shipped_by_its_end_within_one_argument() -> None:
    lines = [f"{number} is a short line of the log" for number in range(5000)]
    text = aws.log_events(lines, 12.0)
    assert len(text) < 128 << 10
    messages = [event["message"] for event in json.loads(text)]
    assert len(messages) > 1000
    assert messages == lines[-len(messages) :]
    assert json.loads(aws.log_events(["", "é" * 200_000], 12.0)) == [{"timestamp": 12000, "message": "é" * 10_000}]


def test_metrics_carry_the_fleet_and_the_stage(box: config.Box) -> None:
    datum = telemetry.metric(box, names.METRIC_BOOT_STAGE_SECONDS, 1.23456, stage="warm_up")
    assert datum["Value"] == 1.235
    assert datum["Dimensions"] == [
        {"Name": names.DIMENSION_FLEET, "Value": "boxes"},
        {"Name": names.DIMENSION_STAGE, "Value": "warm_up"},
    ]
