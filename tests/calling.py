"""An answer of gateway or lane as its caller reads it, and a caller whom neither understands."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from relay import sse


@dataclass
class Answer:
    """What a caller got."""

    status: int
    headers: dict[str, str]
    body: Any = field(default_factory=dict)
    events: list[sse.Event] = field(default_factory=list)

    @property
    def chunks(self) -> list[dict[str, Any]]:
        found = (sse.parsed(event.data) for event in self.events if event.kind == "message")
        return [chunk for chunk in found if chunk]


async def read_events(response: aiohttp.ClientResponse) -> list[sse.Event]:
    """Every event of a stream, once it has ended; none where this is no stream."""
    if response.content_type != "text/event-stream":
        return []
    parser = sse.Parser()
    return [event async for part in response.content.iter_any() for event in parser.feed(part)]


POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def posted(**body: Any) -> bytes:
    """A chat completion as it goes over the wire."""
    data = json.dumps({"messages": [{"role": "user", "content": "hello"}], **body}).encode()
    return b"%bContent-Length: %d\r\n\r\n%b" % (POST, len(data), data)


async def connected(place: str | int, said: bytes = b"", **how: Any) -> Connection:
    """To the port of an URL, with the first bytes said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(str(place).rpartition(":")[2]), **how)
    writer.write(said)
    return reader, writer


async def misread(port: int) -> None:
    """A prompt that is longer than its header says: its end is read as another request, which is none."""
    reader, writer = await connected(port)
    for part in (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{", b"my secret prompt\r\n\r\n"):
        writer.write(part)
        await reader.readuntil(b"\r\n\r\n")
    writer.close()
