"""Connections from outside: nobody is locked out by those who ask nothing, or ask for more than can be answered."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lane import service
from relay.http_headers import HEAD_BYTES
from relay.http_server import AHEAD_MOST
from tests.gateway.targets import Target, answers, silent
from tests.lane.processes import Parts
from tests.lane.running import HELLO, MODEL, Caller, on_loop, serving

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
BODY = json.dumps({"model": MODEL, "messages": HELLO, "stream": True}).encode()
ASK = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SECONDS = 5


async def come(port: int, said: bytes = b"") -> Connection:
    """A caller, with his first bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    return reader, writer


async def is_let_go(caller: Connection) -> bool:
    """Whether he is, without a word."""
    try:
        return await asyncio.wait_for(caller[0].read(), SECONDS) == b""
    except ConnectionError:
        return True


def port_of(caller: Caller) -> int:
    return int(caller.url.rpartition(":")[2])


@on_loop
async def test_a_newcomer_has_the_place_of_the_oldest_whose_request_is_not_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "CONNECTIONS_MOST", 3)
    async with Target(answers(every=0.5)) as engine, serving(engine.url, exact=False) as caller:
        port = port_of(caller)
        asks = await come(port, ASK)
        await caller.until(lambda: caller.lane.streams)
        silent, half = await come(port), await come(port, ASK[:-1])
        assert b"200" in await asyncio.wait_for(asks[0].readline(), SECONDS)
        others = []  # held: a connection that nobody holds is closed
        for gone in (silent, half):
            others.append(await come(port))
            assert await is_let_go(gone)
        assert b"[DONE]" in await asyncio.wait_for(asks[0].readuntil(b"[DONE]"), 2 * SECONDS)
        await asks[0].readuntil(b"0\r\n\r\n")
        others.append(await come(port))
        assert await is_let_go(asks), "answered: from now on it may go, too"
        for _, writer in others:
            writer.close()


@on_loop
async def test_a_thousand_idle_connections_lock_nobody_out(tmp_path: Path) -> None:
    async with Target(answers()) as engine, AsyncExitStack() as left:
        those = Parts(tmp_path, engine.url, "")
        await those.lane(model=MODEL)
        left.push_async_callback(those.end, "lane")
        idle = [await come(those.ports["lane"]) for _ in range(1000)]
        reader, _ = await come(those.ports["lane"], ASK)
        assert b"[DONE]" in await asyncio.wait_for(reader.readuntil(b"[DONE]"), SECONDS)
        assert await is_let_go(idle[0])
        for _, writer in idle:
            writer.close()


@on_loop
async def test_who_asks_on_before_he_is_answered_is_let_go() -> None:
    async with Target(silent(60)) as engine, serving(engine.url, exact=False) as caller:
        asks = await come(port_of(caller), ASK + GET * AHEAD_MOST)
        await caller.until(lambda: caller.lane.streams)
        await asyncio.sleep(0.05)
        assert caller.lane.streams == 1, "a few may be sent ahead"
        asks[1].write(GET * 2)
        assert await is_let_go(asks)
        await caller.until(lambda: not caller.lane.streams)


@on_loop
async def test_nobody_speaks_on_behind_a_request_for_another_protocol() -> None:
    async with Target(silent(60)) as engine, serving(engine.url, exact=False) as caller:
        for other in (
            b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nConnection: upgrade\r\nHost: x\r\nUpgrade: websocket\r\n\r\n",
        ):
            assert await is_let_go(await come(port_of(caller), ASK + other + b"x" * 2048))


@on_loop
async def test_a_head_has_its_bounds() -> None:
    async with Target(answers()) as engine, serving(engine.url, exact=False) as caller:
        for field, many, status in ((250, 60, b"200"), (HEAD_BYTES, 1, b"400"), (1, HEAD_BYTES // 4, b"400")):
            fields = b"".join(b"x-%d: %s\r\n" % (n, b"a" * field) for n in range(many))
            reader, writer = await come(port_of(caller), b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n")
            assert status in await asyncio.wait_for(reader.readline(), SECONDS)
            writer.close()
