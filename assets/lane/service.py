"""The service: routes, the way into the line and out of it. `python -m lane` runs it."""

import asyncio
import json
import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Optional

from aiohttp import web

from lane import asked as asks
from lane.asked import Refusal, error_body
from lane.config import Config
from lane.engines import engine_of
from lane.estimates import Estimates
from lane.line import Busy, Line, Why
from lane.metrics import Metrics
from lane.order import Entry
from lane.turn import EVENTS, EndedError, Turn
from relay import lane_headers, sse, upstream

LOOK_SECONDS = 0.1  # while leaving: who cannot finish is handed back within it
PROVE_AGAIN_SECONDS = 5.0
SMALL_BYTES = 32 << 10  # what a socket takes at once
ENGINE_RETRY_SECONDS = 5
NO_CACHE = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
PREEMPTED, ENGINE_FAILED = "SPOT_PREEMPTION", "engine_failed"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104  behind the box's gate
LOG = logging.getLogger("lane")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Lane:
    """One engine's line and those in it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._session = upstream.session()
        self.line = Line(config, Estimates(config))
        self.engine = engine_of(config, self._session)
        self.metrics = Metrics()
        self.exact: Optional[bool] = None  # whether two slices say what one answer says; None: not proved yet
        self._turns: dict[str, Turn] = {}
        self._clock = asyncio.get_running_loop().time
        self._timer: Optional[asyncio.TimerHandle] = None
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: Optional[asyncio.Task[None]] = None
        self.notes: dict[str, float] = {}  # what the agent tells, by metric name

    # --- the process ---

    def app(self) -> web.Application:
        """The routes that callers reach."""
        app = web.Application(middlewares=[self._around], client_max_size=self._config.body_bytes)
        for path in asks.paths(self._config.engine):
            app.router.add_post(path, self._ask)
        for path in asks.readable(self._config.engine):
            app.router.add_get(path, self._read)
        app.router.add_route("*", "/{path:.*}", self._unknown)
        return app

    def start(self) -> None:
        """Begin to look at the engine."""
        self._tasks.append(asyncio.create_task(self._prove()))

    async def close(self) -> None:
        """End what is left."""
        for task in [*self._tasks, *([self._leaving] if self._leaving else [])]:
            task.cancel()
        for turn in list(self._turns.values()):
            turn.end(Why.DRAINING, "the lane ends")
        await self._session.close()

    async def _prove(self) -> None:
        """Once the engine serves: whether its answers may be sliced."""
        while self.exact is None:
            if not await self.engine.unready() and self.line.running is None:
                try:
                    self.exact = await self.engine.proved()
                    LOG.info("slices are %s", "exact" if self.exact else "not exact: none is made of a fixed answer")
                except upstream.UpstreamError as error:
                    LOG.info("slices are not proved: %s", error)
            if self.exact is None:
                await asyncio.sleep(PROVE_AGAIN_SECONDS)

    # --- around every request ---

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refusal as refusal:
            self.line.counts[Why.REFUSED.value] += 1
            return self._error(request.path, refusal.status, refusal.message, refusal.code, {"x-should-retry": "false"})
        except web.HTTPException as error:
            self.line.counts[Why.REFUSED.value] += 1
            return self._error(request.path, error.status, error.reason, "refused", {"x-should-retry": "false"})
        except ConnectionError:
            raise
        except Exception:
            LOG.exception("request %s", request.path[:100])
            return self._error(request.path, 500, "An error of the lane; it is in the log", "internal_error", {})

    def _error(self, path: str, status: int, message: str, code: str, headers: Mapping[str, str]) -> web.StreamResponse:
        body = json.dumps(error_body(path, message, code, status))
        told = {lane_headers.BOX: self._config.box, **headers} if self._config.box else headers
        return web.Response(status=status, text=body, content_type="application/json", headers=told)

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        there = ", ".join((*asks.paths(self._config.engine), *asks.readable(self._config.engine)))
        raise Refusal(404, f"{request.method} {request.path[:100]} is not served here; there is {there}", "unknown")

    async def _read(self, request: web.Request) -> web.StreamResponse:
        try:
            status, body = await self.engine.get(request.path)
        except upstream.UpstreamError as error:
            return self._error(request.path, 503, str(error), ENGINE_FAILED, {"Retry-After": str(ENGINE_RETRY_SECONDS)})
        return web.Response(status=status, body=body, content_type="application/json")

    # --- one request ---

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        try:
            here = request.content.is_eof()
            raw = await (request.read() if here else asyncio.wait_for(request.read(), self._config.body_seconds))
        except asyncio.TimeoutError:
            message = f"The body did not arrive within {self._config.body_seconds:g} s"
            raise Refusal(408, message, "slow_body") from None
        asked, terms = asks.read(request.path, raw, self._config), asks.terms(request.headers, self._config)
        now = self._clock()
        entry = Entry(
            id=self._id(request.headers),
            caller=terms.caller,
            kind=terms.kind,
            arrived=now,
            deadline=now + terms.deadline_seconds,
            stream=asked.stream,
            limit=asked.limit,
            prompt_tokens=asked.prompt_tokens,
            sliceable=not asked.whole
            and (bool(self.exact) if asked.fixed else self._config.inexact_slices and self.exact is not None),
        )
        busy = self.line.arrive(entry, now)
        if busy:
            return self._busy(request.path, busy)
        turn = Turn(
            entry,
            asked,
            config=self._config,
            line=self.line,
            engine=self.engine,
            metrics=self.metrics,
            advance=self.advance,
        )
        self._turns[entry.id] = turn
        turn.task = asyncio.create_task(turn.run())
        turn.task.add_done_callback(lambda _: self._settled(turn))
        self.advance()
        try:
            return await self._deliver(request, turn, comments=self._config.gateway and turn.kind == EVENTS)
        finally:
            await self._over(turn)

    def _settled(self, turn: Turn) -> None:
        turn.settle()
        self.advance()

    async def _over(self, turn: Turn) -> None:
        """Its caller has all, or has left: what the engine still does for it is let go."""
        if turn.task and not turn.task.done():
            turn.task.cancel()
            await asyncio.wait([turn.task])
        entry = turn.entry
        if not turn.answered or entry.delivered < entry.decoded:
            self.metrics.wasted += max(0, entry.decoded - entry.delivered)
        if turn.ended and entry.first_token is not None:
            self.metrics.aborted += 1
        del self._turns[entry.id]

    def _id(self, headers: Mapping[str, str]) -> str:
        said = headers.get(lane_headers.REQUEST, "") if self._config.gateway else ""
        plain = 8 <= len(said) <= 64 and said.isascii() and said.replace("-", "").isalnum()
        return said if plain and said not in self._turns else uuid.uuid4().hex[:16]

    def _busy(self, path: str, busy: Busy) -> web.StreamResponse:
        headers = {
            "Retry-After": str(busy.retry_after_seconds),
            lane_headers.WAIT: f"{busy.wait_seconds:.1f}",
        }
        message = f"The line is {busy.wait_seconds:.0f} s long; try again in {busy.retry_after_seconds} s"
        if busy.why is Why.DRAINING:
            message = "This box is leaving; another one answers"
        return self._error(path, 503, message, busy.why.value, headers)

    async def _deliver(self, request: web.Request, turn: Turn, *, comments: bool) -> web.StreamResponse:
        """What the buffer holds, as its caller takes it; comments while nothing comes, where a gateway listens."""
        response: Optional[web.StreamResponse] = None
        while True:
            try:
                part = await self._next(turn, comments=comments)
            except (EndedError, upstream.UpstreamError) as error:
                return await self._failed(request, turn, response, error)
            if part is None:
                assert response is not None  # noqa: S101  an answer has bytes
                await response.write_eof()
                return response
            data, tokens = part
            if not turn.asked.stream:
                turn.entry.delivered = turn.entry.decoded
                return web.Response(body=data, content_type="application/json", headers=self._marks(turn))
            if response is None:
                response = web.StreamResponse(headers={"Content-Type": turn.kind, **NO_CACHE, **self._marks(turn)})
                await response.prepare(request)
            await self._write(request, response, data)
            turn.entry.delivered += tokens

    async def _next(self, turn: Turn, *, comments: bool) -> Optional[tuple[bytes, int]]:
        if not comments:
            return await turn.buffer.get()
        while True:
            try:
                return await asyncio.wait_for(turn.buffer.get(), self._config.comment_seconds)
            except asyncio.TimeoutError:
                if turn.entry.began is None:
                    return sse.comment("in line"), 0
                if turn.entry.first_token is None:
                    return sse.comment("reading the prompt"), 0
                # an engine that stalls in the middle must look as it is

    def _marks(self, turn: Turn) -> dict[str, str]:
        told = {lane_headers.BOX: self._config.box} if self._config.box else {}
        return {**told, lane_headers.SLICES: "same distribution"} if _inexact(turn) else told

    async def _write(self, request: web.Request, response: web.StreamResponse, data: bytes) -> None:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the caller has left")
        if len(data) <= SMALL_BYTES and not transport.get_write_buffer_size():
            return await response.write(data)
        try:
            await asyncio.wait_for(response.write(data), self._config.reader_seconds)
        except asyncio.TimeoutError:
            transport.abort()
            raise ConnectionResetError("the caller reads nothing") from None
        return None

    async def _failed(
        self, request: web.Request, turn: Turn, response: Optional[web.StreamResponse], error: Exception
    ) -> web.StreamResponse:
        """The truth: an honest status where nothing went out yet, else the last event; never a quiet end."""
        entry, path = turn.entry, turn.asked.path
        if isinstance(error, EndedError) and error.why is Why.SLOW:
            if request.transport:
                request.transport.abort()
            raise ConnectionResetError("the caller reads nothing")
        if response is None and isinstance(error, EndedError):
            wait = self.line.wait(entry, self._clock()).mean
            if error.why is Why.DROPPED:
                return self._error(path, 503, str(error), error.why.value, {"x-should-retry": "false"})
            return self._busy(path, Busy(error.why, wait, max(1, math.ceil(min(wait, 120.0)))))
        if response is None and isinstance(error, upstream.StatusError):
            message = str(error.error.get("message") or error)
            return self._error(path, error.status, message, str(error.error.get("code") or "engine"), {})
        if response is None:
            headers = {"Retry-After": str(ENGINE_RETRY_SECONDS)}
            return self._error(path, 503, f"The engine: {error}", ENGINE_FAILED, headers)
        code = PREEMPTED if isinstance(error, EndedError) and error.why is Why.DRAINING else ENGINE_FAILED
        if turn.asked.openai:
            told = {"message": str(error), "type": "server_error", "code": code}
            body = {"error": told, "recoverable": not turn.asked.body.get("tools")}
            last = sse.event({**body, "served_prefix_tokens": entry.delivered}, "error")
        else:
            last = sse.dumps({"error": str(error)}) + b"\n"
        await self._write(request, response, last)
        await response.write_eof()
        return response

    # --- the line moves ---

    def advance(self) -> None:
        """Whoever is next begins; whoever is late is told; the next deadline is waited for."""
        now = self._clock()
        for entry in self.line.late(now):
            self._end(entry, Why.DEADLINE, "Its turn did not come in time")
        taken = self.line.take(now)
        if taken:
            self._turns[taken.id].go()
        if self._timer:
            self._timer.cancel()
        due = self.line.next_deadline()
        self._timer = None if due is None else asyncio.get_running_loop().call_at(due + 0.001, self.advance)

    def _end(self, entry: Entry, why: Why, message: str) -> None:
        turn = self._turns.get(entry.id)
        if turn:
            turn.end(why, message)

    def drop(self, id: str) -> bool:
        """An operator ends one; False where there is none."""
        turn = self._turns.get(id)
        if turn:
            turn.end(Why.DROPPED, "An operator ended this request")
        return turn is not None

    def listed(self) -> list[dict[str, Any]]:
        """The line as an operator sees it: never a prompt."""
        now, line = self._clock(), self.line
        order = ([line.running] if line.running else []) + sorted(line.waiting, key=lambda entry: entry.queued)
        return [
            {
                "id": entry.id,
                "caller": entry.caller or "anybody",
                "class": entry.kind,
                "state": "served" if entry is line.running else "paused" if entry.decoded else "waiting",
                "waited_seconds": round((entry.began or now) - entry.arrived, 1),
                "expected_seconds": round(line.left(entry, now).mean, 1),
                "tokens": entry.decoded,
                "limit": entry.limit,
            }
            for entry in order
        ]

    def expected_wait(self) -> float:
        """Seconds that a caller who came now would wait."""
        now = self._clock()
        newcomer = Entry("", "", lane_headers.INTERACTIVE, now, now, True, 1, 1)
        return self.line.wait(newcomer, now).mean

    @property
    def streams(self) -> int:
        """Who would lose something if the box went now: the count for drain, keeper and self-prime alike."""
        return len(self._turns)

    # --- the way out ---

    def leave(self, seconds: float) -> None:
        """The engine goes in so long: who cannot finish is handed back, the others go on until then."""
        self.line.leaving(self._clock() + seconds)
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.create_task(self._hand_back())
        self._look()

    def stay(self) -> None:
        """The engine stays after all."""
        self.line.resumed()

    async def _hand_back(self) -> None:
        while self.line.leaves_at is not None:
            await asyncio.sleep(LOOK_SECONDS)
            self._look()

    def _look(self) -> None:
        now, at = self._clock(), self.line.leaves_at
        if at is None:
            return
        for entry in self.line.handed_back(now):
            self._end(entry, Why.DRAINING, "This box is leaving before it could answer")
        if now >= at:
            for turn in list(self._turns.values()):
                turn.end(Why.DRAINING, "The GPU was taken in the middle of this answer")


def _inexact(turn: Turn) -> bool:
    return turn.entry.sliceable and not turn.asked.fixed
