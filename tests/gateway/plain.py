"""The bench's yardstick: aiohttp on both sides and nothing between. `python -m tests.gateway.plain PORT URL`."""

import asyncio
import sys

import aiohttp
from aiohttp import web


async def main(port: int, url: str) -> None:
    """Serve until killed."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=2)
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)

    async def relay(request: web.Request) -> web.Response:
        body = await request.read()
        async with session.post(url + request.path, data=body, headers={"Content-Type": "application/json"}) as answer:
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)

    app = web.Application()
    app.router.add_post("/{path:.*}", relay)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
