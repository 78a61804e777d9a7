"""Single parts of the box, each run for itself on a folder that stands for /run/fleet and /var/lib/fleet."""

import http.server
import subprocess
import time
from typing import Any

import aws
import boot
import config
import drain
import engine
import gate
import graph
import imds
import keeper
import leave
import paths
import pytest
import streams
import warm
import wedge

from fleet import names
from tests.box import servers, world
from tests.box.conftest import a_box


def box_on(port: int = 11434, **values: Any) -> config.Box:
    """A box whose engine listens there."""
    return config.Box(**{**vars(a_box()), "port": port, **values})


# --- the keeper -----------------------------------------------------------------------------------------------


def test_engine_that_answers_but_does_not_list_its_models_is_not_taken_for_unloaded() -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.path == "/api/version":
            servers.reply(handler, b'{"version": "0.0.1"}')
        else:
            handler.close_connection = True  # cut without an answer

    with servers.local(answer) as port:
        seen = keeper.look(box_on(port), keeper.Gpu(), proven=False)
    assert seen.answers
    assert seen.loaded is None


def test_nvidia_smi_that_no_signal_ends_is_not_waited_for_nor_started_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keeper, "GPU_SECONDS", 0.1)
    monkeypatch.setattr(keeper, "GPU_QUERY", ("sleep", "5"))
    end = keeper.subprocess.Popen.kill
    monkeypatch.setattr(keeper.subprocess.Popen, "kill", lambda _: None)  # as of one that sleeps in the driver
    gpu, started = keeper.Gpu(), time.monotonic()
    assert gpu.busy() is None
    hanging = gpu._asking
    assert gpu.busy() is None
    assert gpu._asking is hanging
    assert time.monotonic() - started < 2
    assert capsys.readouterr().out.count("nobody can tell whether the GPU works") == 1
    end(hanging)
    hanging.wait()
    monkeypatch.setattr(keeper, "GPU_QUERY", ("echo", "97"))
    assert gpu.busy()


def test_store_that_fails_while_a_notice_comes_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def stored(_: config.Box) -> bool:
        paths.mark(paths.LEAVING, "interruption notice")
        return False

    paths.mark(paths.OPENED)
    monkeypatch.setattr(keeper, "stored", stored)
    monkeypatch.setattr(leave, "request", asked.append)
    keeper.Keeper(box_on()).step()
    assert not asked


def test_store_that_can_no_longer_be_read_has_the_box_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(gate, "set_state", lambda *_, unless_leaving=False: None)
    monkeypatch.setattr(leave, "request", asked.append)
    answers = [{"done": True}, {"models": []}]
    monkeypatch.setattr(warm.engine, "answer", lambda *_: answers[0])
    monkeypatch.setattr(warm.engine, "ask", lambda *_: answers[1])
    keeper.Keeper(box_on())._warm()  # the manifest is not there
    assert asked[0].startswith("the engine did not come back: [Errno 2]")


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


@pytest.mark.parametrize("action", [wedge.Action.SHUT, wedge.Action.WARM, wedge.Action.REPLACE])
def test_keeper_that_was_looking_when_the_notice_came_leaves_gate_and_streams_alone(
    action: wedge.Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, asked = box_on(), []
    paths.mark(paths.OPENED)
    paths.mark(paths.GATE, gate.DRAINING)
    paths.mark(engine.manifest(box.model))

    def look(_: config.Box, gpu: keeper.Gpu, proven: bool) -> wedge.Look:
        paths.mark(paths.LEAVING, "interruption notice")
        return wedge.Look(0.0, False, None, False, True, True, False, proven)

    monkeypatch.setattr(keeper, "look", look)
    monkeypatch.setattr(wedge, "decide", lambda _, memory, look: (memory, action, "why"))
    monkeypatch.setattr(leave, "request", asked.append)
    keeper.Keeper(box).step()
    assert not asked
    assert gate.current() == gate.DRAINING


def test_warm_up_that_fails_during_a_drain_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    box, asked = box_on(), []
    paths.mark(paths.OPENED)
    paths.mark(engine.manifest(box.model))

    def warm(_: config.Box, patience_seconds: float) -> None:
        assert patience_seconds > 113  # the slowest load measured
        paths.mark(paths.LEAVING, "interruption notice")
        raise engine.EngineError("cut")

    monkeypatch.setattr(keeper, "look", lambda _, gpu, proven: wedge.Look(0.0, True, True, True, False, False, None))
    monkeypatch.setattr(keeper.warm, "warm", warm)
    monkeypatch.setattr(gate, "set_state", lambda *_, unless_leaving=False: None)
    monkeypatch.setattr(leave, "request", asked.append)
    keeper.Keeper(box).step()
    assert paths.LEAVING.exists()
    assert not asked


# --- the boot and the way out ---------------------------------------------------------------------------------


def test_metrics_go_out_once_the_box_serves_and_what_comes_later_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(boot.telemetry, "put", lambda _, data: sent.append(data))
    one = boot.Boot(box_on(), imds.Imds(), imds.Identity("i-1", None))
    for number, name in enumerate(("warm", "complete")):
        one._ended(graph.Run(name, number, number + 1, graph.DONE))
    world.wait(lambda: sent, 10)  # while the boot goes on, priming
    assert [datum["MetricName"] for datum in sent[0]] == [names.METRIC_BOOT_STAGE_SECONDS] * 3 + [
        names.METRIC_REPLACEMENT_READY_SECONDS
    ]
    one._ended(graph.Run("prime", 2, 900, graph.DONE))
    assert [datum["Value"] for datum in one._fresh_metrics()] == [898]
    assert one._fresh_metrics() == []


def test_deregistration_begins_once_the_boot_can_no_longer_register(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def stop(command: list[str], **_: Any) -> None:
        done.append(command[1])
        raise drain.subprocess.TimeoutExpired(command, 30)  # a boot that does not end does not end the drain

    monkeypatch.setattr(drain.subprocess, "run", stop)
    monkeypatch.setattr(gate, "set_state", lambda *_: None)
    monkeypatch.setattr(drain, "wait", lambda *_: drain.Drained(0, 0))
    monkeypatch.setattr(aws.Aws, "deregister", lambda *_: done.append("deregister"))
    drain.drain(box_on(), aws.Aws(box_on(), "i-1"), "interruption notice", 120, 0)
    world.wait(lambda: "deregistered" in paths.LOG.read_text(), 10)  # or its thread logs elsewhere later
    assert done == ["stop", "deregister"]


def test_hook_that_waits_no_more_is_completed_since_only_its_answer_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "An error occurred (ValidationError) when calling the CompleteLifecycleAction operation: "
    gone = told + "No active Lifecycle Action found with instance ID i-1"
    answers = [gone, gone, told + "the group is gone"]

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 254, "", answers.pop(0))

    monkeypatch.setattr(aws.subprocess, "run", run)
    own = aws.Aws(box_on(), "i-1")
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
        raise graph.StageError("prime failed: no space")

    monkeypatch.setattr(boot, "second_start", fail)
    monkeypatch.setattr(boot.signal, "signal", lambda *_: None)
    assert boot.main() == (0 if serves else 1)
    assert paths.WHY.exists() is not serves


def test_boot_program_that_is_ended_while_the_box_serves_takes_nothing_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gate, "set_state", lambda state, _: done.append(state))
    paths.mark(paths.OPENED)
    paths.mark(paths.COMPLETED)
    leave.leave(box_on())
    assert (done, paths.LEAVING.exists()) == ([], False)
    paths.mark(paths.WHY, "the engine did not come back")
    monkeypatch.setattr(leave.subprocess, "run", lambda *_, **__: done.append("off"))
    monkeypatch.setattr(streams, "connections", Samples([]))
    monkeypatch.setattr(leave, "identity", lambda _: (_ for _ in ()).throw(imds.ImdsError("away")))
    leave.leave(box_on())
    assert done == [gate.DRAINING, gate.CLOSED, "off"]
    leave.leave(box_on())  # it is leaving already: whoever asked for it gave the streams their time
    assert done[3:] == [gate.CLOSED, "off"]
    paths.LEAVING.unlink()
    paths.mark(paths.GATE, gate.DRAINING)  # as the keeper shuts it before a wedged engine: nothing to wait for
    leave.leave(box_on())
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
    monkeypatch.setattr(streams, "connections", Samples([ASKING]))
    monkeypatch.setattr(drain, "_deregister", lambda *_: None)
    paths.mark(paths.COMPLETED)
    metrics = drain.drain(box_on(), aws.Aws(box_on(), "i-1"), "interruption notice", 17, 0)
    assert tried == [gate.DRAINING] * 2
    assert names.METRIC_NOTICE_TO_DRAINING_SECONDS not in {metric["MetricName"] for metric in metrics}
    tried.clear()
    tried.append("")
    metrics = drain.drain(box_on(), aws.Aws(box_on(), "i-1"), "interruption notice", 0, 0)
    assert names.METRIC_NOTICE_TO_DRAINING_SECONDS in {metric["MetricName"] for metric in metrics}


def test_way_out_that_fails_in_an_unforeseen_way_powers_off(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(leave.config, "load", lambda: {}["nothing"])
    monkeypatch.setattr(leave, "_power_off", lambda: done.append("off"))
    leave.main()
    assert done == ["off"]


class Samples:
    """What each look at the connections sees; the last one for ever."""

    def __init__(self, *looks: list[streams.Connection]) -> None:
        self._looks = list(looks)

    def __call__(self, _port: int) -> list[streams.Connection]:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


ADMITTED = streams.Connection("10.0.0.1:5000", 0, 0, 0.1, 0.1)  # no request yet
ASKING = streams.Connection("10.0.0.1:5000", 0, 300, 0.1, 0.1)


def test_caller_who_connected_just_before_the_gate_shut_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "connections", Samples([ADMITTED], [ADMITTED], [ASKING], [ASKING], []))
    assert drain.wait(box_on(), time.monotonic() + 30) == drain.Drained(finished=1, cut=0)


def test_drain_ends_at_once_where_nobody_is_connected_and_soon_where_nobody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "QUIET_SECONDS", 0.5)
    for looks, least in (([], 0.0), ([ADMITTED], 0.5)):
        monkeypatch.setattr(streams, "connections", Samples(looks))
        began = time.monotonic()
        assert drain.wait(box_on(), began + 30) == drain.Drained(finished=0, cut=0)
        assert time.monotonic() - began >= least
