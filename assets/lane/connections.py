"""Connections from outside: how many there are, and how much each may hold before it has asked anything."""

import asyncio
from collections.abc import Callable, Container
from typing import Any

from aiohttp import web

# Of 1024 descriptors, and 256 may come at a time: a lane that does not answer the box's own programs has it replaced.
MOST = 512
# Of a header, and of headers: heads that never end, on all of them, are 0.3 GB; by aiohttp's own limits they were 1 GB.
FIELD_BYTES, FIELDS = 4096, 64
AHEAD_MOST = 16  # requests on one connection that are not begun: SDKs send none ahead
PIECE_BYTES = 1024  # are looked at together: a read of 256 KiB may have 9700 requests, which take 0.1 s and 6 MB
LIMITS: dict[str, Any] = {"access_log": None, "max_field_size": FIELD_BYTES, "max_headers": FIELDS}


class Connection(web.RequestHandler):
    """aiohttp's, which takes whatever is sent ahead of its answers."""

    def data_received(self, data: bytes) -> None:
        """Who asks on and on is let go, and what follows a CONNECT; aiohttp has no public name for what it holds."""
        for at in range(0, len(data), PIECE_BYTES):
            super().data_received(data[at : at + PIECE_BYTES])
            if self.transport and (len(self._messages) > AHEAD_MOST or len(self._message_tail) > PIECE_BYTES):
                return self.transport.abort()
        return None


def listening(server: web.Server, asking: Container[web.RequestHandler]) -> Callable[[], asyncio.BaseProtocol]:
    """Takes every newcomer; beyond so many the oldest goes that has no whole request here, as those `asking` have."""

    def come() -> asyncio.BaseProtocol:
        here = {each: each.transport for each in server.connections if each.transport}
        here = {each: transport for each, transport in here.items() if not transport.is_closing()}
        if len(here) >= MOST:
            next((here[each] for each in here if each not in asking), here[next(iter(here))]).abort()
        return Connection(server, loop=asyncio.get_running_loop(), **LIMITS)

    return come
