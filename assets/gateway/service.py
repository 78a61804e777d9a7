"""The service: routes, who is admitted, and the way out. `python -m gateway` runs it."""

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
import secrets
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from fleet.core import names
from gateway import admission, callers, ledger, targets
from gateway.callers import Caller, Key
from gateway.config import Config
from gateway.ledger import Line, State
from gateway.memory import MemoryStore, Store
from gateway.metrics import Metrics, Told
from gateway.record import Record
from gateway.reply import Reply
from gateway.serving import Serving
from gateway.store import BusyError, LateError, Outcome, Seen, StoreError, Verdict
from relay import lane_headers
from relay.bodies import Bodies
from relay.http_headers import Headers
from relay.http_server import Request, Response, Server, Stream, json_response
from relay.refusal import Refusal, error_body

KEY_CACHE_SECONDS = 30.0
LARGE_BYTES = 64 << 20  # of large bodies together: each is held several times over, and a task has 512 MiB
IDLE_SECONDS = 2.0  # without a request, before a gateway that was told to go goes
MODELS_FRESH_SECONDS = 1.0
CALLER_LEFT, OWN_ERROR = "the caller left", "an error of the gateway's own"
CORS = {
    "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
    "Access-Control-Allow-Headers": "*, Authorization",  # SDKs send a dozen of their own; the star leaves out this one
    "Access-Control-Expose-Headers": "*",  # x-should-retry, or a page's SDK tries again what cannot help
    "Access-Control-Max-Age": "86400",
}
QUIET = {"GET /v1/health", "GET /v1/ready"}  # a balancer asks every few seconds
LOG = logging.getLogger("gateway")
ACCESS = logging.getLogger("gateway.requests")
THERE = "POST /v1/chat/completions, GET /v1/models, GET /v1/health, GET /v1/ready"


@dataclass
class Call:
    """One request and what is known of it."""

    request: Request
    id: str
    told: Told
    record: Record | None = None


class Gateway:
    """One process. It keeps nothing that a second one would miss: keys are cached, counts are the store's."""

    def __init__(self, config: Config, *, store: Store, gpu: targets.Gpu, cloud: targets.Cloud, pepper: bytes) -> None:
        self._config, self._store, self._gpu, self._cloud, self._pepper = config, store, gpu, cloud, pepper
        self._keys: dict[str, tuple[float, Key | None]] = {}
        self._parallel: Counter[str] = Counter()
        self._bodies = Bodies(together=LARGE_BYTES, most=int(config.gateway.limits.body_mib * (1 << 20)))
        self._open: set[Record] = set()
        self._meanwhile = MemoryStore()
        self._uncounted = 0
        self._owed: list[Line] = []  # what was spent on the fallback while the store was silent
        self._reachable: tuple[float, bool] = (float("-inf"), False)
        self._last_request = time.monotonic()
        self._leaving = asyncio.Event()
        self._settling: set[asyncio.Task[None]] = set()
        self.metrics = Metrics(config.fleet)

    def outside(self) -> Server:
        """What callers reach."""
        return Server(
            self.answer,
            body_bytes=int(self._config.gateway.limits.body_mib * (1 << 20)),
            keep_alive_seconds=self._config.gateway.keepalive_seconds,
            leaving=self._leaving.is_set,
        )

    # --- around every request ---------------------------------------------------------------------------------

    async def answer(self, request: Request) -> Response | Stream:
        """To any request: what its route says, else why not."""
        self._last_request = time.monotonic()
        id = _request_id(request.headers)
        told = Told({"id": id, "asked": f"{request.method} {request.path[:100]}"})
        call = Call(request, id, told)
        try:
            found = await self._routed(call)
        except Refusal as refusal:
            told.reason = refusal.code
            found = _refused(refusal)
        except RecursionError:  # what could just be read may be too deep to be written again
            told.reason = "invalid_json"
            found = _refused(Refusal(400, "The body is nested too deeply", told.reason))
        except Exception:
            LOG.exception("request %s", call.id)
            told.values[names.METRIC_ANSWERS_BROKEN] = 1
            found = json_response(500, error_body("An error of ours; it is in the log", "internal_error", 500))
        finally:
            self._later(self._told(told, call.record))
        told.facts["status"] = found.status
        if isinstance(found, Response):
            found.headers.update(self._common(call))
        return found

    async def _routed(self, call: Call) -> Response | Stream:
        match call.request.method, call.request.path:
            case "POST", "/v1/chat/completions":
                return await self._chat(call)
            case "GET", "/v1/models":
                return await self._models()
            case "GET", "/v1/health":
                return json_response(200, {"status": "ok"})
            case (
                "GET",
                "/v1/ready",
            ):  # always 200: a gateway without a GPU still answers, by the cloud or with the truth
                return json_response(200, {"answers": await self._who()})
            case "OPTIONS", _:
                return Response(204, headers=CORS)
            case method, path:
                raise Refusal(404, f"{method} {path[:100]} is not served here; there is {THERE}", "unknown_route")

    async def _told(self, told: Told, record: Record | None) -> None:
        """Settle, then say so: after the answer, which waits for neither."""
        await asyncio.sleep(0)  # this turn of the loop is the one that writes it
        if record:
            await record.settle()
        line = self.metrics.ended(told)
        if told.facts["asked"] not in QUIET:
            ACCESS.info(line)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it whoever leaves; a gateway that is told to go waits for it."""
        task = asyncio.create_task(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def settled(self) -> None:
        """Until what was answered is written down."""
        while self._settling:
            await asyncio.wait(self._settling)

    def _common(self, call: Call) -> dict[str, str]:
        origin, allowed = call.request.headers.get("Origin", ""), self._config.gateway.origins
        if not (origin and ({"*", origin} & set(allowed))):
            return {"x-request-id": call.id}
        return {
            "x-request-id": call.id,
            "Access-Control-Allow-Origin": "*" if "*" in allowed else origin,
            "Access-Control-Expose-Headers": CORS["Access-Control-Expose-Headers"],
        }

    # --- who would answer ------------------------------------------------------------------------------------

    async def _models(self) -> Response:
        who = await self._who()
        entries = [
            {"id": name, "object": "model", "created": 0, "owned_by": self._config.fleet, "served_by": who}
            for name in self._config.models
        ]
        return json_response(200, {"object": "list", "data": entries})

    async def _who(self) -> str:
        at, taken = self._reachable
        now = time.monotonic()
        if now - at > MODELS_FRESH_SECONDS:
            taken = await self._gpu.reachable()
            self._reachable = (now, taken)
        return "gpu" if taken else "nobody" if self._cloud.closed() else "fallback"

    async def _metrics(self, request: Request) -> Response:
        there = (request.method, request.path) == ("GET", "/metrics")
        return Response(body=self.metrics.text(), content_type="text/plain; charset=utf-8") if there else Response(404)

    # --- a chat completion -------------------------------------------------------------------------------------

    async def _chat(self, call: Call) -> Response | Stream:
        request = call.request
        caller, known = await self._caller(call)
        if self._parallel[caller.id] >= caller.tier.parallel:
            message = f"The {caller.tier_name} tier has {caller.tier.parallel} requests at once"
            raise Refusal(429, message, "too_many_at_once", 1, retry=True)
        held = self._bodies.take(request.content_length)
        self._parallel[caller.id] += 1
        try:
            body = await request.read(self._config.gateway.limits.body_seconds)
            ask = admission.admit(body, request.headers, self._config)
            call.record = await self._admit(call, ask, caller, known=known)
            return await self._serve(call, ask, call.record)
        finally:
            self._bodies.give_back(held)
            self._parallel[caller.id] -= 1
            if not self._parallel[caller.id]:
                del self._parallel[caller.id]

    async def _serve(self, call: Call, ask: admission.Ask, record: Record) -> Response | Stream:
        reply = Reply(
            call.request,
            id=f"chatcmpl-{call.id}",
            headers=self._common(call),
            wants_usage=ask.wants_usage,
            write_seconds=self._config.gateway.budgets.wall_seconds,
        )
        serving = Serving(ask, reply, record, gpu=self._gpu, cloud=self._cloud, config=self._config)
        self._open.add(record)
        self.metrics.in_flight += 1
        try:
            return await serving.run()
        except (asyncio.CancelledError, ConnectionError):
            record.ends(State.CANCELLED, CALLER_LEFT)
            raise
        except Exception as error:
            deep = isinstance(error, RecursionError)  # the caller's own mistake, which wakes nobody
            record.ends(State.FAILED, OWN_ERROR, nobody=not (deep or reply.tokens))
            if not (ask.stream and reply.begun):
                raise
            LOG.exception("request %s", call.id)
            call.told.values[names.METRIC_ANSWERS_BROKEN] = 1
            return await reply.broken("An error of ours; it is in the log", recoverable=not ask.tools)
        finally:
            self.metrics.in_flight -= 1
            self._open.remove(record)

    async def _caller(self, call: Call) -> tuple[Caller, bool]:
        """Who asks, and whether by a key; raises Refusal."""
        headers = call.request.headers
        key = callers.bearer(headers)
        if key:
            found = await self._key(callers.key_hash(key), call.told)
            return callers.by_key(found, headers, self._config, datetime.now(UTC)), True
        peer = call.request.remote or "0.0.0.0"  # noqa: S104  an address to count by, none to listen on
        address = callers.address_of(peer, headers.get("X-Forwarded-For", ""), self._config.gateway.trusted_hops)
        return callers.by_address(address, self._pepper, self._config), False

    async def _key(self, key_hash: str, told: Told) -> Key | None:
        """The key, as it was known at most `KEY_CACHE_SECONDS` ago; while the store is silent, as it was known last."""
        read_at, cached = self._keys.get(key_hash, (float("-inf"), None))
        now = time.monotonic()
        if now - read_at < KEY_CACHE_SECONDS:
            return cached
        try:
            found = await self._store.key(key_hash)
        except StoreError as error:
            told.values[names.METRIC_STORE_FAILURES] += 1
            if cached:
                return cached
            raise Refusal(503, f"Keys cannot be checked now: {error}", "store_silent", 5, retry=True) from None
        if found:  # a guess is not remembered: guesses must not fill the memory
            self._keys[key_hash] = (now, found)
        return found

    async def _admit(self, call: Call, ask: admission.Ask, caller: Caller, *, known: bool) -> Record:
        """Count it and write its line; raises Refusal. While the store is silent, known keys go on, counted here."""
        once = _once(call.request.headers)
        now = int(time.time())
        line = Line(
            id=call.id,
            caller=caller.id,
            began=now,
            until=now + ledger.LEASE_SECONDS,
            stream=ask.stream,
            prompt=ledger.fingerprint(ask.body["messages"], self._pepper),
            model_revision=self._config.model_revision,
            retry_safe=not ask.once,
        )
        cap, told = caller.tier.requests_per_day, call.told
        admitted = functools.partial(Record, line, caller, ask, once, told=told, config=self._config)
        admitting = asyncio.create_task(self._store.admit(line, cap, once, line.day))
        try:
            outcome = await asyncio.shield(admitting)
        except asyncio.CancelledError:
            self._later(self._after_all(admitting, replace(line, state=State.CANCELLED, why=CALLER_LEFT), once))
            raise
        except BusyError:
            raise Refusal(503, "Too many requests of this caller at the same moment", "busy", 1, retry=True) from None
        except StoreError as error:
            told.values[names.METRIC_STORE_FAILURES] += 1
            refused = replace(line, state=State.FAILED, why="the store was late")
            if not known or self._uncounted >= self._config.gateway.limits.uncounted:
                self._later(self._after_all(admitting, refused, once))
                raise Refusal(503, f"Requests cannot be counted now: {error}", "store_silent", 5, retry=True) from None
            self._uncounted += 1
            outcome = await self._meanwhile.admit(line, cap, once, line.day)
            record = admitted(store=self._meanwhile) if outcome is Verdict.ADMITTED else None
            self._later(self._after_all(admitting, record or refused, once))
            if record:
                return record
        else:
            self._uncounted = 0
        match outcome:
            case Verdict.ADMITTED:
                return admitted(store=self._store)
            case Verdict.TAKEN:  # by another caller, or by another try of this one: what a proxy in front says again
                call.id = told.facts["id"] = secrets.token_hex(16)
                return await self._admit(call, ask, caller, known=known)
            case Verdict.CAP_REACHED:
                raise callers.cap_reached(caller, datetime.fromtimestamp(now, UTC))
            case Seen(before):
                state = ledger.repeated(before, time.time()) if before else {}
                message = f"This Idempotency-Key had a request already: {json.dumps(state)}"
                raise Refusal(409, message, "idempotency_key_seen")

    async def _after_all(self, admitting: Awaitable[Outcome], came: Line | Record, once: str) -> None:
        """An admission that nobody waited for: where the store has made it, it holds what came of the request.

        What is never known (no answer, twice under one token) is left: one count and its Idempotency-Key at most.
        """
        outcome: Outcome | None = None
        with contextlib.suppress(StoreError):
            try:
                outcome = await admitting
            except LateError as late:
                outcome = await late.outcome
        line, nobody = (came, came.state is State.FAILED) if isinstance(came, Line) else await came.ended
        if line.micro_dollars:  # another's line may have its id
            self._owed.append(replace(line, id=secrets.token_hex(16)) if outcome is Verdict.TAKEN else line)
        with contextlib.suppress(StoreError):
            if outcome is not Verdict.ADMITTED:
                return
            if isinstance(came, Record) and not nobody:  # the store counts it: it is not counted here as well
                await self._meanwhile.give_back(line.caller, line.day, request=True, fallback=False, once="")
            with contextlib.suppress(StoreError):
                if not line.micro_dollars:
                    await self._store.write(line)
            if nobody:
                await self._store.give_back(line.caller, line.day, request=True, fallback=False, once=once)

    # --- while it runs -----------------------------------------------------------------------------------------

    async def make_up(self) -> None:
        """Write to the store what was spent while it was silent; each once, however often that is tried."""
        with contextlib.suppress(StoreError):
            while self._owed:
                await self._store.make_up(self._owed[0])
                del self._owed[0]

    async def renew(self) -> None:
        """Renew the leases of open lines, for ever; what cannot be renewed reads as lost, which costs a word only."""
        while True:
            await asyncio.sleep(ledger.RENEW_SECONDS)
            await self.make_up()
            for record in list(self._open):
                with contextlib.suppress(StoreError):
                    await record.renew()

    async def run(self) -> None:
        """Serve until told to go (SIGTERM, SIGINT), then until idle."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leaving.set)
        outside, inside = self.outside(), Server(self._metrics)
        renewing = asyncio.create_task(self.renew())
        await outside.listen(None, self._config.port)
        await inside.listen(None, self._config.metrics_port)
        LOG.info("serving on %s, metrics on %s", self._config.port, self._config.metrics_port)
        await self._leaving.wait()
        LOG.info("told to go: answering what is here and what arrives, then leaving")
        self._last_request = time.monotonic()
        while self._open or time.monotonic() - self._last_request < IDLE_SECONDS:
            await asyncio.sleep(0.1)
        await self.settled()
        renewing.cancel()
        await self.make_up()
        await outside.close()
        await inside.close()
        await self._gpu.close()
        await self._cloud.close()


def _refused(refusal: Refusal) -> Response:
    return json_response(refusal.status, error_body(refusal.message, refusal.code, refusal.status), refusal.headers)


def _once(headers: Headers) -> str:
    key = headers.get("Idempotency-Key", "")
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32] if key else ""


def _request_id(headers: Headers) -> str:
    """The caller's own where it is a plain word, else a new one."""
    asked = headers.get(lane_headers.REQUEST, "")
    return asked if lane_headers.plain(asked) else secrets.token_hex(16)
