"""HTTP/1.1 to targets: connections that are kept, one request at a time on each, answers as they come.

llhttp reads the bytes (httptools). Every error is an OSError: `ConnectError` where no connection was made, else a
ConnectionResetError: what was sent may have arrived.
"""

import asyncio
import functools
import socket
import ssl
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional
from urllib.parse import urlsplit

import httptools

from relay.http_headers import HEAD_BYTES, Headers
from relay.timeouts import timeout_at

CONNECT_SECONDS = 2.0  # a connection inside a VPC takes a millisecond; one lost SYN is sent again after a second
KEPT_SECONDS = 15.0  # without a request: balancers and firewalls forget a silent connection without a word
KNOWN_SECONDS = 10.0  # addresses: a VPC's resolver answers 1024 packets a second, a crowd's own lookups would be more
AHEAD_BYTES = 64 << 10  # of an answer that nobody has read yet


class ConnectError(OSError):
    """No connection: refused, unreachable, unknown, or not made within `CONNECT_SECONDS`."""


class TargetConnection(asyncio.Protocol):
    """One to a target, and the answer that comes on it."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._error: Optional[Exception] = None
        self._waiter: Optional[asyncio.Future[None]] = None
        self.idle_since = 0.0  # on the loop's clock
        self._begins()

    def _begins(self) -> None:
        self.headers, self.status = Headers(), 0  # the status once the head is here
        self.complete = self._goes_on = False
        self._parts: list[bytes] = []
        self._size = self._head_size = self._untold = 0
        self._paused = False

    def ask(self, data: bytes) -> None:
        """Send a request; the answer before it was read to its end."""
        self._begins()
        self.transport.write(data)

    async def head(self) -> None:
        """Until the answer's head is here; raises ConnectionResetError."""
        while not self.status:
            await self._moved()

    @property
    def here(self) -> bool:
        """Whether `take` has something to say."""
        return bool(self._parts) or self.complete

    def take(self) -> bytes:
        """What has come of the body; empty at its end."""
        parts, self._parts, self._size = self._parts, [], 0
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def more(self) -> None:
        """Until `take` has something to say; raises ConnectionResetError."""
        while not self.here:
            await self._moved()

    async def _moved(self) -> None:
        if self._error:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _fails(self, why: str) -> None:
        self._error = self._error or ConnectionResetError(why)
        self.transport.abort()
        self._wake()

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Optional[Exception]) -> None:
        """It is gone: the end of an answer without a length, else of one that is torn."""
        if (
            self.status
            and not self.complete
            and not ("Content-Length" in self.headers or "Transfer-Encoding" in self.headers)
        ):
            self.complete = error is None
        self._error = self._error or ConnectionResetError(str(error or "the connection was closed"))
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        self._untold += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return self._fails("what came is no answer")
        if self._untold > HEAD_BYTES:
            return self._fails("a head without end")
        return self._wake()

    # --- the parser's side ---

    def on_message_begin(self) -> None:
        """A head begins."""
        if self.complete:
            raise OverflowError("an answer that nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field."""
        self._untold = 0
        self._head_size += len(name) + len(value)
        if self._head_size > HEAD_BYTES:
            raise OverflowError("a head without end")
        if not self.status:
            self.headers.add(name, value)

    def on_headers_complete(self) -> None:
        """The head is here; one that tells of another to come (100, 103) is none."""
        status = self._parser.get_status_code()
        if status >= 200:
            self.status, self._goes_on = status, self._parser.should_keep_alive()
        else:
            self.headers = Headers()

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self._untold = 0
        self._parts.append(data)
        self._size += len(data)
        if self._size > AHEAD_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer's end."""
        self.complete = bool(self.status)

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent on it."""
        done = self.complete and not self.transport.get_write_buffer_size()  # an early answer leaves a body on its way
        return done and self._goes_on and not self.transport.is_closing()


class Client:
    """Connections to targets, kept by target. `fresh`: a new one for each request, so that a balancer chooses anew."""

    def __init__(self, *, fresh: bool = False) -> None:
        self._fresh = fresh
        self._kept: defaultdict[tuple[tuple[str, int], bool], list[TargetConnection]] = defaultdict(list)
        self._lookups: dict[str, tuple[float, asyncio.Future[list[str]]]] = {}
        self._clock = asyncio.get_running_loop().time

    async def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> TargetConnection:
        """Send it; the connection once the answer's head is there. Raises OSError."""
        place = _place(url)
        connection = self._one_kept(place) or await self._made(place)
        length = {"Content-Length": str(len(body))} if body else {}
        fields = {"Host": place.authority, "Accept-Encoding": "identity", **length, **headers}
        text = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
        if text.count("\n") != len(fields) or text.count("\r") != len(fields):
            raise ValueError("a field of more than one line")
        try:
            connection.ask(f"{method} {place.path} HTTP/1.1\r\n{text}\r\n".encode("utf-8", "surrogateescape") + body)
            await connection.head()
        except BaseException:
            connection.transport.abort()
            raise
        return connection

    def over(self, url: str, connection: TargetConnection) -> None:
        """Its answer is read, or is not wanted any more: then the connection goes, and what the target still does."""
        if self._fresh or not connection.reusable:
            connection.transport.abort()
            return
        now = connection.idle_since = self._clock()
        kept = self._kept[_place(url).endpoint]
        while kept and kept[0].idle_since < now - KEPT_SECONDS:
            kept.pop(0).transport.close()
        kept.append(connection)

    def _one_kept(self, place: "_Place") -> Optional[TargetConnection]:
        kept, oldest = self._kept[place.endpoint], self._clock() - KEPT_SECONDS
        while kept:
            connection = kept.pop()
            if connection.idle_since >= oldest and not connection.transport.is_closing():
                return connection
            connection.transport.close()
        return None

    async def _made(self, place: "_Place") -> TargetConnection:
        try:
            async with timeout_at(self._clock() + CONNECT_SECONDS):
                return await self._connected(place)
        except asyncio.TimeoutError:
            raise ConnectError(f"no connection within {CONNECT_SECONDS:g} s") from None
        except (OSError, UnicodeError) as error:  # a name that can be none
            raise ConnectError(str(error)) from None

    async def _connected(self, place: "_Place") -> TargetConnection:
        loop, (host, port) = asyncio.get_running_loop(), place.address
        secure: dict[str, Any] = {"ssl": _verified(), "server_hostname": host} if place.secure else {}
        failed = OSError(f"{host} has no address")
        for address in await self._addresses(host):
            try:
                connection: TargetConnection
                _, connection = await loop.create_connection(TargetConnection, address, port, **secure)
                return connection
            except OSError as error:
                failed = error
        raise failed

    async def _addresses(self, host: str) -> list[str]:
        at, looking = self._lookups.get(host, (0.0, None))
        if looking is None or self._clock() - at > KNOWN_SECONDS or (looking.done() and looking.exception()):
            looking = asyncio.ensure_future(look_up(host))
            self._lookups[host] = self._clock(), looking
        return await asyncio.shield(looking)

    async def close(self) -> None:
        """Let go what is kept."""
        for connection in [each for kept in self._kept.values() for each in kept]:
            connection.transport.abort()
        self._kept.clear()
        await asyncio.sleep(0)


async def look_up(host: str) -> list[str]:
    """Its addresses, in the order in which to try them; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class _Place(NamedTuple):
    address: tuple[str, int]
    authority: str
    path: str
    secure: bool

    @property
    def endpoint(self) -> tuple[tuple[str, int], bool]:
        """What connections are kept by: one in the clear is never taken for one that is not."""
        return self.address, self.secure


@functools.lru_cache(maxsize=256)
def _place(url: str) -> _Place:
    found = urlsplit(url)
    secure = found.scheme == "https"
    address = found.hostname or "", found.port or (443 if secure else 80)
    query = f"?{found.query}" if found.query else ""
    return _Place(address, found.netloc.rpartition("@")[2], (found.path or "/") + query, secure)


@functools.lru_cache(maxsize=1)
def _verified() -> ssl.SSLContext:
    return ssl.create_default_context()
