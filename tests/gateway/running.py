"""A gateway in this process, on loopback, and a caller of it."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any

import aiohttp
import uvloop

from fleet.config import gateway_settings as settings
from fleet.core.ports import free_port
from gateway import targets
from gateway.config import Config
from gateway.ledger import day_of
from gateway.memory import MemoryStore, Store
from gateway.service import Gateway
from gateway.voice import Voice
from relay import sse
from tests import calling

MODEL = "house-model:31b-q4"
HELLO = [{"role": "user", "content": "hello"}]
# A thousandth would be noise on a busy machine; a twentieth keeps the order of every deadline.
SCALE = 20
FAST = settings.Budgets(
    **{each.name: each.default / SCALE for each in fields(settings.Budgets) if isinstance(each.default, int | float)}
)
PLENTY = settings.CallerTier(requests_per_day=1000, fallbacks_per_day=1000, parallel=1000)
MANY = settings.Tiers(anonymous=PLENTY, free=PLENTY, pro=PLENTY)


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test to its end, on the loop that the service has."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        uvloop.run(test(*args, **kwargs))

    return run


class Answer(calling.Answer):
    """What a caller of the gateway got."""

    @property
    def text(self) -> str:
        return "".join(
            choice["delta"].get("content") or "" for chunk in self.chunks for choice in chunk.get("choices", ())
        )

    @property
    def done(self) -> bool:
        return bool(self.events) and self.events[-1].data == sse.DONE

    @property
    def error(self) -> dict[str, Any]:
        """The error event, which is the last thing said."""
        last = self.events[-1]
        assert last.kind == "error", last
        return sse.parsed(last.data) or {}


@dataclass
class Caller:
    """Speaks to one gateway as a careful client would."""

    url: str
    gateway: Gateway
    session: aiohttp.ClientSession

    async def chat(self, headers: dict[str, str] | None = None, **body: Any) -> Answer:
        """One chat completion, read to its end."""
        body = {"model": MODEL, "messages": HELLO, **body}
        async with self.session.post(f"{self.url}/v1/chat/completions", json=body, headers=headers) as response:
            answer = Answer(response.status, dict(response.headers), events=await calling.read_events(response))
            if not answer.events:
                answer.body = await response.json()
            return answer

    async def get(self, path: str) -> Answer:
        async with self.session.get(self.url + path) as response:
            return Answer(response.status, dict(response.headers), await response.json())

    async def settled(self) -> None:
        """Until what was answered is written down: a stream's reader has its last byte before its handler has ended."""
        while self.gateway.metrics.in_flight:
            await asyncio.sleep(0.01)
        await self.gateway.settled()


@asynccontextmanager
async def serving(
    gpu: str,
    cloud: str = "",
    *,
    store: Store | None = None,
    budgets: settings.Budgets = FAST,
    limits: settings.Limits | None = None,
    voice: Voice | None = None,
    authorize: Callable[..., Awaitable[dict[str, str]]] | None = None,
    cloud_settings: dict[str, Any] | None = None,
    healthy: Callable[[], list[str]] | None = None,
    **changes: Any,
) -> AsyncIterator[Caller]:
    """A gateway before these two targets; and before the boxes that `healthy` lists, whose ids are their ports."""
    fallback = settings.Fallback(url=f"{cloud}/v1" if cloud else "", model="cloud-model", **(cloud_settings or {}))
    given = {"tiers": MANY, "trusted_hops": 0, "limits": limits or settings.Limits(), **changes}
    own = settings.Gateway(fallback=fallback, budgets=budgets, **given)
    models = {MODEL: MODEL, "house": MODEL}
    config = Config(fleet="llm", gpu_url=gpu, models=models, gateway=own, box_url="http://127.0.0.1:{}")

    async def no_key(url: str, payload: bytes, again: bool) -> dict[str, str]:
        return {}

    the_gpu = targets.Gpu(config, healthy)
    the_cloud = targets.Cloud(config, voice or Voice(), authorize or no_key)
    gateway = Gateway(config, store=store or MemoryStore(), gpu=the_gpu, cloud=the_cloud, pepper=b"pepper")
    server = gateway.outside()
    port = await server.listen("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Caller(f"http://127.0.0.1:{port}", gateway, session)
    finally:
        await server.close()
        await the_gpu.close()
        await the_cloud.close()


def today() -> str:
    """The UTC day that a request which comes now is counted by."""
    return day_of(time.time())


def closed_port() -> str:
    """An address where nothing listens."""
    return f"http://127.0.0.1:{free_port()}"
