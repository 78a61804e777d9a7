"""An object that is read while it arrives, from a store that cuts, refuses, dawdles and lies: never a wrong byte."""

import hashlib
import http.server
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import download
import imds
import pytest
import s3
import window
from download import DamagedError, Item

from tests.box import servers, world

pytestmark = pytest.mark.slow  # a second of transfers a test

PART, PIECE = 1000, 300
DATA = random.Random(0).randbytes(120 * PART + 77)  # noqa: S311 - a test's chance
SUM = hashlib.sha256(DATA).hexdigest()
Fate = Callable[[int, http.server.BaseHTTPRequestHandler], object]  # of a part's request: what is answered, None: well


def credentials(expires: datetime, key: str = "key") -> s3.Credentials:
    return s3.Credentials(key, "secret", "", expires)


@contextmanager
def opened(
    monkeypatch: pytest.MonkeyPatch,
    fate: Fate = lambda *_: None,
    room: int = 1000,
    data: bytes = DATA,
    sha256: str = SUM,
    stall_seconds: float = 5.0,
) -> Iterator[window.Window]:
    """The object through a store on loopback, each of whose answers has its fate: a status, other bytes, "cut"."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
        met = fate(first // PART, handler)
        if isinstance(met, int):
            return servers.reply(handler, b"", met)
        body = (met if isinstance(met, bytes) else data)[first : last + 1]
        if met == "cut":
            return servers.cut(handler, body)
        return servers.reply(handler, body, 206)

    if s3.role_credentials.__module__ == "s3":  # not a test's own
        monkeypatch.setattr(s3, "role_credentials", lambda _: credentials(datetime.max.replace(tzinfo=UTC)))
    monkeypatch.setattr(download, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.001)
    with servers.local(answer) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        bucket, item = s3.Bucket("b", "us-east-2", imds.Imds()), Item("key", Path("x"), len(data), "etag", sha256)
        made = window.Window(bucket, item, lambda: room, part_bytes=PART, stall_seconds=stall_seconds)
        try:
            yield made
        finally:
            made.close()


def taken(made: window.Window, offset: int, size: int) -> bytes:
    return b"".join(made.read(offset, size))


def whole(made: window.Window, step: int = 700) -> bytes:
    return b"".join(taken(made, offset, step) for offset in range(0, len(DATA), step))


def verified(made: window.Window) -> None:
    """All is read: the digest of the whole is right."""
    made.finish()
    world.wait(lambda: made.verified, 10)


@pytest.mark.parametrize("room", [0, 1000], ids=["memory tight", "memory enough"])
@pytest.mark.parametrize("seed", range(2))
def test_readers_in_any_order_get_the_very_bytes_of_a_store_that_refuses_and_cuts(
    seed: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, fates = random.Random(seed), ["cut", 503, *[None] * 8]  # noqa: S311 - a test's chance
    wrong: list[int] = []
    with opened(monkeypatch, lambda *_: chance.choice(fates), room) as made:

        def reader(number: int) -> None:
            order = random.Random(number)  # noqa: S311 - a test's chance
            offsets = list(range(0, len(DATA), 700)) if number % 2 else [order.randrange(len(DATA)) for _ in range(20)]
            for offset in offsets:
                size = order.randrange(1, 2500)
                if taken(made, offset, size) != DATA[offset : offset + size]:
                    wrong.append(offset)

        readers = [threading.Thread(target=reader, args=(number,)) for number in range(4)]
        for each in readers:
            each.start()
        most = 0
        while any(each.is_alive() for each in readers):
            most = max(most, len(made._parts) + len(made._busy))
            time.sleep(0.001)
        verified(made)
    assert wrong == []
    if not room:
        assert most <= window.LEAST_PARTS + download.CONNECTIONS + len(readers)


def test_reader_in_order_has_every_part_fetched_once_and_what_he_has_read_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(monkeypatch) as made:
        assert whole(made) == DATA
        verified(made)
        assert made.fetched == len(DATA)
        assert len(made._parts) <= window.KEPT_PARTS


def test_reader_who_comes_again_is_given_the_same_by_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    together, at_once = threading.Semaphore(), [0, 0]

    def count(_part: int, _handler: object) -> None:
        with together:
            at_once[0] += 1
            at_once[1] = max(at_once)
        time.sleep(0.005)
        with together:
            at_once[0] -= 1

    with opened(monkeypatch, count) as made:
        assert whole(made) == DATA
        verified(made)
        at_once[1] = 0
        assert whole(made) == DATA
        assert at_once[1] >= 8
        assert made.fetched < 2.2 * len(DATA)


def test_engine_that_leaves_parts_out_is_no_reason_to_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(monkeypatch, room=0) as made:
        assert taken(made, 110 * PART, 10) == DATA[110 * PART : 110 * PART + 10]
        verified(made)


def test_part_that_one_connection_brings_too_slowly_is_brought_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "HEDGE_SECONDS", 0.1)
    asked, over = [0], threading.Event()

    def slow(part: int, _handler: object) -> None:
        asked[0] += part == 50
        if part == 50 and asked[0] == 1:
            over.wait(world.PATIENCE_SECONDS)

    with opened(monkeypatch, slow, stall_seconds=world.PATIENCE_SECONDS) as made:
        assert whole(made) == DATA
        verified(made)
        over.set()
        made._fetch(made._bucket.connect(), 50)  # as the first then goes on: what it has is a part of the part
        assert not made.failure
    assert asked[0] >= 2


def altered(position: int) -> bytes:
    return DATA[:position] + bytes([DATA[position] ^ 1]) + DATA[position + 1 :]


@pytest.mark.parametrize("position", [0, PART, 100 * PART + 500, len(DATA) - 1])
def test_one_wrong_byte_anywhere_and_the_digest_is_never_right(position: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(monkeypatch, data=altered(position)) as made:
        made.finish()
        world.wait(lambda: made.failure, 10)
        with pytest.raises(DamagedError, match="sha256 is"):
            taken(made, 0, 10)
        assert not made.verified


def test_wrong_byte_in_what_is_fetched_again_reaches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[bytes] = []
    with opened(monkeypatch, lambda *_: changed[0] if changed else None) as made:
        assert whole(made) == DATA
        verified(made)
        changed.append(altered(100 * PART))
        assert taken(made, 90 * PART, PART) == DATA[90 * PART : 91 * PART]
        with pytest.raises(DamagedError, match="another object"):
            taken(made, 100 * PART, PART)
        assert not made.verified


def test_object_that_is_replaced_midway_is_not_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = threading.Event()

    def precondition(_part: int, handler: http.server.BaseHTTPRequestHandler) -> int | None:
        assert handler.headers["If-Match"] == "etag"
        return 412 if replaced.is_set() else None

    with opened(monkeypatch, precondition, room=0) as made:
        taken(made, 0, 20 * PART)
        replaced.set()
        with pytest.raises(s3.StoreError, match="412"):
            whole(made)


@pytest.mark.parametrize("status", [403, 503])
def test_store_that_denies_midway_is_an_error_within_the_stall_and_no_hang(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = threading.Event()
    with opened(monkeypatch, lambda *_: status if denied.is_set() else None, room=0, stall_seconds=0.3) as made:
        taken(made, 0, 20 * PART)
        denied.set()
        with pytest.raises(s3.StoreError, match=f"nothing arrives any more.*{status}"):
            whole(made)


def test_credentials_that_are_renewed_midway_are_used_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter("ABCDEFGHIJ")
    valid: list[str] = []

    def renewed(_: imds.Imds) -> s3.Credentials:
        valid.append(next(keys))  # the one before is refused from now on
        return credentials(datetime.now(UTC) + s3.RENEW_BEFORE + timedelta(seconds=0.2), valid[-1])

    monkeypatch.setattr(s3, "role_credentials", renewed)

    def signed(_part: int, handler: http.server.BaseHTTPRequestHandler) -> int | None:
        time.sleep(0.02)
        return None if f"Credential={valid[-1]}/" in handler.headers["Authorization"] else 403

    with opened(monkeypatch, signed) as made:
        for offset in range(0, len(DATA), 10 * PART):
            assert taken(made, offset, 10 * PART) == DATA[offset : offset + 10 * PART]
            time.sleep(0.03)
        verified(made)
    assert len(valid) > 1
