"""What a caller sees: one answer, whoever gives it. A stream begins late, so that a refusal is still honest."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from relay import chat, sse
from relay.http_server import Request, Response, Stream, json_response

SERVED_BY = "x-served-by"
PREEMPTED = "SPOT_PREEMPTION"


class Reply:
    """An answer on its way to the caller; its headers go out once."""

    def __init__(
        self, request: Request, *, id: str, headers: Mapping[str, str], wants_usage: bool, write_seconds: float
    ) -> None:
        self._request, self._id, self._headers = request, id, headers
        self._wants_usage, self._write_seconds = wants_usage, write_seconds
        self._created, self._model, self._role_sent = int(time.time()), "", False
        self._stream: Stream | None = None
        self.written_at = 0.0  # on the loop's clock
        self.tokens = 0  # delivered

    @property
    def begun(self) -> bool:
        """Whether status 200 is out: from here on only events can tell."""
        return self._stream is not None

    async def begin(self, served: Mapping[str, str] | None = None) -> None:
        """Status and headers of a stream, and a first byte; `served`: what is known of who answers."""
        if self._stream is None:
            self._stream = self._request.begin({**self._headers, "Content-Type": sse.CONTENT_TYPE, **(served or {})})
            await self._write(sse.comment("connected"))

    async def keep_alive(self) -> None:
        """A comment."""
        await self._write(sse.comment("still here"))

    async def chunk(self, chunk: dict[str, Any], model: str) -> None:
        """Pass one chunk on; id, created and model stay what the first one said, the role stands in the first delta."""
        self._model = self._model or model
        counts = chunk.pop("usage", None)
        chunk = {
            **chunk,
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
        }
        for delta in chat.deltas(chunk):
            delta.pop("role", None)
            if not self._role_sent:
                delta["role"] = "assistant"
        self._role_sent = True
        if chat.delivers(chunk):
            self.tokens += 1
        if chunk.get("choices"):
            await self._write(sse.event(chunk))
        if counts and self._wants_usage:
            await self._write(sse.event({**chunk, "choices": [], "usage": counts}))

    async def end(self) -> Stream:
        """The stream's regular end."""
        await self._write(sse.event(sse.DONE))
        return self._closed()

    async def broken(self, message: str, *, recoverable: bool) -> Stream:
        """The clean break of a stream that had begun to deliver: an error event, then nothing."""
        error = {"message": message, "type": "server_error", "code": PREEMPTED}
        told = {"error": error, "recoverable": recoverable, "served_prefix_tokens": self.tokens}
        await self._write(sse.event(told, "error"))
        return self._closed()

    async def whole(self, answer: dict[str, Any], model: str, served: Mapping[str, str]) -> Response:
        """The answer of a request that is not streamed."""
        return json_response(200, {**answer, "id": self._id, "model": model}, served)

    async def fail(self, status: int, body: dict[str, Any], headers: Mapping[str, str]) -> Response | Stream:
        """No answer: status and headers, or the same as an event where a stream has its 200 already."""
        if self._stream is None:
            return json_response(status, body, headers)
        retry = {"retry_after_seconds": int(headers["Retry-After"])} if "Retry-After" in headers else {}
        error = {**body["error"], **retry}  # all that SDKs hand on of an event
        await self._write(sse.event({"error": error, "recoverable": True, "served_prefix_tokens": 0}, "error"))
        return self._closed()

    async def _write(self, data: bytes) -> None:
        """One write is one event, so that no comment lands inside one."""
        assert self._stream is not None  # noqa: S101  begin came first
        self.written_at = asyncio.get_running_loop().time()
        self._stream.write(data)
        if self._stream.full:
            await self._stream.room(self._write_seconds)

    def _closed(self) -> Stream:
        assert self._stream is not None  # noqa: S101
        self._stream.end()
        return self._stream
