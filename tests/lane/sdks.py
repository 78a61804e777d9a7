"""Unchanged SDK clients before a gateway whose box goes in mid-stream: how often each tries, and how many at once."""

import asyncio
import json
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.gateway.targets import Target, answers
from tests.lane.processes import MODEL, ROOT, Parts

TRIES_MOST = 3
WORDS = ("word ",) * 4000


class Front:
    """What a balancer's log would say: who tries when. A client is known by what it says."""

    def __init__(self, target: str) -> None:
        self._target, self.url = target, ""
        self.tries: dict[str, list[float]] = defaultdict(list)

    async def listen(self) -> None:
        """On a port of the kernel's choice."""
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        app = web.Application()
        app.router.add_post("/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Give everything back."""
        await self._runner.cleanup()
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.tries[json.loads(body)["messages"][0]["content"]].append(time.monotonic())
        kind = {"Content-Type": "application/json"}
        async with self._session.post(self._target + request.path, data=body, headers=kind) as answer:
            kept = {
                k: v
                for k, v in answer.headers.items()
                if k.lower() in ("content-type", "retry-after", "x-should-retry")
            }
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
        return response


async def python(url: str, name: str, *, stream: bool) -> str:
    """One client as it comes; how it ended."""
    import openai  # a second to load

    sdk, said = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="anonymous"), 0  # pragma: allowlist secret
    ask: Any = {"model": MODEL, "messages": [{"role": "user", "content": name}]}
    try:
        if not stream:
            await sdk.chat.completions.create(**ask)
            return "finished"
        async for chunk in await sdk.chat.completions.create(**ask, stream=True):
            said += bool(chunk.choices and chunk.choices[0].delta.content)
        return "finished"
    except openai.APIStatusError as error:
        return f"status {error.status_code}"
    except openai.APIError as error:
        return f"{error.code}" if said else "nothing"
    finally:
        await sdk.close()


async def node(url: str, many: int, *, stream: bool) -> list[str]:
    """So many clients in one process."""
    program = [str(ROOT / ".venv/bin/node"), str(ROOT / "tests/gateway/openai_node.mjs"), f"{url}/v1"]
    process = await asyncio.create_subprocess_exec(
        *program, "stream" if stream else "whole", str(many), MODEL, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    found = [json.loads(line) for line in output.decode().splitlines()]
    return [
        "finished" if each["finish"] else f"status {each['status']}" if each["status"] else str(each["code"])
        for each in found
    ]


async def clients(url: str, many: int, *, stream: bool) -> list[str]:
    """Half of each SDK."""
    half = many // 2
    *mine, others = await asyncio.gather(
        *(python(url, f"python {n}", stream=stream) for n in range(half)), node(url, many - half, stream=stream)
    )
    return [*mine, *others]


def most_in_a_second(tries: dict[str, list[float]]) -> int:
    """The busiest second that begins with a try."""
    every = sorted(at for each in tries.values() for at in each)
    return max((sum(at <= other < at + 1 for other in every) for at in every), default=0)


async def cut(place: Path, many: int) -> tuple[dict[str, Any], dict[str, bool]]:
    """All in mid-stream when their box is gone; then as many while neither box nor cloud is there."""
    place.mkdir(parents=True, exist_ok=True)
    seen: dict[str, Any] = {}
    held: dict[str, bool] = {}
    box = Target(answers(*WORDS, every=0.05))
    await box.listen()
    those = Parts(place, "", "", scale=5)  # nobody answers for 6 s instead of 30
    await those.gateway(box.url)
    try:
        for name in ("cut", "nobody"):
            front = Front(those.url)
            await front.listen()
            asking = asyncio.create_task(clients(front.url, many, stream=name == "cut"))
            if name == "cut":
                while len(box.asked) < many:
                    await asyncio.sleep(0.05)
                await asyncio.sleep(0.5)
                await box.leave()
            ended = Counter(await asking)
            tries = [len(each) for each in front.tries.values()]
            seen[name] = {
                **ended,
                "clients": len(tries),
                "tries": sum(tries),
                "busiest second": most_in_a_second(front.tries),
            }
            held[f"{name}: at most {TRIES_MOST} tries each"] = max(tries) <= TRIES_MOST and len(tries) == many
            held[f"{name}: no second with more tries than clients"] = seen[name]["busiest second"] <= many
            await front.close()
        held["cut: every client is told, none takes it for an answer"] = seen["cut"].get("SPOT_PREEMPTION") == many
        held["nobody: every client is told 503"] = seen["nobody"].get("status 503") == many
    finally:
        await those.end("gateway")
        await box.leave()
    return seen, held
