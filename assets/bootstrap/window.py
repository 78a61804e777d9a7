"""One object of the store in parts: fetched in order ahead of its readers, held in memory, handed out, dropped.

Every byte that is handed out is one that the object's digest vouches for, before or after: a part is dropped only once
the digest has taken it, and what is fetched again must bring the digest to where it stood then. Whoever hands out bytes
before `verified` must therefore make no use of them that outlives a failure.

    order       parts go to the connections in order, as far ahead of the readers as memory has room
    asked for   a part that a reader waits for and that is neither here nor on its way comes before all others
    hedge       a part that somebody waits for and that one connection brings too slowly is fetched by another as well
"""

import hashlib
import http.client
import threading
import time
from typing import Any, Callable, Optional

from download import CONNECTIONS, DamagedError, Item, fetch_range
from s3 import Bucket, StoreError

KEPT_PARTS = 4  # the header: read twice before the weights are
# Slow: both so long and so many times as long as parts take; 24 at 312 MB/s: 1.3 s.
HEDGE_SECONDS, HEDGE_TIMES = 2.0, 3.0
IDLE_SECONDS = 0.5  # of a connection, before it looks whether a part is late
LEAST_PARTS = CONNECTIONS + 8  # held, however little memory there is


class Window:
    """The object. `room` tells how many more parts memory holds; it is asked before each that nobody waits for."""

    def __init__(
        self,
        bucket: Bucket,
        item: Item,
        room: Callable[[], int],
        *,
        part_bytes: int,
        stall_seconds: float = 60.0,
    ) -> None:
        self.item, self.count = item, max(1, -(-item.size // part_bytes))
        self.fetched = 0  # bytes that arrived, those that came again included
        self._bucket, self._room, self._part_bytes, self._stall = bucket, room, part_bytes, stall_seconds
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)  # who reads and who hashes wait for parts
        self._wanted = threading.Condition(self._lock)  # connections wait for work
        self._parts: dict[int, bytearray] = {}  # least recently used first
        self._read: dict[int, int] = {}  # bytes that were handed out of those
        self._next = 0  # the first part that was never handed to a connection
        self._busy: dict[int, float] = {}  # parts on their way, since when
        self._hedged: set[int] = set()
        self._usual = 0.0  # seconds that a part takes
        self._waiting: dict[int, int] = {}  # parts that readers wait for, by how many
        self._ahead: set[int] = set()  # that they will ask for next
        self._after: list[Any] = []  # the digest as it stood behind each part
        self._last, self._run = -1, 0  # of a reader that goes through parts again
        self._all_read = False
        self._moved_at = time.monotonic()
        self.failure: Optional[Exception] = None
        for work in [self._work] * CONNECTIONS + [self._hash]:
            threading.Thread(target=work, daemon=True).start()

    # --- who reads --------------------------------------------------------------------------------------------------

    def read(self, offset: int, size: int) -> list[memoryview]:
        """These bytes, once they are here; raises what the fetch failed with: DamagedError, StoreError."""
        pieces, end = [], min(offset + size, self.item.size)
        while offset < end:
            number, skip = divmod(offset, self._part_bytes)
            part = self._part(number)
            piece = memoryview(part)[skip : skip + end - offset]
            pieces.append(piece)
            offset += len(piece)
            self._was_read(number, len(piece))
        return pieces

    def finish(self) -> None:
        """Nobody needs what was read: what is left is fetched for the digest alone."""
        with self._lock:
            if not self._all_read:
                self._all_read = True
                self._drop()

    @property
    def verified(self) -> bool:
        """Whether the digest of the whole object is right."""
        return len(self._after) == self.count and not self.failure

    def close(self) -> None:
        """End what is on its way."""
        with self._lock:
            self._fail(StoreError("closed"))

    def _part(self, number: int) -> bytearray:
        with self._lock:
            self._foresee(number)
            self._waiting[number] = self._waiting.get(number, 0) + 1
            try:
                while number not in self._parts:
                    if self.failure:
                        raise self.failure
                    self._wanted.notify()
                    self._arrived.wait(1.0)
                part = self._parts.pop(number)
                self._parts[number] = part
                if self.failure:
                    raise self.failure
                return part
            finally:
                self._waiting[number] -= 1
                if not self._waiting[number]:
                    del self._waiting[number]

    def _foresee(self, number: int) -> None:
        """Who goes through parts again in order is met by as many as he has shown to follow."""
        if number == self._last:
            return
        self._run = self._run + 1 if abs(number - self._last) <= 2 else 0  # requests overtake each other
        self._last = number
        reach = min(2 * self._run, CONNECTIONS - 1)
        self._ahead = set(range(number + 1, min(number + 1 + reach, self._next)))

    def _was_read(self, number: int, count: int) -> None:
        with self._lock:
            read = self._read[number] = self._read.get(number, 0) + count
            if read >= self._part_bytes or number == self.count - 1:
                self._drop()

    def _drop(self, wanted: int = 0) -> None:
        """Drop what has been read, or has nobody left to read it, and `wanted` more."""
        for number in [n for n in self._parts if n < len(self._after) and n not in self._waiting]:
            read = self._read.get(number, 0)
            spent = read >= len(self._parts[number]) or (self._all_read and not read)
            if (spent and number >= KEPT_PARTS and number not in self._ahead) or wanted > 0:
                wanted -= 1
                del self._parts[number]
                self._read.pop(number, None)
                self._wanted.notify()

    # --- the digest -------------------------------------------------------------------------------------------------

    def _hash(self) -> None:
        digest = hashlib.sha256()
        for number in range(self.count):
            with self._lock:
                while number not in self._parts:
                    if self.failure:
                        return
                    self._arrived.wait(1.0)
                part = self._parts[number]
            digest.update(part)
            with self._lock:
                if number == self.count - 1 and digest.hexdigest() != self.item.sha256:
                    self._fail(DamagedError(f"{self.item.key}: sha256 is {digest.hexdigest()}, not {self.item.sha256}"))
                    return
                self._after.append(digest.copy())
                self._drop()

    def _same_again(self, number: int, part: bytearray) -> bool:
        """Whether a part is the one that the digest has taken."""
        digest = self._after[number - 1].copy() if number else hashlib.sha256()
        digest.update(part)
        return bool(digest.digest() == self._after[number].digest())

    # --- who fetches ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        connection = self._bucket.connect()
        try:
            while not self.failure:
                number = self._pick(connection)
                if number is not None:
                    self._fetch(connection, number)
        except Exception as error:  # told to whoever reads
            with self._lock:
                self._fail(error)
        finally:
            connection.close()

    def _pick(self, connection: http.client.HTTPConnection) -> Optional[int]:
        """The part that this connection shall bring; None after a while without any."""
        with self._lock:
            number = self._choose()
            if number is None:
                if not self._wanted.wait(IDLE_SECONDS) and not self._busy:
                    connection.close()  # the store would, sooner or later
                return None
            if number in self._busy:
                self._hedged.add(number)
            else:
                if not self._busy:
                    self._moved_at = time.monotonic()
                self._busy[number] = time.monotonic()
            return number

    def _choose(self) -> Optional[int]:
        held = len(self._parts) + len(self._busy)
        room = held < LEAST_PARTS or self._room() > 0
        for number in self._waiting:
            if number not in self._parts and number not in self._busy:
                if not room:
                    self._drop(wanted=1)
                if room or len(self._parts) + len(self._busy) < held or number < len(self._after):
                    return number
        late = time.monotonic() - max(HEDGE_SECONDS, HEDGE_TIMES * self._usual)
        for number in (*self._waiting, len(self._after)):
            if self._busy.get(number, late) < late and number not in self._hedged:
                return number
        while self._next in self._parts or self._next in self._busy:
            self._next += 1
        if self._next < self.count and (room or self._next == len(self._after)):
            self._next += 1
            return self._next - 1
        for number in sorted(self._ahead) if room else ():
            if number not in self._parts and number not in self._busy:
                return number
        return None

    def _fetch(self, connection: http.client.HTTPConnection, number: int) -> None:
        start = number * self._part_bytes
        part = bytearray(min(self._part_bytes, self.item.size - start))
        view = memoryview(part)

        def arrived(position: int, count: int) -> None:
            self.fetched += count
            self._moved_at = time.monotonic()

        try:
            whole = fetch_range(
                self._bucket,
                connection,
                self.item,
                start,
                start + len(part),
                into=lambda position: view[position - start :],
                arrived=arrived,
                stalled=lambda: time.monotonic() - self._moved_at > self._stall,
                over=lambda: bool(self.failure) or number not in self._busy,
            )
        except DamagedError as error:  # gone or replaced, perhaps by the same bytes: a download will tell
            raise StoreError(str(error)) from None
        if not whole:
            return  # another connection was faster
        known = number < len(self._after)
        if known and not self._same_again(number, part):
            raise DamagedError(f"{self.item.key}: another object than it was")
        with self._lock:
            if self.failure or number not in self._busy or known != (number < len(self._after)):
                return
            took = time.monotonic() - self._busy.pop(number)
            self._usual += (took - self._usual) / (8 if self._usual else 1)
            self._hedged.discard(number)
            self._parts[number] = part
            self._arrived.notify_all()

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self._parts.clear()
        self._arrived.notify_all()
        self._wanted.notify_all()
