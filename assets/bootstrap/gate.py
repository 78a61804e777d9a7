"""The port gate: who may connect to the serving port. Shut at every start of the machine, before anything listens.

  closed      everyone but loopback gets a TCP reset, live connections too: a box that has not proved itself
  draining    new connections get a TCP reset, live ones go on: a box on its way out
  open        no rule

The lane tells who asks on a live connection of a leaving box to go elsewhere: the gate knows connections alone.

Both address families, nft where it is there, else iptables with ip6tables; with neither, GateError: nothing may listen.
Setting a state twice is setting it once. `gate.py STATE` sets it from a unit.
"""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import config
import paths
from log import say

CLOSED, DRAINING, OPEN = "closed", "draining", "open"
TOOL_SECONDS = 10.0  # of which the tool itself waits 5 for a lock
NFT_TABLE = "table inet fleet"
NFT_MATCH = {CLOSED: "", DRAINING: "tcp flags & (fin | syn | rst | ack) == syn "}
IPTABLES_MATCH = {CLOSED: (), DRAINING: ("--syn",)}
IPTABLES_REFUSE = ("!", "-i", "lo", "-j", "REJECT", "--reject-with", "tcp-reset")
IPTABLES = ("iptables", "ip6tables")


class GateError(Exception):
    """The gate could not be set: the caller must not let anything listen."""


def set_state(state: str, port: int, *, unless_leaving: bool = False) -> None:
    """Set the gate. A leaving box never opens, and draining never loosens a closed gate.

    `unless_leaving`: nor does the gate change otherwise once the box leaves, or streams that it lets live were cut.
    """
    with _locked():
        if (state == OPEN or unless_leaving) and paths.LEAVING.exists():
            raise GateError(f"the box is leaving: the gate stays {current()}")
        if state == DRAINING and current() == CLOSED:
            return
        if _has_nft():
            _run(["nft", "-f", "-"], nft_script(state, port))
        else:
            for tool in IPTABLES:
                _iptables(tool, state, port)
        paths.mark(paths.GATE, state)


def attempt(state: str, port: int) -> bool:
    """Set it for a box that goes on whatever becomes of it; False where that failed, which is logged."""
    try:
        set_state(state, port)
    except GateError as error:
        say(f"gate: {error}")
        return False
    return True


def _has_nft() -> bool:
    if shutil.which("nft"):
        return True
    if shutil.which("iptables") and shutil.which("ip6tables"):
        return False
    raise GateError("no firewall tool: neither nft nor iptables with ip6tables is here")


def nft_script(state: str, port: int) -> str:
    """One transaction that replaces whatever stood: there is no moment without the rule."""
    script = f"{NFT_TABLE}\ndelete {NFT_TABLE}\n"
    if state == OPEN:
        return script
    return script + (
        f"{NFT_TABLE} {{\n chain gate {{\n  type filter hook input priority -10; policy accept;\n"
        f'  iifname "lo" accept\n  tcp dport {port} {NFT_MATCH[state]}reject with tcp reset\n }}\n}}\n'
    )


def _iptables(tool: str, state: str, port: int) -> None:
    """Insert the wanted rule before deleting others: while it changes, the gate is never looser than either state."""
    for other in (state, *(s for s in IPTABLES_MATCH if s != state)):
        if other != OPEN:
            rule = ("INPUT", "-p", "tcp", "--dport", str(port), *IPTABLES_MATCH[other], *IPTABLES_REFUSE)
            _ensure(tool, rule, absent=other != state)


def _ensure(tool: str, rule: tuple[str, ...], *, absent: bool = False) -> None:
    present = _holds(tool, rule)
    if not absent and not present:
        _run([tool, "-w", "5", "-I", *rule])
    while absent and present:
        _run([tool, "-w", "5", "-D", *rule])
        present = _holds(tool, rule)


def _holds(tool: str, rule: tuple[str, ...]) -> bool:
    return _run([tool, "-w", "5", "-C", *rule], expected=(0, 1)) == 0


def _run(command: list[str], stdin: str = "", expected: tuple[int, ...] = (0,)) -> int:
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GateError(f"{command[0]}: {error}") from None
    if done.returncode not in expected:
        raise GateError(f"{command[0]}: exit {done.returncode} {' '.join(done.stderr.split())}")
    return done.returncode


def current() -> str:
    """The state that was set last; open after a start of the machine, before the gate's unit ran."""
    try:
        return paths.GATE.read_text()
    except OSError:
        return OPEN


@contextmanager
def _locked() -> Iterator[None]:
    """Boot, agent and engine unit set the gate: one at a time, so that a notice and an opening cannot cross."""
    paths.RUN.mkdir(parents=True, exist_ok=True)
    with (paths.RUN / "gate.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        set_state(sys.argv[1], config.load().port)
    except GateError as error:
        say(f"gate: {error}")
        if sys.argv[1] == CLOSED:  # by its own unit, whose failure has the box leave; the engine is started again
            paths.mark(paths.WHY, f"gate: {error}")
        sys.exit(1)
