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
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Optional

import aiohttp

from relay import sse

if sys.version_info >= (3, 11):
    from asyncio import timeout_at as timeout_at  # novermin
else:
    # What aiohttp itself uses there; no task of its own, as wait_for makes, which then may swallow a cancellation.
    from async_timeout import timeout_at as timeout_at

CONNECT_SECONDS = 2.0  # a connection inside a VPC takes a millisecond; one lost SYN is sent again after a second
READ_BYTES = 1 << 16
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

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self, next_byte_by: Callable[[], float]) -> AsyncGenerator[bytes, None]:
        """Bytes as they come until the answer ends; `next_byte_by` says before each read by when (loop's clock)."""
        now = asyncio.get_running_loop().time
        while True:
            began, by = now(), next_byte_by()
            try:
                async with timeout_at(by):
                    chunk = await self._response.content.readany()
            except asyncio.TimeoutError:
                raise SilentError(f"no byte for {max(0.0, by - began):.0f} s") from None
            except (aiohttp.ClientError, OSError) as error:
                raise BrokenError(f"{type(error).__name__}: {error}") from None
            if not chunk:
                return
            yield chunk

    async def events(self, next_byte_by: Callable[[], float]) -> AsyncGenerator[sse.Event, None]:
        """Events until the stream ends, each byte by its time."""
        parser = sse.Parser()
        async for chunk in self.chunks(next_byte_by):
            try:
                for event in parser.feed(chunk):
                    yield event
            except sse.SseError as error:
                raise BrokenError(str(error)) from None

    async def whole(self, by: float) -> dict[str, Any]:
        """The body as a JSON object, by that time of the loop's clock."""
        patience = max(0.0, by - asyncio.get_running_loop().time())
        try:
            async with timeout_at(by):
                body = await self._read(WHOLE_LIMIT_BYTES)
        except asyncio.TimeoutError:
            raise SilentError(f"no whole answer within {patience:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ResetError(f"{type(error).__name__}: {error}") from None
        found = sse.parsed(body)
        if found is None:
            raise BrokenError("the answer is no JSON object")
        return found

    async def _read(self, limit: int) -> bytes:
        parts, size = [], 0
        async for chunk in self._response.content.iter_any():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                raise aiohttp.ClientPayloadError(f"a body of more than {limit} bytes")
        return b"".join(parts)

    def close(self) -> None:
        """Let go: an answer that was read to its end gives its connection back, any other loses it."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


async def post(
    session: aiohttp.ClientSession, url: str, payload: bytes, headers: Mapping[str, str], head_by: float
) -> Answer:
    """Send a JSON body; the answer once its head is there, by `head_by` on the loop's clock. Raises UpstreamError."""
    try:
        async with timeout_at(head_by):
            response = await session.post(url, data=payload, headers={"Content-Type": "application/json", **headers})
    except asyncio.TimeoutError as error:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            raise RefusedError("no connection in time") from None
        raise SilentError("no answer began in time") from None
    except aiohttp.ClientConnectorError as error:
        raise RefusedError(str(error)) from None
    except (aiohttp.ClientError, OSError) as error:
        raise ResetError(f"{type(error).__name__}: {error}") from None
    answer = Answer(response)
    if response.status == HTTP_OK:
        return answer
    try:
        async with timeout_at(asyncio.get_running_loop().time() + CONNECT_SECONDS):
            text = await answer._read(ERROR_LIMIT_BYTES)
    except (asyncio.TimeoutError, aiohttp.ClientError, OSError):
        text = b""
    finally:
        answer.close()
    raise StatusError(response.status, response.headers, text)


def session(*, fresh: bool = False) -> aiohttp.ClientSession:
    """A client without limits or deadlines of its own: those of a request are the caller's.

    `fresh`: a new connection for each request, so that a balancer chooses anew.
    """
    connector = aiohttp.TCPConnector(limit=0, force_close=fresh)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        headers={"Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BYTES,
    )
