"""Fetches objects from the store to the instance store at line rate, each digest checked while it arrives.

Several connections fetch ranges of all files at once, the largest file first. Whoever completes the part that a file's
digest waits for feeds the digest: hashing keeps up in order without a thread or a queue of its own. A connection that
drops or is refused goes on where it stopped; the download fails when nothing arrived for `STALL_SECONDS`.

  DamagedError    what is in the store is not what its digest or version says: fetching it again does not help
"""

import errno
import hashlib
import http.client
import mmap
import os
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

from s3 import Bucket, GoneError, StoreError

# S3 gives one connection about 90 MB/s and lets every range wait for its first byte: 16 connections of 16 MiB reached
# 77 % of a 10 Gbit/s link, 24 fill it.
CONNECTIONS = 24
PART_BYTES = 16 << 20
PIECE_BYTES = 256 << 10  # one read, one write: stays in the cache of its core
STALL_SECONDS = 60.0
PAUSE_SECONDS = 0.2  # after a failed request, doubled up to LONGEST_PAUSE_SECONDS
LONGEST_PAUSE_SECONDS = 5.0


class DamagedError(Exception):
    """The store holds something else than was asked for."""


@dataclass(frozen=True)
class Item:
    """One object to fetch. An empty `sha256` is not checked; `etag` pins the version."""

    key: str
    path: Path
    size: int
    etag: str = ""
    sha256: str = ""


class _File:
    """One file being written: which parts are there, and how far its digest has come."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.fd = os.open(item.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.ftruncate(self.fd, item.size)
        # the digest reads what was just written where it lies, in the page cache: a copy less than reading it back
        self._written = mmap.mmap(self.fd, item.size, prot=mmap.PROT_READ) if item.size and item.sha256 else None
        self._digest = hashlib.sha256()
        self._hashed = 0
        self._complete: set[int] = set()  # offsets of parts that wait for the digest
        self._feeding = False
        self._lock = threading.Lock()

    def part_complete(self, offset: int) -> None:
        """Feed the digest with everything that has become contiguous, unless another thread is at it."""
        with self._lock:
            self._complete.add(offset)
            if self._feeding:
                return
            self._feeding = True
        while True:
            with self._lock:
                if self._hashed not in self._complete:
                    self._feeding = False
                    return
                self._complete.remove(self._hashed)
            end = min(self._hashed + PART_BYTES, self.item.size)
            if self._written:
                with memoryview(self._written) as whole, whole[self._hashed : end] as part:
                    self._digest.update(part)
            self._hashed = end

    def close(self) -> None:
        if self._written:
            self._written.close()
        os.close(self.fd)

    def check(self) -> None:
        if self.item.sha256 and self._digest.hexdigest() != self.item.sha256:
            raise DamagedError(f"{self.item.key}: sha256 is {self._digest.hexdigest()}, not {self.item.sha256}")


class _Download:
    def __init__(self, bucket: Bucket, items: Sequence[Item]) -> None:
        self._bucket = bucket
        ordered = sorted(items, key=lambda item: -item.size)
        self.files = [_File(item) for item in ordered]
        self._parts = iter(
            [
                (file, offset)
                for offset in range(0, max((item.size for item in ordered), default=0), PART_BYTES)
                for file in self.files
                if offset < file.item.size
            ]
        )
        self._lock = threading.Lock()
        self._moved_at = time.monotonic()
        self.failure: Optional[Exception] = None

    def work(self) -> None:
        """One connection's life: parts until none is left or somebody failed."""
        connection = self._bucket.connect()
        try:
            while not self.failure:
                with self._lock:
                    part = next(self._parts, None)
                if part is None:
                    return
                file, offset = part
                self._fetch(connection, file, offset)
                file.part_complete(offset)
        except Exception as error:  # handed to the caller's thread, which raises it
            self.failure = self.failure or error
        finally:
            connection.close()

    def _fetch(self, connection: http.client.HTTPConnection, file: _File, start: int) -> None:
        """One part."""
        piece = memoryview(bytearray(PIECE_BYTES))

        def arrived(position: int, count: int) -> None:
            if os.pwrite(file.fd, piece[:count], position) < count:
                raise _full()
            self._moved_at = time.monotonic()

        fetch_range(
            self._bucket,
            connection,
            file.item,
            start,
            min(start + PART_BYTES, file.item.size),
            into=lambda position: piece,
            arrived=arrived,
            stalled=lambda: time.monotonic() - self._moved_at > STALL_SECONDS,
            over=lambda: bool(self.failure),
        )


def fetch_range(
    bucket: Bucket,
    connection: http.client.HTTPConnection,
    item: Item,
    position: int,
    end: int,
    *,
    into: Callable[[int], memoryview],
    arrived: Callable[[int, int], None],
    stalled: Callable[[], bool],
    over: Callable[[], bool],
) -> bool:
    """Fetch an object's bytes from `position` to `end`, resumed where they stopped: each piece goes `into` what is
    given for its position, then `arrived` is told position and count.

    False where it ended early, since it was `over`. Raises DamagedError, and StoreError where a request fails while
    all is `stalled`.
    """
    pause = PAUSE_SECONDS
    while position < end and not over():
        headers = {"Range": f"bytes={position}-{end - 1}"}
        if item.etag:
            headers["If-Match"] = item.etag
        try:
            response = bucket.ask(connection, "GET", item.key, headers)
            if response.status != 206:  # the whole object, whose bytes belong elsewhere
                raise StoreError(f"{item.key}: {response.status} instead of a range")
            while position < end:
                if over():
                    connection.close()
                    return False
                most = min(PIECE_BYTES, end - position)
                count = _read(response, into(position)[:most], item.key)
                arrived(position, count)
                position, pause = position + count, PAUSE_SECONDS
            response.read()
        except GoneError as error:
            raise DamagedError(str(error)) from None
        except StoreError as error:
            connection.close()  # the next request opens it again
            if stalled():
                raise StoreError(f"nothing arrives any more; last: {error}") from None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    return position >= end


def _read(response: http.client.HTTPResponse, piece: memoryview, key: str) -> int:
    try:
        count = response.readinto(piece)
    except (OSError, http.client.HTTPException) as error:
        raise StoreError(f"{key}: {error or type(error).__name__}") from None
    if not count:
        raise StoreError(f"{key}: connection cut")
    return count


def _full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def download(bucket: Bucket, items: Sequence[Item]) -> int:
    """Fetch all items; returns the bytes. Raises DamagedError, StoreError, or OSError where the disk fails."""
    if items and sum(item.size for item in items) > shutil.disk_usage(items[0].path.parent).free:
        raise _full()  # at once, not after minutes
    running = _Download(bucket, items)
    try:
        threads = [threading.Thread(target=running.work, daemon=True) for _ in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if running.failure:
            raise running.failure
        for file in running.files:
            file.check()
    finally:
        for file in running.files:
            file.close()
    return sum(item.size for item in items)
