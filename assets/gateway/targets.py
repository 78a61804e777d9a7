"""The two targets: the fleet's GPUs and the cloud model. Each turns one Ask into an answer or a Failure."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from gateway.admission import Ask
from gateway.authorize import Authorize
from gateway.boxes import Boxes
from gateway.breaker import Breaker
from gateway.config import Config
from gateway.fallback import SERVER_ERROR, Failure, Kind, Tier
from gateway.restraint import Restraint
from gateway.voice import Instructions, Voice
from relay import lane_headers, sse, upstream
from relay.http_client import CONNECT_SECONDS, Client

LOG = logging.getLogger("gateway")
ROUTE = "/chat/completions"
UNAUTHORIZED, TOO_MANY, UNAVAILABLE = 401, 429, 503


class FailedError(Exception):
    """An attempt came to nothing."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


class BrokenStreamError(FailedError):
    """A stream that had delivered ended otherwise than a stream ends."""


def failure_of(error: upstream.UpstreamError, tier: Tier, at: float) -> Failure:
    """A relay's error in the words of the fallback's rules."""
    match error:
        case upstream.StatusError():
            lane = error.status in {TOO_MANY, UNAVAILABLE} and lane_headers.WAIT in error.headers
            return Failure(
                tier,
                Kind.BUSY if lane else Kind.STATUS,
                at,
                status=error.status,
                retry_after_seconds=error.retry_after_seconds,
                box=error.headers.get(lane_headers.BOX, error.box),
                message=str(error.error.get("message") or error),
                code=str(error.error.get("code") or ""),
            )
        case upstream.RefusedError():
            kind = Kind.REFUSED
        case upstream.ResetError():
            kind = Kind.RESET
        case upstream.SilentError():
            kind = Kind.SILENT
        case _:
            kind = Kind.BROKEN
    return Failure(tier, kind, at, box=error.box, message=str(error))


def body_for(ask: Ask, model: str) -> dict[str, Any]:
    """What a target is sent: the caller's allowed fields, this model, a token limit; usage, which the ledger needs."""
    body = {**ask.body, "model": model, "max_tokens": ask.max_tokens, "stream": ask.stream}
    return {**body, "stream_options": {"include_usage": True}} if ask.stream else body


class Gpu:
    """The fleet's balancer, before it the boxes that `healthy` lists; behind a breaker that only connections move."""

    def __init__(self, config: Config, healthy: Callable[[], list[str]] | None = None) -> None:
        self._url = config.gpu_url
        self._pooled, self._fresh = Client(), Client(fresh=True)
        self._boxes = Boxes(healthy, config.box_url, self._pooled) if healthy else None
        self._probe: asyncio.Task[None] | None = None
        self._clock = asyncio.get_running_loop().time
        self.breaker = Breaker()

    @asynccontextmanager
    async def asked(
        self, ask: Ask, headers: Mapping[str, str], by: float, *, fresh: bool, tried: Collection[str] = ()
    ) -> AsyncGenerator[upstream.Answer]:
        """An answer that has begun, for as long as the block reads it; raises UpstreamError.

        `tried`: boxes that it was asked of in vain. A box that takes no connection is left out, the balancer is last.
        """
        client = self._fresh if fresh else self._pooled
        payload = sse.dumps(body_for(ask, ask.engine_model))
        boxes = await self._boxes.order(tried) if self._boxes else []
        for box, url in [*boxes, ("", self._url)]:
            if self._boxes and box:
                self._boxes.asked(box)
            answer = None
            try:
                answer = await upstream.post(client, f"{url}/v1{ROUTE}", payload, headers, by)
                self.breaker = self.breaker.taken(self._clock())
                yield answer
                return
            except upstream.UpstreamError as error:
                error.box = box
                if answer:  # a box that dies amid an answer says nothing of connections
                    raise
                if not isinstance(error, upstream.RefusedError):
                    self.breaker = self.breaker.taken(self._clock())
                elif box:
                    continue
                raise
            finally:
                if answer:
                    answer.close()

    def all_refused(self) -> None:
        """Every fresh connection of a request was refused: no more are tried but by the probe."""
        self.breaker = self.breaker.refused(self._clock())
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._until_taken())

    async def _until_taken(self) -> None:
        while not self.breaker.closed:
            await asyncio.sleep(0.05)
            if not self.breaker.due(self._clock()):
                continue
            self.breaker = self.breaker.probed(self._clock())
            if await self.reachable():
                self.breaker = self.breaker.taken(self._clock())

    async def reachable(self) -> bool:
        """Whether a fresh connection is taken now."""
        host, _, port = self._url.partition("//")[2].rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError:  # a timeout is one
            return False
        writer.close()
        return True

    async def close(self) -> None:
        """Give everything back."""
        if self._probe:
            self._probe.cancel()
        await self._pooled.close()
        await self._fresh.close()


class Cloud:
    """The cloud model, with limits of its own."""

    def __init__(self, config: Config, voice: Voice, authorize: Authorize) -> None:
        self._config, self._voice, self._authorize = config.gateway.fallback, voice, authorize
        self._client = Client()
        self._clock = asyncio.get_running_loop().time
        self.restraint = Restraint(self._config)

    def closed(self, ask: Ask | None = None) -> str:
        """Why it is not asked now, of this request or of any; empty: it may be."""
        if self._config.url and self._voice.instructions is None:
            return "the fleet's Modelfile is not read yet"
        return self.restraint.closed(self._clock(), continues=ask is not None and ask.continues)

    @asynccontextmanager
    async def asked(
        self, ask: Ask, by: float, reserve: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[upstream.Answer]:
        """An answer that has begun, for as long as the block reads it; raises UpstreamError, or what `reserve` raises.

        Who is reserved for is with it already: a crowd that comes meanwhile would find room for all.
        """
        answer = None
        self.restraint.in_flight += 1
        try:
            await reserve()
            answer = await self._post(ask, by)
            yield answer
            self.restraint.judged(self._clock(), well=True)
        except (upstream.UpstreamError, BrokenStreamError) as error:
            well = isinstance(error, upstream.StatusError) and error.status < SERVER_ERROR
            self.restraint.judged(self._clock(), well=well)
            raise
        finally:
            self.restraint.in_flight -= 1
            if answer:
                answer.close()

    async def _post(self, ask: Ask, by: float) -> upstream.Answer:
        instructions = self._voice.instructions or Instructions()
        payload = sse.dumps(instructions.applied(body_for(ask, self._config.model)))
        try:
            return await self._tried(payload, by, again=False)
        except upstream.StatusError as error:
            if error.status != UNAUTHORIZED:
                raise
        return await self._tried(payload, by, again=True)  # with a key that was changed meanwhile

    async def _tried(self, payload: bytes, by: float, *, again: bool) -> upstream.Answer:
        url = self._config.url + ROUTE
        try:
            return await upstream.post(self._client, url, payload, await self._key(url, payload, again, by), by)
        except upstream.StatusError as error:
            if error.status == TOO_MANY:
                self.restraint.too_many(self._clock(), error.retry_after_seconds)
            raise

    async def _key(self, url: str, payload: bytes, again: bool, by: float) -> Mapping[str, str]:
        """Without one nobody is asked, which costs nothing: as if no connection was taken."""
        try:
            async with asyncio.timeout_at(by):
                return await self._authorize(url, payload, again)
        except Exception as error:
            LOG.warning("the fallback's key cannot be read: %s: %s", type(error).__name__, error)
            raise upstream.RefusedError(f"its key cannot be read: {type(error).__name__}") from error

    async def close(self) -> None:
        """Give everything back."""
        await self._client.close()
