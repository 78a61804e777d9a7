"""The engine (Ollama): installed from the store, run by its unit, asked over loopback. Used by the boot and the agent.

EngineError     the engine answered something else than it should
  SilentError   it did not answer at all
  BusyError     its queue is full: callers' doing, and over soon
"""

import http.client
import json
import os
import pwd
import stat
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import names
import paths
from config import Box
from systemctl import systemctl

UNIT = "fleet-engine.service"
USER = "fleet-engine"
BINARY = paths.ENGINE / "bin" / "ollama"
QUANTIZE_NONE = "none"
ANSWER_SECONDS = 5.0  # `/api/version` and `/api/ps` answer in a millisecond
ANSWER_MOST_BYTES = 1 << 20  # a thousand times what it ever says to us: whoever took it over fills nobody's memory


class EngineError(Exception):
    """The engine answered something else than it should."""


class SilentError(EngineError):
    """The engine did not answer."""


class BusyError(EngineError):
    """The engine turned the request away because too many wait."""


@dataclass(frozen=True)
class Loaded:
    """What `/api/ps` tells of the model, held against what the settings ask for. All is well where nothing is set."""

    absent: bool = False  # not loaded
    differs: bool = False  # another model of that name or another context, or not whole in GPU memory
    said: str = ""


def ask(path: str) -> dict[str, Any]:
    """What it tells of itself; raises EngineError."""
    return answer(connect(ANSWER_SECONDS), "GET", path)


def connect(timeout: float, port: int = names.ENGINE_PORT) -> http.client.HTTPConnection:
    """A connection over loopback, past the lane; to its port through it."""
    return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)


def answer(
    connection: http.client.HTTPConnection, method: str, path: str, body: Optional[dict[str, Any]] = None
) -> dict[str, Any]:
    """The same on a connection of the caller's, who may end the request by shutting its socket down."""
    try:
        connection.request(method, path, body=json.dumps(body) if body is not None else None)
        response = connection.getresponse()
        text = response.read(ANSWER_MOST_BYTES + 1)
        raw = json.loads(text or b"{}")
    except (OSError, http.client.HTTPException) as error:
        raise SilentError(f"{path}: {error or type(error).__name__}") from None
    except (ValueError, RecursionError):
        raise EngineError(f"{path}: not JSON, or more of it than an answer has") from None
    finally:
        connection.close()
    if response.status == 503:
        raise BusyError(f"{path}: {raw}")
    if response.status != 200 or not isinstance(raw, dict):
        raise EngineError(f"{path}: {response.status} {raw}")
    return raw


def environment(box: Box) -> dict[str, str]:
    """What the engine's unit reads: one request at a time, the model never leaves memory."""
    return {
        "OLLAMA_HOST": f"127.0.0.1:{names.ENGINE_PORT}",
        "OLLAMA_MODELS": str(paths.MODELS),
        "OLLAMA_NUM_PARALLEL": "1",
        "OLLAMA_KEEP_ALIVE": "-1",
        "OLLAMA_CONTEXT_LENGTH": str(box.context_length),
        "OLLAMA_NOPRUNE": "1",  # at its start it would delete the blobs that the restore is writing
    }


def unpack(tarball: Path) -> None:
    """Unpack the engine's release beside it, root's alone, and drop the tarball; raises EngineError."""
    command = ["tar", "-xf", str(tarball), "-C", str(paths.ENGINE), "--no-same-owner", "--no-same-permissions"]
    done = subprocess.run(command, capture_output=True, text=True)
    tarball.unlink()
    if done.returncode or not BINARY.is_file():
        raise EngineError(f"engine: the tarball holds no bin/ollama {' '.join(done.stderr.split())}")


def start(box: Box, patience_seconds: float) -> None:
    """Start the unit and wait until the pinned version answers; raises EngineError."""
    systemctl("start", UNIT)
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            version = ask("/api/version").get("version")
            break
        except SilentError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    if version != box.engine_version:
        raise EngineError(f"engine: version {version} answers, {box.engine_version} is pinned")


def full_name(model: str) -> str:
    """The name under which the engine lists a model."""
    return model if ":" in model else f"{model}:latest"


def manifest(model: str) -> Path:
    """Where the engine keeps the manifest of a model."""
    name, tag = full_name(model).split(":")
    return paths.MODELS / "manifests" / "registry.ollama.ai" / "library" / name / tag


def loaded(box: Box, digest: str, answer: dict[str, Any]) -> Loaded:
    """What an answer of `/api/ps` says. `digest` is the manifest's sha256."""
    models = answer.get("models")
    entries = [model for model in (models if isinstance(models, list) else []) if isinstance(model, dict)]
    listed = {str(model.get("name")): model for model in entries}
    model = listed.get(full_name(box.model))
    if model is None:
        return Loaded(absent=True, said=f"{box.model} is not loaded, but {sorted(listed)}")
    said = ""
    if model.get("context_length") != box.context_length:
        said = f"context length is {model.get('context_length')}, not {box.context_length}"
    elif model.get("digest") != digest:
        said = f"the loaded model is {model.get('digest')}, the store holds {digest}"
    elif model.get("size_vram") != model.get("size") or not model.get("size"):
        said = f"only {model.get('size_vram')} of {model.get('size')} bytes are in GPU memory"
    return Loaded(differs=bool(said), said=said)


def create(box: Box, modelfile: Path) -> bytes:
    """Import the model from its Modelfile; returns the manifest. Raises EngineError.

    The engine writes its store itself, so it owns it for that time. Nobody has called it yet.
    """
    quantize = [] if box.quantize == QUANTIZE_NONE else ["--quantize", box.quantize]
    client = {**os.environ, **environment(box), "HOME": "/"}
    own(paths.MODELS, pwd.getpwnam(USER).pw_uid)
    try:
        done = subprocess.run(
            [str(BINARY), "create", box.model, "-f", str(modelfile), *quantize],
            cwd=modelfile.parent,
            env=client,
            user=USER,
            group=USER,
            extra_groups=[],
            capture_output=True,
            text=True,
        )
    finally:
        own(paths.MODELS, 0)
    if done.returncode or not manifest(box.model).is_file():
        raise EngineError(f"import: {' '.join(done.stderr.split())[-400:]}")
    return manifest(box.model).read_bytes()


def own(path: Path, user: int) -> None:
    """Give a folder with all that is in it to a user, who alone may change it; raises EngineError.

    From the top: what a folder holds can no longer be exchanged once the folder has changed hands.
    """
    os.chown(path, user, 0, follow_symlinks=False)
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        path.chmod(0o755)
        for entry in path.iterdir():
            own(entry, user)
    elif stat.S_ISREG(mode):
        path.chmod(0o644)
    else:
        raise EngineError(f"{path}: neither a file nor a folder")
