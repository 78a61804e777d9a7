"""The service: routes, the way into the line and out of it. `python -m lane` runs it."""

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from typing import Any, Optional, Union

from lane import asked as asks
from lane.config import OLLAMA, Config
from lane.delivery import ENGINE_FAILED, ENGINE_RETRY_SECONDS, Delivery
from lane.engines import Engine, Ollama
from lane.estimates import Estimates
from lane.line import LOOK_SECONDS, Line, Why
from lane.order import Entry
from lane.turn import Metrics, Turn
from relay import lane_headers, upstream
from relay.bodies import Bodies
from relay.http_client import Client
from relay.http_server import Request, Response, Server, Stream
from relay.refusal import Refusal
from relay.site import site

PROVE_AGAIN_SECONDS = 5.0
LISTED_CHARACTERS = 64  # of a caller: Run Command hands back 24,000 characters in all
# Of 1024 descriptors, and 256 may come at a time: a lane that does not answer the box's own programs has it replaced.
CONNECTIONS_MOST = 512
LOG = logging.getLogger("lane")


class Lane:
    """One engine's line and those in it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._client = Client()
        self.line = Line(config, Estimates(config))
        self.engine = (Ollama if config.engine == OLLAMA else Engine)(config, self._client)
        self.metrics = Metrics()
        self._bodies = Bodies(together=config.large_bytes, most=config.body_bytes)
        self._delivery = Delivery(config, self.line)
        self.exact: Optional[bool] = None  # whether two slices say what one answer says; None: not proved yet
        self._turns: dict[str, Turn] = {}
        self._key = os.urandom(16)  # of this process: its hashes are worth nothing elsewhere
        self._clock = asyncio.get_running_loop().time
        self._timer: Optional[asyncio.TimerHandle] = None
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: Optional[asyncio.Task[None]] = None

    # --- the process ---

    def outside(self) -> Server:
        """What callers reach. Whom a leaving box has answered, he asks another one on a connection of its own."""
        return Server(
            self.answer,
            body_bytes=self._config.body_bytes,
            connections_most=CONNECTIONS_MOST,
            leaving=lambda: self.line.leaves_at is not None,
        )

    def start(self) -> None:
        """Begin to look at the engine."""
        self._tasks.append(asyncio.create_task(self._prove()))

    async def close(self) -> None:
        """End what is left."""
        for task in [*self._tasks, *([self._leaving] if self._leaving else [])]:
            task.cancel()
        for turn in list(self._turns.values()):
            turn.end(Why.DRAINING, "the lane ends")
        await self._client.close()

    async def _prove(self) -> None:
        """Once the engine serves: whether its answers may be sliced."""
        told = ""
        while self.exact is None:
            if not await self.engine.unready() and self.line.running is None:
                try:
                    self.exact = await self.engine.proved()
                    LOG.info("slices are %s", "exact" if self.exact else "not exact: none is made of a fixed answer")
                except upstream.UpstreamError as error:
                    if told != str(error):
                        LOG.info("slices are not proved: %s", error)
                    told = str(error)
            if self.exact is None:
                await asyncio.sleep(PROVE_AGAIN_SECONDS)

    # --- around every request ---

    async def answer(self, request: Request) -> Union[Response, Stream]:
        """To any request: what its path says, else why not."""
        try:
            return await self._routed(request)
        except Refusal as refusal:
            self.line.counts[Why.REFUSED.value] += 1
            return self._delivery.error(request.path, refusal.status, refusal.message, refusal.code, refusal.headers)
        except ConnectionError:
            raise
        except Exception:
            LOG.exception("request %s", request.path[:100])
            if request.begun:  # amid an answer a second head would be taken for it
                raise ConnectionResetError("an error of the lane") from None
            return self._delivery.error(
                request.path, 500, "An error of the lane; it is in the log", "internal_error", {}
            )

    async def _routed(self, request: Request) -> Union[Response, Stream]:
        asked, engine = (request.method, request.path), self._config.engine
        if asked == ("GET", lane_headers.WAIT_PATH) and self._config.gateway:
            return self._wait()
        if request.method == "POST" and request.path in asks.paths(engine):
            return await self._ask(request)
        if request.method == "GET" and request.path in asks.readable(engine):
            return await self._read(request)
        there = ", ".join((*asks.paths(engine), *asks.readable(engine)))
        raise Refusal(404, f"{request.method} {request.path[:100]} is not served here; there is {there}", "unknown")

    async def _read(self, request: Request) -> Response:
        try:
            status, body = await self.engine.get(request.path)
        except upstream.UpstreamError as error:
            return self._delivery.error(
                request.path, 503, str(error), ENGINE_FAILED, {"Retry-After": str(ENGINE_RETRY_SECONDS)}
            )
        return Response(status, body)

    def _wait(self) -> Response:
        """For a gateway that chooses among boxes: one that leaves is none of them."""
        if self.line.leaves_at is not None:
            return Response(503)
        estimates = self.line.estimates
        answer = (estimates.prompt(1) + estimates.answer(self._config.default_max_tokens)).mean
        told = {lane_headers.WAIT: f"{self.expected_wait():.2f}", lane_headers.ANSWER: f"{answer:.2f}"}
        return Response(204, headers=told)

    # --- one request ---

    async def _ask(self, request: Request) -> Union[Response, Stream]:
        held = self._bodies.take(request.content_length)
        try:
            return await self._asked(request)
        finally:
            self._bodies.give_back(held)

    async def _asked(self, request: Request) -> Union[Response, Stream]:
        raw = await request.read(self._config.body_seconds)
        asked, terms = asks.read(request.path, raw, self._config), asks.terms(request.headers, self._config)
        now = self._clock()
        entry = Entry(
            id=self._id(request.headers),
            caller=terms.caller if self._config.gateway else self._address(request.remote),
            kind=terms.kind,
            arrived=now,
            deadline=now + terms.deadline_seconds,
            stream=asked.stream,
            limit=asked.limit,
            prompt_tokens=asked.prompt_tokens,
            continued=terms.continued,
            sliceable=not asked.whole and self._may_slice(fixed=asked.fixed),
        )
        busy = self.line.arrive(entry, now)
        if busy:
            self._log(entry, now)
            return self._delivery.busy(request.path, busy)
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
            return await self._delivery.deliver(request, turn)
        finally:
            await self._over(turn)

    def _may_slice(self, *, fixed: bool) -> bool:
        if fixed or self.exact is None:
            return bool(self.exact)
        return self._config.inexact_slices and not self.engine.thinks

    def _settled(self, turn: Turn) -> None:
        turn.settle()
        self.advance()

    async def _over(self, turn: Turn) -> None:
        """Its caller has all, or has left: what the engine still does for it is let go."""
        try:
            if turn.task and not turn.task.done():
                turn.task.cancel()
                await asyncio.wait([turn.task])
        finally:  # a write that failed has led here, and now the server has seen the caller leave, too
            entry = turn.entry
            if not turn.answered or entry.delivered < entry.decoded:
                self.metrics.wasted += max(0, entry.decoded - entry.delivered)
            if turn.ended and turn.ended.why is Why.DRAINING and entry.keeps_its_place:
                self.metrics.aborted += 1
            del self._turns[entry.id]
            self._log(entry, self._clock())

    def _log(self, entry: Entry, now: float) -> None:
        """One line for each time that a request came: what a caller, a gateway's ledger and the lane must agree on.

        Written after the answer, which waits for no log.
        """
        told = {"id": entry.id, "class": entry.kind, "how": entry.how, "seconds": round(now - entry.arrived, 2)}
        facts = {**told, "tokens": entry.decoded, "delivered": entry.delivered}
        asyncio.get_running_loop().call_soon(lambda: LOG.info("REQUEST %s", json.dumps(facts)))

    def _address(self, remote: str) -> str:
        """Without a gateway a caller is his address (aws-behaviours: client-address), which nobody is shown."""
        try:
            where = site(remote).encode()
        except ValueError:  # he has left
            return ""
        return f"address:{hashlib.blake2b(where, key=self._key, digest_size=6).hexdigest()}"

    def _id(self, headers: Mapping[str, str]) -> str:
        said = headers.get(lane_headers.REQUEST, "") if self._config.gateway else ""
        return said if lane_headers.plain(said) and said not in self._turns else os.urandom(8).hex()

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
        """The line as an operator sees it, in the order of the turns: never a prompt."""
        now, line = self._clock(), self.line
        return [
            {
                "id": entry.id,
                "caller": entry.caller[:LISTED_CHARACTERS] or "anybody",
                "class": entry.kind,
                "state": "served" if entry is line.running else "paused" if entry.decoded else "waiting",
                "waited_seconds": round((entry.began or now) - entry.arrived, 1),
                "served_seconds": 0.0 if entry.began is None else round(now - entry.began, 1),
                "expected_seconds": round(seconds, 1),  # until it is done
                "tokens": entry.decoded,
                "limit": entry.limit,
            }
            for entry, seconds in line.expected(now)
        ]

    def expected_wait(self) -> float:
        """Seconds that a caller who came now would wait behind all of his class: a new one's turn hides the line."""
        now = self._clock()
        newcomer = Entry("", "the last", lane_headers.INTERACTIVE, now, now, True, 1, 1)
        return self.line.wait(newcomer, now, last=True).mean

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
