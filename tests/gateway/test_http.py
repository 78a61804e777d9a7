"""HTTP/1.1 as callers and targets really speak it: raw bytes, torn wherever a network may tear them."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from relay import http_client
from relay.http_client import Client, ConnectError
from relay.http_headers import HEAD_BYTES
from relay.http_server import AHEAD_MOST, Request, Response, Server, Stream, json_response
from tests.calling import connected
from tests.gateway.running import closed_port, on_loop

SECONDS = 5
POST = b"POST /a HTTP/1.1\r\nHost: x\r\n"
WHOLE = POST + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"


async def echo(request: Request) -> Response | Stream:
    """What came; /refused answers before it reads, /stream in parts."""
    if request.path == "/refused":
        return json_response(401, {})
    try:
        body = await request.read(SECONDS)
    except Exception as error:
        return json_response(getattr(error, "status", 500), {"why": str(error)})
    if request.path == "/529":
        return json_response(529, {})
    if request.path == "/stream":
        stream = request.begin({"x-said": body.decode()})
        for part in (b"one", b"", b"two"):
            stream.write(part)
        stream.end()
        return stream
    told = {
        "method": request.method,
        "path": request.path,
        "body": body.decode(),
        "said": request.headers.get("x-said"),
    }
    return json_response(200, told)


@asynccontextmanager
async def serving(handler: Any = echo, **how: Any) -> AsyncIterator[tuple[Server, int]]:
    server = Server(handler, **how)
    port = await server.listen("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close(0.1)


async def said(port: int, *parts: bytes, enough: Callable[[bytes], bool] = lambda _: False) -> bytes:
    """All that comes back, until it is enough or the connection ends."""
    reader, writer = await connected(port)
    got = b""
    try:
        async with asyncio.timeout(SECONDS):
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0)
            while not enough(got) and (part := await reader.read(1 << 16)):
                got += part
    except ConnectionError:
        pass
    finally:
        writer.close()
    return got


def whole(got: bytes) -> bool:
    _, found, body = got.partition(b"\r\n\r\n")
    return bool(found) and body.endswith(b"}")


def body_of(got: bytes) -> dict[str, Any]:
    return dict(json.loads(got.partition(b"\r\n\r\n")[2]))


@on_loop
async def test_a_request_reads_the_same_wherever_it_is_torn() -> None:
    async with serving() as (_, port):
        for request in (WHOLE, CHUNKED):
            for at in range(1, len(request)):
                got = await said(port, request[:at], request[at:], enough=whole)
                assert (got[9:12], body_of(got)["body"]) == (b"200", "hello"), (at, got)
        alone = await said(port, *(WHOLE[at : at + 1] for at in range(len(WHOLE))), enough=whole)
        assert body_of(alone)["body"] == "hello"


# what is sent -> what of it is answered: statuses in their order; () where it is let go without a word
READ: tuple[tuple[str, bytes, tuple[bytes, ...], bytes], ...] = (
    ("sent ahead, answered in order", WHOLE + CHUNKED + WHOLE[:-5] + b"third", (b"200", b"200", b"200"), b"third"),
    ("an older caller", b"GET /a HTTP/1.0\r\n\r\n", (b"200",), b"Connection: close"),
    (
        "an older caller who would stay, and is not told that he may",
        b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        (b"200",),
        b"Connection: close",
    ),
    ("an older caller's stream has no chunks", b"GET /stream HTTP/1.0\r\n\r\n", (b"200",), b"\r\n\r\nonetwo"),
    (
        "a stream",
        b"GET /stream HTTP/1.1\r\nConnection: close\r\n\r\n",
        (b"200",),
        b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
    ),
    ("a head alone", b"HEAD /a HTTP/1.1\r\nConnection: close\r\n\r\n", (b"200",), b"Content-Length: "),
    ("whoever asks no more", WHOLE.replace(b"Host: x", b"Connection: close"), (b"200",), b"hello"),
    ("an address in full", b"GET http://x:1/b?c=d HTTP/1.1\r\nConnection: close\r\n\r\n", (b"200",), b'"path":"/b"'),
    (
        "a field that came twice",
        b"GET / HTTP/1.1\r\nx-said: a\r\nX-Said: b\r\nConnection: close\r\n\r\n",
        (b"200",),
        b'"a, b"',
    ),
    (
        "Java's client, which offers another protocol",
        POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello" + WHOLE,
        (b"200", b"200"),
        b"hello",
    ),
    (
        "an answer before its body",
        POST.replace(b"/a", b"/refused") + b"Content-Length: 99999\r\n\r\nx",
        (b"401",),
        b"close",
    ),
    ("more than is taken, told", POST + b"Content-Length: 2000001\r\n\r\n", (b"413",), b"close"),
    ("an encoded body", POST + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", (b"415",), b"encoded"),
    (
        "both lengths",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + WHOLE,
        (b"400",),
        b"",
    ),
    ("a status of a target's own", b"GET /529 HTTP/1.1\r\nConnection: close\r\n\r\n", (b"529",), b"{}"),
    (
        "another protocol and a coding in no text",
        POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: \xff, chunked\r\n\r\n0\r\n\r\n",
        (b"200",),
        b"path",
    ),
    ("two lengths", POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!" + WHOLE, (b"400",), b""),
    (
        "a coding that is none of HTTP's",
        POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        (b"400",),
        b"",
    ),
    ("a length in hex", POST + b"Content-Length: 0x5\r\n\r\nhello", (b"400",), b""),
    ("a length below nothing", POST + b"Content-Length: -5\r\n\r\nhello", (b"400",), b""),
    ("a space before the colon", POST + b"Content-Length : 5\r\n\r\nhello", (b"400",), b""),
    ("a field in two lines", POST + b"x-said: a\r\n b\r\n\r\n", (b"400",), b""),
    ("a NUL", POST + b"x-said: a\0b\r\n\r\n", (b"400",), b""),
    ("lines without CR", b"GET /a HTTP/1.1\nHost: x\n\n", (b"400",), b""),
    ("another protocol", b"\x16\x03\x01\x02\x00\x01", (b"400",), b""),
    ("a chunk without a size", POST + b"Transfer-Encoding: chunked\r\n\r\nhello\r\n", (), b""),
    ("too many ahead", WHOLE * (AHEAD_MOST + 3), (), b""),
    ("a field without end", POST + b"x: " + b"a" * (40 * HEAD_BYTES), (b"400",), b""),
    ("fields without end", POST + b"x: a\r\n" * HEAD_BYTES, (b"400",), b""),
    ("a path without end", b"GET /" + b"a" * (3 * HEAD_BYTES), (b"400",), b""),
    ("fields without end behind a body", CHUNKED[:-2] + b"x: a\r\n" * HEAD_BYTES, (), b""),
    (
        "a chunk's extension without end",
        POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * (9 * HEAD_BYTES),
        (),
        b"",
    ),
)


@pytest.mark.parametrize(("what", "sent", "statuses", "word"), READ, ids=[row[0] for row in READ])
@on_loop
async def test_what_is_sent_is_read_as_it_is_meant_or_not_at_all(
    what: str, sent: bytes, statuses: tuple[bytes, ...], word: bytes
) -> None:
    async with serving(body_bytes=2_000_000, keep_alive_seconds=0.3) as (server, port):
        got = await said(port, sent)
        assert tuple(part[:3] for part in got.split(b"HTTP/1.1 ")[1:]) == statuses, got
        assert word in got
        if what == "a head alone":
            assert got.endswith(b"\r\n\r\n")
        async with asyncio.timeout(SECONDS):
            while server.connections:
                await asyncio.sleep(0.001)


@on_loop
async def test_a_refusal_arrives_while_megabytes_are_still_sent() -> None:
    async def later(request: Request) -> Response | Stream:
        await asyncio.sleep(0.05)
        return await echo(request)

    async with serving(later, body_bytes=100_000) as (_, port):
        got = await said(port, POST + b"Transfer-Encoding: chunked\r\n\r\n30d40\r\n" + b"x" * 150_000, enough=whole)
        assert got[9:12] == b"413", "told before it is read, though no more of it comes"
        for head in (POST + b"Content-Length: 8000000\r\n\r\n", POST + b"Transfer-Encoding: chunked\r\n\r\n7a1200\r\n"):
            reader, writer = await connected(port, head)
            for _ in range(80):
                writer.write(b"x" * 100_000)
                await asyncio.sleep(0)
            assert b" 413 " in await asyncio.wait_for(reader.readline(), SECONDS)
            writer.close()


@on_loop
async def test_who_waits_to_be_told_to_go_on_is_told_where_his_body_is_wanted() -> None:
    async with serving() as (_, port):
        for path, first in ((b"/a", b"HTTP/1.1 100 Continue"), (b"/refused", b"HTTP/1.1 401 Unauthorized")):
            asked = POST.replace(b"/a", path) + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
            reader, writer = await connected(port, asked)
            assert (await asyncio.wait_for(reader.readline(), SECONDS)).strip() == first
            writer.write(b"hello")
            assert first.endswith(b"rized") or b"hello" in await asyncio.wait_for(reader.readuntil(b"hello"), SECONDS)
            writer.close()


@on_loop
async def test_who_leaves_is_not_served_on() -> None:
    ended: list[str] = []

    async def forever(request: Request) -> Stream:
        try:
            if request.path != "/b":
                await request.read(SECONDS)
            stream = request.begin({})
            stream.write(b"x")
            await asyncio.sleep(60)
            return stream
        finally:
            ended.append(request.path)

    async with serving(forever) as (server, port):
        gone = []
        for sent in (WHOLE, WHOLE[:-1], WHOLE.replace(b"/a", b"/b")[:-1]):
            gone.append(sent)
            _, writer = await connected(port, sent)
            await asyncio.sleep(0.05)
            writer.close()
            async with asyncio.timeout(SECONDS):
                while server.connections or len(ended) < len(gone):
                    await asyncio.sleep(0.001)
    assert ended == ["/a", "/a", "/b"]


@on_loop
async def test_a_slow_reader_is_waited_for_and_one_line_stays_one() -> None:
    waited: list[bool] = []

    async def long(request: Request) -> Stream:
        with pytest.raises(ValueError, match="one line"):
            request.begin({"x": "a\r\ny: b"})
        stream = request.begin({})
        while not stream.full:
            stream.write(b"x" * 100_000)
            await asyncio.sleep(0)
        waited.append(True)
        await stream.room(SECONDS)
        stream.end()
        return stream

    async with serving(long) as (_, port):
        reader, writer = await connected(port, b"GET / HTTP/1.1\r\n\r\n")
        while not waited:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(SECONDS):
            while not (await reader.read(1 << 20)).endswith(b"0\r\n\r\n"):
                pass
        writer.close()


# how a target answers, what of it is the body; None: it is torn
HEAD = b"HTTP/1.1 200 OK\r\n"
ANSWERS: tuple[tuple[str, bytes, bytes | None], ...] = (
    ("with a length", HEAD + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    ("in chunks", HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", b"hello"),
    ("until it closes", HEAD + b"\r\nhello", b"hello"),
    (
        "after an early word",
        b"HTTP/1.1 103 Early Hints\r\nx: a\r\n\r\n" + HEAD + b"Content-Length: 5\r\n\r\nhello",
        b"hello",
    ),
    ("without a body", b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ("short of its length", HEAD + b"Content-Length: 6\r\n\r\nhello", None),
    ("short of its last chunk", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", None),
    ("with half a head", HEAD + b"Content-Le", None),
    ("not at all", b"", None),
    ("in no HTTP", b"220 smtp\r\n\r\n", None),
    ("with a head without end", HEAD + b"x: " + b"a" * (9 * HEAD_BYTES), None),
    ("with fields without end", HEAD + b"x: a\r\n" * HEAD_BYTES, None),
)


@asynccontextmanager
async def target(
    *answers: bytes, secure: ssl.SSLContext | None = None, close: bool = True
) -> AsyncIterator[tuple[str, list[Any]]]:
    """Says these bytes, one answer a request; the connections that came."""
    came: list[Any] = []
    left = list(answers)

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer)
        while left and await reader.read(1 << 16):
            writer.write(left.pop(0))
            if close:
                writer.close()
                return

    server = await asyncio.start_server(taken, "127.0.0.1", 0, ssl=secure)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", came
    finally:
        server.close()


async def answered(client: Client, url: str) -> bytes:
    connection, got = await client.ask("GET", url, {}), b""
    try:
        while True:
            await connection.more()
            if not (part := connection.take()):
                return got
            got += part
    finally:
        client.over(url, connection)


@pytest.mark.parametrize(("how", "sent", "body"), ANSWERS, ids=[row[0] for row in ANSWERS])
@on_loop
async def test_an_answer_is_whole_or_torn_and_never_a_part_for_the_whole(
    how: str, sent: bytes, body: bytes | None
) -> None:
    async with target(sent) as (place, _):
        client = Client()
        if body is None:
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(answered(client, f"http://{place}/"), SECONDS)
        else:
            assert await asyncio.wait_for(answered(client, f"http://{place}/"), SECONDS) == body, how
        await client.close()


@on_loop
async def test_a_connection_is_kept_only_while_it_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    good = HEAD + b"Content-Length: 2\r\n\r\nhi"
    for last, kept, how in (
        (good, 1, "kept"),
        (HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi", 2, "told to close"),
        (good + b"HTTP/1.1 200 OK\r\n", 2, "speaks unasked"),
    ):
        async with target(last, good, close=False) as (place, came):
            client = Client()
            for _ in range(2):
                assert await answered(client, f"http://{place}/") == b"hi"
                await asyncio.sleep(0.02)
            assert len(came) == kept, how
            await client.close()
    async with target(good, good, good, close=False) as (place, came):
        client = Client()
        await answered(client, f"http://{place}/")
        monkeypatch.setattr(http_client, "KEPT_SECONDS", 0.01)
        await asyncio.sleep(0.05)
        await answered(client, f"http://{place}/")
        came[-1].close()
        await asyncio.sleep(0.05)
        await answered(client, f"http://{place}/")
        assert len(came) == 3, "one had been idle for long, one was closed by its target"
        await client.close()


@on_loop
async def test_nobody_there_and_nobody_to_be_trusted_are_no_connection() -> None:
    authority = trustme.CA()
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    async with target(HEAD + b"\r\nhi", HEAD + b"\r\nhi", secure=theirs) as (place, _):
        client = Client()
        for url in (closed_port(), "http://nobody.invalid", f"http://{'x' * 64}.invalid", f"https://{place}/"):
            with pytest.raises(ConnectError):
                await answered(client, url)
        ours = ssl.create_default_context()
        authority.configure_trust(ours)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(http_client, "_verified", lambda: ours)
            assert await answered(client, f"https://{place}/") == b"hi"
        await client.close()


@on_loop
async def test_a_crowd_looks_a_name_up_once_and_each_of_its_addresses_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    async def names(host: str) -> list[str]:
        looked_up.append(host)
        await asyncio.sleep(0.01)
        if len(looked_up) == 1:
            raise OSError("no such name")
        return ["127.0.0.2", "127.0.0.1"]  # nobody listens on the first

    monkeypatch.setattr(http_client, "look_up", names)
    async with target(*[HEAD + b"\r\nhi"] * 20) as (place, _):
        client, url = Client(), f"http://box.example:{place.rpartition(':')[2]}/"
        with pytest.raises(ConnectError):
            await answered(client, url)
        assert await asyncio.gather(*(answered(client, url) for _ in range(20))) == [b"hi"] * 20
        assert len(looked_up) == 2, "a name that was not found is looked up again"
        await client.close()


@on_loop
async def test_what_nobody_reads_stays_with_the_target() -> None:
    sent = 0

    async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD + b"\r\n")
        while True:
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    server = await asyncio.start_server(pours, "127.0.0.1", 0)
    url, client = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", Client()
    connection = await client.ask("GET", url, {})
    await asyncio.sleep(0.3)
    assert sent < 20_000_000, "the system's buffers, not ours"
    assert len(connection.take()) < 1_000_000
    client.over(url, connection)
    server.close()
