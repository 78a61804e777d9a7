"""Under load: a box that is taken, a roll of the model, callers of whom nobody may be forgotten. Counts reconcile."""

import asyncio
import contextlib
import time
from collections import Counter
from dataclasses import replace

import pytest

from fleet.config.gateway_settings import CallerTier
from gateway.ledger import LEASE_SECONDS, OPEN, State
from gateway.memory import MemoryStore
from tests.gateway.running import FAST, MANY, Answer, Caller, on_loop, serving, today
from tests.gateway.targets import Act, Target, Turn, answers, silent

pytestmark = pytest.mark.slow  # a second of load a test

SERVED, CROWD = 4.0, 40.0  # requests a second: what the box can serve, and ten times that
ENOUGH = replace(MANY, anonymous=CallerTier(requests_per_day=10**6, fallbacks_per_day=10**6, parallel=1000))
# The GPU's are short, the fallback's long: a slow machine is no fallback without room.
BUDGETS = replace(
    FAST,
    first_token_seconds=0.6,
    whole_seconds=0.9,
    wall_seconds=20,
    fallback_first_token_seconds=15,
    silence_seconds=15,
)


def one_at_a_time(act: Act) -> Act:
    """An engine's own line: whoever leaves it in time is not worked for."""
    line = asyncio.Lock()

    async def act_in_turn(turn: Turn) -> None:
        waiting = asyncio.create_task(line.acquire())
        while not waiting.done():
            try:
                await turn.pause(0.01)
            except ConnectionError:
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    if await waiting:
                        line.release()
                raise
        try:
            await act(turn)
        finally:
            line.release()

    return act_in_turn


async def steady(caller: Caller, rate: float, seconds: float) -> list[asyncio.Task[Answer]]:
    """Mixed requests at a rate; those that were asked."""
    asked: list[asyncio.Task[Answer]] = []
    began = time.monotonic()
    while (since := time.monotonic() - began) < seconds:
        asked += [asyncio.create_task(caller.chat(stream=n % 2 == 0)) for n in range(len(asked), int(since * rate) + 1)]
        await asyncio.sleep(0.01)
    return asked


def met(answer: Answer) -> str:
    """Who answered, or how it ended: a broken stream has delivered and says so, a refusal is honest."""
    if answer.status != 200:
        assert answer.body["error"]["code"] == "nobody_answers", answer.body
        return "nobody"
    if not answer.events:
        return answer.headers["x-served-by"]
    if answer.done:
        return "fallback" if answer.chunks[0]["model"] == "cloud-model" else "gpu"
    code = str(answer.error["error"]["code"])
    assert code == "nobody_answers" or (answer.text and answer.error["served_prefix_tokens"] > 0), answer
    return {"nobody_answers": "nobody", "SPOT_PREEMPTION": "broken"}[code]


def spoilt(caller: Caller) -> int:
    """Attempts at the fallback that reached it and came to nothing, by the gateway's own count."""
    samples = (sample for metric in caller.gateway.metrics.registry.collect() for sample in metric.samples)
    return sum(
        int(sample.value)
        for sample in samples
        if sample.name == "llm_gateway_attempts_failed_total"
        and sample.labels["tier"] == "fallback"
        and sample.labels["kind"] not in {"refused", "limit"}
    )


async def _reclaim(rate: float, most_in_cloud: int) -> Counter[str]:
    store = MemoryStore()
    limits = {"concurrency": most_in_cloud}
    async with Target(one_at_a_time(answers(every=0.03))) as gpu, Target(answers("cloud", every=0.05)) as cloud:
        async with serving(
            gpu.url, cloud.url, store=store, tiers=ENOUGH, budgets=BUDGETS, cloud_settings=limits
        ) as caller:
            asking = asyncio.create_task(steady(caller, rate, 3.0))
            await asyncio.sleep(0.8)
            await gpu.leave()
            await asyncio.sleep(0.8)
            before = len(gpu.asked)
            await gpu.listen()
            found = [met(await each) for each in await asking]
            await caller.settled()
            assert len(gpu.asked) > before, "once it is back, the GPU is asked again"
            lines = list(store.lines.values())
            assert len(lines) == len(found), "callers' count and ledger's"
            by = Counter(line.answered_by or "nobody" for line in lines if line.state is State.DONE)
            assert by == Counter(who for who in found if who in {"gpu", "fallback"})
            assert not [line for line in lines if line.state in OPEN]
            assert len(cloud.asked) == by["fallback"] + spoilt(caller), "the fallback's count"
            assert sum(state is State.FAILED for state in (line.state for line in lines)) == sum(
                who in {"broken", "nobody"} for who in found
            )
            assert sum(used for (_, what, _), used in store._used.items() if what == "requests") == len(found) - sum(
                who == "nobody" for who in found
            ), "whom nobody answered has the count back"
            return Counter(found)


@on_loop
async def test_box_taken_at_a_rate_it_can_serve_leaves_nobody_without_an_answer() -> None:
    found = await _reclaim(SERVED, most_in_cloud=100)
    assert found["nobody"] == 0
    assert min(found["gpu"], found["fallback"]) > 0


@on_loop
async def test_box_taken_at_ten_times_that_rate_refuses_nobody_while_the_fallback_has_room() -> None:
    found = await _reclaim(CROWD, most_in_cloud=1000)
    assert found["nobody"] == 0
    assert min(found["gpu"], found["fallback"]) > 0


@on_loop
async def test_fallback_without_room_refuses_honestly_and_counts_still_reconcile() -> None:
    found = await _reclaim(CROWD, most_in_cloud=1)
    assert found["nobody"] > 0
    assert min(found["gpu"], found["fallback"]) > 0


class Balancer:
    """Joins each new connection to whoever it leads to now; those that stand stay where they are."""

    def __init__(self) -> None:
        self.port = 0

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while part := await source.read(1 << 16):
                    sink.write(part)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, back), pump(there, writer))


@on_loop
async def test_roll_of_the_model_under_load_breaks_no_answer_and_spills_none() -> None:
    """The successor takes new connections while the old box ends what it has, then leaves."""
    balancer = Balancer()
    listener = await asyncio.start_server(balancer._taken, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with Target(answers(every=0.02)) as old, Target(answers(every=0.02)) as new, Target() as cloud, listener:
        balancer.port = old.port
        async with serving(url, cloud.url, tiers=ENOUGH) as caller:
            asking = asyncio.create_task(steady(caller, 30, 3.0))
            await asyncio.sleep(1.0)
            balancer.port = new.port
            await old.drain()
            assert Counter([met(await each) for each in await asking]).keys() == {"gpu"}
            assert (len(cloud.asked), min(len(old.asked), len(new.asked)) > 0) == (0, True)


@on_loop
async def test_task_that_is_killed_loses_no_count_and_its_open_requests_read_as_lost_within_a_minute() -> None:
    """What the store holds while requests are under way is all that a killed task leaves."""
    store = MemoryStore()
    async with Target(silent(60)) as gpu, serving(gpu.url, store=store, tiers=ENOUGH) as caller:
        asking = [asyncio.create_task(caller.chat()) for _ in range(20)]
        while len(gpu.asked) < 20:
            await asyncio.sleep(0.01)
        left, now = list(store.lines.values()), time.time()
        assert sum(store._used.values()) == len(left) == 20
        assert {line.seen(now) for line in left} <= OPEN
        assert {line.seen(now + LEASE_SECONDS + 1) for line in left} == {State.LOST}
        assert {day for _, _, day in store._used} == {today()}
        for each in asking:
            each.cancel()
