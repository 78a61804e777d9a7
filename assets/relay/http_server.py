"""HTTP/1.1 for callers: requests as they come, one answer each, and nothing done any more for who has left.

llhttp reads the bytes (httptools; Node's parser); this file holds connections, heads and bodies to their bounds.
"""

import asyncio
import functools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from http.client import responses
from typing import Any, Optional, Union

import httptools

from relay import sse
from relay.http_headers import HEAD_BYTES, Headers
from relay.refusal import Refusal
from relay.timeouts import timeout_at

AHEAD_MOST = 16  # requests on one connection that are not begun: SDKs send none ahead
UNASKED_BYTES = 64 << 10  # of a body that its handler has not asked for yet
LIVE = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}  # parts that no proxy holds back
LINGER_SECONDS = 5.0  # for an answer that came before its body was read: a reset would overtake it
LOG = logging.getLogger("relay")


class Response:
    """An answer that is whole."""

    def __init__(
        self,
        status: int = 200,
        body: bytes = b"",
        headers: Optional[Mapping[str, str]] = None,
        content_type: str = "application/json",
    ) -> None:
        self.status, self.body = status, body
        self.headers = {"Content-Type": content_type, **(headers or {})} if body else dict(headers or {})


def json_response(status: int, body: Any, headers: Optional[Mapping[str, str]] = None) -> Response:
    """An answer of JSON."""
    return Response(status, sse.dumps(body), headers)


class Stream:
    """An answer that comes in parts; its head goes out with the first."""

    status = 200

    def __init__(self, connection: "CallerConnection", head: bytes, *, chunked: bool) -> None:
        self._connection, self._head, self._chunked = connection, head, chunked
        self.ended = False

    @property
    def full(self) -> bool:
        """Whether the caller is behind: `room` waits for him."""
        return self._connection.writable is not None

    def write(self, data: bytes) -> None:
        """At once, whether there is room or not; raises ConnectionResetError where the caller has left."""
        if data:  # a chunk of nothing would be the last
            self._put(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end(self) -> None:
        """Nothing more comes."""
        self._put(b"0\r\n\r\n" if self._chunked else b"")
        self.ended = True

    def _put(self, data: bytes) -> None:
        head, self._head = self._head, b""
        self._connection.write(head + data)

    async def room(self, seconds: float) -> None:
        """Until the caller has taken what is ahead of him; raises ConnectionResetError where he leaves.

        Who reads nothing for so long is let go.
        """
        if self._connection.writable is None:
            return
        try:
            async with timeout_at(asyncio.get_running_loop().time() + seconds):
                await asyncio.shield(self._connection.writable)
        except asyncio.TimeoutError:
            self._connection.transport.abort()
            raise ConnectionResetError("the caller reads nothing") from None


class Request:
    """One request; its handler begins once its head is here."""

    def __init__(
        self, connection: "CallerConnection", method: str, path: str, headers: Headers, *, version: str
    ) -> None:
        self._connection, self.method, self.path, self.headers = connection, method, path, headers
        self._chunks_known = version != "1.0"  # whose connections end with their answers
        self.whole = self.begun = False
        self.close = False  # the connection ends with its answer
        self._parts: list[bytes] = []
        self._size, self._most = 0, connection.server.body_bytes
        self._asked, self._waiter = False, None  # type: bool, Optional[asyncio.Future[None]]
        length = headers.get("Content-Length")
        self.content_length = int(length) if length else 0 if "Transfer-Encoding" not in headers else None

    @property
    def remote(self) -> str:
        """The address of who asks; empty where he has left."""
        peer = self._connection.transport.get_extra_info("peername")
        return peer[0] if peer else ""

    def begin(self, headers: Mapping[str, str]) -> Stream:
        """An answer in parts."""
        self.begun = True
        framing = {"Transfer-Encoding": "chunked"} if self._chunks_known else {}
        head = self._connection.head(self, 200, {**headers, **LIVE, **framing})
        return Stream(self._connection, head, chunked=bool(framing))

    async def read(self, seconds: float) -> bytes:
        """Its whole body; raises Refusal where it is encoded, too large or too slow."""
        if self.headers.get("Content-Encoding", "identity") != "identity":
            raise Refusal(415, "The body is encoded: it is taken plain alone", "encoded_body")
        if (self.content_length or 0) > self._most or self._size > self._most:
            self._overflow()
        if not self.whole:
            await self._arrived(seconds)
        if self._size > self._most:
            self._overflow()
        return b"".join(self._parts) if len(self._parts) != 1 else self._parts[0]

    def _overflow(self) -> None:
        raise Refusal(413, f"The body has more than {self._most} bytes", "body_too_large")

    async def _arrived(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._asked = True
        if self.headers.get("Expect", "").lower() == "100-continue" and not self._parts:
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._connection.read_on()
        self._waiter = loop.create_future()
        try:
            async with timeout_at(loop.time() + seconds):
                await self._waiter
        except asyncio.TimeoutError:
            raise Refusal(408, f"The body did not arrive within {seconds:g} s", "slow_body") from None

    # --- the connection's side ---

    def feed(self, data: bytes) -> None:
        """A part of its body."""
        self._size += len(data)
        if self._size > self._most:
            self._parts.clear()
            self.ends(whole=False)  # what still comes is read by nobody
        else:
            self._parts.append(data)
            if self._size > UNASKED_BYTES and not self._asked:
                self._connection.hold_back()

    def ends(self, *, whole: bool) -> None:
        """Its body is here, or is not waited for."""
        self.whole = self.whole or whole
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


Handler = Callable[[Request], Awaitable[Union[Response, Stream]]]


class CallerConnection(asyncio.Protocol):
    """One caller's. Requests sent ahead wait for their turn."""

    transport: asyncio.Transport

    def __init__(self, server: "Server") -> None:
        self.server = server
        self.writable: Optional[asyncio.Future[None]] = None  # set while the caller is behind
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        self._reading: Optional[Request] = None  # whose body comes
        self._url, self._headers, self._head_size = b"", Headers(), 0
        self._untold = 0  # bytes since the parser last told of one
        self._task: Optional[asyncio.Task[None]] = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._held_back = False
        self._deaf = False  # what still comes is of no request

    @property
    def asks(self) -> bool:
        """Whether a request is here, whole."""
        return bool(self._requests) and self._requests[0].whole

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller has come."""
        self.transport = transport  # type: ignore[assignment]
        self.server.came(self)
        self._let_go_after(self.server.keep_alive_seconds)

    def connection_lost(self, error: Optional[Exception]) -> None:
        """He has left, or was let go: what was done for him ends."""
        self.server.connections.pop(self, None)
        self._stop_timer()
        if self.writable and not self.writable.done():
            self.writable.set_exception(ConnectionResetError("the caller has left"))
            self.writable.exception()  # told, also where nobody waits for room
        if self._task:
            self._task.cancel()

    def pause_writing(self) -> None:
        """He takes less than he is given."""
        self.writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """He has taken it."""
        if self.writable and not self.writable.done():
            self.writable.set_result(None)
        self.writable = None

    def data_received(self, data: bytes) -> None:
        """Bytes of heads and bodies. What is no request ends the connection, with a status where no answer is due."""
        if self._deaf:
            return
        self._untold += len(data)
        try:
            self._parser.feed_data(data)
            if self._untold > HEAD_BYTES:
                raise httptools.HttpParserError("a field without end, which the parser holds")
        except httptools.HttpParserUpgrade as offered:
            self._stays(data[offered.args[0] :])
        except httptools.HttpParserError:
            self._refused()

    def _stays(self, rest: bytes) -> None:
        """Another protocol was offered (by Java's client): it stays this one; httptools has left out the body."""
        self._parser = httptools.HttpRequestParser(self)
        if self._reading:
            name = "Transfer-Encoding" if self._reading.content_length is None else "Content-Length"
            rest = (
                f"POST / HTTP/1.1\r\n{name}: {self._reading.headers[name]}\r\n\r\n".encode("utf-8", "surrogateescape")
                + rest
            )
        if rest:
            self.data_received(rest)

    def _refused(self) -> None:
        self._deaf = True
        if self._requests:
            self.transport.abort()
        else:
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 12\r\n\r\nno request\r\n"
            )
            self.transport.write_eof()
            self._let_go_after(LINGER_SECONDS)

    # --- the parser's side ---

    def on_message_begin(self) -> None:
        """A head begins."""
        if len(self._requests) > AHEAD_MOST:
            raise OverflowError("requests sent ahead")
        self._url, self._head_size = b"", 0
        if not self._reading:
            self._headers = Headers()

    def on_url(self, url: bytes) -> None:
        """A part of it, as it came."""
        self._url += url
        self._grows(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field; behind a body there may be some, which nobody reads."""
        self._grows(len(name) + len(value))
        if not self._reading:
            self._headers.add(name, value)

    def _grows(self, size: int) -> None:
        self._head_size, self._untold = self._head_size + size, 0
        if self._head_size > HEAD_BYTES:
            raise httptools.HttpParserError("a head without end")

    def on_headers_complete(self) -> None:
        """A request: its turn comes at once, or after those before it."""
        if self._reading:  # an offer that was not taken: the body follows
            return
        path = self._url.partition(b"?")[0]
        if not path.startswith(b"/"):
            path = httptools.parse_url(self._url).path or b"/"
        method, version = self._parser.get_method().decode(), self._parser.get_http_version()
        request = Request(self, method, path.decode("ascii", "replace"), self._headers, version=version)
        request.close = version == "1.0" or not self._parser.should_keep_alive()
        self._reading = request
        self._requests.append(request)
        if len(self._requests) == 1:
            self._begin()

    def on_body(self, data: bytes) -> None:
        """A part of a body."""
        self._untold = 0
        if self._reading:
            self._reading.feed(data)

    def on_message_complete(self) -> None:
        """A body's end."""
        request = self._reading
        if request and not (self._parser.should_upgrade() and request.content_length != 0):
            self._reading, self._untold = None, 0
            request.ends(whole=True)

    # --- answers ---

    def _begin(self) -> None:
        self._stop_timer()
        self._task = self._loop.create_task(self._answer(self._requests[0]))

    async def _answer(self, request: Request) -> None:
        try:
            found = await self.server.handler(request)
            if isinstance(found, Response):
                self._send(request, found)
            elif not found.ended:
                raise RuntimeError("an answer without an end")
            self._answered(request)
        except asyncio.CancelledError:
            self.transport.abort()
            raise
        except ConnectionError:
            self.transport.abort()
        except Exception:
            LOG.exception("an answer")
            self.transport.abort()

    def _send(self, request: Request, found: Response) -> None:
        length = {"Content-Length": str(len(found.body))}
        bodiless = request.method == "HEAD" or found.status == HTTPStatus.NO_CONTENT
        head = self.head(request, found.status, {**found.headers, **({} if bodiless and not found.body else length)})
        self.write(head if bodiless else head + found.body)

    def _answered(self, request: Request) -> None:
        self._requests.popleft()
        self._task = None
        if self.transport.is_closing():
            return
        self.read_on()
        if self._requests and not request.close:
            self._begin()
        elif not request.whole:
            self._deaf = True
            self.transport.write_eof()
            self._let_go_after(LINGER_SECONDS)
        else:
            self._let_go_after(self.server.keep_alive_seconds)
            if request.close:
                self.transport.close()

    def head(self, request: Request, status: int, headers: Mapping[str, str]) -> bytes:
        """An answer's head. A last answer says so: its caller asks the next on another connection."""
        request.close = request.close or not request.whole or self.server.leaving()
        last = {"Connection": "close"} if request.close else {}
        fields = "".join(
            [f"{name}: {value}\r\n" for name, value in {"Date": _date(int(time.time())), **headers, **last}.items()]
        )
        if fields.count("\n") != len(headers) + 1 + len(last) or fields.count("\r") != fields.count("\n"):
            raise ValueError("a field of more than one line")
        return f"{_status_line(status)}{fields}\r\n".encode("utf-8", "surrogateescape")

    def write(self, data: bytes) -> None:
        """To the caller; raises ConnectionResetError where he has left."""
        if self.transport.is_closing():
            raise ConnectionResetError("the caller has left")
        self.transport.write(data)

    def hold_back(self) -> None:
        """Read no more than nobody has asked for."""
        self._held_back = True
        self.transport.pause_reading()

    def read_on(self) -> None:
        """It is asked for, or of no use."""
        if self._held_back:
            self._held_back = False
            self.transport.resume_reading()

    def _let_go_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def goes(self) -> None:
        """Nothing more is asked on it; what is on its way arrives."""
        for request in self._requests:
            request.close = True
        if not self._requests:
            self.transport.close()

    async def ended(self) -> None:
        """Its answer is cut, where one is due."""
        self.transport.abort()
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])


class Server:
    """One port's connections."""

    def __init__(
        self,
        handler: Handler,
        *,
        body_bytes: int = 1 << 20,
        keep_alive_seconds: float = 75.0,
        connections_most: Optional[int] = None,
        leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self.handler, self.body_bytes, self.keep_alive_seconds = handler, body_bytes, keep_alive_seconds
        self.leaving = leaving
        self.connections: dict[CallerConnection, None] = {}  # in the order in which they came
        self._most = connections_most
        self._listener: Optional[asyncio.AbstractServer] = None

    def came(self, connection: CallerConnection) -> None:
        """Take every newcomer; beyond so many the oldest goes that has no whole request here."""
        if self._most is not None and len(self.connections) >= self._most:
            here = [each for each in self.connections if not each.transport.is_closing()]
            if len(here) >= self._most:
                next((each for each in here if not each.asks), here[0]).transport.abort()
        self.connections[connection] = None

    async def listen(self, host: Optional[str] = None, port: Optional[int] = None, **how: Any) -> int:
        """Take connections; the port, which the system chooses where it is 0. Raises OSError where it is taken."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: CallerConnection(self), host, port, backlog=128, **how)
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self, seconds: float = 1.0) -> None:
        """Take no more; answers that are due, and what is still on its way, have so long."""
        loop = asyncio.get_running_loop()
        if self._listener:
            self._listener.close()
        for each in list(self.connections):
            each.goes()
        until = loop.time() + seconds
        while self.connections and loop.time() < until:
            await asyncio.sleep(0.01)
        for each in list(self.connections):
            await each.ended()


@functools.lru_cache(maxsize=64)
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {responses.get(status, '')}\r\n"  # a target's own may be none that Python knows


@functools.lru_cache(maxsize=2)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
