"""Code in the engine's place, within the engine's limits: tries what it should not be able to do, and tells of it.

One line of JSON goes to the journal after "hostile: ": each attempt's name and why it failed, "" where it did not.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

MODELS = Path(os.environ["OLLAMA_MODELS"])


def connect(*address: object) -> Callable[[], object]:
    """TCP to a host and port, or a Unix socket by its path."""
    if len(address) == 2:
        return lambda: socket.create_connection(address, timeout=2)  # type: ignore[arg-type]
    return lambda: socket.socket(socket.AF_UNIX).connect(str(address[0]))


def write(path: str | Path) -> Callable[[], object]:
    """Add a byte to a file, or make it."""
    return lambda: Path(path).open("ab").write(b"x")


def others() -> list[int]:
    """Processes of another user."""
    return [int(p.name) for p in Path("/proc").glob("[0-9]*") if p.stat().st_uid != os.getuid()]


def signal_another() -> None:
    """Ask whether a signal would be taken by any number that is no process or thread of ours."""
    ours = {int(p.name) for p in Path("/proc").glob("[0-9]*/task/[0-9]*") if p.stat().st_uid == os.getuid()}
    for pid in set(range(1, 300)) - ours:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            return os.kill(pid, 0)
    raise PermissionError("none of them")


def see_another() -> None:
    if not others():
        raise PermissionError("none of them")


def mount() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def a_blob() -> Path:
    return next((MODELS / "blobs").iterdir())


def a_manifest() -> Path:
    return next(path for path in (MODELS / "manifests").rglob("*") if path.is_file())


ATTEMPTS: dict[str, Callable[[], object]] = {
    "be root": lambda: os.setuid(0),
    "metadata": connect("169.254.169.254", 80),
    "metadata, IPv6": connect("fd00:ec2::254", 80),
    "AWS's APIs": connect("10.77.0.2", 8000),
    "D-Bus": connect("/run/dbus/system_bus_socket"),
    "the service manager": connect("/run/systemd/private"),
    "Docker": connect("/run/docker.sock"),
    "a mark of /run": write("/run/fleet/leaving"),
    "a mark of the state folder": write("/var/lib/fleet/completed"),
    "where the store is": lambda: Path("/var/lib/fleet/store").rename("/var/lib/fleet/elsewhere"),
    "where the models are": lambda: MODELS.rename(f"{MODELS}-elsewhere"),
    "a new blob": write(MODELS / "blobs" / "new"),
    "a blob": lambda: a_blob().open("ab").write(b"x"),
    "a blob's mode": lambda: a_blob().chmod(0o666),
    "a blob's end": lambda: a_blob().unlink(),
    "the manifest": lambda: a_manifest().open("ab").write(b" "),
    "the manifest's end": lambda: a_manifest().unlink(),
    "another manifest": lambda: (MODELS / "manifests" / "registry.example").mkdir(),
    "the engine's program": lambda: (MODELS.parent / "engine" / "bin" / "ollama").open("ab").write(b"\n"),
    "a program of root's": write("/opt/fleet/agent.py"),
    "a unit": write("/etc/systemd/system/fleet-leave.service"),
    "the box's settings": write("/etc/fleet/box.json"),
    "the box's log": write("/var/log/fleet/box.log"),
    "see a process of root's": see_another,
    "signal a process of root's": signal_another,
    "process 1's environment": lambda: Path("/proc/1/environ").read_bytes()[0],
    "mount": mount,
    "a device": lambda: os.mknod(MODELS / "device", 0o660 | 0o060000, os.makedev(7, 0)),
    "a raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP),
}


def tried(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (OSError, StopIteration, IndexError) as error:
        return str(error) or type(error).__name__
    return ""


if __name__ == "__main__":
    signal.alarm(60)
    while not any((MODELS / "manifests").rglob("*/latest")):  # the restore is on its way
        time.sleep(0.05)
    outcome = {name: tried(attempt) for name, attempt in ATTEMPTS.items()}
    sys.stdout.write(f"hostile: {json.dumps(outcome)}\n")
    sys.stdout.flush()
