"""Notices amid callers, times at 1:20: the lane's own drain, beside one that waits to the deadline and then cuts.

The engine is a stand-in that takes the fleet's time per token and its lengths; what it decoded is its own count, and
what was delivered is the callers'.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from tests.gateway.targets import Target
from tests.lane.lengths import A10G, tokens
from tests.lane.processes import MODEL, ask, paced
from tests.lane.running import Caller, serving

SCALE = 20
EACH = A10G / SCALE
BUDGET_SECONDS = 100 / SCALE  # 120 s less 5 s of polling and 15 s of margin
LATE_SECONDS = 2.0  # the least that a machine under load keeps to
WORDS = {"draining": "rerouted", "SPOT_PREEMPTION": "broken"}


@dataclass
class Outcome:
    """What came of one notice."""

    how: Counter[str] = field(default_factory=Counter)
    decoded: int = 0
    delivered: int = 0
    left_after: float = 0.0

    @property
    def wasted(self) -> int:
        """Tokens that were decoded and reached nobody."""
        return self.decoded - self.delivered


async def notice(seed: int, at_once: int, *, hands_back: bool) -> Outcome:
    """One box, so many callers who ask again and again, a notice at a random moment."""
    draw, outcome = random.Random(seed), Outcome()  # noqa: S311  no secret
    told = asyncio.Event()

    async def calls(caller: Caller, number: int) -> None:
        await asyncio.sleep(draw.random() * 0.05)
        while not told.is_set():
            stream = (number + len(outcome.how)) % 2 == 0
            met = await ask(caller.session, caller.url, tokens=2000, seed=tokens(draw), stream=stream)
            outcome.delivered += met.tokens
            outcome.how["finished" if met.finished else WORDS.get(met.code, "lost")] += 1
            if not met.finished:
                return

    def decoded(many: int) -> None:
        outcome.decoded += many

    async with Target(paced(EACH, decoded)) as engine, serving(engine.url, exact=False, model=MODEL) as caller:
        estimates = caller.lane.line.estimates
        for _ in range(60):
            length = tokens(draw)
            estimates.answered(prompt_tokens=4, prompt_seconds=0.0, tokens=length, token_seconds=length * EACH)
            estimates.length(length)
        if not hands_back:
            caller.lane.line.handed_back = lambda now: []  # type: ignore[method-assign]
        tasks = [asyncio.create_task(calls(caller, number)) for number in range(at_once)]
        await asyncio.sleep(0.2 + draw.random() * 2)
        told.set()
        began = asyncio.get_running_loop().time()
        caller.lane.leave(BUDGET_SECONDS)
        await asyncio.gather(*tasks)
        await caller.until(lambda: caller.lane.streams == 0)
        outcome.left_after = asyncio.get_running_loop().time() - began
        await asyncio.sleep(0.1)
    return outcome


async def notices(many: int, *, hands_back: bool, beside: int = 8) -> list[Outcome]:
    """So many, a third each with 1, 4 and 10 at once; some of them beside each other."""
    room = asyncio.Semaphore(beside)

    async def one(seed: int) -> Outcome:
        async with room:
            return await notice(seed, (1, 4, 10)[seed % 3], hands_back=hands_back)

    return list(await asyncio.gather(*(one(seed) for seed in range(many))))
