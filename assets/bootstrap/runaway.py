"""Tells how long the one generation that the engine works on has run, and who waits behind it. Nothing here ends it.

Pure; times in seconds on the monotonic clock. One request runs at a time, in the order of arrival, and a model that
never stops runs on (`num_predict` is endless by default) while everybody waits. What the kernel tells of connections is
all there is: who streams is served; where nobody has a byte, whoever waits longest is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from streams import Connection


@dataclass(frozen=True)
class Request:
    """An open request on one connection, and its counters when it was first seen."""

    peer: str
    began_at: float
    sent_bytes: int
    received_bytes: int
    answered_at: Optional[float] = None  # since when bytes of its answer come


@dataclass(frozen=True)
class Memory:
    """What was open at the last look; `head` waits longest, and is served since then where nobody streams."""

    open: dict[str, Request] = field(default_factory=dict)
    head: tuple[str, float] = ("", 0.0)  # its peer, and when it began
    head_at: float = 0.0


@dataclass(frozen=True)
class Generation:
    """The running one."""

    seconds: float
    waiting: int  # other open requests


def look(
    memory: Memory, at: float, connections: Sequence[Connection], *, works: bool
) -> tuple[Memory, Optional[Generation]]:
    """What runs now; None where nothing does. `works`: the GPU, or nobody can tell. Error: two looks.

    Bytes of one look alone are no stream: an answer in one piece, an error, or who asked for the version.
    """
    live = {found.peer: found for found in connections if found.stream}
    opened = {peer: _request(memory.open.get(peer), at, found) for peer, found in live.items()}
    waiting = [each for peer, each in opened.items() if live[peer].outstanding]
    since = [each.answered_at for peer, each in opened.items() if not live[peer].outstanding]
    streaming = [answered_at for answered_at in since if answered_at is not None and answered_at < at]
    first = min(waiting, key=lambda each: each.began_at, default=None)
    head = (first.peer, first.began_at) if first else ("", 0.0)
    head_at = memory.head_at if works and head == memory.head and not streaming else at
    memory = Memory(opened, head, head_at)
    if streaming:
        return memory, Generation(at - min(streaming), len(waiting))
    return memory, Generation(at - head_at, len(waiting) - 1) if first else None


def _request(before: Optional[Request], at: float, found: Connection) -> Request:
    """The request that is open on a connection: the same as before, unless more was asked after bytes were answered."""
    if before is None or (found.received_bytes > before.received_bytes and found.sent_bytes > before.sent_bytes):
        return Request(found.peer, at, found.sent_bytes, found.received_bytes)
    answered = before.answered_at
    if answered is None and found.sent_bytes > before.sent_bytes:
        answered = at
    return Request(found.peer, before.began_at, before.sent_bytes, found.received_bytes, answered)
