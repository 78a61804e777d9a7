"""Does this box serve? The one home of the answer, for the boot that opens the gate and for the keeper after it.

  stored      the instance store holds the model
  answered    engine and lane answer at all
  running     what is loaded: the exact model, whole, with its context
  warm_up     and a prompt was answered with tokens of it: what the gate may open for

What is asked goes to the engine itself, past the line: a proof that waited behind a stuck caller would condemn a good
box. It is what a caller asks for who wants nothing in particular, so that no caller meets a model that was not proved.
A single `Request` is the agent's proof or, through the line, its self-prime, beside the open gate.
"""

import contextlib
import hashlib
import socket
import threading
import time
from typing import Any, Optional

import engine
import line
import names
from config import Box
from log import say
from wedge import Asked

PROMPT = "Say hello."
TOKENS = 8
PAUSE_SECONDS = 0.5  # between attempts while the engine is down (its unit restarts it) or its queue is full


def stored(box: Box) -> bool:
    """Whether the instance store holds the model; a disk that fails holds nothing."""
    try:
        return engine.manifest(box.model).is_file()
    except OSError as error:
        say(f"instance store: {error}")
        return False


def answered() -> bool:
    """Whether the engine answers at all."""
    try:
        return bool(engine.ask("/api/version").get("version"))
    except engine.EngineError as error:
        say(f"engine: {error}")
        return False


def running(box: Box) -> Optional[engine.Loaded]:
    """What is loaded; None where the engine does not say, as while it loads."""
    try:
        return engine.loaded(box, digest(box), engine.ask("/api/ps"))
    except (engine.EngineError, OSError) as error:
        say(f"engine: {error}")
        return None


def warm_up(box: Box, patience_seconds: float) -> None:
    """Load and ask the model until it answers; raises EngineError with what is wrong."""
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            left = max(1.0, deadline - time.monotonic())
            generated = engine.answer(engine.connect(left), "POST", "/api/generate", tokens(box, TOKENS))
            listed = engine.ask("/api/ps")
            break
        except (engine.SilentError, engine.BusyError):
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)
    wrong = problem(box, digest(box), generated, listed)
    if not wrong and line.look() is None:
        wrong = "the lane does not answer"
    if wrong:
        raise engine.EngineError(f"warm-up: {wrong}")


def problem(box: Box, digest: str, generated: dict[str, Any], running: dict[str, Any]) -> Optional[str]:
    """What speaks against opening the gate; None where nothing does. Tokens count, whatever field they are in: a model
    that thinks may spend all of them on thoughts, and `response` is empty.
    """
    if not generated.get("done") or not generated.get("eval_count"):
        return "generate returned no tokens"
    if generated.get("model") != box.model:
        return f"{generated.get('model')} answered, not {box.model}"
    return engine.loaded(box, digest, running).said or None


class Request:
    """A request of our own in the background: to the engine, or through the line to it by `port`."""

    def __init__(
        self, box: Box, body: dict[str, Any], patience_seconds: float, *, port: int = names.ENGINE_PORT
    ) -> None:
        self.done = threading.Event()
        self.asked = Asked.PENDING  # what became of it
        self.outcome = "done"  # or what went wrong
        self._port, self._body, self._patience = port, body, patience_seconds
        self._given_up = False
        self._socket: Optional[socket.socket] = None
        threading.Thread(target=self._ask, daemon=True).start()

    def give_up(self) -> None:
        """End the request: the engine drops one whose caller is gone, and closing alone would not tell it."""
        self._given_up = True
        if self._socket and not self.done.is_set():
            with contextlib.suppress(OSError):  # it ended in this moment
                self._socket.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> None:
        started = time.monotonic()
        try:
            connection = engine.connect(self._patience, self._port)
            connection.connect()
            self._socket = connection.sock
            if self._given_up:
                raise engine.SilentError("given up")
            engine.answer(connection, "POST", "/api/generate", self._body)
            self.asked = Asked.CAME
        except (engine.EngineError, OSError) as error:
            self.outcome = str(error)
            late = time.monotonic() - started >= self._patience
            says_nothing = late or self._given_up or isinstance(error, engine.BusyError)
            self.asked = Asked.BUSY if says_nothing else Asked.REFUSED
        self.done.set()


def tokens(box: Box, count: int) -> dict[str, Any]:
    """A request for so many tokens, with nothing else of its own: behind a context, a Modelfile's would stay hidden."""
    return {"model": box.model, "prompt": PROMPT, "stream": False, "options": {"num_predict": count}}


def load(box: Box) -> dict[str, Any]:
    """An empty prompt: loads the model, and is answered at once where it is loaded already."""
    return {"model": box.model, "stream": False}


def digest(box: Box) -> str:
    """By which the engine lists the model: its manifest's sha256. Raises OSError where there is none."""
    return hashlib.sha256(engine.manifest(box.model).read_bytes()).hexdigest()
