"""Stand-in for Ollama: its routes and its store layout over a real llama.cpp (xllamacpp). Real loads, real tokens.

    ollama.py serve                      reads OLLAMA_HOST, OLLAMA_MODELS, OLLAMA_CONTEXT_LENGTH
    ollama.py create NAME -f Modelfile   imports the GGUF that FROM names; with --quantize KIND it becomes another file

As in the real one, whoever reaches the port may change the store: /api/create, /api/copy, /api/delete, /api/pull; and
it is the server that writes it, also for the client's `create`, which sends the file's path where the real one sends
its bytes.
With OLLAMA_NUM_PARALLEL=1 one request runs at a time. The options `pace_seconds` (per token) and `prompt_seconds` of
a request, which a real engine ignores, play a big model's time; a file sets that of all other requests. A blob whose
size is wrong does not load.
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
import threading
import time
from pathlib import Path
from typing import Any

VERSION = "0.0.1"
MODELS = Path(os.environ.get("OLLAMA_MODELS", "/nowhere"))
PROMPT_SECONDS = Path("/opt/standin/prompt_seconds")
MODEL_LAYER = "application/vnd.ollama.image.model"
SYSTEM_LAYER = "application/vnd.ollama.image.system"


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
    lines = dict(line.split(maxsplit=1) for line in modelfile.read_text().splitlines() if line.strip())
    weights = (modelfile.parent / lines["FROM"].strip()).read_bytes()
    layers = [add_blob(weights + quantize.encode(), MODEL_LAYER)]
    if "SYSTEM" in lines:
        layers.append(add_blob(lines["SYSTEM"].encode(), SYSTEM_LAYER))
    write_manifest(model, layers)


def write_manifest(model: str, layers: list[dict[str, Any]]) -> None:
    config = add_blob(b'{"model_format":"gguf"}', "application/vnd.docker.container.image.v1+json")
    path = manifest_path(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 2, "config": config, "layers": layers}))


def administer(path: str, asked: dict[str, Any]) -> None:
    """What any caller may ask of the store."""
    if path == "/api/create" and "modelfile" in asked:
        create(asked["model"], Path(asked["modelfile"]), asked["quantize"])
    elif path == "/api/create":
        layers = json.loads(manifest_path(asked["from"]).read_bytes())["layers"]
        write_manifest(asked["model"], [*layers, add_blob(asked["system"].encode(), SYSTEM_LAYER)])
    elif path == "/api/copy":
        layers = json.loads(manifest_path(asked["source"]).read_bytes())["layers"]
        write_manifest(asked["destination"], layers)
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


class Runner:
    """The one loaded model."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loaded: dict[str, dict[str, Any]] = {}
        self.server: Any = None

    def load(self, model: str, context: int) -> None:
        text = manifest_path(model).read_bytes()
        layer = next(entry for entry in json.loads(text)["layers"] if entry["mediaType"] == MODEL_LAYER)
        blob = MODELS / "blobs" / layer["digest"].replace(":", "-")
        if blob.stat().st_size != layer["size"]:
            raise OSError("blob truncated")
        digest, name = hashlib.sha256(text).hexdigest(), model if ":" in model else f"{model}:latest"
        if self.loaded.get(name, {}).get("digest") == digest and self.loaded[name]["context_length"] == context:
            return
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(blob), context, 1, False
        params.cpuparams.n_threads, params.verbosity = 1, 0
        with socket.socket() as free:  # the library's own server wants a port, on loopback
            free.bind(("127.0.0.1", 0))
            params.hostnames, params.port = ["127.0.0.1"], free.getsockname()[1]
        self.server = xllamacpp.Server(params)
        size = layer["size"]
        self.loaded = {
            name: {"name": name, "digest": digest, "size": size, "size_vram": size, "context_length": context}
        }

    def tokens(self, prompt: str, count: int) -> str:
        answer = self.server.handle_completions({"prompt": prompt, "max_tokens": count, "stream": False})
        first = answer[0] if isinstance(answer, list) else answer
        return str(first["choices"][0]["text"])


RUNNER = Runner()


def prompt_seconds() -> str:
    """How long every prompt takes that does not say so itself."""
    return PROMPT_SECONDS.read_text() if PROMPT_SECONDS.exists() else "0"


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
            return self.answer(200, {"version": os.environ.get("STANDIN_VERSION", VERSION)})
        if self.path == "/api/ps":
            return self.answer(200, {"models": list(RUNNER.loaded.values())})
        if self.path == "/api/tags":
            (MODELS / "manifests").mkdir(
                parents=True, exist_ok=True
            )  # as the real one: a store without it is written to
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
        model, options = asked["model"], asked.get("options", {})
        if not manifest_path(model).is_file():
            return self.answer(404, {"error": f"model '{model}' not found"})
        with RUNNER.lock:
            try:
                RUNNER.load(model, int(options.get("num_ctx") or os.environ.get("OLLAMA_CONTEXT_LENGTH", 256)))
            except Exception as error:
                return self.answer(500, {"error": f"{type(error).__name__}: {error}"})
            wanted, pace = int(options.get("num_predict", 16)), float(options.get("pace_seconds", 0))
            if not self.read_prompt(float(options.get("prompt_seconds", prompt_seconds()))):
                return None
            if asked.get("stream", True):
                return self.stream(model, asked["prompt"], wanted, pace)
            text = RUNNER.tokens(asked["prompt"], wanted)
        return self.answer(200, {"model": model, "response": text, "done": True, "eval_count": wanted})

    def do_DELETE(self) -> None:
        self.do_POST()

    def read_prompt(self, seconds: float) -> bool:
        """A long prompt's time; False once the caller is gone, which ends a request in the real engine too."""
        sys.stdout.write(f"engine stand-in: reads a prompt for {seconds} s\n")
        sys.stdout.flush()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            gone, _, _ = select.select([self.connection], [], [], 0.05)
            if gone and not self.connection.recv(1, socket.MSG_PEEK):
                self.close_connection = True
                return False
        return True

    def stream(self, model: str, prompt: str, wanted: int, pace: float) -> None:
        """One chunk a token, as Ollama sends them."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(wanted):
            prompt += (text := RUNNER.tokens(prompt[-64:], 1))
            self.chunk({"model": model, "response": text, "done": False})
            if number < wanted - 1:
                time.sleep(pace)
        self.chunk({"model": model, "response": "", "done": True, "eval_count": wanted})
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # both families, as a Go listener
        super().server_bind()

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
        Server(("::", int(os.environ["OLLAMA_HOST"].rsplit(":", 1)[1])), Handler).serve_forever()
    elif sys.argv[1] == "create":
        quantize = sys.argv[6] if sys.argv[5:6] == ["--quantize"] else ""
        # without a server (the tests fill caches so) it is one process
        client(sys.argv[2], sys.argv[4], quantize) if "OLLAMA_HOST" in os.environ else create(
            sys.argv[2], Path(sys.argv[4]), quantize
        )
    else:
        sys.exit(f"usage: {shutil.which(sys.argv[0])} serve | create NAME -f Modelfile [--quantize KIND]")
