"""A box without a boot: its namespace, an engine that plays a model's time, callers outside. For the box's own modules,
run in this process.

The engine serves one request at a time, in the order in which they came, as Ollama does with OLLAMA_NUM_PARALLEL=1.
"""

import contextlib
import http.client
import http.server
import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import streams

from tests.box import netns

PORT = 11434
TOKEN_SECONDS = 0.03


@dataclass
class Request:
    """A request as the engine saw it. A caller who was refused is not among them."""

    number: int
    answered: bool = False


@dataclass
class Lab:
    """Both namespaces, and what the engine has read."""

    box: int
    out: int
    requests: dict[int, Request] = field(default_factory=dict)

    def connect(self) -> http.client.HTTPConnection:
        """A caller's connection."""
        connection = http.client.HTTPConnection("engine", timeout=30)
        with netns.inside(self.out):
            connection.sock = socket.create_connection((netns.BOX_V4, PORT), timeout=30)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def ask(connection: http.client.HTTPConnection, number: int, seconds: float, *, stream: bool = False) -> bool:
    """One request to its end; whether the whole answer came. Raises what the connection raises.

    No seconds: one that no model is needed for, answered at once whatever else is asked.
    """
    connection.request("POST", "/api/generate", json.dumps({"number": number, "seconds": seconds, "stream": stream}))
    answer = connection.getresponse().read()
    return json.loads(answer.splitlines()[-1])["done"] is True


class _Turns:
    """A lock that is given in the order in which it was asked for."""

    def __init__(self) -> None:
        self._condition, self._next, self._served = threading.Condition(), 0, 0

    def __enter__(self) -> None:
        with self._condition:
            mine, self._next = self._next, self._next + 1
            self._condition.wait_for(lambda: self._served == mine)

    def __exit__(self, *_: object) -> None:
        with self._condition:
            self._served += 1
            self._condition.notify_all()


def _engine(lab: Lab) -> type[http.server.BaseHTTPRequestHandler]:
    turns = _Turns()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = Request(asked.get("number", -1))
            lab.requests[request.number] = request
            seconds = asked.get("seconds", TOKEN_SECONDS)
            with contextlib.suppress(OSError), turns if seconds else contextlib.nullcontext():
                self.stream(seconds) if asked.get("stream") else self.whole(seconds)
                request.answered = True

        def stream(self, seconds: float) -> None:
            """One chunk a token."""
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for left in reversed(range(max(1, round(seconds / TOKEN_SECONDS)))):
                time.sleep(TOKEN_SECONDS)
                data = json.dumps({"done": not left}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")

        def whole(self, seconds: float = 0) -> None:
            """All at once."""
            time.sleep(seconds)
            data = b'{"done": true}'
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            self.wfile.write(head + data)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    return Handler


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was reset."""


@contextmanager
def lab() -> Iterator[Lab]:
    """The namespaces with a running engine; this thread, and those that it starts, are inside the box."""
    made = Lab(netns.new(), netns.new())
    with netns.inside(made.box):
        netns.ip("link", "set", "lo", "up")
    netns.join(made.box, f"/proc/{os.getpid()}/fd/{made.box}", made.out)
    server = _Server(("::", PORT), _engine(made), bind_and_activate=False)
    server.socket.close()
    server.socket = netns.listener(made.box, "::", PORT)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        with netns.inside(made.box):
            yield made
    finally:
        server.shutdown()
        server.server_close()
        with netns.inside(made.box):  # no caller waits for an answer any more
            subprocess.run(["ss", "-HKtn", f"( sport = :{PORT} )"], check=True, capture_output=True)
        os.close(made.box)
        os.close(made.out)


STAMP = re.compile(r"\b(lastsnd|lastrcv):(\d+)")


def ticks_of(hertz: int) -> Callable[..., str]:
    """`streams._ss` as on a kernel whose clock ticks so often: this machine's own may be finer."""
    real, tick = streams._ss, 1000 // hertz

    def _ss(*words: str) -> str:
        text, now = real(*words), int(time.monotonic() * 1000)

        def coarse(stamp: "re.Match[str]") -> str:
            return f"{stamp[1]}:{(now // tick - (now - int(stamp[2])) // tick) * tick}"

        return STAMP.sub(coarse, text)

    return _ss
