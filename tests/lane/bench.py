"""`make bench-lane`: what the lane adds and holds, what its estimates are worth, what a notice wastes, what slices do.

Latency is taken in turn, direct and through the lane: the machine's drift meets both. Arguments name single parts.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fleet.core.ports import free_port
from tests.gateway import bench as gateway
from tests.gateway import engine as stand_in

ROOT = Path(__file__).parents[2]
for folder in (ROOT / "assets" / "bootstrap", ROOT / "assets"):
    sys.path.insert(0, str(folder))

from lane.config import ENVIRONMENT, LLAMA_CPP  # noqa: E402
from tests.lane import lengths, llama, notices  # noqa: E402
from tests.lane.running import Answer, Caller, serving  # noqa: E402
from tests.lane.simulated import Simulation  # noqa: E402

OUT = Path("out/bench/lane.json")
STEPS, NOTICES, REQUESTS, ROUNDS, LEAVERS = 100_000, 200, 3000, 3, 300
STRICT = {1: 20, 4: 8, 10: 4}  # rounds, by how many ask at once
SLOW = 20  # times the tiny model's size
LONG = {"temperature": 0, "max_tokens": 1024}
SHORT = {"temperature": 0, "max_tokens": 16}
BUDGET = {"added p50 ms": 0.5, "MB": 100.0, "cancelled ms": 100.0}


def latency() -> dict[str, Any]:
    """What it adds to answers of 1 KB, one at a time; its memory; how soon the engine sees a caller's leaving."""
    target, port = free_port(), free_port()
    config = {"engine_url": f"http://127.0.0.1:{target}", "engine": LLAMA_CPP, "model": "house", "host": "127.0.0.1"}
    more = {"context_length": 8192, "port": port, "admin_port": free_port()}
    environment = {
        ENVIRONMENT: json.dumps({**config, **more}),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'assets' / 'bootstrap'}:{ROOT / 'assets'}",
    }
    with ExitStack() as stack:
        stack.enter_context(gateway.process(sys.executable, "-m", "tests.gateway.engine", str(target), port=target))
        child = stack.enter_context(gateway.process(sys.executable, "-m", "lane", port=port, environment=environment))
        added = asyncio.run(gateway.added(target, port))
        paused = asyncio.run(gateway.added(target, port, pause_seconds=gateway.PAUSE_SECONDS))
        left = asyncio.run(leavers(port, target))
        return {
            **added,
            f"after {gateway.PAUSE_SECONDS * 1000:.0f} ms": paused,
            "MB": round(gateway.peak_mb(child.pid)),
            "callers who left": LEAVERS,
            "cancelled median ms": round(statistics.median(left), 1),
            "cancelled ms": round(max(left), 1),
        }


async def leavers(port: int, control: int) -> list[float]:
    """Milliseconds from a caller's leaving in mid-stream to the engine's seeing it; the next one waits for that."""
    left: list[float] = []
    for _ in range(LEAVERS):
        async with gateway.connection(port) as (reader, writer):
            writer.write(gateway.request(port, stream=True, max_tokens=stand_in.SLOWLY))
            await reader.readuntil(b"data: ")
            left.append(time.monotonic())
    return await gateway.seen_leaving(control, left)


def steps() -> dict[str, Any]:
    """10^5 steps of the line against its reference, over fifty seeds."""
    began, told = time.perf_counter(), Counter[str]()
    longest = 0.0
    for seed in range(50):
        simulation = Simulation(seed)
        for _ in range(STEPS // 50):
            simulation.step()
        told += simulation.told
        longest = max(longest, simulation.longest_wait)
    return {"steps": STEPS, **told, "longest wait s": round(longest), "seconds": round(time.perf_counter() - began)}


def estimates() -> dict[str, Any]:
    """By card and by how many come at once."""
    found = {}
    for card, each in (("A10G", lengths.A10G), ("L4", lengths.L4)):
        for bursts in ((1,), (1, 4, 10), (1, 4, 10, 50)):
            gap = 9 * statistics.mean(bursts)
            found[f"{card}, {'/'.join(map(str, bursts))} at once"] = (
                lengths.Day(1, each, bursts, gap_seconds=gap).run(REQUESTS).rows()
            )
    return found


def noticed() -> dict[str, Any]:
    """200 notices by each way."""
    found: dict[str, Any] = {}
    for name, hands_back in (("the lane's drain", True), ("wait, then cut", False)):
        outcomes = asyncio.run(notices.notices(NOTICES, hands_back=hands_back))
        how: Counter[str] = sum((outcome.how for outcome in outcomes), Counter())
        found[name] = {
            "notices": NOTICES,
            **how,
            "tokens decoded": sum(outcome.decoded for outcome in outcomes),
            "tokens wasted": sum(outcome.wasted for outcome in outcomes),
            "left last after, of the budget": round(
                max(outcome.left_after for outcome in outcomes) / notices.BUDGET_SECONDS, 2
            ),
        }
    return found


def real() -> dict[str, Any]:
    """llama.cpp's server: a strict line beside its own; slices beside two slots."""
    with TemporaryDirectory() as one, TemporaryDirectory() as two, TemporaryDirectory() as three:
        with llama.server(Path(three), times=SLOW) as slow:
            found = asyncio.run(_strict(slow))
        with llama.server(Path(one)) as strict, llama.server(Path(two), slots=2) as slots:
            return found | asyncio.run(_real(strict, slots))


async def _strict(engine: str) -> dict[str, Any]:
    """The lane's line beside the engine's own, at a card's pace: 15 ms a token here."""
    found: dict[str, Any] = {}
    async with serving(engine, exact=True) as lane:
        direct = Caller(engine, "", lane.lane, lane.session)
        await _at_once(direct, 1)
        for many, rounds in STRICT.items():
            ours: list[float] = []
            own: list[float] = []
            for number in range(rounds):
                pair = [(lane, ours), (direct, own)]
                for caller, times in pair if number % 2 else reversed(pair):  # the engine's pace drifts
                    times.append(await _at_once(caller, many))
            alone, beside = statistics.median(own), statistics.median(ours)
            found[f"{many} at once, medians"] = {
                "the engine's own line s": round(alone, 2),
                "times": round(beside / alone, 3),
            }
    return found


async def _real(strict: str, slots: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with serving(strict, exact=True) as lane:
        direct = Caller(strict, "", lane.lane, lane.session)
        two = Caller(slots, "", lane.lane, lane.session)
        for _ in range(40):
            lane.lane.line.estimates.length(LONG["max_tokens"])
        ways = {
            "the engine's own line": (direct, 0),
            "two slots": (two, 0),
            "slices of 128 tokens": (lane, 128),
            "slices of 512 tokens": (lane, 512),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (caller, tokens) in ways.items():
                if tokens:
                    lane.lane.line.estimates.slice_tokens = lambda tokens=tokens: tokens  # type: ignore[method-assign]
                times[name].append(await _beside(caller))
        for name, pairs in times.items():
            short, long = (statistics.median(each) for each in zip(*pairs, strict=True))
            found[f"short beside long, {name}"] = {"short s": round(short, 3), "long s": round(long, 3)}
    return found


async def _at_once(caller: Caller, many: int) -> float:
    """The median of so many answers of 100 tokens, seconds."""
    began = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(caller.chat(temperature=0, max_tokens=100) for _ in range(many)))
    return statistics.median(answer.ended - began for answer in answers)


async def _beside(caller: Caller) -> tuple[float, float]:
    """Seconds of a short request that comes just after a long one, and of the long one."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    long: asyncio.Task[Answer] = asyncio.create_task(caller.chat(**LONG, stream=True))
    await asyncio.sleep(0.05)
    asked = loop.time()
    short = await caller.chat(**SHORT, stream=True)
    return short.ended - asked, (await long).ended - began


async def _tenancy() -> dict[str, Any]:
    """Half an hour of a background job, at 1:60: requests of 9.4 s, two at once; a person every five minutes."""
    from relay import lane_headers
    from tests.gateway.targets import Target, answers

    each = answers(*["word "] * 30, every=9.4 / 60 / 30)
    job = {lane_headers.CLASS: "background", lane_headers.CALLER: "job", lane_headers.DEADLINE: "600"}
    person = {lane_headers.CLASS: "interactive", lane_headers.CALLER: "person", lane_headers.DEADLINE: "0.5"}
    async with Target(each) as engine, serving(engine.url, exact=False, gateway=True) as caller:
        for _ in range(60):
            caller.lane.line.estimates.answered(prompt_tokens=1, prompt_seconds=0, tokens=30, token_seconds=9.4 / 60)
            caller.lane.line.estimates.length(30)
        loop = asyncio.get_running_loop()
        until, turns, waits = loop.time() + 30, Counter[int](), []

        async def works() -> None:
            while loop.time() < until:
                turns[(await caller.chat(job, stream=True)).status] += 1

        async def asks() -> None:
            while loop.time() < until - 5:
                await asyncio.sleep(5)
                asked = loop.time()
                answer = await caller.chat(person, stream=True)
                waits.append((answer.status, loop.time() - asked))

        await asyncio.gather(works(), works(), asks())
        return {
            "background turns": turns[200],
            "foreground asked": len(waits),
            "foreground answered": sum(status == 200 for status, _ in waits),
            "foreground median s at 1:1": round(60 * statistics.median(seconds for _, seconds in waits), 1),
            "waits counted": caller.lane.metrics.begun,
        }


def tenancy() -> dict[str, Any]:
    """The 30 min tenancy, once for real."""
    return asyncio.run(_tenancy())


PARTS = {
    "latency": latency,
    "steps": steps,
    "estimates": estimates,
    "real engine": real,
    "tenancy at 1:60": tenancy,
    "notices": noticed,
}


def main(asked: list[str]) -> int:
    """Measure, print, keep."""
    os.chdir(ROOT)
    (ROOT / "build").mkdir(exist_ok=True)
    found = json.loads(OUT.read_text(encoding="utf-8")) if asked and OUT.exists() else {}
    for name, measure in PARTS.items():
        if asked and name.split()[0] not in asked:
            continue
        found[name] = measure()
        print(name)
        for key, value in found[name].items():
            told = "   ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            print(f"  {key}: {told}" + (f" (budget {BUDGET[key]:g})" if key in BUDGET else ""), flush=True)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    missed = [key for key in BUDGET if found.get("latency", {}).get(key, 0) > BUDGET[key]]
    print(f"missed: {', '.join(missed) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
