"""What answers the box from outside: a fake of IMDSv2, and a front before the embedded AWS that can fail as S3 does.

Both run as threads of the test, on sockets that were made in the box's world.
"""

import http.client
import http.server
import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        super().__init__(listening.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away."""


class Handler(http.server.BaseHTTPRequestHandler):
    """What every server here answers with."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class Authority:
    """A certificate authority of our own, and one server's certificate."""

    def __init__(self, address: str) -> None:
        self._authority = trustme.CA()
        self.server = self._authority.issue_cert(address)

    def certificate(self, folder: Path) -> Path:
        """The authority's certificate as a file, for those who shall trust it."""
        self._authority.cert_pem.write_to_path(str(folder / "authority.pem"))
        return folder / "authority.pem"

    def listener(self, plain: socket.socket) -> socket.socket:
        """A listening socket that speaks TLS; the handshake is left to whoever serves the connection."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.configure_cert(context)
        return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)


@dataclass
class Metadata:
    """The fake IMDSv2: `paths` below /latest/ are what it answers; tokens are enforced, everything else is 404.

    `mode` is how it is ill: "" (well), "gone" (connections are cut), "slow" (three seconds), "error" (500).
    `last` is the path with whose first answer it goes.
    """

    paths: dict[str, str]
    mode: str = ""
    last: str = ""
    tokens: set[str] = field(default_factory=set)
    asked: list[tuple[float, str, int]] = field(default_factory=list)  # monotonic time, path, status

    def serve(self, listening: socket.socket) -> Server:
        """Answer on a socket, in the background."""
        metadata = self

        class Imds(Handler):
            def answer(self, status: int, text: str = "") -> None:
                metadata.asked.append((time.monotonic(), self.path, status))
                self.send_response(status)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def ill(self) -> bool:
                if metadata.mode == "gone":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return True
                if metadata.mode == "slow":
                    time.sleep(3.0)
                if metadata.mode == "error":
                    self.answer(500)
                    return True
                return False

            def do_PUT(self) -> None:
                if self.ill():
                    return None
                seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
                if self.path != "/latest/api/token" or not seconds.isdigit() or not 1 <= int(seconds) <= 21600:
                    return self.answer(400)
                token = secrets.token_urlsafe(40)
                metadata.tokens.add(token)
                return self.answer(200, token)

            def do_GET(self) -> None:
                if self.ill():
                    return None
                if self.headers.get("X-aws-ec2-metadata-token") not in metadata.tokens:
                    return self.answer(401)
                text = metadata.paths.get(self.path.removeprefix("/latest/"))
                if metadata.last and self.path == f"/latest/{metadata.last}":
                    metadata.mode = "gone"
                return self.answer(404) if text is None else self.answer(200, text)

        return Server(listening, Imds)


@dataclass
class Fault:
    """What the next `times` requests for which `when(method, path)` holds suffer: "403", "503", or "cut" amid the body.

    At a barrier a request waits for the others that are expected there, at an event until it is set, then it goes on.
    """

    when: Callable[[str, str], bool]
    effect: str | threading.Barrier | threading.Event
    times: int


@dataclass
class Front:
    """A front before the embedded AWS. `requests` are all that came through: monotonic time, method, path, headers."""

    upstream: str
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[float, str, str, dict[str, str]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _effect(self, method: str, path: str) -> str | threading.Barrier | threading.Event:
        with self._lock:
            for fault in self.faults:
                if fault.times and fault.when(method, path):
                    fault.times -= 1
                    return fault.effect
        return ""

    def serve(self, listening: socket.socket) -> Server:
        """Answer on a socket, in the background."""
        front = self
        host, _, port = self.upstream.removeprefix("http://").partition(":")

        class Forward(Handler):
            def forward(self) -> None:
                front.requests.append((time.monotonic(), self.command, self.path, dict(self.headers)))
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                effect = front._effect(self.command, self.path)
                if effect in ("403", "503"):
                    self.send_response(int(effect), "Slow Down" if effect == "503" else "Forbidden")
                    self.send_header("Content-Length", "0")
                    return self.end_headers()
                if not isinstance(effect, str):
                    effect.wait()
                connection = http.client.HTTPConnection(host, int(port))
                headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                data = response.read()
                connection.close()
                self.send_response(response.status, response.reason)
                for name, value in response.headers.items():
                    if name.lower() not in ("transfer-encoding", "connection", "server", "date", "content-length"):
                        self.send_header(name, value)
                length = response.headers["Content-Length"] if self.command == "HEAD" else str(len(data))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                if effect == "cut":
                    self.wfile.write(data[: len(data) // 3])
                    self.wfile.flush()
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return None
                self.wfile.write(data)
                return None

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward  # noqa: N815 - http.server's names

        return Server(listening, Forward)


@contextmanager
def local(answer: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[int]:
    """A server on loopback, outside any box, that answers every GET, POST and PUT in this way; gives its port."""

    class Answer(Handler):
        def do_GET(self) -> None:
            answer(self)

        do_POST = do_PUT = do_GET  # noqa: N815 - http.server's names

    listening = socket.create_server(("127.0.0.1", 0))
    running = Server(listening, Answer)
    yield listening.getsockname()[1]
    running.shutdown()
    running.server_close()


def reply(handler: http.server.BaseHTTPRequestHandler, body: bytes, status: int = 200) -> None:
    """One whole answer."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def body_of(handler: http.server.BaseHTTPRequestHandler) -> Any:
    """What the caller sent, as JSON."""
    return json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))


def cut(handler: http.server.BaseHTTPRequestHandler, body: bytes) -> None:
    """Half of a range's answer, then the connection ends."""
    handler.close_connection = True
    handler.send_response(206)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])


def role_credentials(keys: dict[str, str]) -> str:
    """Credentials in metadata's shape."""
    return json.dumps(
        {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "AccessKeyId": keys["AWS_ACCESS_KEY_ID"],
            "SecretAccessKey": keys["AWS_SECRET_ACCESS_KEY"],
            "Token": keys["AWS_SESSION_TOKEN"],
            "LastUpdated": "2026-07-28T00:00:00Z",
            "Expiration": "2099-01-01T00:00:00Z",
        }
    )
