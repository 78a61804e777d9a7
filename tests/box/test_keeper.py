"""What the keeper sees of engine, GPU and store, and what it does about it."""

import http.server
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import config
import engine
import gate
import keeper
import leave
import line
import paths
import pytest
import readiness
import sight
import wedge

from fleet.core import names
from tests.box import servers
from tests.box.conftest import a_box


def nobody(_: Any) -> None:
    """Takes metrics."""


def box_on(**values: Any) -> config.Box:
    """A box with some values of its own."""
    return replace(a_box(), **values)


def told(streams: int = 0, **more: Any) -> line.Told:
    return line.Told(streams, **more)


def test_engine_that_answers_but_does_not_list_its_models_is_not_taken_for_unloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.path == "/api/version":
            servers.reply(handler, b'{"version": "0.0.1"}')
        else:
            handler.close_connection = True  # cut without an answer

    paths.mark(engine.manifest(box_on().model))
    with servers.local(answer) as port:
        monkeypatch.setattr(engine.connect, "__defaults__", (port,))
        seen = sight.Sight().look(box_on(), told(), None)
        assert seen.answers
        assert not sight.Sight().look(box_on(), None, None).answers  # the lane does not
    assert seen.loaded is None


def test_nvidia_smi_that_no_signal_ends_is_not_waited_for_nor_started_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sight, "GPU_SECONDS", 0.1)
    monkeypatch.setattr(sight, "GPU_QUERY", ("sleep", "5"))
    end = sight.subprocess.Popen.kill
    monkeypatch.setattr(sight.subprocess.Popen, "kill", lambda _: None)  # as of one that sleeps in the driver
    gpu, started = sight.Gpu(), time.monotonic()
    assert gpu.busy() is None
    hanging = gpu._asking
    assert gpu.busy() is None
    assert gpu._asking is hanging
    assert time.monotonic() - started < 2
    assert capsys.readouterr().out.count("nobody can tell whether the GPU works") == 1
    end(hanging)
    hanging.wait()
    monkeypatch.setattr(sight, "GPU_QUERY", ("echo", "97"))
    assert gpu.busy()


def test_store_that_fails_while_a_notice_comes_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def stored(_: config.Box) -> bool:
        paths.mark(paths.LEAVING, "interruption notice")
        return False

    paths.mark(paths.OPENED)
    monkeypatch.setattr(readiness, "stored", stored)
    monkeypatch.setattr(leave, "request", asked.append)
    keeper.Keeper(box_on(), nobody).step()
    assert not asked


def test_store_that_can_no_longer_be_read_has_the_box_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(gate, "set_state", lambda *_, unless_leaving=False: None)
    monkeypatch.setattr(leave, "request", asked.append)
    answers = [{"done": True}, {"models": []}]
    monkeypatch.setattr(readiness.engine, "answer", lambda *_: answers[0])
    monkeypatch.setattr(readiness.engine, "ask", lambda *_: answers[1])
    keeper.Keeper(box_on(), nobody)._warm_up(time.monotonic() + 5)  # the manifest is not there
    assert asked[0].startswith("the engine did not come back: [Errno 2]")


def engine_that(status: int, seconds: float) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    """An engine that answers every generate so, after so long."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers["Content-Length"]))
        time.sleep(seconds)
        servers.reply(handler, b'{"done": true, "eval_count": 1}', status)

    return answer


@pytest.mark.parametrize(
    ("status", "seconds", "busy", "warmed"),
    [
        (200, 0.6, True, 0),  # it works on it
        (200, 0.6, False, 1),
        (200, 0.6, None, 1),
        (500, 0.0, False, 0),  # asked again before anything is shut
    ],
)
def test_self_prime_whose_token_does_not_come_warms_the_engine_unless_the_gpu_works(
    status: int, seconds: float, busy: bool | None, warmed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    warms: list[None] = []
    monkeypatch.setattr(line, "look", told)
    monkeypatch.setattr(sight.Gpu, "busy", lambda _: busy)
    monkeypatch.setattr(keeper.Keeper, "_warm_up", lambda *_: warms.append(None))
    with servers.local(engine_that(status, seconds)) as port:  # in the lane's place
        kept = keeper.Keeper(box_on(port=port, token_seconds=0.2, poll_seconds=0.1), nobody)
        kept._act(wedge.Action.PRIME, "idle")
    assert len(warms) == warmed
    assert kept._memory.refused == (status == 500)


@pytest.mark.parametrize(
    ("status", "asked"),
    [(200, wedge.Asked.CAME), (500, wedge.Asked.REFUSED), (404, wedge.Asked.REFUSED), (503, wedge.Asked.BUSY)],
)
def test_full_queue_is_told_from_an_engine_that_refuses(status: int, asked: wedge.Asked) -> None:
    with servers.local(engine_that(status, 0)) as port:
        request = readiness.Request(box_on(), readiness.load(box_on()), 5, port=port)
        assert request.done.wait(5)
    assert request.asked is asked


def test_request_that_is_given_up_says_nothing_of_the_engine() -> None:
    with servers.local(engine_that(200, 1.0)) as port:
        request = readiness.Request(box_on(), readiness.tokens(box_on(), 1), 5, port=port)
        assert not request.done.wait(0.1)
        assert request.asked is wedge.Asked.PENDING
        request.give_up()
        assert request.done.wait(5)
    assert request.asked is wedge.Asked.BUSY


def test_warm_up_waits_for_a_queue_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    box = box_on()
    answers = iter(
        [engine.BusyError("full"), engine.BusyError("full"), {"done": True, "eval_count": 8, "model": "tiny"}]
    )

    def answer(*_: Any) -> Any:
        if isinstance(found := next(answers), Exception):
            raise found
        return found

    paths.mark(engine.manifest(box.model))
    model = {"name": "tiny:latest", "digest": readiness.digest(box), "size": 9, "size_vram": 9, "context_length": 256}
    monkeypatch.setattr(readiness, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(readiness.engine, "answer", answer)
    monkeypatch.setattr(readiness.engine, "ask", lambda *_: {"models": [model]})
    monkeypatch.setattr(line, "look", told)
    readiness.warm_up(box, 5)
    assert next(answers, None) is None


def test_store_that_is_read_as_a_load_reads_it_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = folder / "stat"
    monkeypatch.setattr(sight, "device_counters", lambda _: counted)
    counted.write_text("4 0 1000 9 0 0 0 0 0 0 0\n")
    store = sight.Store()
    store.reading(box_on())
    assert not store.reading(box_on())
    counted.write_text(f"4 0 {1000 + 2_000_000} 9 0 0 0 0 0 0 0\n")  # a gigabyte more
    assert store.reading(box_on())
    counted.unlink()
    assert not store.reading(box_on())


def test_served_file_that_is_read_at_whatever_pace_is_a_load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network sets its pace, and nobody else reads it; a server that starts anew counts from nothing."""
    counts = iter([1000, 1000, 1001, 0, 0])
    monkeypatch.setattr(sight, "device_counters", lambda _: folder / "none")
    monkeypatch.setattr(sight.stream_state, "said", lambda: {"served": next(counts)})
    store = sight.Store()
    assert [store.reading(box_on()) for _ in range(5)] == [True, False, True, False, False]


def test_generation_that_does_not_end_is_told_with_its_age_every_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[dict[str, Any]] = []
    kept = keeper.Keeper(box_on(runaway_seconds=10, runaway_report_seconds=20), sent.extend)
    monkeypatch.setattr(
        keeper.threading, "Thread", lambda target, args, daemon: SimpleNamespace(start=lambda: target(*args))
    )
    for at in range(0, 40, 5):
        kept._report_runaway(float(at), told(3, waiting=2, served=("a", at), served_seconds=float(at)))
    assert [datum["Value"] for datum in sent] == [10, 30]
    assert {datum["MetricName"] for datum in sent} == {names.METRIC_RUNAWAY_GENERATION_SECONDS}
    assert "GENERATION has run for 30 s, 2 callers wait; nothing here ends it" in capsys.readouterr().out


def serves(monkeypatch: pytest.MonkeyPatch, lane: line.Told | None) -> list[int]:
    """An engine with its model whole, and a lane; the ports where tokens are asked for."""
    box, ports = box_on(), list[int]()
    paths.mark(engine.manifest(box.model))
    loaded = {
        "name": engine.full_name(box.model),
        "digest": readiness.digest(box),
        "context_length": box.context_length,
    }

    def connect(timeout: float, port: int = names.ENGINE_PORT) -> Any:
        ports.append(port)
        return SimpleNamespace(connect=lambda: None, sock=None)

    monkeypatch.setattr(engine, "connect", connect)
    monkeypatch.setattr(engine, "answer", lambda *_: {"model": box.model, "done": True, "eval_count": 1})
    monkeypatch.setattr(engine, "ask", lambda _: {"models": [{**loaded, "size": 9, "size_vram": 9}]})
    monkeypatch.setattr(line, "look", lambda: lane)
    return ports


def test_warm_up_and_proof_go_past_the_line_and_the_self_prime_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof that waited behind a stuck caller would have a good box replaced."""
    ports, kept = serves(monkeypatch, told()), keeper.Keeper(box_on(), nobody)
    readiness.warm_up(box_on(), 5)
    kept._act(wedge.Action.PROVE, "")
    assert kept._token is not None
    assert kept._token.done.wait(5)
    assert keeper.prime(box_on(), sight.Sight()) is wedge.Asked.CAME
    assert ports == [names.ENGINE_PORT, names.ENGINE_PORT, box_on().port]


def test_box_whose_lane_does_not_answer_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    serves(monkeypatch, None)
    with pytest.raises(engine.EngineError, match="the lane does not answer"):
        readiness.warm_up(box_on(), 5)


def test_store_is_looked_at_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    paths.mark(paths.OPENED)
    monkeypatch.setattr(leave, "request", asked.append)
    monkeypatch.setattr(line, "look", lambda: asked.append("the lane was asked"))
    keeper.Keeper(box_on(), nobody).step()
    assert asked == ["the instance store is empty"]


def test_recovery_ends_the_engine_by_its_unit_and_proves_it_in_what_is_left_of_its_time_once_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(gate, "set_state", lambda state, *_, **__: done.append(state))
    monkeypatch.setattr(keeper, "systemctl", lambda verb, unit: done.append((verb, unit)))
    monkeypatch.setattr(engine, "start", lambda *_: time.sleep(0.2))
    monkeypatch.setattr(keeper.readiness, "warm_up", lambda _, left: done.append(int(left + 0.1)))
    monkeypatch.setattr(leave, "request", done.append)
    kept = keeper.Keeper(box_on(), nobody)
    kept._act(wedge.Action.RECOVER, "stuck")
    assert done == [gate.DRAINING, ("stop", engine.UNIT), gate.DRAINING, 419, gate.OPEN]
    kept._act(wedge.Action.RECOVER, "stuck")
    assert done[5:] == ["again: stuck"]


def test_engine_that_is_not_started_anew_has_the_box_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(gate, "set_state", lambda *_, **__: None)
    monkeypatch.setattr(keeper, "systemctl", lambda *_: None)  # it did not end; systemd forces nothing
    monkeypatch.setattr(engine, "start", lambda *_: (_ for _ in ()).throw(engine.SilentError("timed out")))
    monkeypatch.setattr(leave, "request", asked.append)
    keeper.Keeper(box_on(), nobody)._act(wedge.Action.RECOVER, "stuck")
    assert asked == ["the engine was not started anew: timed out"]


@pytest.mark.parametrize("action", [wedge.Action.SHUT, wedge.Action.WARM_UP, wedge.Action.RECOVER])
def test_keeper_that_was_looking_when_the_notice_came_leaves_gate_and_streams_alone(
    action: wedge.Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, asked = box_on(), []
    paths.mark(paths.OPENED)
    paths.mark(paths.GATE, gate.DRAINING)
    paths.mark(engine.manifest(box.model))

    def look(*_: Any) -> wedge.Look:
        paths.mark(paths.LEAVING, "interruption notice")
        return wedge.Look(0.0, False, None, False)

    monkeypatch.setattr(sight.Sight, "look", look)
    monkeypatch.setattr(wedge, "decide", lambda _, memory, look: (memory, action, "why"))
    monkeypatch.setattr(leave, "request", asked.append)
    keeper.Keeper(box, nobody).step()
    assert not asked
    assert gate.current() == gate.DRAINING


def test_warm_up_that_fails_during_a_drain_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    box, asked = box_on(), []
    paths.mark(paths.OPENED)
    paths.mark(engine.manifest(box.model))

    def warm_up(_: config.Box, patience_seconds: float) -> None:
        assert patience_seconds > 113  # the slowest load measured
        paths.mark(paths.LEAVING, "interruption notice")
        raise engine.EngineError("cut")

    look = wedge.Look(0.0, True, engine.Loaded(), True)
    monkeypatch.setattr(sight.Sight, "look", lambda *_: look)
    monkeypatch.setattr(keeper.readiness, "warm_up", warm_up)
    monkeypatch.setattr(gate, "set_state", lambda *_, unless_leaving=False: None)
    monkeypatch.setattr(leave, "request", asked.append)
    keeper.Keeper(box, nobody).step()
    assert paths.LEAVING.exists()
    assert not asked
