"""What the keeper sees of engine, GPU and store, and what it does about it."""

import http.server
import time
from typing import Any

import config
import engine
import gate
import keeper
import leave
import paths
import pytest
import warm
import wedge

from tests.box import servers
from tests.box.conftest import a_box


def box_on(port: int = 11434, **values: Any) -> config.Box:
    """A box whose engine listens there."""
    return config.Box(**{**vars(a_box()), "port": port, **values})


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


@pytest.mark.parametrize(("busy", "warmed"), [(True, 0), (False, 1), (None, 1)])
def test_self_prime_that_fails_warms_the_engine_unless_the_gpu_works(
    busy: bool | None, warmed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    warms: list[None] = []
    monkeypatch.setattr(keeper, "prime", lambda _: False)
    monkeypatch.setattr(keeper.Gpu, "busy", lambda _: busy)
    monkeypatch.setattr(keeper.Keeper, "_warm", lambda _: warms.append(None))
    keeper.Keeper(box_on())._act(wedge.Action.PRIME, "idle")
    assert len(warms) == warmed


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
