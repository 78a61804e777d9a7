"""Single parts of the box, each run for itself on a folder that stands for /run/fleet and /var/lib/fleet."""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import config
import engine
import gate
import keeper
import leave
import paths
import pytest
import wedge

from tests.box.test_decisions import a_box

Answers = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where every path of the box now lies."""
    for name, path in vars(paths).items():
        if isinstance(path, Path):
            monkeypatch.setattr(paths, name, tmp_path.joinpath(*path.parts[1:]))
    return tmp_path


@contextmanager
def server(answer: Answers) -> Iterator[int]:
    """An HTTP server on loopback that answers every GET in this way; gives its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield running.server_port
        running.shutdown()


def reply(handler: http.server.BaseHTTPRequestHandler, body: bytes, status: int = 200) -> None:
    """One whole answer."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def box_on(port: int = 11434, **values: Any) -> config.Box:
    """A box whose engine listens there."""
    return config.Box(**{**vars(a_box()), "port": port, **values})


# --- the keeper -----------------------------------------------------------------------------------------------


def test_engine_that_answers_but_does_not_list_its_models_is_not_taken_for_unloaded() -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.path == "/api/version":
            reply(handler, b'{"version": "0.0.1"}')
        else:
            handler.close_connection = True  # cut without an answer

    with server(answer) as port:
        seen = keeper.look(box_on(port), proven=False)
    assert seen.answers
    assert seen.loaded is None


@pytest.mark.parametrize("action", [wedge.Action.SHUT, wedge.Action.WARM, wedge.Action.REPLACE])
def test_keeper_that_was_looking_when_the_notice_came_leaves_gate_and_streams_alone(
    action: wedge.Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, asked = box_on(), []
    paths.mark(paths.OPENED)
    paths.mark(paths.GATE, gate.DRAINING)
    paths.mark(engine.manifest(box.model))

    def look(_: config.Box, proven: bool) -> wedge.Look:
        paths.mark(paths.LEAVING, "interruption notice")
        return wedge.Look(0.0, False, None, False, True, True, False, proven)

    monkeypatch.setattr(keeper, "look", look)
    monkeypatch.setattr(wedge, "decide", lambda _, memory, look: (memory, action, "why"))
    monkeypatch.setattr(leave, "request", asked.append)
    keeper.Keeper(box).step()
    assert not asked
    assert gate.current() == gate.DRAINING


def test_gate_is_not_changed_for_the_keeper_once_the_box_leaves() -> None:
    paths.mark(paths.GATE, gate.DRAINING)
    paths.mark(paths.LEAVING)
    for state in (gate.CLOSED, gate.DRAINING, gate.OPEN):
        with pytest.raises(gate.GateError, match="the box is leaving: the gate stays draining"):
            gate.set_state(state, 11434, unless_leaving=True)
    assert gate.current() == gate.DRAINING


def test_warm_up_that_fails_during_a_drain_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    box, asked = box_on(), []
    paths.mark(paths.OPENED)
    paths.mark(engine.manifest(box.model))

    def warm(_: config.Box, patience_seconds: float) -> None:
        assert patience_seconds > 113  # the slowest load measured
        paths.mark(paths.LEAVING, "interruption notice")
        raise engine.EngineError("cut")

    monkeypatch.setattr(keeper, "look", lambda _, proven: wedge.Look(0.0, True, True, True, False, False, None))
    monkeypatch.setattr(keeper.warm, "warm", warm)
    monkeypatch.setattr(gate, "set_state", lambda *_, unless_leaving=False: None)
    monkeypatch.setattr(leave, "request", asked.append)
    keeper.Keeper(box).step()
    assert paths.LEAVING.exists()
    assert not asked
