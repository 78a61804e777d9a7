"""What a caller gets of his turn: its bytes as he takes them, or the truth: an honest status, else a last event."""

import asyncio
import math
from collections.abc import Mapping
from typing import Optional, Union

from lane.config import Config
from lane.line import Busy, Line, Why
from lane.turn import EndedError, Turn
from relay import lane_headers, sse, upstream
from relay.http_server import Request, Response, Stream, json_response
from relay.refusal import error_body
from relay.timeouts import timeout_at

ENGINE_RETRY_SECONDS = 5
PREEMPTED, ENGINE_FAILED = "SPOT_PREEMPTION", "engine_failed"


class Delivery:
    """From buffers to callers."""

    def __init__(self, config: Config, line: Line) -> None:
        self._config, self._line = config, line
        self._clock = asyncio.get_running_loop().time

    def error(self, path: str, status: int, message: str, code: str, headers: Mapping[str, str]) -> Response:
        """A status with its reason, in the words of the family that was asked."""
        told = {lane_headers.BOX: self._config.box, **headers} if self._config.box else headers
        body = error_body(message, code, status) if path.startswith("/v1/") else {"error": message}
        return json_response(status, body, told)

    def busy(self, path: str, busy: Busy) -> Response:
        """The line's no, which a gateway takes to another box."""
        headers = {
            "Retry-After": str(busy.retry_after_seconds),
            lane_headers.WAIT: f"{busy.wait_seconds:.1f}",
        }
        message = f"The line is {busy.wait_seconds:.0f} s long; try again in {busy.retry_after_seconds} s"
        if busy.why is Why.DRAINING:
            message = "This box is leaving; another one answers"
        return self.error(path, 503, message, busy.why.value, headers)

    async def deliver(self, request: Request, turn: Turn) -> Union[Response, Stream]:
        """What the buffer holds, as its caller takes it; comments while nothing comes, where a gateway listens."""
        stream: Optional[Stream] = None
        comments = self._config.gateway and turn.kind == sse.CONTENT_TYPE
        while True:
            try:
                part = await self._next(turn, comments=comments)
            except (EndedError, upstream.UpstreamError) as error:
                return await self._failed(turn, stream, error)
            if part is None:
                assert stream is not None  # noqa: S101  an answer has bytes
                stream.end()
                return stream
            data, tokens = part
            if not turn.asked.stream:
                turn.entry.delivered = turn.entry.decoded
                return Response(body=data, headers=self._marks(turn))
            if stream is None:
                stream = request.begin({"Content-Type": turn.kind, **self._marks(turn)})
            await self._write(stream, data)
            turn.entry.delivered += tokens

    async def _next(self, turn: Turn, *, comments: bool) -> Optional[tuple[bytes, int]]:
        if not comments:
            return await turn.buffer.get()
        while True:
            try:
                async with timeout_at(self._clock() + self._config.comment_seconds):
                    return await turn.buffer.get()
            except asyncio.TimeoutError:
                if turn.entry.began is None:
                    return sse.comment("in line"), 0
                if turn.entry.first_token is None:
                    return sse.comment("reading the prompt"), 0
                # an engine that stalls in the middle must look as it is

    def _marks(self, turn: Turn) -> dict[str, str]:
        told = {lane_headers.BOX: self._config.box} if self._config.box else {}
        return {**told, lane_headers.SLICES: "same distribution"} if _inexact(turn) else told

    async def _write(self, stream: Stream, data: bytes) -> None:
        stream.write(data)
        if stream.full:
            await stream.room(self._config.reader_seconds)

    async def _failed(self, turn: Turn, stream: Optional[Stream], error: Exception) -> Union[Response, Stream]:
        """The truth: an honest status where nothing went out yet, else the last event; never a quiet end."""
        entry, path = turn.entry, turn.asked.path
        if isinstance(error, EndedError) and error.why is Why.SLOW:
            raise ConnectionResetError("the caller reads nothing")
        if stream is None and isinstance(error, EndedError):
            wait = self._line.wait(entry, self._clock()).mean
            if error.why is Why.DROPPED:
                return self.error(path, 503, str(error), error.why.value, {"x-should-retry": "false"})
            return self.busy(path, Busy(error.why, wait, max(1, math.ceil(min(wait, 120.0)))))
        if stream is None and isinstance(error, upstream.StatusError):
            message = str(error.error.get("message") or error)
            return self.error(path, error.status, message, str(error.error.get("code") or "engine"), {})
        if stream is None:
            headers = {"Retry-After": str(ENGINE_RETRY_SECONDS)}
            return self.error(path, 503, f"The engine: {error}", ENGINE_FAILED, headers)
        code = error.why.value if isinstance(error, EndedError) else ENGINE_FAILED
        code = PREEMPTED if code == Why.DRAINING.value else code
        if turn.asked.openai:
            told = {"message": str(error), "type": "server_error", "code": code}
            body = {"error": told, "recoverable": not turn.asked.body.get("tools")}
            last = sse.event({**body, "served_prefix_tokens": entry.delivered}, "error")
        else:
            last = sse.dumps({"error": str(error)}) + b"\n"
        await self._write(stream, last)
        stream.end()
        return stream


def _inexact(turn: Turn) -> bool:
    return turn.entry.sliceable and not turn.asked.fixed
