"""The act of real callers: a steady line of requests through a notice, the dark and the recovery, in real time.

Two tasks of the gateway run as the embedded AWS runs them, behind its stand-ins for both balancers. Engine and cloud
model are stand-ins that take the measured time. Seconds here are the fleet's: while it plays, they and the gateway's
budgets are divided by a scale. What the gateway allows for fresh connections (one real second) is not.

`python -m fleet.demo.callers FOLDER SCALE` plays it into FOLDER/callers.json.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import aiohttp
from aiohttp import web

from fleet.config import cards, gateway_settings
from fleet.core import cdk_cli, names
from fleet.demo.acts import DemoError, must
from fleet.demo.screen import Narrator
from fleet.localaws.task_host import Service
from fleet.localaws.task_standins import StandInModel

SCALE = 24  # seconds of the fleet in a real one: 30 s in all
MODEL = "house-model:31b-q4"
NOTICE, DARK, SERVING, END = 160.0, 280.0, 560.0, 720.0  # a notice comes two minutes ahead
EVERY = 12.0
TOKENS = 24  # of an answer
GPU_SECONDS, CLOUD_SECONDS = cards.A10G.answer_seconds, 3.0  # of an answer, alone; the cloud took 1 to 6
LONG_TOKENS = 600  # the stream that outlives every drain
HONEST = "refused with 503"  # with a Retry-After: neither could in time


@dataclass
class DemoRequest:
    """One request as its caller saw it."""

    at: float
    stream: bool
    by: str = ""
    seconds: float = 0.0
    tokens: int = 0
    error: str = ""


@dataclass
class Played:
    """What came of the act."""

    everybody: list[DemoRequest]
    cloud_asked: int  # requests that reached its stand-in
    gpu_again: float  # real seconds from the successor's serving to its first request


def environment(scale: float) -> dict[str, str]:
    """Of a task: as the stack's, with budgets scaled and counts in memory."""
    budgets = {each.name: each.default / scale for each in fields(gateway_settings.Budgets)}  # type: ignore[operator]
    many = {"requests_per_day": 10**6, "fallbacks_per_day": 10**6, "parallel": 1000}
    gateway = {"budgets": budgets, "tiers": {"anonymous": many}, "fallback": {"url": "https://cloud", "model": "cloud"}}
    config = {"fleet": "llm", "gpu_url": "", "models": {MODEL: MODEL}, "gateway": gateway}
    return {**os.environ, names.ENV_GATEWAY: json.dumps(config)}


async def ask(session: aiohttp.ClientSession, url: str, asked: DemoRequest, tokens: int, scale: float) -> None:
    """Ask once, read to the end, and note in `asked` what was met."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens}
    began = time.monotonic()
    try:
        async with session.post(f"{url}/v1/chat/completions", json={**body, "stream": asked.stream}) as answer:
            asked.by = answer.headers.get("x-served-by", "")
            if answer.status != web.HTTPOk.status_code:
                asked.error = f"refused with {answer.status}"
            async for line in answer.content:
                if b'"content"' in line:
                    asked.tokens += 1
                    asked.by = "fallback" if b'"model":"cloud"' in line else "gpu"
                if b"nobody_answers" in line:  # its 200 was out already
                    asked.error = HONEST
                if b"SPOT_PREEMPTION" in line:
                    asked.error = f"cut after {asked.tokens} tokens, and told so"
    except aiohttp.ClientError as error:
        asked.error = type(error).__name__
    asked.seconds = (time.monotonic() - began) * scale


async def _callers(url: str, scale: float, every: float) -> list[DemoRequest]:
    everybody, asking = list[DemoRequest](), list[asyncio.Task[None]]()
    began = time.monotonic()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        def one(asked: DemoRequest, tokens: int) -> None:
            everybody.append(asked)
            asking.append(asyncio.create_task(ask(session, url, asked, tokens, scale)))

        for number in range(int(END / every)):
            at = number * every
            await asyncio.sleep(max(0.0, began + at / scale - time.monotonic()))
            one(
                DemoRequest(at, stream=number % 2 == 0), TOKENS + (number * 7 % 5 - 2) * 4
            )  # a third shorter to a third longer
            if at < NOTICE <= at + every:
                one(DemoRequest(at, stream=True), LONG_TOKENS)
        await asyncio.gather(*asking)
    return everybody


async def play(folder: Path, scale: float, every: float = EVERY) -> Played:
    """The act in this process; a request comes `every` so many seconds. Tasks' logs go into `folder`."""
    engine, cloud = StandInModel(GPU_SECONDS / TOKENS / scale, line=True), StandInModel(CLOUD_SECONDS / TOKENS / scale)
    await engine.listen()
    service = Service(folder)
    await service.begin(cloud)
    await service.gpu(engine.address)
    state = await service.deploy(2, environment(scale))
    try:
        callers = asyncio.create_task(_callers(state["url"], scale, every))
        await asyncio.sleep(NOTICE / scale)
        engine.draining = True
        await asyncio.sleep((DARK - NOTICE) / scale)
        await service.gpu(None)
        await asyncio.sleep((SERVING - DARK) / scale)
        engine.draining, before, healthy = False, len(engine.asked), time.monotonic()
        await service.gpu(engine.address)
        everybody = await callers
        again = engine.asked[before] - healthy if len(engine.asked) > before else float("inf")
        return Played(everybody, len(cloud.asked), round(again, 3))
    finally:
        await service.end()


def played(folder: Path, screen: Narrator, scale: float) -> Played:
    """Play it in a process of its own; what every caller met. Raises DemoError where it did not come to its end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "fleet.demo.callers", str(folder), str(scale)]
    with (
        screen.step(f"{END / 60:.0f} minutes of callers in {END / scale:.0f} s"),
        (folder / "callers.log").open("w") as log,
    ):
        done = subprocess.run(command, cwd=cdk_cli.ROOT, stdout=log, stderr=log, check=False)  # noqa: S603  (our own)
    if done.returncode:
        raise DemoError(f"the callers' act ended with {done.returncode}: {folder / 'callers.log'}")
    found = json.loads((folder / "callers.json").read_text())
    return Played(**{**found, "everybody": [DemoRequest(**each) for each in found["everybody"]]})


def told(played: Played, screen: Narrator) -> None:
    """Who answered, the slowest, and every error; raises DemoError where a caller was left without a word."""
    everybody = played.everybody
    well = [asked for asked in everybody if not asked.error]
    must(bool(well), "somebody is answered")
    by = Counter(asked.by for asked in well)
    screen.fact(f"{len(everybody)} requests: {by['gpu']} by the GPU, {by['fallback']} by a stand-in cloud model.")
    screen.fact(f"The successor had its first request {played.gpu_again:.2f} real seconds after it served.")
    screen.fact(f"The slowest took {max(asked.seconds for asked in well):.0f} s, of the 98 that a proxy gives.")
    for asked in everybody:
        if asked.error:
            screen.fact(f"Asked at {asked.at / 60:.1f} min: {asked.error}.")
    odd = [asked for asked in everybody if asked.error and not asked.tokens and asked.error != HONEST]
    must(not odd, f"every caller is answered or told the truth; but {odd}")


if __name__ == "__main__":
    into = Path(sys.argv[1])
    came = asyncio.run(play(into, float(sys.argv[2])))
    (into / "callers.json").write_text(json.dumps(asdict(came), indent=1) + "\n")
