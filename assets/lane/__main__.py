"""`python -m lane`: the process of one box. Its configuration is one JSON text in its environment."""

import asyncio
import logging
import os
import signal

from lane import notify
from lane.admin import Admin
from lane.config import ENVIRONMENT, load
from lane.service import Lane
from relay.http_server import Server

IDLE_LOOK_SECONDS = 0.1
SHUTDOWN_SECONDS = 1.0  # for whoever has not said yet what he wants


async def main() -> None:
    """Serve until told to go, then until the last one is answered or handed back."""
    config = load(os.environ[ENVIRONMENT])
    lane, leaving, loop = Lane(config), asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leaving.set)
    outside, inside = lane.outside(), Server(Admin(config, lane).answer)
    await outside.listen(config.host or None, config.port)
    await inside.listen("127.0.0.1", config.admin_port)
    lane.start()
    telling = asyncio.create_task(notify.keep_telling())
    notify.tell("READY=1")
    await leaving.wait()
    notify.tell("STOPPING=1")
    lane.leave(config.drain_seconds)
    while lane.streams:
        await asyncio.sleep(IDLE_LOOK_SECONDS)
    telling.cancel()
    for server in (outside, inside):
        await server.close(SHUTDOWN_SECONDS)
    await lane.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(main())
