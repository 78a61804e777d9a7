"""Callers of the serving port, as the kernel sees them: who is new, and who may be served where no lane tells."""

import re
import subprocess

STATES = ("established", "close-wait", "fin-wait-1", "last-ack")  # in the last two the kernel sends what is left
ADDRESSES = re.compile(r"(\S+):(\d+)\s+(\S+):(\d+)(?:\s|$)")
RECEIVED = re.compile(r"\bbytes_received:[1-9]")


class StreamsError(Exception):
    """The kernel's table of connections could not be read."""


def callers(port: int) -> set[str]:
    """The peers of live connections from outside that have carried bytes: a balancer's TCP probe carries none.

    Half-closed ones too: their answers are on the way. Raises StreamsError.
    """
    states = [word for state in STATES for word in ("state", state)]
    try:
        command = ["ss", "-HtinO", *states, f"( sport = :{port} )"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StreamsError(str(error)) from None
    if done.returncode:
        raise StreamsError(" ".join(done.stderr.split()))
    return parse(done.stdout)


def parse(text: str) -> set[str]:
    """Who called, by what `ss -HtinO` prints, less loopback."""
    found = set()
    for line in text.splitlines():
        addresses = ADDRESSES.search(line)
        if not addresses:
            continue
        local, _, peer, port = addresses.groups()
        if peer == local or _loopback(peer):
            continue
        if RECEIVED.search(line):
            found.add(f"{peer}:{port}")
    return found


def _loopback(address: str) -> bool:
    plain = address.strip("[]")
    return plain == "::1" or plain.replace("::ffff:", "").startswith("127.")
