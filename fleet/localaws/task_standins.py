"""Stand-ins around a service's tasks: its application balancer, the fleet's network balancer, boxes by name, models.

None of them is the real thing: the first forwards to the task with the fewest requests and appends the caller's
address, the second passes bytes on or refuses, the third takes a path's first part for a host's name (no resolver here
knows it), the last say what they are.
"""

import asyncio
import contextlib
import json
import socket
import time
from collections import Counter
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
from aiohttp import web

from fleet.config.gateway_settings import BALANCER_IDLE_SECONDS

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization"}
SAYS = ("The ", "embedded ", "AWS's ", "stand-in ", "for ", "a ", "model. ")


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


class StandInModel:
    """An OpenAI-compatible endpoint that says that it is none.

    Without a line it answers everybody at once, as a cloud does; with one, a box, it answers one request at a time, and
    while it drains it sends away whoever comes.
    """

    def __init__(self, token_seconds: float = 0.0, *, line: bool = False, wants_key: bool = False) -> None:
        self._token_seconds, self._wants_key = token_seconds, wants_key
        self._turn: AbstractAsyncContextManager[Any] = asyncio.Lock() if line else contextlib.nullcontext()
        self.draining, self.address = False, ""
        self.asked: list[float] = []  # when, on the monotonic clock

    async def listen(self) -> None:
        """On a port of the kernel's choice."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/chat/completions", self._complete)
        self.address = (await _serve(app)).removeprefix("http://")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        if self.draining:
            return web.json_response({"error": {"message": "this box is leaving"}}, status=503)
        if self._wants_key and not request.headers.get("Authorization"):
            error = {"message": "no key and no signature", "type": "invalid_request_error", "code": "unauthorized"}
            return web.json_response({"error": error}, status=401)
        self.asked.append(time.monotonic())
        body = await request.json()
        async with self._turn:
            return await self._answer(request, body)

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        words = (SAYS * body["max_tokens"])[: body["max_tokens"]]
        head: dict[str, Any] = {"id": "stand-in", "created": 1, "model": body["model"]}
        usage = {"prompt_tokens": 8, "completion_tokens": len(words), "total_tokens": 8 + len(words)}
        if not body.get("stream"):
            await asyncio.sleep(len(words) * self._token_seconds)
            message = {"role": "assistant", "content": "".join(words)}
            choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
            return web.json_response({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        head["object"] = "chat.completion.chunk"
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for word in words:
            choice = {"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": None}
            await _event(response, {**head, "choices": [choice]})
            await asyncio.sleep(self._token_seconds)
        await _event(response, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        await _event(response, {**head, "choices": [], "usage": usage})
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
