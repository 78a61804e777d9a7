"""systemd's word: ready, and still alive. Without systemd nobody is told."""

import asyncio
import contextlib
import functools
import os
import socket


def tell(state: str) -> None:
    """One message to systemd, as sd_notify(3) sends it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError):
        place = "\0" + address[1:] if address.startswith("@") else address
        _sender().sendto(state.encode(), place)


@functools.cache
def _sender() -> socket.socket:
    """Opened once: a crowd of callers may take every other file descriptor."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.setblocking(False)  # a service manager that does not read holds up nobody
    return found


async def keep_telling() -> None:
    """Twice in each watchdog time, for ever: a loop that hangs says nothing, and systemd starts the lane anew."""
    seconds = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
    while seconds:
        tell("WATCHDOG=1")
        await asyncio.sleep(seconds / 2)
