"""One request's record: its ledger line, its counts, what it costs, and what the lane is told of it."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from fleet.core import names
from gateway.admission import Ask
from gateway.callers import Caller
from gateway.config import Config
from gateway.fallback import TOO_MANY, Failure, Kind, Tier
from gateway.ledger import LEASE_SECONDS, Line, State, reservation
from gateway.memory import Store
from gateway.metrics import Told
from gateway.store import LateError, StoreError
from relay import lane_headers

LOG = logging.getLogger("gateway")
MICRO = 1_000_000
TOKENS_MOST = 10**9  # of one request, that a target's count is believed
CALLER_LEFT, NOBODY = "caller-left", "nobody"
NOT_TOLD = {"began", "until", "prompt", "answered_by"}  # of a line, in the log: there under another name, or no matter


class Record:
    """What is known of a request so far."""

    def __init__(
        self, line: Line, caller: Caller, ask: Ask, once: str, *, store: Store, told: Told, config: Config
    ) -> None:
        self.id, self._caller, self._ask, self._once = line.id, caller, ask, once
        self._line, self._since = line, dict[str, Any]()  # as it was admitted, and what has changed since
        self._store, self._told, self._config = store, told, config
        self._tier: Tier | None = None
        self._usage: dict[str, Any] = {}  # of this attempt
        self._tokens = self._before = 0  # delivered, and before this attempt
        self._nobody = False
        # The cloud: one of the caller's fallbacks is taken; the request is with it; it may have worked on it in vain.
        self._allowed = self._with_cloud = self._in_vain = False
        self._reserved = self._lost = 0  # micro-dollars taken of the day, and those of attempts in vain
        self._late: Awaitable[bool] | None = None  # what the store says of the step that it was late with
        self._reserving: asyncio.Task[str] | None = None
        self._day = line.day
        # The last line, and whether nobody answered.
        self.ended: asyncio.Future[tuple[Line, bool]] = asyncio.get_running_loop().create_future()
        self._writing, self._settled = asyncio.Lock(), False  # no renewal may end after the last line

    def headers(self, deadline_seconds: float) -> dict[str, str]:
        """For the lane: whose request it is, of which class, and by when it must be answered. Others pass it over."""
        left = deadline_seconds - self._told.seconds
        return {
            lane_headers.REQUEST: self.id,
            lane_headers.CLASS: self._caller.kind,
            lane_headers.CALLER: self._caller.id,
            lane_headers.DEADLINE: f"{max(0.0, left):.1f}",
        }

    def sent(self, tier: Tier, why: str = "") -> None:
        """A target is asked; of the cloud, why the GPU is not."""
        self._tier, self._usage, self._before = tier, {}, self._tokens
        self._with_cloud = tier is Tier.CLOUD
        self._since |= {"state": State.SENT, "attempts": self._since.get("attempts", 0) + 1, "why": why}

    def failed(self, failure: Failure) -> None:
        """It gave nothing."""
        told = (failure.tier, failure.word)
        if told not in self._told.failed:  # back in the line it is asked for many times a second
            self._told.failed.append(told)
        if failure.tier is Tier.CLOUD:
            if self._with_cloud and failure.kind not in {Kind.REFUSED, Kind.STATUS}:  # who refuses bills nothing
                self._in_vain, self._lost = True, self._reserved
            self._with_cloud = False
            if failure.status == TOO_MANY:
                self._told.values[names.METRIC_FALLBACK_TOO_MANY] += 1
            if failure.never_taken:
                self._told.values[names.METRIC_FALLBACK_MISCONFIGURED] += 1
                LOG.warning("request %s: the fallback takes no such request: %s", self.id, failure.word)

    def first_token(self) -> None:
        """The answer has begun to arrive."""
        assert self._tier is not None  # noqa: S101
        self._told.values[names.METRIC_FIRST_TOKEN_SECONDS] = self._told.seconds
        safe = not (self._ask.once or self._ask.tools)
        self._since |= {"state": State.STREAMING, "answered_by": str(self._tier), "retry_safe": safe}

    def delivered(self, tokens: int) -> None:
        """So many have gone to the caller."""
        self._tokens = tokens

    def usage(self, counts: dict[str, Any] | None) -> None:
        """What the target counted."""
        self._usage = counts or self._usage

    async def reserve_cloud(self) -> str:
        """Take one of the caller's fallbacks and what it may cost from the day; the reason where that is refused.

        What an attempt that cost nothing has left is there for the next one; a request uses one fallback at most.
        Whoever leaves meanwhile: what the store has taken by then must be known, or nobody gives it back.
        """
        self._reserving = asyncio.create_task(self._reserve())
        return await asyncio.shield(self._reserving)

    async def _reserve(self) -> str:
        cloud = self._config.gateway.fallback
        micro = self._price(self._ask.prompt_tokens, self._ask.max_tokens)
        await self._known_late()
        try:
            most = self._caller.tier.fallbacks_per_day
            if not self._allowed and not (most and await self._store.take_fallback(self._caller.id, most, self._day)):
                return f"the {self._caller.tier_name} tier has {most} a day, and all are used"
            self._allowed = True
            if self._reserved == self._lost:
                if not await self._store.spend(self._day, micro, round(cloud.dollars_per_day * MICRO)):
                    self._told.values[names.METRIC_FALLBACK_SPENT] += 1
                    return f"the day's ${cloud.dollars_per_day:g} are spent"
                self._reserved += micro
        except StoreError as error:
            self._late = error.outcome if isinstance(error, LateError) else None
            self._told.values[names.METRIC_STORE_FAILURES] += 1
            return f"what it costs cannot be counted: {error}"
        return ""

    async def _known_late(self) -> None:
        """What the store has taken after all is held, too; of what is never known it keeps one step at most."""
        late, self._late = self._late, None
        with contextlib.suppress(StoreError):
            if late and await late:
                if self._allowed:
                    self._reserved += self._price(self._ask.prompt_tokens, self._ask.max_tokens)
                self._allowed = True

    def ends(self, state: State, why: str = "", *, nobody: bool = False) -> None:
        """How it ended. `nobody`: no target answered, so the caller's cap gets it back."""
        self._nobody = nobody
        self._since |= {"state": state, "why": why or self._since.get("why", "")}

    def passed_on(self, failure: Failure) -> None:
        """The caller got the target's own error: it fails the same anywhere."""
        self._since |= {"state": State.FAILED, "answered_by": str(failure.tier), "why": failure.word}

    async def renew(self) -> None:
        """Write the line with its lease renewed, unless its last one is written."""
        async with self._writing:
            if not self._settled:
                until = int(time.time()) + LEASE_SECONDS
                await self._store.write(replace(self._line, **{**self._since, "until": until, "tokens": self._tokens}))

    async def settle(self) -> None:
        """Write down what came of it; the store's silence loses no answer."""
        if self._reserving:
            await self._reserving
        await self._known_late()
        tokens, paid = self._counted("completion_tokens"), self._lost
        if self._with_cloud:
            prompt = self._counted("prompt_tokens") or self._ask.prompt_tokens
            paid += self._price(prompt, tokens or (self._tokens - self._before) or self._ask.max_tokens)
        used = self._with_cloud or self._in_vain
        if used:
            self._told.values[names.METRIC_FALLBACK_DOLLARS] = paid / MICRO
        ended = {"tokens": self._tokens or tokens, "micro_dollars": paid, "until": int(time.time())}
        line = replace(self._line, **{**self._since, **ended})
        self._tell(line)
        self.ended.set_result((line, self._nobody))
        if self._reserved:
            await self._settled_with(self._store.spend(self._day, paid - self._reserved, None))
        async with self._writing:
            self._settled = True
            await self._settled_with(self._store.write(line))
        unused = self._allowed and not used
        if self._nobody or unused:
            once = self._once if self._nobody else ""
            caller, day = self._caller.id, self._day
            await self._settled_with(
                self._store.give_back(caller, day, request=self._nobody, fallback=unused, once=once)
            )

    async def _settled_with(self, step: Awaitable[object]) -> None:
        """One step with the store, which may not answer in time: the others are of other items, and go on."""
        try:
            await step
        except StoreError:
            self._told.values[names.METRIC_STORE_FAILURES] += 1

    def _tell(self, line: Line) -> None:
        told = self._told
        told.answered_by = CALLER_LEFT if line.state is State.CANCELLED else line.answered_by
        if line.state is State.FAILED and self._tokens:
            told.values[names.METRIC_ANSWERS_BROKEN] = 1
        if line.answered_by:
            told.values[names.METRIC_ANSWER_SECONDS] = told.seconds
        elif self._nobody:
            told.answered_by = NOBODY
            told.values[names.METRIC_NOBODY_ANSWERED] = 1
        facts = {name: value for name, value in line.plain().items() if name not in NOT_TOLD}
        told.facts |= {**facts, "model": self._ask.model, "tier": self._caller.tier_name, "class": self._caller.kind}

    def _counted(self, name: str) -> int:
        """What the target counted; 0 where that is no number of tokens."""
        found = self._usage.get(name)
        return found if type(found) is int and 0 < found <= TOKENS_MOST else 0

    def _price(self, prompt: int, completion: int) -> int:
        cloud = self._config.gateway.fallback
        return reservation(prompt, completion, cloud.dollars_per_million_input, cloud.dollars_per_million_output)
