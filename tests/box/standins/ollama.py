"""Stand-in for Ollama: its routes and its store layout over a real llama.cpp (xllamacpp). Real loads, real tokens.

    ollama.py serve                      reads OLLAMA_HOST, _MODELS, _CONTEXT_LENGTH
    ollama.py create NAME -f Modelfile   imports the GGUF that FROM names; with --quantize KIND it becomes another file

As in the real one, whoever reaches the port may change the store: /api/create, /api/copy, /api/delete, /api/pull; and
it is the server that writes it, also for the client's `create`, which sends the file's path where the real one sends
its bytes.
The first request loads the model, for good, while all others wait; then they are served one at a time, as they came.
What would unload it or load it otherwise (`keep_alive`, `num_ctx`, `num_gpu`) is not played: the lane drops it.
During a load newer engines do not answer `/api/ps`, older ones list the model as if it were loaded. A model whose
TEMPLATE names `.Thinking` thinks: since version 0.12.5 without being asked to, and few tokens are then thoughts alone.
A prompt may end in a JSON object, which a real engine would only read: `pace_seconds` (per token) and `prompt_seconds`
play a big model's time.
The file /opt/standin/prompt_seconds does so for all other requests; `failing` beside it makes every request an error. A
blob whose size is wrong does not load.
"""

import hashlib
import http.client
import http.server
import json
import os
import select
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VERSION = os.environ.get("STANDIN_VERSION", "0.13.5")
THINKS_UNASKED = (0, 12, 5)
PS_WAITS_FOR_LOADS = (0, 12, 5)  # nobody says since when: the box must bear both
MODELS = Path(os.environ.get("OLLAMA_MODELS", "/nowhere"))
STANDIN = Path("/opt/standin")
MODEL_LAYER = "application/vnd.ollama.image.model"
TEXT_LAYERS = {name: f"application/vnd.ollama.image.{name.lower()}" for name in ("TEMPLATE", "SYSTEM")}


def manifest_path(model: str) -> Path:
    name, _, tag = model.partition(":")
    return MODELS / "manifests/registry.ollama.ai/library" / name / (tag or "latest")


def add_blob(data: bytes, kind: str) -> dict[str, Any]:
    """Put a blob into the store under its digest; a manifest's entry for it."""
    digest = hashlib.sha256(data).hexdigest()
    target = MODELS / "blobs" / f"sha256-{digest}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def create(model: str, modelfile: Path, quantize: str = "") -> None:
    """Import. Quantizing is a stand-in: the same weights, with the kind written behind them."""
    lines = [line.split(maxsplit=1) for line in modelfile.read_text().splitlines() if line.strip()]
    said = {name: value.strip() for name, value in lines}
    weights = (modelfile.parent / said["FROM"]).read_bytes()
    layers = [add_blob(weights + quantize.encode(), MODEL_LAYER)]
    layers += [add_blob(said[name].encode(), kind) for name, kind in TEXT_LAYERS.items() if name in said]
    parameters = dict(value.split() for name, value in lines if name == "PARAMETER")
    write_manifest(model, layers, {"template": said.get("TEMPLATE", ""), "parameters": parameters})


def write_manifest(model: str, layers: list[dict[str, Any]], said: dict[str, Any]) -> None:
    """Template and parameters stand in the configuration, too, where this engine looks for them."""
    text = json.dumps({"model_format": "gguf", **said}).encode()
    config = add_blob(text, "application/vnd.docker.container.image.v1+json")
    path = manifest_path(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 2, "config": config, "layers": layers}))


def administer(path: str, asked: dict[str, Any]) -> None:
    """What any caller may ask of the store."""
    if path == "/api/create" and "modelfile" in asked:
        create(asked["model"], Path(asked["modelfile"]), asked["quantize"])
    elif path in ("/api/create", "/api/copy"):
        source = asked.get("from") or asked["source"]
        layers = json.loads(manifest_path(source).read_bytes())["layers"]
        if "system" in asked:
            layers.append(add_blob(asked["system"].encode(), TEXT_LAYERS["SYSTEM"]))
        write_manifest(asked.get("model") or asked["destination"], layers, image(source)[1])
    elif path == "/api/pull":
        add_blob(b"of some registry", MODEL_LAYER)
    elif path == "/api/delete":
        manifest_path(asked["model"]).unlink()
    else:
        raise FileNotFoundError("not found")


def client(model: str, modelfile: str, quantize: str) -> None:
    """`ollama create`: the server does the work."""
    connection = http.client.HTTPConnection(os.environ["OLLAMA_HOST"], timeout=60)
    body = {"model": model, "modelfile": str(Path(modelfile).resolve()), "quantize": quantize}
    connection.request("POST", "/api/create", json.dumps(body))
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"Error: {answer.read().decode()}")


def image(model: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The model's layer, its configuration and its digest."""
    text = manifest_path(model).read_bytes()
    manifest = json.loads(text)
    layer = next(entry for entry in manifest["layers"] if entry["mediaType"] == MODEL_LAYER)
    config = json.loads(blob_path(manifest["config"]).read_text())
    return layer, config, hashlib.sha256(text).hexdigest()


def blob_path(entry: dict[str, Any]) -> Path:
    return MODELS / "blobs" / str(entry["digest"]).replace(":", "-")


class TurnedAwayError(Exception):
    """A request that is not served: its status and what is said."""


class Runner:
    """The one model, over the real one."""

    def __init__(self) -> None:
        version = tuple(map(int, VERSION.split(".")))
        self.thinks_unasked, self.ps_waits = version >= THINKS_UNASKED, version >= PS_WAITS_FOR_LOADS
        self.line: list[object] = []  # requests, the one that is served first
        self.listed: dict[str, Any] = {}  # what is loaded, or is being
        self.server: Any = None

    def load(self, model: str) -> Any:
        """Load for real; raises TurnedAwayError."""
        layer, config, digest = image(model)
        name, blob = model if ":" in model else f"{model}:latest", blob_path(layer)
        context = int(config["parameters"].get("num_ctx", os.environ["OLLAMA_CONTEXT_LENGTH"]))
        found = {"name": name, "digest": digest, "size": layer["size"], "size_vram": layer["size"]}
        self.listed = {**found, "context_length": context}
        try:
            if blob.stat().st_size != layer["size"]:
                raise ValueError("blob truncated")
            import xllamacpp

            params = xllamacpp.CommonParams()
            params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(blob), context, 1, False
            params.cpuparams.n_threads, params.verbosity = 1, 0
            with socket.socket() as free:  # the library's own server wants a port, on loopback
                free.bind(("127.0.0.1", 0))
                params.hostnames, params.port = ["127.0.0.1"], free.getsockname()[1]
            return xllamacpp.Server(params)
        except Exception as error:
            self.listed = {}
            raise TurnedAwayError(500, f"{type(error).__name__}: {error}") from None

    @contextmanager
    def turn(self, handler: "Handler", model: str, *, empty: bool) -> Iterator[None]:
        """Wait until it is this request's turn, or the model is loaded for one that is empty. Raises TurnedAwayError,
        and ConnectionError where the caller left.
        """
        request = object()
        self.line.append(request)
        try:
            while self.line[0] is not request and not (empty and self.server):
                if handler.gone():
                    raise ConnectionError
                time.sleep(0.02)
            if not self.server:
                loaded = self.load(model)
                if handler.gone():  # which ends a load, too
                    self.listed = {}
                    raise ConnectionError
                self.server = loaded
            yield
        finally:
            self.line.remove(request)

    def running(self) -> list[dict[str, Any]] | None:
        """What `/api/ps` lists; None where it does not answer."""
        if self.listed and not self.server and self.ps_waits:
            return None
        return [self.listed] if self.listed else []

    def tokens(self, prompt: str, count: int) -> str:
        answer = self.server.handle_completions({"prompt": prompt, "max_tokens": count, "stream": False})
        first = answer[0] if isinstance(answer, list) else answer
        return str(first["choices"][0]["text"])


RUNNER: Any = Runner() if sys.argv[1:2] == ["serve"] else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/api/version":
            return self.answer(200, {"version": VERSION})
        if self.path == "/api/ps":
            while (found := RUNNER.running()) is None:
                time.sleep(0.05)
            return self.answer(200, {"models": found})
        if self.path == "/api/tags":
            # as the real one: a store without it is written to
            (MODELS / "manifests").mkdir(parents=True, exist_ok=True)
            found = (MODELS / "manifests").rglob("*")
            return self.answer(200, {"models": [{"name": f"{p.parent.name}:{p.name}"} for p in found if p.is_file()]})
        return self.answer(404, {"error": "not found"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path != "/api/generate":
            try:
                administer(self.path, asked)
            except OSError as error:
                return self.answer(404 if isinstance(error, FileNotFoundError) else 500, {"error": str(error)})
            return self.answer(200, {"status": "success"})
        model = asked["model"]
        if not manifest_path(model).is_file():
            return self.answer(404, {"error": f"model '{model}' not found"})
        try:
            with RUNNER.turn(self, model, empty=not asked.get("prompt")):
                self.generate(model, asked)
        except TurnedAwayError as error:
            status, message = error.args
            self.answer(status, {"error": message})
        except ConnectionError:
            self.close_connection = True
        return None

    def do_DELETE(self) -> None:
        self.do_POST()

    def generate(self, model: str, asked: dict[str, Any]) -> None:
        """Its turn has come."""
        if not asked.get("prompt"):
            return self.answer(200, {"model": model, "response": "", "done": True, "done_reason": "load"})
        if (STANDIN / "failing").exists():
            raise TurnedAwayError(500, "llama runner process has terminated: exit status 2")
        options = asked.get("options", {})
        _, brace, played = asked["prompt"].partition("{")
        played = json.loads(brace + played) if brace else {}
        wanted, pace = int(options.get("num_predict", 16)), float(played.get("pace_seconds", 0))
        thinks = ".Thinking" in image(model)[1]["template"] and RUNNER.thinks_unasked
        slow = STANDIN / "prompt_seconds"
        self.read_prompt(float(played.get("prompt_seconds", slow.read_text() if slow.exists() else 0)))
        said = {"model": model, "response": ""}
        if asked.get("stream", True):
            return self.stream(said, "thinking" if thinks else "response", asked["prompt"], wanted, pace)
        said["thinking" if thinks else "response"] = RUNNER.tokens(asked["prompt"], wanted)
        return self.answer(200, {**said, "done": True, "done_reason": "length", "eval_count": wanted})

    def gone(self) -> bool:
        """Whether the caller is gone, which ends a request in the real engine too."""
        ready, _, _ = select.select([self.connection], [], [], 0)
        return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)

    def read_prompt(self, seconds: float) -> None:
        """A long prompt's time; raises ConnectionError once the caller is gone."""
        sys.stdout.write(f"engine stand-in: reads a prompt for {seconds} s\n")
        sys.stdout.flush()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.gone():
                raise ConnectionError
            time.sleep(0.05)

    def stream(self, said: dict[str, Any], where: str, prompt: str, wanted: int, pace: float) -> None:
        """One chunk a token, as Ollama sends them."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(wanted):
            prompt += (text := RUNNER.tokens(prompt[-64:], 1))
            self.chunk({**said, where: text, "done": False})
            if number < wanted - 1:
                time.sleep(pace)
        self.chunk({**said, "done": True, "eval_count": wanted})
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away."""


def start() -> None:
    """What the real one writes before it listens: a key pair at home, and its store where there is none."""
    key = Path(os.environ["HOME"]) / ".ollama" / "id_ed25519"
    key.parent.mkdir(parents=True, exist_ok=True)
    key.touch()
    (MODELS / "blobs").mkdir(parents=True, exist_ok=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        start()
        address, _, port = os.environ["OLLAMA_HOST"].rpartition(":")
        Server((address, int(port)), Handler).serve_forever()
    elif sys.argv[1] == "create":
        quantize = sys.argv[6] if sys.argv[5:6] == ["--quantize"] else ""
        # without a server (the tests fill caches so) it is one process
        client(sys.argv[2], sys.argv[4], quantize) if "OLLAMA_HOST" in os.environ else create(
            sys.argv[2], Path(sys.argv[4]), quantize
        )
    else:
        sys.exit(f"usage: {shutil.which(sys.argv[0])} serve | create NAME -f Modelfile [--quantize KIND]")
