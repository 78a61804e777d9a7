"""Lets the streams end behind a shut gate: tells the lane how long they have, waits for its line to be empty. Part of
every way out.

Where the lane does not answer the kernel stands in: every connection that ever carried a request counts, until the time
is over.
"""

import time
from dataclasses import dataclass
from typing import Callable, Optional

import line
import streams
from config import Box
from log import say

SAMPLE_SECONDS = 0.2
QUIET_SECONDS = 2.0  # who connected just before the gate shut has sent a request by then, and is told to go elsewhere
LATE_SECONDS = 0.5  # after the last moment, in which the lane ends who is left with a word


@dataclass(frozen=True)
class Ended:
    """How it ended. Who is handed back, by a 503, has lost nothing but time."""

    finished: int
    cut: int
    handed_back: int = 0

    def __str__(self) -> str:
        return f"{self.finished} streams finished, {self.cut} cut, {self.handed_back} sent elsewhere"


def wait(box: Box, deadline: float, over: Callable[[], bool] = lambda: False) -> Ended:
    """Wait while anybody is in line, at most until `deadline` (monotonic) or until it is `over`."""
    first: Optional[line.Told] = None
    known: set[str] = set()  # by the kernel
    busy_at = time.monotonic()
    while True:
        now = time.monotonic()
        told = line.drain(deadline - now)
        live: set[str] = set()
        if told is None:
            live = _by_the_kernel(box, known)
            known |= live
            ended = Ended(len(known - live), len(live))
        else:
            first = first if first and told.answered >= first.answered else told  # a restarted one counts anew
            ended = Ended(told.answered - first.answered, told.cut - first.cut, told.handed_back - first.handed_back)
        if live or (told and told.streams):
            busy_at = now
        if over():
            return Ended(ended.finished, 0)  # whoever goes on counts the others
        if now - busy_at >= QUIET_SECONDS or now >= deadline + (LATE_SECONDS if told else 0.0):
            return ended
        time.sleep(SAMPLE_SECONDS)


def _by_the_kernel(box: Box, known: set[str]) -> set[str]:
    try:
        return streams.callers(box.port)
    except streams.StreamsError as error:
        say(f"streams: {error}")  # unknown is not none: whoever is there keeps the whole budget
        return known or {"unknown"}
