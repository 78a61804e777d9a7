"""Which connections to the serving port are streams that must not be cut, as the kernel sees them.

A stream is a connection from outside with a request outstanding (bytes received since the last were sent) or bytes sent
in the last 5 s. A balancer's TCP probe carries no bytes, so it is none.

The kernel's stamps have its tick, 10 ms at 100 Hz: a request that came within one of the last answer looks like one
that was answered within it. What the counters did between two looks tells most of them apart; of the rest only the
engine knows, which serves one at a time: once it has answered a token asked for later, they are answered.
"""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Optional

ACTIVE_SECONDS = 5.0
STATES = ("established", "close-wait", "fin-wait-1", "last-ack")  # in the last two the kernel sends what is left

ADDRESSES = re.compile(r"(\S+):(\d+)\s+(\S+):(\d+)(?:\s|$)")
COUNTERS = re.compile(r"\b(bytes_sent|bytes_received|lastsnd|lastrcv):(\d+)")


class StreamsError(Exception):
    """The kernel's table of connections could not be read."""


@dataclass(frozen=True)
class Connection:
    """One live connection to the serving port; times in seconds since the last byte in each direction."""

    peer: str
    sent_bytes: int
    received_bytes: int
    since_sent_seconds: float
    since_received_seconds: float
    seen: Optional[bool] = None  # what earlier looks tell of `outstanding`

    @property
    def outstanding(self) -> Optional[bool]:
        """Whether a request waits for its answer, or for its first bytes; None: nobody can tell by now."""
        if not self.received_bytes or not self.sent_bytes:
            return self.received_bytes > 0
        if self.seen is None and self.since_received_seconds != self.since_sent_seconds:
            return self.since_received_seconds < self.since_sent_seconds
        return self.seen

    @property
    def stream(self) -> bool:
        """Whether cutting it would cut an answer that somebody waits for, as far as one can tell."""
        return bool(self.outstanding) or (self.sent_bytes > 0 and self.since_sent_seconds < ACTIVE_SECONDS)

    @property
    def counters(self) -> tuple[str, int, int]:
        """What moves with every byte; the same as before: nothing came and nothing went."""
        return self.peer, self.sent_bytes, self.received_bytes


Counters = frozenset[tuple[str, int, int]]


class Watch:
    """Looks again and again at one port, and remembers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._last: dict[str, Connection] = {}

    def look(self) -> tuple[Connection, ...]:
        """The connections of now. Raises StreamsError."""
        found = tuple(_compared(each, self._last.get(each.peer)) for each in connections(self._port))
        self._last = {each.peer: each for each in found}
        return found

    def unsure(self) -> Counters:
        """Of those of which nobody could tell at the last look whether a request waits."""
        return Counters(each.counters for each in self._last.values() if each.outstanding is None)

    def answered(self, counters: Counters) -> None:
        """A token that was asked for while these were unsure has come: what has not moved since is answered."""
        for peer, _, _ in counters & self.unsure():
            self._last[peer] = replace(self._last[peer], seen=False)


def _compared(now: Connection, before: Optional[Connection]) -> Connection:
    if before is None:
        return now
    came, went = now.received_bytes > before.received_bytes, now.sent_bytes > before.sent_bytes
    if came and went:
        return now
    return replace(now, seen=before.outstanding if came == went else came)


def connections(port: int) -> tuple[Connection, ...]:
    """Live connections from outside, half-closed ones too: their answers are on the way. Raises StreamsError."""
    states = [word for state in STATES for word in ("state", state)]
    return parse(_ss("-HtinO", *states, f"( sport = :{port} )"))


def _ss(*words: str) -> str:
    try:
        done = subprocess.run(["ss", *words], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StreamsError(str(error)) from None
    if done.returncode:
        raise StreamsError(" ".join(done.stderr.split()))
    return done.stdout


def parse(text: str) -> tuple[Connection, ...]:
    """What `ss -HtinO` prints, less loopback."""
    found = []
    for line in text.splitlines():
        addresses = ADDRESSES.search(line)
        if not addresses:
            continue
        local, _, peer, port = addresses.groups()
        if peer == local or _loopback(peer):
            continue
        seen = {name: int(value) for name, value in COUNTERS.findall(line)}
        found.append(
            Connection(
                peer=f"{peer}:{port}",
                sent_bytes=seen.get("bytes_sent", 0),
                received_bytes=seen.get("bytes_received", 0),
                since_sent_seconds=seen.get("lastsnd", 0) / 1000,
                since_received_seconds=seen.get("lastrcv", 0) / 1000,
            )
        )
    return tuple(found)


def _loopback(address: str) -> bool:
    plain = address.strip("[]")
    return plain == "::1" or plain.replace("::ffff:", "").startswith("127.")


def close(port: int, peers: Iterable[str]) -> None:
    """Reset these connections, which the kernel tells both ends. Raises StreamsError, also where it cannot."""
    # aws-behaviours: kernel-turns-away
    each = " or ".join(f"dst = {peer}" for peer in peers)
    _ss("-HKtn", "state", "established", "state", "close-wait", f"( sport = :{port} and ( {each} ) )")
