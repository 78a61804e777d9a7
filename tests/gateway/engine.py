"""The bench's target, in a process of its own: answers of 1 KB, streams that are held, and who left, with when.

How long it takes is said by the request's token limit, since the gateway passes no field of its own on.
"""

import asyncio
import json
import sys
import time

from tests.gateway.targets import Turn, answers, chunk

HOLDS, NEVER, SLOWLY = 4001, 4002, 4003
HOLD_SECONDS, COMMENT_SECONDS = 60, 5
KILOBYTE = answers("x" * 700)
left: list[float] = []


async def holds(turn: Turn) -> None:
    """A first token, then nothing but comments, then the end."""
    await turn.head(200, {"Content-Type": "text/event-stream"})
    await turn.event(chunk({"content": "a"}))
    for _ in range(HOLD_SECONDS // COMMENT_SECONDS):
        await turn.pause(COMMENT_SECONDS)
        await turn.part(b": queued\n\n")
    await turn.event(chunk({}, "stop"))
    await turn.part(b"data: [DONE]\n\n")
    await turn.send(b"0\r\n\r\n")


ACTS = {HOLDS: holds, NEVER: answers(first=60), SLOWLY: answers(*["x"] * 600, every=0.1)}


async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection's requests."""
    from tests.gateway.targets import Asked

    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:]) if k}
            if head[0].startswith("GET /left"):
                body = json.dumps(left).encode()
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                return
            asked = Asked(headers, json.loads(await reader.readexactly(int(headers["content-length"]))))
            try:
                await ACTS.get(asked.body.get("max_tokens", 0), KILOBYTE)(Turn(asked, reader, writer))
            except ConnectionError:
                left.append(asked.left_at or time.monotonic())
                return
    except asyncio.IncompleteReadError:
        return
    finally:
        writer.close()


async def main(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.start_server(connection, "127.0.0.1", port, backlog=2048)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
