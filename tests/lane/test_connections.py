"""Connections from outside: nobody is locked out by those who ask nothing, or ask for more than can be answered."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lane import service
from relay.http_server import AHEAD_MOST
from tests.calling import Connection, connected, posted
from tests.gateway.targets import Target, answers, silent
from tests.lane.processes import Parts
from tests.lane.running import MODEL, on_loop, serving

ASK = posted(model=MODEL, stream=True)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SECONDS = 5


async def is_let_go(caller: Connection) -> bool:
    """Whether he is, without a word."""
    try:
        return await asyncio.wait_for(caller[0].read(), SECONDS) == b""
    except ConnectionError:
        return True


@on_loop
async def test_a_newcomer_has_the_place_of_the_oldest_whose_request_is_not_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "CONNECTIONS_MOST", 3)
    async with Target(answers(every=0.5)) as engine, serving(engine.url, exact=False) as caller:
        asks = await connected(caller.url, ASK)
        await caller.until(lambda: caller.lane.streams)
        silent, half = await connected(caller.url), await connected(caller.url, ASK[:-1])
        assert b"200" in await asyncio.wait_for(asks[0].readline(), SECONDS)
        others = []  # held: a connection that nobody holds is closed
        for gone in (silent, half):
            others.append(await connected(caller.url))
            assert await is_let_go(gone)
        assert b"[DONE]" in await asyncio.wait_for(asks[0].readuntil(b"[DONE]"), 2 * SECONDS)
        await asks[0].readuntil(b"0\r\n\r\n")
        others.append(await connected(caller.url))
        assert await is_let_go(asks), "answered: from now on it may go, too"
        for _, writer in others:
            writer.close()


@on_loop
async def test_a_thousand_idle_connections_lock_nobody_out(tmp_path: Path) -> None:
    async with Target(answers()) as engine, AsyncExitStack() as left:
        those = Parts(tmp_path, engine.url, "")
        await those.lane(model=MODEL)
        left.push_async_callback(those.end, "lane")
        idle = [await connected(those.ports["lane"]) for _ in range(1000)]
        reader, _ = await connected(those.ports["lane"], ASK)
        assert b"[DONE]" in await asyncio.wait_for(reader.readuntil(b"[DONE]"), SECONDS)
        assert await is_let_go(idle[0])
        for _, writer in idle:
            writer.close()


@on_loop
async def test_who_asks_on_before_he_is_answered_is_let_go() -> None:
    async with Target(silent(60)) as engine, serving(engine.url, exact=False) as caller:
        asks = await connected(caller.url, ASK + GET * AHEAD_MOST)
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
            assert await is_let_go(await connected(caller.url, ASK + other + b"x" * 2048))
