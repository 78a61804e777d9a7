"""Between an engine at full speed and a reader at his own: a slow reader never holds the GPU.

OverrunError   the reader is so far behind that he is let go
"""

import asyncio
from typing import Optional


class OverrunError(Exception):
    """More than the buffer holds is not taken."""


class Buffer:
    """Bytes with how many tokens they carry. One writer, one reader."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._parts: list[bytes] = []
        self._tokens = self._size = 0
        self._ended = False
        self._error: Optional[Exception] = None
        self._waiter: Optional[asyncio.Future[None]] = None

    def put(self, data: bytes, tokens: int = 0) -> None:
        """At once; raises OverrunError."""
        if self._size and self._size + len(data) > self._limit:  # one part alone is nobody's slowness
            raise OverrunError(f"{self._size} bytes are not taken")
        self._parts.append(data)
        self._size += len(data)
        self._tokens += tokens
        self._wake()

    def end(self, error: Optional[Exception] = None) -> None:
        """Nothing more comes; `error` is raised to the reader, after what came before it."""
        if not self._ended:
            self._ended, self._error = True, error
            self._wake()

    async def get(self) -> Optional[tuple[bytes, int]]:
        """All that is there, once something is; None at the end. Raises the writer's error."""
        while not self._parts:
            if self._error:
                raise self._error
            if self._ended:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        found = b"".join(self._parts), self._tokens
        self._parts, self._size, self._tokens = [], 0, 0
        return found

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)
