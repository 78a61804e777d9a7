"""The bench's target, in a process of its own: answers of 1 KB, streams that are held, and who left, with when.

How long it takes is said by the request's token limit, since the gateway passes no field of its own on.
"""

import asyncio
import json
import sys

from tests.gateway.targets import DONE, Target, Turn, answers, chunk

HOLDS, NEVER, SLOWLY = 4001, 4002, 4003
HOLD_SECONDS, COMMENT_SECONDS = 60, 5
KILOBYTE = answers("x" * 700)


async def holds(turn: Turn) -> None:
    """A first token, then nothing but comments, then the end."""
    await turn.head(200, {"Content-Type": "text/event-stream"})
    await turn.event(chunk({"content": "a"}))
    for _ in range(HOLD_SECONDS // COMMENT_SECONDS):
        await turn.pause(COMMENT_SECONDS)
        await turn.part(b": queued\n\n")
    await turn.event(chunk({}, "stop"))
    await turn.part(DONE)
    await turn.send(b"0\r\n\r\n")


ACTS = {HOLDS: holds, NEVER: answers(first=60), SLOWLY: answers(*["x"] * 600, every=0.1)}


async def main(port: int) -> None:
    """Serve until killed."""

    async def acts(turn: Turn) -> None:
        if turn.asked.body:
            return await ACTS.get(turn.asked.body.get("max_tokens", 0), KILOBYTE)(turn)
        left = json.dumps([asked.left_at for asked in target.asked if asked.left_at]).encode()
        await turn.head(200, length=len(left))
        return await turn.send(left)

    target = Target(acts)
    target.port = port
    await target.listen()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
