"""One request from its arrival in the line to its last byte: asked, sliced, read at full speed, counted.

EndedError   the lane ended it: `why` says for which reason
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any, Optional

from lane import seam
from lane.asked import Asked, continued
from lane.buffer import Buffer, OverrunError
from lane.config import Config
from lane.engines import Engine
from lane.line import Line, Why
from lane.order import Entry
from relay import chat, sse, upstream

LOG = logging.getLogger("lane")
QUIET_END = "the engine's stream ended without a word why"
LINES, JSON = "application/x-ndjson", "application/json"


class EndedError(Exception):
    """Ended by the lane, not by its caller and not by the engine's answer."""

    def __init__(self, why: Why, message: str) -> None:
        self.why = why
        super().__init__(message)


class Metrics:
    """One process's counts."""

    def __init__(self) -> None:
        self.tokens = 0
        self.wasted = 0  # decoded, never delivered
        self.aborted = 0  # ended by the box, of those that had begun
        self.begun, self.wait_seconds = 0, 0.0  # turns, and the waits until then together


class Turn:
    """What the engine is asked for one entry; its answer goes into `buffer`."""

    def __init__(
        self,
        entry: Entry,
        asked: Asked,
        *,
        config: Config,
        line: Line,
        engine: Engine,
        metrics: Metrics,
        advance: Callable[[], None],
    ) -> None:
        self.entry, self.asked = entry, asked
        self._config, self._line, self._engine = config, line, engine
        self._metrics, self._advance = metrics, advance
        self._clock = asyncio.get_running_loop().time
        self._go: Optional[asyncio.Future[None]] = None
        self._asked_at = self._last_at = 0.0
        self._slice_tokens = 0
        self.buffer = Buffer(config.buffer_bytes)
        self.ended: Optional[EndedError] = None
        self.task: Optional[asyncio.Task[None]] = None
        self.answered = False  # whole: nothing of it was wasted by us

    @property
    def kind(self) -> str:
        """The answer's content type."""
        return JSON if not self.asked.stream else sse.CONTENT_TYPE if self.asked.openai else LINES

    # --- the line's side ---

    def go(self) -> None:
        """Its turn has come."""
        if self._go and not self._go.done():
            self._go.set_result(None)

    def end(self, why: Why, message: str) -> None:
        """End it: what was asked of the engine is let go."""
        if self.ended is None and self.task and not self.task.done():
            self.ended = EndedError(why, message)
            self.task.cancel()

    async def run(self) -> None:
        """Wait, ask, read, to the end; whatever comes of it goes into the buffer."""
        try:
            await self._until_it_goes()
            self._metrics.wait_seconds += self._clock() - self.entry.arrived
            self._metrics.begun += 1
            await self._answer()
            self.answered = True
            self.buffer.end()
            self._left("answered")
        except asyncio.CancelledError:
            how = self.ended or EndedError(Why.DROPPED, "the caller left")
            self.buffer.end(how)
            self._left(how.why.value if self.ended else "caller_left")
            if self.ended is None:
                raise
        except OverrunError as error:
            self.buffer.end(EndedError(Why.SLOW, str(error)))
            self._left(Why.SLOW.value)
        except upstream.UpstreamError as error:
            self.buffer.end(error)
            self._left(Why.ENGINE.value)
        except Exception as error:
            LOG.exception("request %s", self.entry.id)
            self.buffer.end(upstream.BrokenError(f"an error of the lane: {type(error).__name__}"))
            self._left(Why.ENGINE.value)

    def settle(self) -> None:
        """Its task is over, also where it never ran: nobody waits for it, in the line or at the buffer."""
        self.buffer.end(self.ended or EndedError(Why.DROPPED, "the caller left"))
        self._left("caller_left")

    def _left(self, how: str) -> None:
        now = self._clock()
        entry, estimates = self.entry, self._line.estimates
        if not (
            self.answered or self.asked.stream or entry.decoded or entry.began is None
        ):  # it tells nothing on the way
            spent = now - entry.began - estimates.prompt(entry.prompt_tokens).mean
            entry.decoded = max(0, min(entry.limit, int(spent / estimates.token_seconds)))
        self._line.leave(self.entry, now, how)

    async def _until_it_goes(self) -> None:
        if self._line.running is self.entry:
            return
        self._go = asyncio.get_running_loop().create_future()
        await self._go

    # --- the engine's side ---

    async def _answer(self) -> None:
        if self.entry.sliceable and self.asked.limit > self._line.estimates.slice_tokens():
            await self._slices()
        elif not self.asked.stream:
            await self._whole()
        elif self.asked.openai:
            await self._events()
        else:
            await self._lines()

    async def _post(self, body: dict[str, Any]) -> upstream.Answer:
        self._asked_at, self._slice_tokens = self._clock(), 0
        return await self._engine.post(self.asked.path, body, self._by())

    def _by(self) -> float:
        return self._clock() + self._config.engine_seconds

    def _decoded(self, tokens: int) -> None:
        if tokens:
            self._last_at = self._clock()
            self._slice_tokens += tokens
            self._line.decoded(self.entry, tokens, self._last_at)

    async def _whole(self) -> None:
        answer = await self._post(self.asked.body)
        try:
            body, found = await answer.whole(self._by())
        finally:
            answer.close()
        _raise_error(found)
        tokens = int((chat.usage(found) or {}).get("completion_tokens") or found.get("eval_count") or 0)
        self.entry.decoded = tokens
        why = [found.get("done_reason"), *(each.get("finish_reason") for each in chat.choices(found))]
        self.buffer.put(body, tokens)
        self._learn(found, tokens, seam.LENGTH not in why)

    async def _events(self) -> None:
        """A stream of events, each as it is; whole ones alone, so that what ends it stands between events."""
        finished, stopped = False, True
        last: dict[str, Any] = {}
        async for event in self._engine_events(self.asked.body):
            if event.data == sse.DONE:
                if not finished:
                    break
                self.buffer.put(sse.event(sse.DONE))
                return self._learn(last, self._slice_tokens, stopped)
            chunk = sse.parsed(event.data)
            if chunk is None:
                continue
            _raise_error(chunk)
            tokens = int(_delivers(chunk))
            self._decoded(tokens)
            finished, last = finished or chat.finished(chunk), chunk if "timings" in chunk else last
            stopped = stopped and all(each.get("finish_reason") != seam.LENGTH for each in chat.choices(chunk))
            self.buffer.put(sse.event(event.data), tokens)
        if not finished:
            raise upstream.BrokenError(QUIET_END)
        return None

    async def _engine_events(self, body: dict[str, Any]) -> AsyncGenerator[sse.Event, None]:
        answer = await self._post(body)
        try:
            async for event in answer.events(self._by):
                if event.kind != sse.COMMENT:
                    yield event
        finally:
            answer.close()

    async def _lines(self) -> None:
        """Ollama's own family: a JSON object a line; the last says done."""
        answer, rest = await self._post(self.asked.body), b""
        try:
            async for part in answer.chunks(self._by):
                *lines, rest = (rest + part).split(b"\n")
                if len(rest) > sse.LIMIT_BYTES:
                    raise upstream.BrokenError("a line without an end")
                for line in lines:
                    found = sse.parsed(line)
                    if found is None:
                        continue
                    _raise_error(found)
                    message = found.get("message")
                    said = {**found, **(message if isinstance(message, dict) else {})}
                    tokens = int(any(said.get(name) for name in ("response", "content", "thinking", "tool_calls")))
                    self._decoded(tokens)
                    self.buffer.put(line + b"\n", tokens)
                    if found.get("done"):
                        return self._learn(found, self._slice_tokens, found.get("done_reason") != seam.LENGTH)
        finally:
            answer.close()
        raise upstream.BrokenError("the engine's answer ended before it was done")

    async def _slices(self) -> None:
        """One answer in slices; whoever has less to do, or is in a hurry, is let by between them."""
        asked = self.asked
        options = asked.body.get("stream_options")
        wants_usage = isinstance(options, dict) and options.get("include_usage") is True
        stops, chats = seam.stops(asked.body.get("stop")), "messages" in asked.body
        joined = seam.Joined(limit=asked.limit, stops=stops, wants_usage=wants_usage, chat=chats)

        def give(chunks: list[dict[str, Any]], tokens: int) -> None:
            for chunk in chunks if asked.stream else ():
                self.buffer.put(sse.event(chunk), tokens)

        while True:
            tokens = min(self._line.estimates.slice_tokens(), asked.limit - joined.tokens)
            await self._slice(joined, tokens, give)
            if joined.finish:
                break
            if self._line.yields(self._clock()):
                self._line.pause(self.entry, self._clock())
                self._advance()
                await self._until_it_goes()
            else:
                self._line.goes_on(self._clock())
        if joined.finish != seam.LENGTH:
            self._line.estimates.length(joined.tokens)
        if asked.stream:
            give(joined.last(), 0)
            self.buffer.put(sse.event(sse.DONE))
        else:
            self.buffer.put(sse.dumps(joined.whole()), joined.tokens)

    async def _slice(self, joined: seam.Joined, tokens: int, give: Any) -> None:
        body = continued(self.asked, joined.text, tokens)
        joined.begin(tokens)
        last: dict[str, Any] = {}
        async for event in self._engine_events(body or {}):
            chunk = sse.parsed(event.data)
            if event.data == sse.DONE or chunk is None:
                continue
            _raise_error(chunk)
            count = int(_delivers(chunk))
            self._decoded(count)
            give(joined.chunk(chunk), count)
            last = chunk if "timings" in chunk else last
            if joined.finish:
                break  # a stop string across the seam: the engine is let go
        if not (joined.why or joined.finish):
            raise upstream.BrokenError(QUIET_END)
        if joined.thinking:
            raise upstream.BrokenError("the model thinks where it was proved not to: a thought cannot be continued")
        give(joined.ended(), 0)
        self._learn(last, self._slice_tokens, False)

    def _learn(self, last: dict[str, Any], tokens: int, stopped: bool) -> None:
        """What this answer or slice took. An answer that its limit ended says little of lengths."""
        estimates, now = self._line.estimates, self._clock()
        self._metrics.tokens += tokens
        found = self._engine.measured(last)
        if found is None and self.entry.first_token is not None:
            found = self.entry.first_token - self._asked_at, self._last_at - self.entry.first_token, tokens
        if found is None:
            total = now - self._asked_at
            prompt = min(total, estimates.prompt(self.entry.prompt_tokens).mean)
            found = prompt, total - prompt, tokens
        prompt_seconds, token_seconds, tokens = found
        mine = self.entry.prompt_tokens
        estimates.answered(
            prompt_tokens=mine, prompt_seconds=prompt_seconds, tokens=tokens, token_seconds=token_seconds
        )
        if stopped and tokens:
            estimates.length(tokens)


def _delivers(chunk: dict[str, Any]) -> bool:
    return chat.delivers(chunk) or any(choice.get("text") for choice in chat.choices(chunk))


def _raise_error(found: dict[str, Any]) -> None:
    told = chat.error(found)
    if told is not None:
        raise upstream.BrokenError(told)
