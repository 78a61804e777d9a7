"""Notices amid callers, times at 1:20: the lane's own drain, beside one that waits to the deadline and then cuts.

The engine is a stand-in that takes the fleet's time per token and its lengths; what it decoded is its own count, and
what was delivered is the callers'.
"""

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field

from relay import sse
from tests.gateway.targets import Target, Turn, chunk
from tests.lane.lengths import A10G, tokens
from tests.lane.running import HELLO, MODEL, Caller, serving

SCALE = 20
EACH = A10G / SCALE
BUDGET_SECONDS = 100 / SCALE  # 120 s less 5 s of polling and 15 s of margin
LATE_SECONDS = 2.0  # the least that a machine under load keeps to


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

    async def act(turn: Turn) -> None:
        length, said = int(turn.asked.body["seed"]), 0
        began = asyncio.get_running_loop().time()

        def due() -> int:
            return min(length, int((asyncio.get_running_loop().time() - began) / EACH))

        try:
            if turn.asked.body["stream"]:
                await turn.head(200, {"Content-Type": "text/event-stream"})
            while said < length:
                await turn.pause(EACH * 5)
                new, said = due() - said, due()
                if turn.asked.body["stream"]:
                    for _ in range(new):
                        await turn.event(chunk({"content": "word "}))
            if turn.asked.body["stream"]:
                await turn.event(chunk({}, "stop"))
                await turn.part(b"data: [DONE]\n\n")
                await turn.send(b"0\r\n\r\n")
            else:
                usage = {"prompt_tokens": 1, "completion_tokens": length, "total_tokens": length + 1}
                choice = {"index": 0, "message": {"content": "word " * length}, "finish_reason": "stop"}
                body = json.dumps({"choices": [choice], "usage": usage}).encode()
                await turn.head(200, {"Content-Type": "application/json"}, len(body))
                await turn.send(body)
        finally:
            outcome.decoded += said

    async def calls(caller: Caller, number: int) -> None:
        await asyncio.sleep(draw.random() * 0.05)
        while not told.is_set():
            stream = (number + len(outcome.how)) % 2 == 0
            how = await one(caller, stream=stream, length=tokens(draw))
            outcome.how[how] += 1
            if how != "finished":
                return

    async def one(caller: Caller, *, stream: bool, length: int) -> str:
        body = {"model": MODEL, "messages": HELLO, "stream": stream, "seed": length, "max_tokens": 2000}
        async with caller.session.post(f"{caller.url}/v1/chat/completions", json=body) as response:
            if response.status == 503:
                return "rerouted" if (await response.json())["error"]["code"] == "draining" else "lost"
            if not stream:
                outcome.delivered += (await response.json())["usage"]["completion_tokens"]
                return "finished"
            parser, last = sse.Parser(), b""
            async for part in response.content.iter_any():
                for event in parser.feed(part):
                    last = event.data
                    outcome.delivered += b'"word ' in event.data
            code = (sse.parsed(last) or {}).get("error", {}).get("code")
            return "finished" if last == sse.DONE else "broken" if code == "SPOT_PREEMPTION" else "lost"

    async with Target(act) as engine, serving(engine.url, exact=False) as caller:
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

    return list(await asyncio.gather(*(one(seed) for seed in range(many)), return_exceptions=False))
