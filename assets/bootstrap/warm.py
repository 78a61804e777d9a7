"""Proves that the engine serves the exact configured model: a generate that returns tokens, then what is loaded.

The boot opens the gate after it; the agent repeats it when the engine was restarted. A single `Token` is the agent's
self-prime while nobody calls, and its proof that an engine on which a request waits still works.
"""

import contextlib
import hashlib
import http.client
import socket
import threading
import time
from typing import Any, Optional

import engine
from config import Box

PROMPT = "Say hello."
TOKENS = 8
PAUSE_SECONDS = 0.5  # between attempts while the engine is down: its unit restarts it


def warm(box: Box, patience_seconds: float) -> None:
    """Load and ask the model until it answers; raises EngineError with what is wrong."""
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            left = max(1.0, deadline - time.monotonic())
            connection = http.client.HTTPConnection("127.0.0.1", box.port, timeout=left)
            generated = engine.answer(connection, "POST", "/api/generate", request(box, TOKENS))
            loaded = engine.ask(box, "GET", "/api/ps")
            break
        except engine.SilentError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)
    digest = hashlib.sha256(engine.manifest(box.model).read_bytes()).hexdigest()
    wrong = problem(box, digest, generated, loaded)
    if wrong:
        raise engine.EngineError(f"warm-up: {wrong}")


class Token:
    """One token, asked for in the background over loopback. `outcome` stands once `done` is set."""

    def __init__(self, box: Box) -> None:
        self.done = threading.Event()
        self.outcome = ""
        self._connection = http.client.HTTPConnection("127.0.0.1", box.port, timeout=box.token_seconds)
        self._body = request(box, tokens=1)
        try:
            self._connection.connect()
        except OSError as error:
            self.outcome = str(error)
            self.done.set()
            return
        self._socket: socket.socket = self._connection.sock
        threading.Thread(target=self._ask, daemon=True).start()

    @property
    def came(self) -> bool:
        """Whether the engine has answered."""
        return self.outcome == "done"

    def give_up(self) -> None:
        """End the request: the engine drops one whose caller is gone, and closing alone would not tell it."""
        if not self.done.is_set():
            with contextlib.suppress(OSError):  # it ended in this moment
                self._socket.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> None:
        try:
            engine.answer(self._connection, "POST", "/api/generate", self._body)
            self.outcome = "done"
        except engine.EngineError as error:
            self.outcome = str(error)
        self.done.set()


def request(box: Box, tokens: int) -> dict[str, Any]:
    """The warm-up request; the model then stays loaded for good, with its full context."""
    options = {"num_ctx": box.context_length, "num_predict": tokens}
    return {"model": box.model, "prompt": PROMPT, "stream": False, "keep_alive": -1, "options": options}


def problem(box: Box, digest: str, generated: dict[str, Any], loaded: dict[str, Any]) -> Optional[str]:
    """What speaks against opening the gate; None where nothing does. `digest` is the manifest's sha256."""
    if not generated.get("done") or not generated.get("response") or not generated.get("eval_count"):
        return "generate returned no tokens"
    if generated.get("model") != box.model:
        return f"{generated.get('model')} answered, not {box.model}"
    models = {model.get("name"): model for model in loaded.get("models", [])}
    model = models.get(engine.full_name(box.model))
    if model is None:
        return f"{box.model} is not loaded, but {sorted(map(str, models))}"
    if model.get("digest") != digest:
        return f"the loaded model is {model.get('digest')}, the store holds {digest}"
    if model.get("context_length") != box.context_length:
        return f"context length is {model.get('context_length')}, not {box.context_length}"
    if model.get("size_vram") != model.get("size"):
        return f"only {model.get('size_vram')} of {model.get('size')} bytes are in GPU memory"
    return None
