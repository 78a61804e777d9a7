"""One request, step after step, until it is answered, passed on, refused, or its caller has left.

The rules are `fallback`'s; this file asks, relays, and writes down what came of it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from gateway import fallback, targets
from gateway.admission import Ask
from gateway.config import Config
from gateway.fallback import Failure, Kind, Tier
from gateway.ledger import State
from gateway.record import Record
from gateway.reply import SERVED_BY, Reply
from relay import chat, lane_headers, sse, upstream
from relay.http_server import Response, Stream
from relay.refusal import error_body


class Serving:
    """One admitted request on its way."""

    def __init__(
        self, ask: Ask, reply: Reply, record: Record, *, gpu: targets.Gpu, cloud: targets.Cloud, config: Config
    ) -> None:
        self._ask, self._reply, self._record = ask, reply, record
        self._gpu, self._cloud, self._config = gpu, cloud, config
        self._clock = asyncio.get_running_loop().time
        self._arrived = self._asked_at = self._clock()
        self._failures: list[Failure] = []
        self._text: list[str] = []  # delivered so far, kept only where a continuation may need it
        self._text_alone = True  # thoughts and tool calls cannot be gone on with
        budgets = config.gateway.budgets
        self._budget = fallback.local_budget(ask.stream, budgets, cloud.restraint.p95(budgets.fallback_p95_seconds))

    async def run(self) -> Response | Stream:
        """The answer that the caller got. Cancelled, where the caller leaves: whatever was asked is let go."""
        pulse = asyncio.create_task(self._pulse()) if self._ask.stream else None
        try:
            return await self._until_answered()
        finally:
            if pulse:
                pulse.cancel()
                await asyncio.wait([pulse])

    async def _until_answered(self) -> Response | Stream:
        while True:
            step = fallback.next_step(self._situation())
            match step:
                case fallback.AskTarget(tier, after, fresh):
                    if after:
                        await asyncio.sleep(after)
                    try:
                        return await self._attempt(tier, fresh=fresh)
                    except targets.FailedError as error:
                        self._failed(error.failure)
                case fallback.Wait(seconds):
                    await asyncio.sleep(seconds)
                case fallback.PassOn(failure):
                    self._record.passed_on(failure)
                    body = error_body(failure.message, failure.code or "invalid_request", failure.status)
                    return await self._reply.fail(failure.status, body, {})
                case fallback.Refuse(retry_after, why):
                    told = dict.fromkeys(f"{each.tier} {each.word}" for each in self._failures)
                    self._record.ends(State.FAILED, ", ".join(told) or "no box takes connections", nobody=True)
                    body = error_body(f"Nobody can answer now: {why}", "nobody_answers", 503)
                    return await self._reply.fail(503, body, {"Retry-After": str(retry_after)})

    def _situation(self) -> fallback.Situation:
        now = self._clock()
        return fallback.Situation(
            elapsed=now - self._arrived,
            budget=self._budget,
            failures=tuple(self._failures),
            gpu="" if self._gpu.breaker.closed else "no box takes connections",
            gpu_back_in=self._gpu.breaker.back_in(now),
            cloud=self._cloud.closed(self._ask),
            retries=self._config.gateway.retries,
            once=self._ask.once,
        )

    def _why_not_gpu(self) -> str:
        told = ", ".join(each.word for each in self._failures if each.tier is Tier.GPU)
        return told or self._situation().gpu or "no time left for it"

    def _failed(self, failure: Failure) -> None:
        self._failures.append(failure)
        self._record.failed(failure)
        if failure.tier is Tier.GPU and fallback.all_refused(self._failures, self._config.gateway.retries):
            self._gpu.all_refused()

    async def _attempt(self, tier: Tier, *, fresh: bool) -> Response | Stream:
        """Ask one target; raises FailedError where it gave nothing."""
        if tier is Tier.GPU:
            by = self._arrived + self._budget
            self._record.sent(tier)
            continued = {lane_headers.CONTINUED: lane_headers.YES} if self._continuable else {}
            headers = {**self._record.headers(self._budget), **continued}
            tried = {failure.box for failure in self._failures}
            asked = self._gpu.asked(self._ask, headers, by, fresh=fresh, tried=tried)
        else:
            elapsed = self._clock() - self._arrived
            by = self._arrived + fallback.cloud_budget(elapsed, self._ask.stream, self._config.gateway.budgets)
            asked = self._cloud.asked(self._ask, by, self._reserve)
        try:
            async with asked as answer:
                return await (self._stream(answer, tier, by) if self._ask.stream else self._whole(answer, tier, by))
        except targets.BrokenStreamError as broken:
            return await self._mended(broken.failure)
        except upstream.UpstreamError as error:
            raise targets.FailedError(self._failure(error, tier)) from None

    def _failure(self, error: upstream.UpstreamError, tier: Tier) -> Failure:
        return targets.failure_of(error, tier, self._clock() - self._arrived)

    async def _reserve(self) -> None:
        """The cloud costs: the caller's allowance and the day's spend are taken before it is asked."""
        refused = await self._record.reserve_cloud()
        if refused:
            raise targets.FailedError(Failure(Tier.CLOUD, Kind.LIMIT, self._clock() - self._arrived, message=refused))
        self._record.sent(Tier.CLOUD, self._why_not_gpu())
        self._asked_at = self._clock()

    async def _whole(self, answer: upstream.Answer, tier: Tier, by: float) -> Response | Stream:
        _, found = await answer.whole(by)
        told = chat.error(found)
        if told is not None or not any(True for _ in chat.choices(found)):
            raise upstream.BrokenError(told or "an answer without choices")
        self._record.usage(chat.usage(found))
        self._record.first_token()
        if tier is Tier.CLOUD:
            self._cloud.restraint.took(self._clock() - self._asked_at)
        self._record.ends(State.DONE)
        return await self._reply.whole(found, self._model(tier), _served(answer, tier))

    async def _stream(self, answer: upstream.Answer, tier: Tier, by: float) -> Response | Stream:
        await self._reply.begin(_served(answer, tier))  # the target has accepted it
        await self._relay(answer, tier, by)
        self._record.ends(State.DONE)
        return await self._reply.end()

    async def _relay(self, answer: upstream.Answer, tier: Tier, by: float, mark: dict[str, Any] | None = None) -> None:
        """Pass a stream on until its regular end; BrokenStreamError once it had delivered, else UpstreamError."""
        budgets, finished, began = self._config.gateway.budgets, False, self._reply.tokens

        def next_byte_by() -> float:
            if finished:
                return self._clock() + budgets.last_words_seconds
            dead = self._clock() + budgets.silence_seconds
            return dead if self._reply.tokens > began else min(dead, by)

        try:
            async with aclosing(_chunks(answer, next_byte_by)) as chunks:
                async for chunk in chunks:
                    self._record.usage(chat.usage(chunk))
                    if finished:  # one finish_reason; what still comes are counts
                        chunk["choices"] = []
                    finished = finished or chat.finished(chunk)
                    if self._reply.tokens == began and not chat.delivers(chunk) and not finished:
                        continue  # a role, or nothing: no first token yet, and `reply` writes the role itself
                    await self._pass_on({**chunk, **(mark or {})}, tier)
                    mark = None
            if not finished:
                raise upstream.BrokenError("the stream ended without a word why")
        except upstream.UpstreamError as error:
            if finished:
                return  # it said how the answer ended: that it never says [DONE] costs nobody anything
            if self._reply.tokens:
                raise targets.BrokenStreamError(self._failure(error, tier)) from None
            raise

    async def _pass_on(self, chunk: dict[str, Any], tier: Tier) -> None:
        if self._continuable:
            text = chat.content(chunk)
            self._text.append(text)
            self._text_alone = self._text_alone and bool(text or not chat.delivers(chunk))
        if not self._reply.tokens and (chat.delivers(chunk) or chat.finished(chunk)):
            self._record.first_token()
        await self._reply.chunk(chunk, self._model(tier))
        self._record.delivered(self._reply.tokens)

    @property
    def _continuable(self) -> bool:
        """Whether another target could go on with the same text: it says so, and sampling is fixed. Never by trial."""
        ask = self._ask
        plain = not (ask.tools or {"response_format", "logprobs"} & ask.body.keys())
        return self._config.gateway.fallback.continues and ask.fixed and plain and not ask.once

    async def _mended(self, broken: Failure) -> Response | Stream:
        """A stream that broke after its first token: continued where that is declared, else ended visibly."""
        word, why = f"{broken.tier} {broken.word}", broken.message
        if broken.tier is Tier.GPU and self._continuable and self._text_alone and not self._cloud.closed(self._ask):
            try:
                await self._continue()
                self._record.ends(State.DONE, f"continued: {word}")
                return await self._reply.end()
            except targets.BrokenStreamError as error:
                why = f"{why}; not continued: {error}"
            except targets.FailedError as error:
                self._record.failed(error.failure)
                why = f"{why}; not continued: {error}"
        self._record.ends(State.FAILED, word)
        whose = "The GPU was taken or its box died" if broken.tier is Tier.GPU else "The fallback broke off"
        message = f"{whose} in the middle of this answer ({why})"
        return await self._reply.broken(message, recoverable=not self._ask.tools)

    async def _continue(self) -> None:
        """The cloud goes on where the GPU stopped; the first chunk of its says so."""
        sofar = {"role": "assistant", "content": "".join(self._text)}
        left = max(1, self._ask.max_tokens - self._reply.tokens)
        ask = replace(
            self._ask, body={**self._ask.body, "messages": [*self._ask.body["messages"], sofar]}, max_tokens=left
        )
        by = self._clock() + self._config.gateway.budgets.fallback_first_token_seconds
        try:
            async with self._cloud.asked(ask, by, self._reserve) as answer:
                await self._relay(answer, Tier.CLOUD, by, {"continued_by": self._config.gateway.fallback.model})
        except upstream.UpstreamError as error:
            raise targets.FailedError(self._failure(error, Tier.CLOUD)) from None

    def _model(self, tier: Tier) -> str:
        return self._ask.model if tier is Tier.GPU else self._config.gateway.fallback.model

    async def _pulse(self) -> None:
        """The caller's bytes: status 200 after a second at the latest, a comment whenever nothing came for long."""
        budgets = self._config.gateway.budgets
        await asyncio.sleep(budgets.connected_seconds)
        await self._reply.begin()
        while True:
            due = self._reply.written_at + budgets.comment_seconds - self._clock()
            if due <= 0:
                await self._reply.keep_alive()
            await asyncio.sleep(max(due, 0.05))


def _served(answer: upstream.Answer, tier: Tier) -> dict[str, str]:
    """Headers: who answers; and what a lane says of slices at a temperature."""
    told, slices = {SERVED_BY: str(tier)}, lane_headers.SLICES
    return {**told, slices: answer.headers[slices]} if tier is Tier.GPU and slices in answer.headers else told


async def _chunks(answer: upstream.Answer, next_byte_by: Callable[[], float]) -> AsyncGenerator[dict[str, Any]]:
    """The chunks of a stream up to [DONE] or its end; malformed ones are dropped. An error in it raises BrokenError."""
    async with aclosing(answer.events(next_byte_by)) as events:
        async for event in events:
            if event.kind == sse.COMMENT:
                continue
            if event.data == sse.DONE:
                return
            chunk = sse.parsed(event.data)
            if chunk is None:
                continue
            told = chat.error(chunk)
            if told is not None:
                raise upstream.BrokenError(told)
            yield chunk
