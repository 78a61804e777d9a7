"""A box without a boot: its namespace, the lane before an engine that plays a model's time, callers outside. For the
box's own modules, run in this process.

The engine serves one request at a time, in the order in which they came. What it shall play stands in the prompt, as
JSON: the lane lets nothing else through.
"""

import asyncio
import contextlib
import http.client
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fleet.config.box_config import ASSETS
from fleet.core import names
from tests.box import netns, servers

sys.path.insert(0, str(ASSETS))


from lane.admin import Admin
from lane.config import Config
from lane.service import Lane
from relay.http_server import Server

PORT = 11434
TOKEN_SECONDS = 0.03


@dataclass
class Lab:
    """Both namespaces, and what the engine has read: the numbers of requests, and whether they were answered."""

    box: int
    out: int
    requests: dict[int, bool] = field(default_factory=dict)

    def connect(self) -> http.client.HTTPConnection:
        """A caller's connection."""
        connection = http.client.HTTPConnection("box", timeout=30)
        with netns.inside(self.out):
            connection.sock = socket.create_connection((netns.BOX_V4, PORT), timeout=30)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def ask(connection: http.client.HTTPConnection, number: int, seconds: float, *, stream: bool = False) -> int:
    """One request to its end: its status, 0 where it was cut. Raises what the connection raises."""
    tokens = max(1, math.ceil(seconds / TOKEN_SECONDS))
    prompt = json.dumps({"number": number, "tokens": tokens})
    body = {"model": "tiny", "prompt": prompt, "stream": stream, "options": {"num_predict": tokens}}
    connection.request("POST", "/api/generate", json.dumps(body))
    answer = connection.getresponse()
    last = json.loads(answer.read().splitlines()[-1])
    return answer.status if answer.status != 200 or last.get("done") else 0


def _engine(lab: Lab) -> type[servers.Handler]:
    turn = threading.Lock()

    class Engine(servers.Handler):
        disable_nagle_algorithm = True

        def do_POST(self) -> None:  # noqa: N802 - http.server's name
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "prompt" not in asked:
                return self.send_error(404)  # no slices here
            played = json.loads(asked["prompt"])
            lab.requests[played["number"]] = False
            with contextlib.suppress(OSError), turn:
                self.answer(played["tokens"], stream=asked["stream"])
                lab.requests[played["number"]] = True
            return None

        def answer(self, tokens: int, *, stream: bool) -> None:
            """One line a token, or all at once."""
            seconds = int(tokens * TOKEN_SECONDS * 1e9)
            last = {"done": True, "done_reason": "stop", "eval_count": tokens, "eval_duration": seconds}
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for left in reversed(range(tokens)):
                time.sleep(TOKEN_SECONDS)
                if stream or not left:
                    self.chunk({"response": "x", **(last if not left else {"done": False})})
            self.wfile.write(b"0\r\n\r\n")

        def chunk(self, body: dict[str, object]) -> None:
            data = json.dumps(body).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    return Engine


class _Lane(threading.Thread):
    """The lane as its own process has it, in a thread of the box's namespace. `admin` False: it tells nothing."""

    def __init__(self, lab: Lab, *, admin: bool) -> None:
        super().__init__(daemon=True)
        self.ready, self._lab, self._admin = threading.Event(), lab, admin

    def run(self) -> None:
        with netns.inside(self._lab.box):
            asyncio.run(self.serve())

    async def serve(self) -> None:
        url = f"http://127.0.0.1:{names.ENGINE_PORT}"
        config = Config(url, "ollama", "tiny", 4096, PORT, names.LANE_ADMIN_PORT)
        lane, self.ended, self._loop = Lane(config), asyncio.Event(), asyncio.get_running_loop()
        outside, inside = lane.outside(), Server(Admin(config, lane).answer)
        await outside.listen(None, PORT)
        if self._admin:
            await inside.listen("127.0.0.1", names.LANE_ADMIN_PORT)
        self.ready.set()
        await self.ended.wait()
        for server in (outside, inside):
            await server.close(0.1)
        await lane.close()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self.ended.set)
        self.join(10)


@contextmanager
def lab(*, admin: bool = True) -> Iterator[Lab]:
    """The namespaces with a running engine and its lane; this thread, and those that it starts, are inside the box."""
    made = Lab(netns.new(), netns.new())
    with netns.inside(made.box):
        netns.ip("link", "set", "lo", "up")
    netns.join(made.box, f"/proc/{os.getpid()}/fd/{made.box}", made.out)
    server = servers.Server(netns.listener(made.box, "127.0.0.1", names.ENGINE_PORT), _engine(made))
    lane = _Lane(made, admin=admin)
    lane.start()
    assert lane.ready.wait(30)
    try:
        with netns.inside(made.box):
            yield made
    finally:
        lane.end()
        server.shutdown()
        server.server_close()
        with netns.inside(made.box):  # no caller waits for an answer any more
            subprocess.run(["ss", "-HKtn", f"( sport = :{PORT} )"], check=True, capture_output=True)
        os.close(made.box)
        os.close(made.out)
