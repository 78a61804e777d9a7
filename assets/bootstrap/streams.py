"""Connections to the serving port, as the kernel sees them: who is new, and who may be served where no lane tells.

A balancer's TCP probe carries no bytes.
"""

import re
import subprocess
from dataclasses import dataclass

STATES = ("established", "close-wait", "fin-wait-1", "last-ack")  # in the last two the kernel sends what is left
ADDRESSES = re.compile(r"(\S+):(\d+)\s+(\S+):(\d+)(?:\s|$)")
RECEIVED = re.compile(r"\bbytes_received:(\d+)")


class StreamsError(Exception):
    """The kernel's table of connections could not be read."""


@dataclass(frozen=True)
class Connection:
    """One live connection to the serving port."""

    peer: str
    received_bytes: int  # of requests, so far


def connections(port: int) -> tuple[Connection, ...]:
    """Live connections from outside, half-closed ones too: their answers are on the way. Raises StreamsError."""
    states = [word for state in STATES for word in ("state", state)]
    try:
        command = ["ss", "-HtinO", *states, f"( sport = :{port} )"]
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
        received = RECEIVED.search(line)
        found.append(Connection(f"{peer}:{port}", int(received[1]) if received else 0))
    return tuple(found)


def _loopback(address: str) -> bool:
    plain = address.strip("[]")
    return plain == "::1" or plain.replace("::ffff:", "").startswith("127.")
