"""The service: routes, who is admitted, and the way out. `python -m gateway` runs it."""

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
import signal
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from aiohttp import web

from fleet.core import names
from gateway import admission, callers, ledger, targets
from gateway.admission import Refusal
from gateway.callers import Caller, Key
from gateway.config import Config
from gateway.ledger import Line, State
from gateway.memory import MemoryStore
from gateway.metrics import Metrics, Told
from gateway.record import REQUEST_HEADER, Record
from gateway.reply import Reply, error_body
from gateway.serving import Serving
from gateway.store import Admitted, BusyError, CapReached, LateError, Outcome, Seen, Store, StoreError, Taken
from relay.bodies import Bodies

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
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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

    def app(self) -> web.Application:
        """The routes that callers reach."""
        limit = int(self._config.gateway.limits.body_mib * (1 << 20))
        app = web.Application(middlewares=[self._around], client_max_size=limit)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/health", self._health)
        app.router.add_get("/v1/ready", self._ready)
        app.router.add_route("OPTIONS", "/{path:.*}", self._preflight)
        app.router.add_route("*", "/{path:.*}", self._unknown)
        return app

    def inside(self) -> web.Application:
        """What only this network reaches."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        return app

    # --- around every request ---------------------------------------------------------------------------------

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._last_request = time.monotonic()
        request["id"] = _request_id(request.headers)
        told = request["told"] = Told({"id": request["id"], "asked": f"{request.method} {request.path[:100]}"})
        try:
            response = await handler(request)
        except Refusal as refusal:
            told.reason = refusal.code
            response = self._refused(refusal)
        except web.HTTPException as error:
            told.reason = HTTPStatus(error.status).phrase.lower().replace(" ", "_")
            response = _json(error.status, error_body(error.reason, told.reason, error.status))
        except RecursionError:  # what could just be read may be too deep to be written again
            told.reason = "invalid_json"
            response = self._refused(Refusal(400, "The body is nested too deeply", told.reason))
        except Exception:
            LOG.exception("request %s", request["id"])
            told.values[names.METRIC_ANSWERS_BROKEN] = 1
            response = _json(500, error_body("An error of ours; it is in the log", "internal_error", 500))
        finally:
            self._later(self._told(told, request.get("record")))
        told.facts["status"] = response.status
        if not response.prepared:
            response.headers.update(self._common(request))
        return response

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

    def _common(self, request: web.Request) -> dict[str, str]:
        origin, allowed = request.headers.get("Origin", ""), self._config.gateway.origins
        cors = (
            {"Access-Control-Allow-Origin": "*" if "*" in allowed else origin}
            if origin and ({"*", origin} & set(allowed))
            else {}
        )
        expose = {"Access-Control-Expose-Headers": CORS["Access-Control-Expose-Headers"]} if cors else {}
        close = {"Connection": "close"} if self._leaving.is_set() else {}
        return {"x-request-id": request["id"], **cors, **expose, **close}

    def _refused(self, refusal: Refusal) -> web.Response:
        headers = {"x-should-retry": "true" if refusal.retry else "false"}
        if refusal.retry_after_seconds is not None:
            headers["Retry-After"] = str(refusal.retry_after_seconds)
        return _json(refusal.status, error_body(refusal.message, refusal.code, refusal.status), headers)

    async def _preflight(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=204, headers=CORS)

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        there = "POST /v1/chat/completions, GET /v1/models, GET /v1/health, GET /v1/ready"
        raise Refusal(
            404, f"{request.method} {request.path[:100]} is not served here; there is {there}", "unknown_route"
        )

    # --- who would answer ------------------------------------------------------------------------------------

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return _json(200, {"status": "ok"})

    async def _ready(self, request: web.Request) -> web.StreamResponse:
        """Always 200: a gateway without a GPU still answers, by the cloud or with the truth."""
        return _json(200, {"answers": await self._who()})

    async def _models(self, request: web.Request) -> web.StreamResponse:
        who = await self._who()
        entries = [
            {"id": name, "object": "model", "created": 0, "owned_by": self._config.fleet, "served_by": who}
            for name in self._config.models
        ]
        return _json(200, {"object": "list", "data": entries})

    async def _who(self) -> str:
        at, taken = self._reachable
        now = time.monotonic()
        if now - at > MODELS_FRESH_SECONDS:
            taken = await self._gpu.reachable()
            self._reachable = (now, taken)
        return "gpu" if taken else "nobody" if self._cloud.closed() else "fallback"

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self.metrics.text(), content_type="text/plain", charset="utf-8")

    # --- a chat completion -------------------------------------------------------------------------------------

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        caller, known = await self._caller(request)
        if self._parallel[caller.id] >= caller.tier.parallel:
            message = f"The {caller.tier_name} tier has {caller.tier.parallel} requests at once"
            raise Refusal(429, message, "too_many_at_once", 1, retry=True)
        held = self._bodies.take(request.content_length, request.headers)
        if held is None:
            raise Refusal(503, "Too many large requests are here at once", "too_many_large", 1, retry=True)
        self._parallel[caller.id] += 1
        try:
            ask = admission.admit(await self._body(request), request.headers, self._config)
            record = await self._admit(request, ask, caller, known=known)
            return await self._serve(request, ask, record)
        finally:
            self._bodies.give_back(held)
            self._parallel[caller.id] -= 1
            if not self._parallel[caller.id]:
                del self._parallel[caller.id]

    async def _serve(self, request: web.Request, ask: admission.Ask, record: Record) -> web.StreamResponse:
        reply = Reply(
            request,
            id=f"chatcmpl-{request['id']}",
            headers=self._common(request),
            wants_usage=ask.wants_usage,
            write_seconds=self._config.gateway.budgets.wall_seconds,
        )
        serving = Serving(ask, reply, record, gpu=self._gpu, cloud=self._cloud, config=self._config)
        self._open.add(record)
        request["record"] = record
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
            LOG.exception("request %s", request["id"])
            request["told"].values[names.METRIC_ANSWERS_BROKEN] = 1
            return await reply.broken("An error of ours; it is in the log", recoverable=not ask.tools)
        finally:
            self.metrics.in_flight -= 1
            self._open.remove(record)

    async def _body(self, request: web.Request) -> bytes:
        try:
            async with asyncio.timeout(self._config.gateway.limits.body_seconds):
                return await request.read()
        except TimeoutError:
            message = f"The body did not arrive within {self._config.gateway.limits.body_seconds:g} s"
            raise Refusal(408, message, "slow_body") from None
        except web.RequestPayloadError:
            raise Refusal(400, "The body is not encoded as its headers say", "invalid_encoding") from None

    async def _caller(self, request: web.Request) -> tuple[Caller, bool]:
        """Who asks, and whether by a key; raises Refusal."""
        key = callers.bearer(request.headers)
        if key:
            found = await self._key(callers.key_hash(key), request["told"])
            return callers.by_key(found, request.headers, self._config, datetime.now(UTC)), True
        peer = request.remote or "0.0.0.0"  # noqa: S104  an address to count by, none to listen on
        forwarded = ",".join(request.headers.getall("X-Forwarded-For", []))
        address = callers.address_of(peer, forwarded, self._config.gateway.trusted_hops)
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

    async def _admit(self, request: web.Request, ask: admission.Ask, caller: Caller, *, known: bool) -> Record:
        """Count it and write its line; raises Refusal. While the store is silent, known keys go on, counted here."""
        once = _once(request.headers)
        now = int(time.time())
        line = Line(
            id=request["id"],
            caller=caller.id,
            began=now,
            until=now + ledger.LEASE_SECONDS,
            stream=ask.stream,
            prompt=ledger.fingerprint(ask.body["messages"], self._pepper),
            model_revision=self._config.model_revision,
            retry_safe=not ask.once,
        )
        cap, told = caller.tier.requests_per_day, request["told"]
        admitted = functools.partial(Record, line, caller, ask, once, told=told, config=self._config)
        refused = replace(line, state=State.FAILED, why="the store was late")
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
            if not known or self._uncounted >= self._config.gateway.limits.uncounted:
                self._later(self._after_all(admitting, refused, once))
                raise Refusal(503, f"Requests cannot be counted now: {error}", "store_silent", 5, retry=True) from None
            self._uncounted += 1
            outcome = await self._meanwhile.admit(line, cap, once, line.day)
            record = admitted(store=self._meanwhile) if isinstance(outcome, Admitted) else None
            self._later(self._after_all(admitting, record or refused, once))
            if record:
                return record
        else:
            self._uncounted = 0
        match outcome:
            case Admitted():
                return admitted(store=self._store)
            case Taken():  # by another caller, or by another try of this one: what a proxy in front says again
                request["id"] = told.facts["id"] = uuid.uuid4().hex
                return await self._admit(request, ask, caller, known=known)
            case CapReached():
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
            self._owed.append(replace(line, id=uuid.uuid4().hex) if isinstance(outcome, Taken) else line)
        with contextlib.suppress(StoreError):
            if not isinstance(outcome, Admitted):
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
        outside = web.AppRunner(
            self.app(),
            handler_cancellation=True,
            keepalive_timeout=self._config.gateway.keepalive_seconds,
            access_log=None,
        )
        inside = web.AppRunner(self.inside(), access_log=None)
        renewing = asyncio.create_task(self.renew())
        for runner, port in ((outside, self._config.port), (inside, self._config.metrics_port)):
            await runner.setup()
            await web.TCPSite(runner, None, port).start()
        LOG.info("serving on %s, metrics on %s", self._config.port, self._config.metrics_port)
        await self._leaving.wait()
        LOG.info("told to go: answering what is here and what arrives, then leaving")
        self._last_request = time.monotonic()
        while self._open or time.monotonic() - self._last_request < IDLE_SECONDS:
            await asyncio.sleep(0.1)
        await self.settled()
        renewing.cancel()
        await self.make_up()
        for runner in (outside, inside):
            await runner.cleanup()
        await self._gpu.close()
        await self._cloud.close()


def _once(headers: Mapping[str, str]) -> str:
    key = headers.get("Idempotency-Key", "")
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32] if key else ""


def _request_id(headers: Mapping[str, str]) -> str:
    """The caller's own where it is a plain word, else a new one."""
    asked = headers.get(REQUEST_HEADER, "")
    return asked if 8 <= len(asked) <= 64 and asked.isascii() and asked.replace("-", "").isalnum() else uuid.uuid4().hex


def _json(status: int, body: Any, headers: Mapping[str, str] | None = None) -> web.Response:
    text = json.dumps(body, separators=(",", ":"))
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)
