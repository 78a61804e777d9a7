"""Stand-ins around a service's tasks: its application balancer, the fleet's network balancer, boxes by name, a cloud.

None of them is the real thing: the first forwards to the task with the fewest requests and appends the caller's
address, the second passes bytes on or refuses, the third takes a path's first part for a host's name (no resolver here
knows it), the last says what it is.
"""

import asyncio
import contextlib
import json
import socket
from collections import Counter
from typing import Any

import aiohttp
from aiohttp import web

from fleet.config.gateway_settings import BALANCER_IDLE_SECONDS

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization"}
SAYS = ("The ", "embedded ", "AWS's ", "stand-in ", "for ", "a ", "cloud ", "model.")


class ApplicationBalancer:
    """One listener, many tasks."""

    def __init__(self) -> None:
        self._targets: list[str] = []
        self._in_flight: Counter[str] = Counter()
        self._session: aiohttp.ClientSession
        self.url = ""

    async def listen(self) -> None:
        """On a port of the kernel's choice."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=BALANCER_IDLE_SECONDS)
        self._session = aiohttp.ClientSession(
            timeout=timeout, auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)
        )
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self.url = await _serve(app)

    async def close(self) -> None:
        """Give back what it holds towards the tasks."""
        await self._session.close()

    def route(self, targets: list[str]) -> None:
        """New requests go to these alone."""
        self._targets = targets

    def in_flight(self, target: str) -> int:
        """Requests that a target has not ended."""
        return self._in_flight[target]

    def _chosen(self, request: web.Request) -> tuple[str, str]:
        return min(self._targets, key=lambda url: self._in_flight[url], default=""), request.path_qs

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        target, path = self._chosen(request)
        if not target:
            return web.Response(status=503, text="<h1>503 Service Temporarily Unavailable</h1>")
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP]
        seen = ", ".join([*request.headers.getall("X-Forwarded-For", []), request.remote or ""])
        headers = [*((n, v) for n, v in headers if n.lower() != "x-forwarded-for"), ("X-Forwarded-For", seen)]
        self._in_flight[target] += 1
        try:
            async with self._session.request(
                request.method,
                target + path,
                headers=headers,
                data=request.content if request.can_read_body else None,
                allow_redirects=False,
            ) as answer:
                return await _pass_on(request, answer)
        except aiohttp.ClientConnectionError:
            return web.Response(status=502, text="<h1>502 Bad Gateway</h1>")
        finally:
            self._in_flight[target] -= 1


class BoxNames(ApplicationBalancer):
    """One listener for every box: http://listener/ID/path is http://ID.domain:port/path."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: dict[str, str] = {}  # by instance id: "http://host:port"

    def _chosen(self, request: web.Request) -> tuple[str, str]:
        _, box, path = request.path_qs.split("/", 2)
        return self.addresses.get(box, ""), f"/{path}"


async def _pass_on(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status)
    for name, value in answer.headers.items():
        if name.lower() not in HOP_BY_HOP:
            response.headers.add(name, value)
    await response.prepare(request)
    try:
        async for part in answer.content.iter_any():
            await response.write(part)
    except aiohttp.ClientError:
        if request.transport:  # its answer has begun: no status can tell of it any more
            request.transport.abort()
        raise ConnectionResetError from None
    await response.write_eof()
    return response


class NetworkBalancer:
    """An address that leads to whoever serves, or refuses."""

    def __init__(self) -> None:
        self._socket = _bound(0)
        self._port = int(self._socket.getsockname()[1])
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def lead_to(self, address: str | None) -> None:
        """New connections go there, those that stand are reset; None: they are refused."""
        if self._server:
            self._server.close()
            for writer in self._connections:
                writer.transport.abort()
            self._server, self._socket = None, _bound(self._port)
        if address:
            host, _, port = address.rpartition(":")

            async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._join(host, int(port), reader, writer)

            self._server = await asyncio.start_server(taken, sock=self._socket)

    async def _join(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        self._connections |= {writer, back}
        await asyncio.gather(_pump(reader, back), _pump(there, writer))
        self._connections -= {writer, back}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()
    writer.close()


async def cloud_model() -> str:
    """An OpenAI-compatible endpoint that wants to know who asks, and says that it is none."""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v1/chat/completions", _complete)
    return f"{await _serve(app)}/v1"


async def _complete(request: web.Request) -> web.StreamResponse:
    if not request.headers.get("Authorization"):
        error = {"message": "no key and no signature", "type": "invalid_request_error", "code": "unauthorized"}
        return web.json_response({"error": error}, status=401)
    body = await request.json()
    head: dict[str, Any] = {"id": "stand-in", "created": 1, "model": body["model"]}
    usage = {"prompt_tokens": 8, "completion_tokens": len(SAYS), "total_tokens": 8 + len(SAYS)}
    if not body.get("stream"):
        choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": "".join(SAYS)}}
        choice["finish_reason"] = "stop"
        return web.json_response({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    deltas: list[dict[str, Any]] = [{"role": "assistant"}, *({"content": word} for word in SAYS), {}]
    for number, delta in enumerate(deltas):
        finish = "stop" if number == len(deltas) - 1 else None
        chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        await _event(response, {**head, **chunk})
    await _event(response, {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    await response.write(b"data: [DONE]\n\n")
    return response


async def _event(response: web.StreamResponse, data: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(data).encode() + b"\n\n")


async def _serve(app: web.Application) -> str:
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    bound = _bound(0)
    await web.SockSite(runner, bound).start()
    return f"http://127.0.0.1:{bound.getsockname()[1]}"


def _bound(port: int) -> socket.socket:
    """A socket that holds its port and refuses, until somebody listens on it."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", port))
    return found
