"""Proves that the engine serves the exact configured model: a generate that counts tokens, then what is loaded.

The boot opens the gate after it; the agent repeats it behind the gate when the engine was restarted or refuses. What it
sends is what a caller sends who asks for nothing in particular, so that no caller meets a model that was not proved. A
single `Request` is the agent's load, self-prime or proof, beside the open gate.
"""

import contextlib
import hashlib
import http.client
import socket
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Optional

import engine
from config import Box
from wedge import Asked

PROMPT = "Say hello."
TOKENS = 8
PAUSE_SECONDS = 0.5  # between attempts while the engine is down (its unit restarts it) or its queue is full


class UnprovedError(engine.EngineError):
    """The engine answered, and its answer is not what the gate may open for."""


def warm(box: Box, patience_seconds: float) -> None:
    """Load and ask the model until it answers; raises EngineError with what is wrong."""
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            left = max(1.0, deadline - time.monotonic())
            connection = http.client.HTTPConnection("127.0.0.1", box.port, timeout=left)
            generated = engine.answer(connection, "POST", "/api/generate", tokens(box, TOKENS))
            running = engine.ask(box, "GET", "/api/ps")
            break
        except (engine.SilentError, engine.BusyError):
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)
    wrong = problem(box, digest(box), generated, running)
    if wrong:
        raise UnprovedError(f"warm-up: {wrong}")


class Request:
    """Requests of our own in the background over loopback, one after the other: it has come once all were answered."""

    def __init__(self, box: Box, bodies: Sequence[dict[str, Any]], patience_seconds: float) -> None:
        self.done = threading.Event()
        self.outcome = "done"  # or what went wrong
        self._box, self._bodies, self._patience = box, bodies, patience_seconds
        self._asked = Asked.PENDING
        self._given_up = False
        self._socket: Optional[socket.socket] = None
        threading.Thread(target=self._ask, daemon=True).start()

    @property
    def asked(self) -> Asked:
        """What became of it."""
        return self._asked if self.done.is_set() else Asked.PENDING

    def give_up(self) -> None:
        """End the request: the engine drops one whose caller is gone, and closing alone would not tell it."""
        self._given_up = True
        if self._socket and not self.done.is_set():
            with contextlib.suppress(OSError):  # it ended in this moment
                self._socket.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> None:
        started = time.monotonic()
        try:
            for body in self._bodies:
                self._send(body)
            self._asked = Asked.CAME
        except (engine.EngineError, OSError) as error:
            self.outcome = str(error)
            late = time.monotonic() - started >= self._patience
            says_nothing = late or self._given_up or isinstance(error, engine.BusyError)
            self._asked = Asked.BUSY if says_nothing else Asked.REFUSED
        self.done.set()

    def _send(self, body: dict[str, Any]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._box.port, timeout=self._patience)
        connection.connect()
        self._socket = connection.sock
        if self._given_up:
            raise engine.SilentError("given up")
        engine.answer(connection, "POST", "/api/generate", body)


def tokens(box: Box, count: int) -> dict[str, Any]:
    """A request for so many tokens, with nothing else of its own: behind a context, a Modelfile's would stay hidden."""
    return {"model": box.model, "prompt": PROMPT, "stream": False, "options": {"num_predict": count}}


def load(box: Box) -> dict[str, Any]:
    """An empty prompt: loads the model for good, and at once where it is loaded already.

    For a moment when nobody is served: the engine unloads a model for who waits for another context by ending its time
    once, and whoever is admitted then with a time of its own undoes that.
    """
    return {"model": box.model, "stream": False, "keep_alive": -1}


def unload(box: Box) -> dict[str, Any]:
    """The same for no time at all: unloads the model once its requests have ended."""
    return {**load(box), "keep_alive": 0}


def digest(box: Box) -> str:
    """By which the engine lists the model: its manifest's sha256. Raises OSError where there is none."""
    return hashlib.sha256(engine.manifest(box.model).read_bytes()).hexdigest()


def problem(box: Box, digest: str, generated: dict[str, Any], running: dict[str, Any]) -> Optional[str]:
    """What speaks against opening the gate; None where nothing does. Tokens count, whatever field they are in: a model
    that thinks may spend all of them on thoughts, and `response` is empty.
    """
    if not generated.get("done") or not generated.get("eval_count"):
        return "generate returned no tokens"
    if generated.get("model") != box.model:
        return f"{generated.get('model')} answered, not {box.model}"
    loaded = engine.loaded(box, digest, running, datetime.now(timezone.utc).year)
    return None if loaded.expires else loaded.said or None
