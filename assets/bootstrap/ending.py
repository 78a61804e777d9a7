"""Lets the streams end behind a shut gate: waits for them, turns away new requests on their connections, closes those
that are quiet, counts. Part of every way out.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable, Optional

import gate
import streams
import warm
from config import Box
from log import say
from streams import Connection
from wedge import Asked

SAMPLE_SECONDS = 0.2
QUIET_SECONDS = 2.0  # who connected just before the gate shut has sent a request by then


@dataclass(frozen=True)
class Ended:
    """How it ended. `closed` connections were quiet: what comes on one is reset before the engine reads a byte."""

    finished: int
    cut: int
    closed: int = 0

    def __str__(self) -> str:
        return f"{self.finished} streams finished, {self.cut} cut, {self.closed} quiet connections closed"


def wait(box: Box, deadline: float, over: Callable[[], bool] = lambda: False) -> Ended:
    """Wait while streams live or may yet begin, at most until `deadline` (monotonic) or until it is `over`."""
    ending = _Ending(box)
    while True:
        live, quiet = ending.look()
        finished = len(ending.known - live)
        if over():
            return Ended(finished, 0, ending.closed)  # whoever goes on counts the others
        if quiet or time.monotonic() >= deadline:
            return Ended(finished, len(live), ending.closed)
        time.sleep(SAMPLE_SECONDS)


class _Ending:
    """What is remembered between two looks."""

    def __init__(self, box: Box) -> None:
        self._box, self._watch = box, streams.Watch(box.port)
        self._busy_at = time.monotonic()
        self._token: Optional[warm.Request] = None
        self._unsure = self._asked_for = streams.Counters()
        self._closes = True
        self.known: set[str] = set()  # everybody who was served or waited
        self.closed = 0
        try:
            gate.turn_away(box.port)
        except gate.GateError as error:
            say(f"new requests on live connections are not turned away: {error}")

    def look(self) -> tuple[set[str], bool]:
        """Whose streams live, and whether nobody is left who could be cut."""
        try:
            found = self._watch.look()
        except streams.StreamsError as error:
            say(f"streams: {error}")  # unknown is not none: whoever is there keeps the whole budget
            return self.known or {"unknown"}, False
        self._ask()
        live = {each.peer for each in found if each.stream or each.outstanding is None}
        self.known |= {each.peer for each in found if each.stream}
        if live:
            self._busy_at = time.monotonic()
        waited = time.monotonic() - self._busy_at >= QUIET_SECONDS
        quiet = [each for each in found if each.peer not in live and (each.received_bytes or waited)]
        if quiet and self._closes:
            self._close(quiet)
        return live, not found or (waited and not self._closes)

    def _ask(self) -> None:
        """Where nobody can tell whether a request waits, a token asked for after it comes after its answer."""
        unsure = self._watch.unsure()
        if self._token and self._token.done.is_set():
            if self._token.asked is Asked.CAME:
                self._watch.answered(self._asked_for)
            self._token = None
        elif unsure and unsure == self._unsure and self._token is None:
            token = warm.Request(self._box, [warm.tokens(self._box, 1)], self._box.token_seconds)
            self._token, self._asked_for = token, unsure
        self._unsure = unsure

    def _close(self, quiet: Iterable[Connection]) -> None:
        """A caller who hears of it goes elsewhere. Whose request has come meanwhile is served."""
        try:
            with gate.held(self._box.port):
                still = {each.counters: each.peer for each in self._watch.look()}
                peers = [still[each.counters] for each in quiet if each.counters in still]
                if peers:
                    streams.close(self._box.port, peers)
                    self.closed += len(peers)
        except (gate.GateError, streams.StreamsError) as error:
            self._closes = False
            say(f"quiet connections are left open: {error}")
