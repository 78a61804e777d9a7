"""What the cloud is reserved for: every sequence of at most three attempts leaves spent and used what was used."""

import asyncio
import contextlib
import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from fleet.config import gateway_settings as settings
from fleet.core import names
from gateway.admission import Ask
from gateway.callers import Caller
from gateway.config import Config
from gateway.fallback import Failure, Kind, Tier
from gateway.ledger import Line, State
from gateway.memory import MemoryStore
from gateway.metrics import Told
from gateway.record import Record
from gateway.store import LateError
from tests.gateway.running import HELLO, MODEL, on_loop

PROMPT, MOST = 10, 100
INPUT, OUTPUT = 3, 5  # micro-dollars a token
FULL = PROMPT * INPUT + MOST * OUTPUT
USAGE = {"prompt_tokens": 12, "completion_tokens": 7}
ALLOWANCE = settings.CallerTier(requests_per_day=1, fallbacks_per_day=1, parallel=1)  # one is enough for a request


@dataclass(frozen=True)
class Attempt:
    """One target's part in a request; `cost` in micro-dollars, None: the cloud did nothing that costs."""

    name: str
    tier: Tier
    cost: int | None = None
    failure: Kind | None = None
    status: int = 0
    tokens: int = 0
    usage: bool = False
    leaves: str = ""  # the caller, when
    last: bool = True


GPU_ATTEMPTS = (
    Attempt("gpu refuses", Tier.GPU, failure=Kind.REFUSED, last=False),
    Attempt("gpu is cut", Tier.GPU, tokens=2, last=False),
    Attempt("gpu answers", Tier.GPU, tokens=2, usage=True),
    Attempt("caller leaves the gpu", Tier.GPU, leaves="asked"),
)
CLOUD_ATTEMPTS = (
    Attempt("cloud takes no connection", Tier.CLOUD, failure=Kind.REFUSED, last=False),
    Attempt("cloud refuses", Tier.CLOUD, failure=Kind.STATUS, status=429, last=False),
    Attempt("cloud is silent", Tier.CLOUD, FULL, failure=Kind.SILENT, last=False),
    Attempt("cloud answers", Tier.CLOUD, 12 * INPUT + 7 * OUTPUT, tokens=2, usage=True),
    Attempt("cloud answers uncounted", Tier.CLOUD, PROMPT * INPUT + 3 * OUTPUT, tokens=3),
    Attempt("caller leaves while it is reserved", Tier.CLOUD, leaves="reserving"),
    Attempt("caller leaves while it is asked", Tier.CLOUD, FULL, leaves="asked"),
    Attempt("caller leaves its stream", Tier.CLOUD, PROMPT * INPUT + 3 * OUTPUT, tokens=3, leaves="streaming"),
)
ATTEMPTS = GPU_ATTEMPTS + CLOUD_ATTEMPTS
SEQUENCES = [
    sequence
    for length in (1, 2, 3)
    for sequence in itertools.product(ATTEMPTS, repeat=length)
    if not any(attempt.last for attempt in sequence[:-1])
]


def record(store: MemoryStore, told: Told | None = None) -> Record:
    """Of a request of one caller, with prices at which every attempt's cost is another."""
    fallback = settings.Fallback(
        url="http://cloud/v1", dollars_per_million_input=INPUT, dollars_per_million_output=OUTPUT, dollars_per_day=1
    )
    gateway = settings.Gateway(fallback=fallback)
    config = Config(fleet="llm", gpu_url="http://gpu", models={MODEL: MODEL}, gateway=gateway)
    ask = Ask(MODEL, MODEL, True, False, MOST, PROMPT, {"messages": HELLO}, True, False, False, False)
    caller = Caller("key:a", "pro", ALLOWANCE, "interactive")
    line = Line(id="request-1", caller=caller.id, began=0, until=60)
    return Record(line, caller, ask, "", store=store, told=told or Told({}), config=config)


async def play(found: Record, sequence: tuple[Attempt, ...]) -> None:
    delivered = 0
    for attempt in sequence:
        if attempt.tier is Tier.CLOUD:
            if attempt.leaves == "reserving":
                reserving = asyncio.create_task(found.reserve_cloud())
                await asyncio.sleep(0)
                reserving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reserving
                return found.ends(State.CANCELLED)
            await found.reserve_cloud()
        found.sent(attempt.tier)
        if attempt.failure:
            found.failed(Failure(attempt.tier, attempt.failure, 0, status=attempt.status))
            continue
        if attempt.tokens:
            delivered += attempt.tokens
            found.first_token()
            found.delivered(delivered)
        found.usage(USAGE if attempt.usage else None)
        if attempt.leaves:
            return found.ends(State.CANCELLED)
    return found.ends(State.DONE)


@on_loop
@pytest.mark.parametrize("count", [-5, "7", 1.5, True, [1], {"n": 1}, float("inf"), float("nan"), 10**400, None])
async def test_count_of_the_clouds_that_is_none_is_no_count_and_what_was_delivered_is_paid(count: Any) -> None:
    store = MemoryStore()
    found = record(store)
    await found.reserve_cloud()
    found.sent(Tier.CLOUD)
    found.first_token()
    found.delivered(3)
    found.usage({"prompt_tokens": count, "completion_tokens": count})
    found.ends(State.DONE)
    await found.settle()
    assert (set(store._spent.values()), store.lines["request-1"].tokens) == ({PROMPT * INPUT + 3 * OUTPUT}, 3)


@on_loop
@pytest.mark.parametrize("left", [False, True])
async def test_broken_answer_is_counted_as_the_ledger_has_it_also_where_its_caller_leaves_as_he_is_told(
    left: bool,
) -> None:
    store, told = MemoryStore(), Told({})
    found = record(store, told)
    found.sent(Tier.GPU)
    found.first_token()
    found.delivered(3)
    found.ends(State.FAILED)
    if left:
        found.ends(State.CANCELLED)
    await found.settle()
    assert (store.lines["request-1"].state, told.values[names.METRIC_ANSWERS_BROKEN]) == (
        (State.CANCELLED, 0) if left else (State.FAILED, 1)
    )


class Late(MemoryStore):
    """A table that takes what it is asked for, and says of one step so only later."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self._step, self.outcome = step, asyncio.get_running_loop().create_future()

    async def take_fallback(self, caller: str, most: int, day: str) -> bool:
        return self._said("take_fallback", await super().take_fallback(caller, most, day))

    async def spend(self, day: str, micro: int, limit: int | None) -> bool:
        return self._said("spend", await super().spend(day, micro, limit))

    def _said(self, step: str, taken: bool) -> bool:
        if step != self._step:
            return taken
        self._step = ""
        asyncio.get_running_loop().call_later(0.01, self.outcome.set_result, taken)
        raise LateError(self.outcome)


@on_loop
@pytest.mark.parametrize("step", ["take_fallback", "spend"])
@pytest.mark.parametrize("again", [False, True])
async def test_reservation_that_is_known_too_late_is_given_back_or_used(step: str, again: bool) -> None:
    store = Late(step)
    found = record(store)
    assert "cannot be counted" in await found.reserve_cloud()
    if again:
        assert await found.reserve_cloud() == ""
        found.sent(Tier.CLOUD)
        found.usage(USAGE)
    found.ends(State.DONE)
    await found.settle()
    spent, used = sum(store._spent.values()), sum(store._used.values())
    assert (spent, used) == ((12 * INPUT + 7 * OUTPUT, 1) if again else (0, 0))


@on_loop
async def test_spend_and_allowances_of_the_day_are_what_was_used() -> None:
    wrong = {}
    for sequence in SEQUENCES:
        store = MemoryStore()
        found = record(store)
        await play(found, sequence)
        await found.settle()
        costs = [attempt.cost for attempt in sequence if attempt.cost is not None]
        was, should = (sum(store._spent.values()), sum(store._used.values())), (sum(costs), int(bool(costs)))
        if was != should:
            wrong[", ".join(attempt.name for attempt in sequence)] = {"was": was, "should be": should}
    assert wrong == {}
