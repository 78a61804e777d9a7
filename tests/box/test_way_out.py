"""The boot's late failures, the drain and the way out, part by part."""

import dataclasses
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import aws
import boot
import drain
import ending
import engine
import gate
import graph
import imds
import leave
import line
import paths
import pytest
import streams
from systemctl import UnitError

from fleet.core import names
from tests.box import world
from tests.box.conftest import a_box


class Line:
    """What each look at the lane tells; the last one for ever. None: it does not answer."""

    def __init__(self, *looks: int | None) -> None:
        self._looks = list(looks)

    def __call__(self, _seconds: float) -> line.Told | None:
        told = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        return None if told is None else line.Told(told, answered=9 - told)


@pytest.fixture(autouse=True)
def no_firewall(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own is left alone."""
    monkeypatch.setattr(gate, "_run", lambda *_, **__: 0)


# --- the boot -------------------------------------------------------------------------------------------------


def test_metadata_that_comes_back_bit_by_bit_gives_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imds, "PAUSE_SECONDS", 0.01)
    away, answers = imds.ImdsError("metadata: timed out"), iter([None, "i-1"])

    def get(_: imds.Imds, path: str) -> str | None:
        found = next(answers, None) if path == "meta-data/instance-id" else None
        if found is None:
            raise away
        return found

    monkeypatch.setattr(imds.Imds, "get", get)
    assert imds.identity(imds.Imds()) == imds.Identity("i-1", None)
    monkeypatch.setattr(imds, "IDENTITY_SECONDS", 0.05)
    with pytest.raises(imds.ImdsError, match="timed out"):
        imds.identity(imds.Imds())


def test_metrics_go_out_once_the_box_serves_and_what_comes_later_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(boot.telemetry, "put", lambda _, data: sent.append(data))
    one = boot.Boot(a_box(), imds.Imds(), imds.Identity("i-1", None))
    for number, name in enumerate(("warm_up", "complete")):
        one._ended(graph.Run(name, number, number + 1, graph.DONE))
    world.wait(lambda: sent, 10)  # while the boot goes on, priming
    assert [datum["MetricName"] for datum in sent[0]] == [names.METRIC_BOOT_STAGE_SECONDS] * 3 + [
        names.METRIC_REPLACEMENT_READY_SECONDS,
        names.METRIC_BOOT_STREAMED,
    ]
    one._ended(graph.Run("upload_cache", 2, 900, graph.DONE))
    assert [datum["Value"] for datum in one._fresh_metrics()] == [898]
    assert one._fresh_metrics() == []


def test_deregistration_begins_once_the_boot_can_no_longer_register_and_what_removal_takes_is_no_streams_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box, done, deadlines = dataclasses.replace(a_box(), drain_budget_seconds=600.0), list[str](), list[float]()

    def stop(command: list[str], **_: Any) -> None:
        done.append(command[1])
        raise drain.subprocess.TimeoutExpired(command, 30)  # a boot that does not end does not end the drain

    monkeypatch.setattr(drain.subprocess, "run", stop)
    monkeypatch.setattr(gate, "set_state", lambda *_: time.sleep(0.5))
    monkeypatch.setattr(ending, "wait", lambda _, deadline, __: deadlines.append(deadline) or ending.Ended(0, 0))
    monkeypatch.setattr(aws.Aws, "deregister", lambda *_: done.append("deregister"))
    monkeypatch.setattr(aws.Aws, "serves_beside_another", lambda *_: False)
    began = time.monotonic()
    drain.drain(box, aws.Aws(box, "i-1"), "interruption notice", 120, 0)
    assert deadlines == [pytest.approx(began + 120 - box.safety_margin_seconds, abs=0.2)]
    world.wait(lambda: "deregistered" in paths.LOG.read_text(), 10)  # or its thread logs elsewhere later
    assert done == ["stop", "deregister"]


def test_hook_that_waits_no_more_is_completed_since_only_its_answer_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "An error occurred (ValidationError) when calling the CompleteLifecycleAction operation: "
    gone = told + "No active Lifecycle Action found with instance ID i-1"
    answers = [gone, gone, told + "the group is gone"]

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 254, "", answers.pop(0))

    monkeypatch.setattr(aws.subprocess, "run", run)
    own = aws.Aws(a_box(), "i-1")
    own.complete_hook(names.LAUNCH_HOOK, "CONTINUE", 5)
    with pytest.raises(aws.AwsError, match="No active Lifecycle Action"):  # it may not have begun to wait
        own.complete_hook(names.TERMINATION_HOOK, "CONTINUE", 5)
    with pytest.raises(aws.AwsError, match="the group is gone"):
        own.complete_hook(names.LAUNCH_HOOK, "CONTINUE", 5)


@pytest.mark.parametrize("serves", [True, False])
def test_what_fails_after_the_boot_is_no_reason_to_leave(serves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    paths.mark(paths.OPENED)
    if serves:
        paths.mark(paths.COMPLETED)

    def fail() -> None:
        raise graph.StageError("upload_cache failed: no space")

    monkeypatch.setattr(boot, "second_start", fail)
    monkeypatch.setattr(boot.signal, "signal", lambda *_: None)
    assert boot.main() == (0 if serves else 1)
    assert paths.WHY.exists() is not serves


def test_boot_program_that_is_ended_while_the_box_serves_takes_nothing_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gate, "set_state", lambda state, _: done.append(state))
    paths.mark(paths.OPENED)
    paths.mark(paths.COMPLETED)
    leave.leave(a_box())
    assert (done, paths.LEAVING.exists()) == ([], False)
    paths.mark(paths.WHY, "the engine did not come back")
    monkeypatch.setattr(leave.subprocess, "run", lambda *_, **__: done.append("off"))
    monkeypatch.setattr(ending, "wait", lambda *_: ending.Ended(0, 0))
    monkeypatch.setattr(leave, "identity", lambda _: (_ for _ in ()).throw(imds.ImdsError("away")))
    leave.leave(a_box())
    assert done == [gate.DRAINING, gate.CLOSED, "off"]
    leave.leave(a_box())  # it is leaving already: whoever asked for it gave the streams their time
    assert done[3:] == [gate.CLOSED, "off"]
    paths.LEAVING.unlink()
    paths.mark(paths.GATE, gate.DRAINING)  # as the keeper shuts it before a wedged engine: nothing to wait for
    leave.leave(a_box())
    assert done[5:] == [gate.CLOSED, "off"]


def test_gate_that_could_not_be_shut_on_a_notice_is_tried_again_and_no_figure_says_that_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def set_state(state: str, _: int) -> None:
        tried.append(state)
        if len(tried) == 1:
            raise gate.GateError("nft: timed out")

    monkeypatch.setattr(gate, "set_state", set_state)
    monkeypatch.setattr(line, "drain", Line(1))
    monkeypatch.setattr(drain, "leave_balancer", lambda *_, **__: None)
    paths.mark(paths.COMPLETED)
    metrics = drain.drain(a_box(), aws.Aws(a_box(), "i-1"), "interruption notice", 17, 0)
    assert tried == [gate.DRAINING] * 2
    assert names.METRIC_NOTICE_TO_DRAINING_SECONDS not in {metric["MetricName"] for metric in metrics}
    tried.clear()
    tried.append("")
    metrics = drain.drain(a_box(), aws.Aws(a_box(), "i-1"), "interruption notice", 0, 0)
    assert names.METRIC_NOTICE_TO_DRAINING_SECONDS in {metric["MetricName"] for metric in metrics}


@pytest.mark.parametrize("refused", [False, True])
def test_successor_of_a_box_that_counts_is_asked_for_before_its_streams_have_ended(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def terminate(*_: Any) -> None:
        done.append("terminate")
        if refused:
            raise aws.AwsError("denied")

    monkeypatch.setattr(gate, "set_state", lambda state, _: done.append(state))
    monkeypatch.setattr(leave, "identity", lambda _: imds.Identity("i-1", None))
    monkeypatch.setattr(leave.telemetry, "ship", lambda *_: None)
    monkeypatch.setattr(leave.subprocess, "run", lambda *_, **__: done.append("off"))
    monkeypatch.setattr(aws.Aws, "terminate", terminate)
    monkeypatch.setattr(ending, "wait", lambda *_: done.append("wait"))
    for mark in (paths.OPENED, paths.COMPLETED, paths.WHY):
        paths.mark(mark)
    leave.leave(a_box())
    assert done == [gate.DRAINING, "terminate", *(["wait", gate.CLOSED, "off"] if refused else [])]


def test_way_out_waits_no_longer_than_a_notice_that_comes_meanwhile_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(gate, "set_state", lambda *_: None)
    monkeypatch.setattr(ending, "wait", lambda _, deadline: waits.append(deadline - time.monotonic()))
    box = dataclasses.replace(a_box(), drain_budget_seconds=600.0)
    leave._let_streams_end(box)
    assert waits == [pytest.approx(120 - box.safety_margin_seconds, abs=1)]


def test_way_out_that_fails_in_an_unforeseen_way_powers_off(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(leave.config, "load", lambda: {}["nothing"])
    monkeypatch.setattr(leave, "_power_off", lambda: done.append("off"))
    leave.main()
    assert done == ["off"]


def test_drain_lasts_until_the_line_is_empty_and_for_a_moment_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "QUIET_SECONDS", 0.5)
    for looks, finished in (((0,), 0), ((2, 1, 0, 1, 0), 2)):
        monkeypatch.setattr(line, "drain", Line(*looks))
        began = time.monotonic()
        assert ending.wait(a_box(), began + 30) == ending.Ended(finished, 0)
        assert 0.5 <= time.monotonic() - began < 10


def test_lane_that_answers_again_is_believed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(line, "drain", Line(1, None, None, 1, 0))
    monkeypatch.setattr(streams, "callers", lambda _: {"10.0.0.1:5000"})
    assert ending.wait(a_box(), time.monotonic() + 30) == ending.Ended(1, 0)


def test_cloudwatch_that_hangs_delays_neither_the_hook_nor_the_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(leave, "identity", lambda _: imds.Identity("i-1", None))
    monkeypatch.setattr(aws.Aws, "_call", lambda _, *args, **__: done.append(args[2]))
    paths.mark(paths.WHY, "restore failed")
    leave.leave(a_box())
    assert done == [
        "create-tags",
        "complete-lifecycle-action",
        "terminate-instance-in-auto-scaling-group",
        "put-metric-data",
        "create-log-stream",
        "put-log-events",
    ]
    assert paths.TOLD.exists()


def test_failed_boot_is_told_though_the_agent_hears_of_its_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """An abandoned launch is an end that the group plans: the agent marks it while the group is still being asked."""
    sent: list[str] = []
    monkeypatch.setattr(leave, "identity", lambda _: imds.Identity("i-1", None))
    monkeypatch.setattr(aws.Aws, "_call", lambda *_, **__: paths.mark(paths.NOTICE, "planned"))
    monkeypatch.setattr(leave.telemetry, "put", lambda _, data: sent.extend(datum["MetricName"] for datum in data))
    paths.mark(paths.WHY, "restore failed")
    leave.leave(a_box())
    assert sent == [names.METRIC_BOOT_FAILED]


def test_engine_that_lost_its_model_after_the_warm_up_is_not_opened_by_the_boot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(gate, "set_state", lambda state, _: done.append(state))
    one = boot.Boot(a_box(), imds.Imds(), imds.Identity("i-1", None))
    for loaded, state in ((None, []), (engine.Loaded(absent=True), []), (engine.Loaded(), [gate.OPEN])):
        monkeypatch.setattr(boot.readiness, "running", lambda _, loaded=loaded: loaded)
        one.open()
        assert done == state
        assert paths.OPENED.exists()  # the agent warms it, and opens


def test_unit_that_does_not_start_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = folder / "systemctl"
    script.write_text("#!/bin/sh\necho 'Job for fleet-engine failed: exit-code' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    with pytest.raises(UnitError, match=r"systemctl start fleet-engine.service: Job for .* exit-code"):
        boot.engine.start(a_box(), 1)


def test_mark_is_never_read_half_written() -> None:
    seen: set[str] = set()
    paths.mark(paths.GATE, gate.OPEN)
    writing = threading.Thread(target=lambda: [paths.mark(paths.GATE, s) for s in (gate.CLOSED, gate.OPEN) * 300])
    writing.start()
    while writing.is_alive():
        seen.add(gate.current())
    assert seen <= {gate.OPEN, gate.CLOSED}
    assert [path.name for path in paths.RUN.iterdir()] == ["gate"]
