"""Which connections to the serving port are streams that must not be cut, as the kernel sees them.

A stream is a connection from outside with a request outstanding (bytes received since the last were sent) or bytes sent
in the last 5 s. A balancer's TCP probe carries no bytes, so it is none.
"""

import re
import subprocess
from dataclasses import dataclass

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

    @property
    def outstanding(self) -> bool:
        """Whether a request waits for its answer, or for the rest of it."""
        if not self.received_bytes:
            return False
        return not self.sent_bytes or self.since_received_seconds < self.since_sent_seconds

    @property
    def stream(self) -> bool:
        """Whether cutting it would cut somebody's answer."""
        return self.outstanding or (self.sent_bytes > 0 and self.since_sent_seconds < ACTIVE_SECONDS)


def connections(port: int) -> tuple[Connection, ...]:
    """Live connections from outside, half-closed ones too: their answers are on the way. Raises StreamsError."""
    states = [word for state in STATES for word in ("state", state)]
    command = ["ss", "-HtinO", *states, f"( sport = :{port} )"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StreamsError(str(error)) from None
    if done.returncode:
        raise StreamsError(" ".join(done.stderr.split()))
    return parse(done.stdout)


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
