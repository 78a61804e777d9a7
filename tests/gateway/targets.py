"""A stand-in target that misbehaves on request: a raw HTTP server, since no framework can reset, cut or stall a stream.

Each request takes the next act of its script; the last act stays. What it saw is kept, with when its caller left.
"""

import asyncio
import json
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

WORDS = ("Spot", " boxes", " come", " and", " go", ".")
DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 7, "completion_tokens": len(WORDS), "total_tokens": 7 + len(WORDS)}


@dataclass
class Asked:
    """One request as the target saw it."""

    headers: dict[str, str]
    body: dict[str, Any]
    at: float = field(default_factory=time.monotonic)
    left_at: float | None = None  # when its caller hung up in the middle


class Turn:
    """One request's two ends."""

    def __init__(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked, self._reader, self._writer = asked, reader, writer

    async def send(self, data: bytes) -> None:
        if self._writer.is_closing():  # uvloop's raises no ConnectionError
            raise ConnectionError("closed")
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int, headers: dict[str, str] | None = None, length: int | None = None) -> None:
        framing = {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
        lines = [f"HTTP/1.1 {status} Status", *(f"{k}: {v}" for k, v in {**framing, **(headers or {})}.items())]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def part(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, chunk: dict[str, Any]) -> None:
        await self.part(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    async def pause(self, seconds: float) -> None:
        """Wait; raises ConnectionError as soon as the caller hangs up."""
        try:
            async with asyncio.timeout(seconds):
                gone = not await self._reader.read(1)
        except TimeoutError:
            return
        except ConnectionError:
            gone = True
        if gone:
            self.asked.left_at = time.monotonic()
            raise ConnectionError("the caller left")

    def reset(self) -> None:
        found: socket.socket = self._writer.get_extra_info("socket")
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.close()
        raise ConnectionError("reset")

    def cut(self) -> None:
        self._writer.close()
        raise ConnectionError("cut")


Act = Callable[[Turn], Awaitable[None]]


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk as engines send it."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-engine",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "engine",
        "choices": [choice],
        **more,
    }


def answers(*words: str, every: float = 0.0, first: float = 0.0, finish: str | None = "stop", done: bool = True) -> Act:
    """A whole, healthy answer, streamed or not; or a stream that ends without its last words."""

    async def act(turn: Turn) -> None:
        said = words or WORDS
        await turn.pause(first) if first else None
        if not turn.asked.body.get("stream"):
            message = {"role": "assistant", "content": "".join(said)}
            whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "engine", "usage": USAGE}
            body = json.dumps(
                {**whole, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            ).encode()
            await turn.pause(every * len(said)) if every else None
            await turn.head(200, {"Content-Type": "application/json"}, len(body))
            await turn.send(body)
            return
        await turn.head(200, {"Content-Type": "text/event-stream"})
        await turn.event(chunk({"role": "assistant", "content": ""}))
        for word in said:
            await turn.event(chunk({"content": word}))
            await turn.pause(every) if every else None
        if finish:
            await turn.event(chunk({}, finish))
            await turn.event({**chunk({}), "choices": [], "usage": USAGE})
        if done:
            await turn.part(DONE)
        await turn.send(b"0\r\n\r\n")

    return act


def breaks(*words: str, how: str, after: float = 0.1) -> Act:
    """A stream that delivers some words and then is cut, reset, stalled (`after` is long), or says that it failed."""

    async def act(turn: Turn) -> None:
        await turn.head(200, {"Content-Type": "text/event-stream"})
        for word in words:
            await turn.event(chunk({"content": word}))
        await turn.pause(after)
        if how == "reset":
            turn.reset()
        if how == "error":
            await turn.event({"error": {"message": "the runner crashed"}})
            await turn.send(b"0\r\n\r\n")
        turn.cut()

    return act


def fails(status: int, message: str = "no", code: str = "", **headers: str) -> Act:
    """An error of the target's own."""

    async def act(turn: Turn) -> None:
        body = json.dumps({"error": {"message": message, "type": "x", "code": code}}).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await turn.head(status, {"Content-Type": "application/json", **named}, len(body))
        await turn.send(body)

    return act


async def resets(turn: Turn) -> None:
    """The connection is lost before a byte of the answer."""
    turn.reset()


def silent(seconds: float, *, head: bool = False, comments: float = 0.0) -> Act:
    """Nothing, or only comments, for so long; then the connection is closed."""

    async def act(turn: Turn) -> None:
        if head:
            await turn.head(200, {"Content-Type": "text/event-stream"})
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await turn.pause(comments or seconds)
            if comments:
                await turn.part(b": queued\n\n")
        turn.cut()

    return act


def says(*parts: bytes | dict[str, Any]) -> Act:
    """These chunks as a stream's body, and these bytes as they are."""

    async def act(turn: Turn) -> None:
        await turn.head(200, {"Content-Type": "text/event-stream"})
        for part in parts:
            await (turn.part(part) if isinstance(part, bytes) else turn.event(part))
        await turn.send(b"0\r\n\r\n")

    return act


class Target:
    """`async with Target(act, act) as target:` listens on `target.url` until the block ends."""

    def __init__(self, *script: Act) -> None:
        self.script = list(script) or [answers()]
        self.asked: list[Asked] = []
        self._leaving = False
        self._idle: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def listen(self) -> None:
        """Begin (again, on the same port)."""
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, limit=1 << 25, backlog=2048)
        self.port = self._server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Take no more connections; those that are open are closed."""
        if self._server:
            self._server.close()
            self._server = None
            for writer in self._open:
                writer.close()
            await asyncio.sleep(0)

    async def drain(self) -> None:
        """Take no more connections, close those that have nothing, end what the others have."""
        assert self._server is not None
        self._server.close()
        self._leaving = True
        for writer in self._idle:
            writer.close()
        while self._open:
            await asyncio.sleep(0.01)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while not self._leaving:
                self._idle.add(writer)
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                self._idle.discard(writer)
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:]) if k}
                raw = await reader.readexactly(int(headers.get("content-length", "0")))
                asked = Asked(headers, json.loads(raw or b"{}"))
                self.asked.append(asked)
                act = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                await act(Turn(asked, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            self._idle.discard(writer)
            writer.close()
