"""A lane in this process, on loopback, and a caller of it."""

import asyncio
import functools
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from lane.admin import Admin
from lane.config import LLAMA_CPP, Config
from lane.service import Lane
from relay import lane_headers
from relay.http_server import Server
from tests import calling

MODEL = "tiny"
HELLO = [{"role": "user", "content": "Hello"}]
SEND_BYTES = 64 << 10  # of the kernel's for a connection: it may grow to 4 MB, and hold an answer that nobody reads
WORDS = "Spot boxes come and go."  # what `targets.answers()` says


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test to its end."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 120))

    return run


@dataclass
class Answer(calling.Answer):
    """What a caller of the lane got; times on the loop's clock."""

    ended: float = 0.0

    @property
    def text(self) -> str:
        """Whatever family and shape it has."""
        if self.events:
            choices = [choice for chunk in self.chunks for choice in chunk["choices"]]
            return "".join(choice.get("delta", {}).get("content") or choice.get("text") or "" for choice in choices)
        choice = self.body["choices"][0]
        return str(choice["message"]["content"] if "message" in choice else choice["text"])

    @property
    def finish(self) -> list[str]:
        return [
            choice["finish_reason"] for chunk in self.chunks for choice in chunk["choices"] if choice["finish_reason"]
        ]


@dataclass
class Caller:
    """Speaks to one lane."""

    url: str
    admin: str
    lane: Lane
    session: aiohttp.ClientSession

    async def post(self, path: str, headers: dict[str, str] | None = None, **body: Any) -> Answer:
        """One request, read to its end."""
        async with self.session.post(self.url + path, json=body, headers=headers) as response:
            answer = Answer(response.status, dict(response.headers), events=await calling.read_events(response))
            if not answer.events:
                text = await response.text()
                lines = [json.loads(line) for line in text.splitlines() if line]
                answer.body = lines if response.content_type == "application/x-ndjson" else lines[0]
            answer.ended = asyncio.get_running_loop().time()
            return answer

    async def chat(self, headers: dict[str, str] | None = None, **body: Any) -> Answer:
        return await self.post("/v1/chat/completions", headers, **{"model": MODEL, "messages": HELLO, **body})

    async def inside(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """A request to the loopback administration."""
        async with self.session.request(method, self.admin + path, json=body) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text

    async def until(self, true: Callable[[], Any]) -> None:
        """Wait for what the lane is about to do."""
        while not true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(target: str, *, exact: bool | None = None, **changes: Any) -> AsyncIterator[Caller]:
    """A lane before this engine; `exact` skips the proof of its slices."""
    given = {"engine": LLAMA_CPP, "model": MODEL, "context_length": 2048, "port": 0, "admin_port": 0, **changes}
    config = Config(engine_url=target, box="i-0lane", host="127.0.0.1", **given)
    lane = Lane(config)
    lane.exact = exact
    servers = lane.outside(), Server(Admin(config, lane).answer)
    ports = []
    for server in servers:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)  # connections inherit it
        ports.append(await server.listen(sock=listener))
    if exact is None:
        lane.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Caller(f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}", lane, session)
    finally:
        await lane.close()
        for server in servers:
            await server.close()


async def first_served(caller: Caller, **body: Any) -> "asyncio.Task[Any]":
    """A request that is at the engine."""
    task = asyncio.create_task(caller.chat(**body))
    await caller.until(lambda: caller.lane.line.running is not None)
    return task


def from_gateway(kind: str = "interactive", who: str = "key:1", seconds: float = 60) -> dict[str, str]:
    """The headers that a gateway adds."""
    return {lane_headers.CLASS: kind, lane_headers.CALLER: who, lane_headers.DEADLINE: str(seconds)}
