"""Proves that the engine serves the exact configured model: a generate that returns tokens, then what is loaded.

The boot opens the gate after it; the agent repeats it when the engine was restarted, and as self-prime while idle.
"""

import hashlib
import http.client
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
            connection = http.client.HTTPConnection("127.0.0.1", box.port, timeout=patience_seconds)
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
