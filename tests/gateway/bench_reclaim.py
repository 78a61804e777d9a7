"""`make bench-reclaim`: the demo's act of callers, at the rate that one box can serve and at ten times that; then a
deploy of the gateway under that rate.

Callers', ledger's (the tasks' log, a line a request) and fallback's counts must be equal, and no deploy may break or
spill an answer: 1 where it is otherwise.
"""

import asyncio
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp

from fleet.core import names
from fleet.demo import callers
from fleet.localaws.task_host import Service
from fleet.localaws.task_standins import StandInModel

OUT = Path("out/bench/reclaim.json")
AGAIN_SECONDS = 1.0  # and the time until somebody asks again
SCALE = 12  # a minute each
DEPLOY_REQUESTS = 30


def counted(folder: Path) -> list[dict[str, Any]]:
    """The ledger's word on every request, from the tasks' logs."""
    lines = [line for path in folder.glob("*.log") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith('{"_aws"')]


def word(asked: callers.DemoRequest) -> str:
    """How a request ended for its caller."""
    return "broken" if asked.error and asked.tokens else asked.error or asked.by


def measure(every: float) -> tuple[dict[str, Any], list[str]]:
    """One reclaim; its figures, and what does not reconcile."""
    with tempfile.TemporaryDirectory() as place:
        played = asyncio.run(callers.play(Path(place), SCALE, every))
        lines = counted(Path(place))
    met = Counter(word(asked) for asked in played.everybody)
    by = Counter(line[names.DIMENSION_ANSWERED_BY] for line in lines if line.get("state") == "done")
    failed = Counter(each for line in lines for each in line.get("failed", ()))
    spoilt = sum(count for words, count in failed.items() if words.startswith("fallback "))
    usual = (asked for asked in played.everybody if asked.tokens < callers.LONG_TOKENS)
    well = [asked.seconds for asked in usual if not asked.error]
    found = {
        "requests": len(played.everybody),
        **met,
        "slowest s of the fleet": round(max(well), 1),
        "GPU asked again after s": played.gpu_again,
        "attempts that failed": dict(failed),
    }
    wrong = {
        f"callers {len(played.everybody)}, ledger {len(lines)}": len(played.everybody) != len(lines),
        f"callers {met}, ledger {by}": any(met[who] != by[who] for who in ("gpu", "fallback")),
        f"the fallback was asked {played.cloud_asked}, ledger {by['fallback']} + {spoilt}": played.cloud_asked
        != by["fallback"] + spoilt,
        "somebody was left without a word": bool(set(met) - {"gpu", "fallback", "broken", callers.HONEST}),
    }
    return found, [text for text, is_wrong in wrong.items() if is_wrong]


async def _deployed(folder: Path) -> Counter[str]:
    """Who answered while all tasks were replaced."""
    engine = StandInModel(callers.GPU_SECONDS / callers.TOKENS / SCALE, line=True)
    await engine.listen()
    service = Service(folder)
    await service.begin(StandInModel())
    await service.gpu(engine.address)
    url = (await service.deploy(2, callers.environment(SCALE)))["url"]
    met = [callers.DemoRequest(number * callers.EVERY, stream=number % 2 == 0) for number in range(DEPLOY_REQUESTS)]
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for number, asked in enumerate(met):
            group.create_task(callers.ask(session, url, asked, callers.TOKENS, SCALE))
            if number == DEPLOY_REQUESTS // 4:
                group.create_task(service.deploy(2, callers.environment(SCALE)))
            await asyncio.sleep(callers.EVERY / SCALE)
    await service.end()
    return Counter(word(asked) for asked in met)


def main() -> int:
    """Measure, print, keep."""
    found, missed = {}, []
    for name, every in {"the rate it serves": callers.EVERY, "ten times that": callers.EVERY / 10}.items():
        found[name], wrong = measure(every)
        missed += [f"{name}: {text}" for text in wrong]
        sys.stdout.write(f"{name:20}" + "   ".join(f"{key} {value}" for key, value in found[name].items()) + "\n")
        if found[name]["GPU asked again after s"] > AGAIN_SECONDS + every / SCALE:
            missed.append(f"{name}: who asked {AGAIN_SECONDS:g} s after the GPU was back did not reach it")
    with tempfile.TemporaryDirectory() as place:
        found["a deploy"] = dict(asyncio.run(_deployed(Path(place))))
    sys.stdout.write(f"{'a deploy':20}{found['a deploy']}\n")
    if found["a deploy"] != {"gpu": DEPLOY_REQUESTS}:
        missed.append("a deploy broke or spilled answers")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"missed: {'; '.join(missed) or 'nothing'}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
