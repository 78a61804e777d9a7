"""Gateway and lane as processes of their own before an engine and a cloud model, and callers who keep what they met."""

import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from fleet.core import names
from fleet.core.ports import free_port
from fleet.demo import callers
from lane.config import ENVIRONMENT, LLAMA_CPP
from relay import sse
from tests.gateway.targets import DONE, Act, Target, Turn, chunk
from tests.lane import lengths

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "assets"
MODEL, CLOUD = callers.MODEL, "cloud"
READY_SECONDS = 60


@dataclass
class Met:
    """One request as its caller saw it. Seconds are real ones."""

    stream: bool
    id: str = ""
    by: str = ""  # gpu, fallback; empty: nobody answered
    status: int = 0
    code: str = ""  # of the error that it ended with
    tokens: int = 0
    seconds: float = 0.0
    finished: bool = False

    @property
    def word(self) -> str:
        """How it ended."""
        if self.finished:
            return self.by
        return "broken" if self.tokens else f"refused {self.status}"


@dataclass
class Parts:
    """What runs. Times of the gateway's budgets are divided by `scale`."""

    folder: Path
    engine_url: str
    cloud_url: str
    scale: float = 1.0
    ports: dict[str, int] = field(default_factory=lambda: defaultdict(free_port))
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['gateway']}"

    @property
    def url_of_lane(self) -> str:
        return f"http://127.0.0.1:{self.ports['lane']}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.ports['admin']}"

    async def gateway(self, gpu_url: str = "") -> None:
        """One task, its counts in memory."""
        config = json.loads(callers.environment(self.scale)[names.ENV_GATEWAY])
        config |= {"gpu_url": gpu_url or self.url_of_lane, "port": self.ports["gateway"]}
        config |= {"metrics_port": self.ports["metrics"]}
        fallback = {"url": f"{self.cloud_url}/v1", "model": CLOUD, "concurrency": 64, "dollars_per_day": 1000}
        config["gateway"] |= {"fallback": fallback if self.cloud_url else {}, "trusted_hops": 0}
        await self._start("gateway", {names.ENV_GATEWAY: json.dumps(config), "PYTHONPATH": f"{ROOT}:{ASSETS}"})

    async def lane(self, box: str = "i-0chaos", model: str = MODEL) -> None:
        """As a box's, behind a gateway."""
        config = {"engine": LLAMA_CPP, "engine_url": self.engine_url, "model": model, "context_length": 8192}
        config |= {"port": self.ports["lane"], "admin_port": self.ports["admin"], "host": "127.0.0.1"}
        config |= {"box": box, "gateway": True}
        await self._start("lane", {ENVIRONMENT: json.dumps(config), "PYTHONPATH": f"{ASSETS / 'bootstrap'}:{ASSETS}"})

    async def _start(self, module: str, environment: dict[str, str]) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", module]
        with self.log(module).open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *command, env={**os.environ, **environment}, cwd=ASSETS, stdout=log, stderr=log
            )
        self.running[module] = child
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.ports[module])
                writer.close()
                return
            except OSError:
                if child.returncode is not None or time.monotonic() > deadline:
                    raise RuntimeError(self.log(module).read_text()[-2000:]) from None
                await asyncio.sleep(0.05)

    async def end(self, module: str) -> None:
        """At once, as a machine that is taken ends."""
        child = self.running.pop(module, None)
        if child and child.returncode is None:
            child.kill()
            await child.wait()

    def log(self, module: str) -> Path:
        """What it printed."""
        return self.folder / f"{module}.log"

    def ledger(self) -> dict[str, dict[str, Any]]:
        """The gateway's line on every request, by id; raises ValueError where one has two."""
        return _by_id(line for line in self.log("gateway").read_text().splitlines() if line.startswith('{"_aws"'))

    def lane_lines(self) -> dict[str, list[dict[str, Any]]]:
        """The lane's word on each time that a request came to it, by id."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in self.log("lane").read_text().splitlines():
            if line.startswith("REQUEST "):
                said = json.loads(line.removeprefix("REQUEST "))
                found[said["id"]].append(said)
        return found

    async def inside(self, method: str, path: str, body: Any = None) -> Any:
        """The lane's own routes, as the box's agent asks them."""
        async with aiohttp.ClientSession() as session, session.request(method, self.admin + path, json=body) as answer:
            return await answer.json()

    async def taught(self, session: aiohttp.ClientSession, tokens: int, times: int = 20) -> float:
        """So many answers that stop by themselves or by their limit, one at a time; the median's seconds."""
        met = [await ask(session, self.url_of_lane, tokens=tokens) for _ in range(times)]
        return sorted(each.seconds for each in met)[times // 2]


def _by_id(lines: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in map(json.loads, lines):
        if line["id"] in found:
            raise ValueError(f"two lines of {line['id']}")
        found[line["id"]] = line
    return found


@asynccontextmanager
async def parts(folder: Path, engine_url: str, cloud_url: str, scale: float = 1.0) -> AsyncIterator[Parts]:
    """Gateway and lane, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Parts(folder, engine_url, cloud_url, scale)
    try:
        await found.lane()
        await found.gateway()
        yield found
    finally:
        for module in ("gateway", "lane"):
            await found.end(module)


async def ask(
    session: aiohttp.ClientSession, url: str, *, tokens: int, stream: bool = True, prompt: str = "hello", **more: Any
) -> Met:
    """One chat completion, read to its end."""
    met, began = Met(stream), time.monotonic()
    body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, **more}
    try:
        async with session.post(f"{url}/v1/chat/completions", json={**body, "stream": stream}) as answer:
            met.id, met.status = answer.headers.get("x-request-id", ""), answer.status
            if answer.content_type == "text/event-stream":
                await _streamed(answer, met)
            else:
                _whole(met, await answer.json())
    except aiohttp.ClientError as error:
        met.code = type(error).__name__
    met.seconds = time.monotonic() - began
    return met


async def _streamed(answer: aiohttp.ClientResponse, met: Met) -> None:
    parser = sse.Parser()
    async for part in answer.content.iter_any():
        for event in parser.feed(part):
            if event.data == sse.DONE:
                met.finished = True
            said = sse.parsed(event.data) or {}
            met.code = str((said.get("error") or {}).get("code", met.code))
            for choice in said.get("choices", ()):
                if choice.get("delta", {}).get("content"):
                    met.tokens += 1
                    met.by = _who(said)


def _whole(met: Met, said: dict[str, Any]) -> None:
    met.code = str((said.get("error") or {}).get("code", ""))
    if "choices" in said:
        met.by, met.finished = _who(said), True
        met.tokens = int((said.get("usage") or {}).get("completion_tokens", 0))


def _who(said: dict[str, Any]) -> str:
    return "fallback" if said.get("model") == CLOUD else "gpu"


def paced(each_seconds: float, decoded: Callable[[int], None] = lambda _: None) -> Act:
    """An engine's stand-in: so long a token, as many as the request's seed says; `decoded` hears of them."""

    async def act(turn: Turn) -> None:
        body, began = turn.asked.body, time.monotonic()
        if not body:  # whether it is there
            await turn.head(200, {}, 2)
            return await turn.send(b"{}")
        count = min(int(body.get("seed") or body["max_tokens"]), int(body["max_tokens"]))
        try:
            return await _says(turn, count, each_seconds)
        finally:
            decoded(min(count, int((time.monotonic() - began) / each_seconds)))

    return act


async def _says(turn: Turn, count: int, each_seconds: float) -> None:
    usage = {"prompt_tokens": 8, "completion_tokens": count, "total_tokens": 8 + count}
    if not turn.asked.body.get("stream"):
        await turn.pause(count * each_seconds)
        choice = {"index": 0, "message": {"role": "assistant", "content": "word " * count}, "finish_reason": "stop"}
        text = json.dumps({"choices": [choice], "usage": usage}).encode()
        await turn.head(200, {"Content-Type": "application/json"}, len(text))
        return await turn.send(text)
    await turn.head(200, {"Content-Type": "text/event-stream"})
    began, said = time.monotonic(), 0
    while said < count:
        await turn.pause(max(0.001, began + (said + 1) * each_seconds - time.monotonic()))
        due = min(count, max(said + 1, int((time.monotonic() - began) / each_seconds)))
        for _ in range(due - said):
            await turn.event(chunk({"content": "word "}))
        said = due
    await turn.event(chunk({}, "stop"))
    await turn.event({**chunk({}), "choices": [], "usage": usage})
    await turn.part(DONE)
    return await turn.send(b"0\r\n\r\n")


def the_cloud(scale: float) -> Target:
    """A stand-in for the fallback, as fast as it was measured."""
    return Target(paced(callers.CLOUD_SECONDS / lengths.MEDIAN_TOKENS / scale))


def session() -> aiohttp.ClientSession:
    """Callers', as many as there are."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=300))
