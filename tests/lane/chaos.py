"""`make chaos`: what callers meet when the worst comes at the worst moment; a table, and 1 where a bound was missed.

Gateway and lane are the real ones, as processes. The engine is llama.cpp's server with a tiny model where its speed
does not matter, else a stand-in that takes the fleet's times, scaled; the cloud is a stand-in. A notice is what the
box's agent tells the lane of it; no gate and no balancer stand here. Arguments name single scenarios.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
for folder in (ROOT / "assets" / "bootstrap", ROOT / "assets"):
    sys.path.insert(0, str(folder))

from fleet.demo import callers  # noqa: E402
from fleet.eventlog.events import Event  # noqa: E402
from fleet.sim.cloud.behaviour import Behaviour  # noqa: E402
from fleet.sim.drills import drill  # noqa: E402
from fleet.sim.drills.drill import Drill  # noqa: E402
from fleet.sim.markets import files  # noqa: E402
from fleet.sim.policies.catalogue import POLICIES  # noqa: E402
from tests.gateway.targets import Target  # noqa: E402
from tests.lane import lengths, llama, sdks  # noqa: E402
from tests.lane.processes import Met, Parts, ask, paced, parts, session, the_cloud  # noqa: E402

OUT = Path("out/bench/chaos.json")
CONTEXT, PREFILL_TOKENS = 8192, 4096
SHORT_TOKENS, MANY = 64, 50
HANDED_BACK_SECONDS = 1.0
DROUGHT = ROOT / "fleet/sim/traces/drought.market"
DROUGHT_SCALE = 30
BEFORE, NOTICE, AFTER = 60.0, 120.0, 400.0  # seconds of the fleet
RAMP_SCALE = 10
RAMP = ((1, 60), (4, 140), (10, 220))  # callers at once, requests
Found = tuple[dict[str, Any], dict[str, bool]]  # what was seen; what must hold


async def emptied(all_parts: Parts, since: float) -> float:
    """Seconds until nobody is at this lane any more."""
    while (await all_parts.inside("GET", "/line"))["streams"]:
        await asyncio.sleep(0.02)
    return time.monotonic() - since


# --- the scenarios ---


async def notice_under_fifty(place: Path) -> Found:
    """The time that is left is ten answers' of fifty: a notice on a card that takes 9.4 s for one."""
    with llama.server(place, context=CONTEXT) as engine:
        async with the_cloud(10) as cloud, parts(place, engine, cloud.url) as those, session() as callers_:
            each = await those.taught(callers_, SHORT_TOKENS)
            asked = [
                asyncio.create_task(ask(callers_, those.url, tokens=SHORT_TOKENS, stream=number % 2 == 0))
                for number in range(MANY)
            ]
            while (await those.inside("GET", "/line"))["streams"] < MANY / 2:
                await asyncio.sleep(0.01)
            noticed, budget = time.monotonic(), 10 * each
            await those.inside("POST", "/drain", {"seconds": budget})
            empty = await emptied(those, noticed)
            met = await asyncio.gather(*asked)
    how = Counter(each.word for each in met)
    seen = {"asked": MANY, **how, "budget s": round(budget, 2), "the box was empty after s": round(empty, 2)}
    held = {
        "all fifty answered": how["gpu"] + how["fallback"] == MANY,
        "both answered": min(how["gpu"], how["fallback"]) > 0,
        "empty within its budget and 1 s": empty <= budget + 1,
    }
    return seen, held


async def notice_in_prefill(place: Path) -> Found:
    """4096 tokens of prompt are being read, no token is out, and the time left is half of what the prompt needs."""
    words = "".join(random.Random(1).choices("abcdefghijklmnop", k=PREFILL_TOKENS - 16))  # noqa: S311  no secret
    handed: list[float] = []
    free: list[float] = []
    met: list[Met] = []
    with llama.server(place, context=CONTEXT) as engine:
        async with the_cloud(10) as cloud, parts(place, engine, cloud.url) as those, session() as callers_:
            await those.taught(callers_, SHORT_TOKENS)
            alone = await ask(callers_, engine, tokens=1, prompt=words[-3:] + words[:-3])
            for number in range(1, 4):  # the first time the lane has read short prompts alone
                prompt = words[number * 7 :] + words[: number * 7]  # another one, or the engine knows it already
                task = asyncio.create_task(ask(callers_, those.url, tokens=SHORT_TOKENS, prompt=prompt))
                while not (await those.inside("GET", "/line"))["streams"]:
                    await asyncio.sleep(0.002)
                noticed = time.monotonic()
                await those.inside("POST", "/drain", {"seconds": alone.seconds / 2})
                handed.append(await emptied(those, noticed))
                await ask(callers_, engine, tokens=1)
                free.append(time.monotonic() - noticed)
                met.append(await task)
                await those.inside("DELETE", "/drain")
                for more in (3, 5):  # now it learns the pace of long ones; the engine knows the beginning of none
                    another = words[-more * 7 - number :] + words[: -more * 7 - number]
                    await ask(callers_, those.url_of_lane, tokens=1, prompt=another)
    seen = {
        "prompt alone s": round(alone.seconds, 2),
        "handed back after s": [round(each, 2) for each in handed],
        "engine free for another after s": [round(each, 2) for each in free],
        **Counter(each.word for each in met),
    }
    held = {
        f"handed back within {HANDED_BACK_SECONDS:g} s": max(handed) <= HANDED_BACK_SECONDS,
        "each was answered by the cloud": all(each.word == "fallback" for each in met),
    }
    return seen, held


def dry_market(policy: str) -> dict[str, float]:
    """The shipped drought, lived through by the watchdog's own code in the simulated cloud: seconds since the dark."""
    log: list[Event] = []
    drill.run(Drill(files.load([DROUGHT]), emit=log.append), POLICIES[policy])
    dark = next(each.at for each in log if each.kind == "decision" and each.fields.get("action") == "failover")
    lost = max(each.at for each in log if each.kind == "box.unserving" and each.at <= dark)
    launched = {each.fields["box"] for each in log if each.kind == "box.launched" and each.at >= dark}
    serving = min(each.at for each in log if each.kind == "box.serving" and each.fields["box"] in launched)
    return {"failover": (dark - lost).total_seconds(), "on-demand serves": (serving - lost).total_seconds()}


async def market_dry(place: Path) -> Found:
    """No spot is sold. When on-demand serves is the watchdog's own doing; callers live through it, scaled."""
    times, settings = {name: dry_market(name) for name in ("alarm", "bridge")}, drill.default_settings()
    boot = settings.boot.warm_budget_seconds
    bounds = {
        "alarm": settings.watchdog.alarm_minutes * 60 + Behaviour().alarm.lag[1],
        "bridge": settings.bridge.patience_seconds + settings.bridge.stale_event_seconds,
    }
    met = await through_the_dark(place, times["alarm"]["on-demand serves"], DROUGHT_SCALE)
    how, last = Counter(each.word for each in met), {each.word for each in met[-5:]}
    seen = {"asked": len(met), **how, **{name: {k: round(v) for k, v in each.items()} for name, each in times.items()}}
    held = {"every caller answered meanwhile": how["gpu"] + how["fallback"] == len(met)}
    held["the GPU answers before and after"] = met[0].word == "gpu" and "gpu" in last
    for name, bound in bounds.items():
        held[f"{name}: failover within {bound:.0f} s"] = times[name]["failover"] <= bound
        held[f"{name}: on-demand serves within {bound + boot:.0f} s"] = times[name]["on-demand serves"] <= bound + boot
    return seen, held


async def through_the_dark(place: Path, dark_seconds: float, scale: float) -> list[Met]:
    """Callers, one every 12 s, through a notice, the dark and a successor. Times are the fleet's."""
    draw = random.Random(2)  # noqa: S311  no secret
    async with Target(paced(lengths.A10G / scale)) as engine, the_cloud(scale) as cloud:
        async with parts(place, engine.url, cloud.url, scale) as those, session() as callers_:

            async def box() -> None:
                await asyncio.sleep(BEFORE / scale)
                await those.inside("POST", "/drain", {"seconds": NOTICE / scale})
                await asyncio.sleep(NOTICE / scale)
                await those.end("lane")
                await asyncio.sleep(dark_seconds / scale)
                await those.lane()
                await those.taught(callers_, lengths.MEDIAN_TOKENS, 10)  # a fresh lane takes times as a card's

            await those.taught(callers_, lengths.MEDIAN_TOKENS)
            tasks, life = [], asyncio.create_task(box())
            for number in range(int((BEFORE + NOTICE + dark_seconds + AFTER) / callers.EVERY)):
                length, stream = lengths.tokens(draw), number % 2 == 0
                tasks.append(asyncio.create_task(ask(callers_, those.url, tokens=1024, seed=length, stream=stream)))
                await asyncio.sleep(callers.EVERY / scale)
            await life
            return list(await asyncio.gather(*tasks))


async def clients_cut(place: Path) -> Found:
    """Fifty unchanged clients, half of each SDK, in mid-stream as the box goes; then fifty that nobody can answer."""
    return await sdks.cut(place, MANY)


async def ramp(place: Path) -> Found:
    """One, four, ten callers at once at 1:10: what each met, its ledger line and the lane's word are one story."""
    scale, draw = RAMP_SCALE, random.Random(3)  # noqa: S311  no secret
    found: dict[str, Any] = {}
    met: list[Met] = []
    async with Target(paced(lengths.A10G / scale)) as engine, the_cloud(scale) as cloud:
        async with parts(place, engine.url, cloud.url, scale) as those, session() as callers_:
            await those.taught(callers_, lengths.MEDIAN_TOKENS)
            await emptied(those, 0.0)  # a lane writes its line after the answer
            taught, before = len(those.lane_lines()), len(cloud.asked)
            for at_once, many in RAMP:
                left = iter(range(many))

                async def caller(left: Any = left) -> list[Met]:
                    return [
                        await ask(callers_, those.url, tokens=1024, seed=lengths.tokens(draw), stream=number % 2 == 0)
                        for number in left
                    ]

                here = [each for mine in await asyncio.gather(*(caller() for _ in range(at_once))) for each in mine]
                seconds = sorted(each.seconds * scale for each in here)
                words = Counter(each.word for each in here)
                found[f"{at_once} at once"] = {
                    **words,
                    "median s": round(seconds[many // 2], 1),
                    "worst s": seconds[-1],
                }
                met += here
            await asyncio.sleep(1)
            ledger, lane = those.ledger(), those.lane_lines()
    wrong = [each.id for each in met if not reconciled(each, ledger.get(each.id, {}), lane.get(each.id, []))]
    ids = {each.id for each in met}
    held = {
        f"{len(met)} of {len(met)} reconcile, request by request": not wrong,
        "nobody else is in ledger or lane": ledger.keys() == ids and len(lane.keys() - ids) <= taught,
        "the cloud was asked as often as it answered": len(cloud.asked) - before
        == sum(each.by == "fallback" for each in met),
        "every caller answered": all(each.finished for each in met),
    }
    return {**found, "not reconciled": wrong[:5]}, held


def reconciled(met: Met, line: dict[str, Any], turns: list[dict[str, Any]]) -> bool:
    """Whether caller, ledger and lane tell the same of one request: who answered, how often, how many tokens."""
    served = [turn for turn in turns if turn["how"] == "answered"]
    ended = line.get("state") == ("done" if met.finished else "failed") and line.get("AnsweredBy") == met.by
    tokens = line.get("tokens") == met.tokens
    if met.by != "gpu":
        return ended and tokens and not served and bool(turns)
    return ended and tokens and len(served) == 1 and served[0]["delivered"] == met.tokens


SCENARIOS: dict[str, Callable[[Path], Awaitable[Found]]] = {
    "1 notice under fifty": notice_under_fifty,
    "2 notice in a prefill": notice_in_prefill,
    "3 market dry": market_dry,
    "4 clients cut": clients_cut,
    "5 ramp": ramp,
}


def main(asked: list[str]) -> int:
    """Play, print, keep; 1 where something was missed."""
    os.chdir(ROOT)
    found = json.loads(OUT.read_text(encoding="utf-8")) if asked and OUT.exists() else {}
    missed = []
    for name, scenario in SCENARIOS.items():
        if asked and name.split()[0] not in asked:
            continue
        with TemporaryDirectory() as place:
            seen, held = asyncio.run(scenario(Path(place)))
        found[name] = {"seen": seen, "held": held}
        print(name)
        for key, value in seen.items():
            print(f"  {key}: {value}")
        for key, is_so in held.items():
            print(f"  {'held  ' if is_so else 'MISSED'} {key}", flush=True)
            missed += [] if is_so else [f"{name}: {key}"]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"missed: {'; '.join(missed) or 'nothing'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
