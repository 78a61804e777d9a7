"""One request to one target: a connection, an answer's head, then its events or its whole body, each inside a deadline.

UpstreamError       why a target gave no answer, or none any more
  RefusedError      no connection: refused, unreachable, or not made within `CONNECT_SECONDS`
  ResetError        the connection was lost before the answer began
  SilentError       nothing within the time given
  BrokenError       the answer began and did not end as an answer ends
  StatusError       the target answered with an error of its own

Closing an Answer closes its connection unless it was read to its end: that is what cancels a generation.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Optional

from relay import sse
from relay.http_client import CONNECT_SECONDS, Client, ConnectError, TargetConnection
from relay.timeouts import timeout_at

WHOLE_LIMIT_BYTES = 32 << 20
ERROR_LIMIT_BYTES = 64 << 10
HTTP_OK = 200
SECONDS = re.compile("[0-9]{1,9}")  # str.isdigit takes digits that are no number, and more than a float holds


class UpstreamError(Exception):
    """A target gave no answer, or none any more."""

    box = ""  # which one, where that is known


class RefusedError(UpstreamError):
    """No connection."""


class ResetError(UpstreamError):
    """The connection was lost before the answer began."""


class SilentError(UpstreamError):
    """Nothing came within the time given."""


class BrokenError(UpstreamError):
    """The answer began and did not end as an answer ends."""


class StatusError(UpstreamError):
    """The target answered with an error; `error` is OpenAI's error object where it sent one."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers = status, headers
        self.error = _error_of(body)
        super().__init__(f"{status} {self.error.get('message', '')}".strip())

    @property
    def retry_after_seconds(self) -> Optional[float]:
        """What the target asks to wait; None where it names no number of seconds."""
        text = self.headers.get("Retry-After", "")
        return float(text) if SECONDS.fullmatch(text) else None


def _error_of(body: bytes) -> dict[str, Any]:
    found = (sse.parsed(body) or {}).get("error")
    if isinstance(found, dict):
        return found
    text = found if isinstance(found, str) else body.decode("utf-8", "replace")
    return {"message": " ".join(text.split())[:500]}


class Answer:
    """An answer that has begun with status 200."""

    def __init__(self, client: Client, url: str, connection: TargetConnection) -> None:
        self._client, self._url, self._connection = client, url, connection
        self._time = asyncio.get_running_loop().time
        self.headers = connection.headers

    async def chunks(self, next_byte_by: Callable[[], float]) -> AsyncGenerator[bytes, None]:
        """Bytes as they come until the answer ends; `next_byte_by` says before each read by when (loop's clock)."""
        while True:
            if not self._connection.here:
                await self._next(next_byte_by())
            chunk = self._connection.take()
            if not chunk:
                return
            yield chunk

    async def _next(self, by: float) -> None:
        began = self._time()
        try:
            async with timeout_at(by):
                await self._connection.more()
        except asyncio.TimeoutError:
            raise SilentError(f"no byte for {max(0.0, by - began):.0f} s") from None
        except OSError as error:
            raise BrokenError(str(error)) from None

    async def events(self, next_byte_by: Callable[[], float]) -> AsyncGenerator[sse.Event, None]:
        """Events until the stream ends, each byte by its time."""
        parser = sse.Parser()
        async for chunk in self.chunks(next_byte_by):
            try:
                for event in parser.feed(chunk):
                    yield event
            except sse.SseError as error:
                raise BrokenError(str(error)) from None

    async def whole(self, by: float) -> tuple[bytes, dict[str, Any]]:
        """The body and the JSON object that it is, by that time of the loop's clock."""
        patience = max(0.0, by - self._time())
        try:
            body = await self.read(by, WHOLE_LIMIT_BYTES)
        except asyncio.TimeoutError:
            raise SilentError(f"no whole answer within {patience:.0f} s") from None
        except OSError as error:
            raise ResetError(str(error)) from None
        found = sse.parsed(body)
        if found is None:
            raise BrokenError("the answer is no JSON object")
        return body, found

    async def read(self, by: float, limit: int) -> bytes:
        """The body, by that time of the loop's clock; raises OSError."""
        if self._connection.complete:
            return self._connection.take()
        parts: list[bytes] = []
        size = 0
        async with timeout_at(by):
            while True:
                await self._connection.more()
                part = self._connection.take()
                if not part:
                    return b"".join(parts)
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise ConnectionResetError(f"a body of more than {limit} bytes")

    def close(self) -> None:
        """Let go: an answer that was read to its end gives its connection back, any other loses it."""
        self._client.over(self._url, self._connection)


async def post(client: Client, url: str, payload: bytes, headers: Mapping[str, str], head_by: float) -> Answer:
    """Send a JSON body; the answer once its head is there, by `head_by` on the loop's clock. Raises UpstreamError."""
    answer, status = await ask(client, "POST", url, {"Content-Type": "application/json", **headers}, payload, head_by)
    if status == HTTP_OK:
        return answer
    try:
        text = await answer.read(asyncio.get_running_loop().time() + CONNECT_SECONDS, ERROR_LIMIT_BYTES)
    except (OSError, asyncio.TimeoutError):
        text = b""
    finally:
        answer.close()
    raise StatusError(status, answer.headers, text)


async def ask(
    client: Client, method: str, url: str, headers: Mapping[str, str], payload: bytes, head_by: float
) -> tuple[Answer, int]:
    """An answer of any status once its head is there, by `head_by` on the loop's clock. Raises UpstreamError."""
    try:
        async with timeout_at(head_by):
            connection = await client.ask(method, url, headers, payload)
    except asyncio.TimeoutError:
        raise SilentError("no answer began in time") from None
    except ConnectError as error:
        raise RefusedError(str(error)) from None
    except OSError as error:
        raise ResetError(str(error)) from None
    return Answer(client, url, connection), connection.status
