"""`python -m lane`: the process of one box. Its configuration is one JSON text in its environment."""

import asyncio
import logging
import os
import signal
from typing import Any

from aiohttp import web

from lane import connections, notify
from lane.admin import Admin
from lane.config import ENVIRONMENT, load
from lane.service import Lane
from relay import log

IDLE_LOOK_SECONDS = 0.1
SHUTDOWN_SECONDS = 1.0  # for whoever has not said yet what he wants


async def main() -> None:
    """Serve until told to go, then until the last one is answered or handed back."""
    config = load(os.environ[ENVIRONMENT])
    lane, leaving, loop = Lane(config), asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leaving.set)
    ends: dict[str, Any] = {"access_log": None, "shutdown_timeout": SHUTDOWN_SECONDS}
    outside = web.AppRunner(lane.app(), handler_cancellation=True, **ends)
    inside = web.AppRunner(Admin(config, lane).app(), **ends)
    for runner in (outside, inside):
        await runner.setup()
    assert outside.server is not None  # noqa: S101  it is set up
    come = connections.listening(outside.server, lane.asking)
    listener = await loop.create_server(come, config.host or None, config.port, backlog=128)
    await web.TCPSite(inside, "127.0.0.1", config.admin_port).start()
    lane.start()
    telling = asyncio.create_task(notify.keep_telling())
    notify.tell("READY=1")
    await leaving.wait()
    notify.tell("STOPPING=1")
    lane.leave(config.drain_seconds)
    while lane.streams:
        await asyncio.sleep(IDLE_LOOK_SECONDS)
    telling.cancel()
    listener.close()
    for runner in (outside, inside):
        await runner.cleanup()
    await lane.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    log.quote_nothing()
    asyncio.run(main())
