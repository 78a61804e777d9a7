"""Network namespaces without names: they end with the last process or file that holds them, however a test ends."""

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def _checked(status: int) -> None:
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def new() -> int:
    """A new namespace, as a file descriptor."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _checked(LIBC.unshare(CLONE_NEWNET))
        try:
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        finally:
            _checked(LIBC.setns(home, CLONE_NEWNET))
    finally:
        os.close(home)


@contextmanager
def inside(namespace: int) -> Iterator[None]:
    """This thread, and what it starts, in another namespace."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _checked(LIBC.setns(namespace, CLONE_NEWNET))
    try:
        yield
    finally:
        _checked(LIBC.setns(home, CLONE_NEWNET))
        os.close(home)


def ip(*words: str) -> None:
    """The `ip` command, in this thread's namespace."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def listener(namespace: int, address: str, port: int) -> socket.socket:
    """A listening socket in a namespace, usable from here; on "::" it hears both families."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(namespace):
        return socket.create_server((address, port), family=family, backlog=128, dualstack_ipv6=address == "::")


def join(box: int, box_pid: int | str, out: int) -> None:
    """A cable between the box and the outside, both families; the box reaches nothing else."""
    with inside(out):
        ip("link", "set", "lo", "up")
        peer = ("peer", "name", "box", "address", BOX_MAC, "netns", str(box_pid))
        ip("link", "add", "out", "address", OUT_MAC, "type", "veth", *peer)
        _configure("out", OUT_V4, OUT_V6, neighbour=(BOX_V6, BOX_MAC))
    with inside(box):
        _configure("box", BOX_V4, BOX_V6, neighbour=(OUT_V6, OUT_MAC))


def _configure(device: str, v4: str, v6: str, *, neighbour: tuple[str, str]) -> None:
    ip("addr", "add", f"{v4}/24", "dev", device)
    ip("addr", "add", f"{v6}/64", "dev", device, "nodad")
    ip("link", "set", device, "up")
    # known from the start: a solicitation lost while the cable comes up would cost the first caller a second
    ip("neigh", "replace", neighbour[0], "lladdr", neighbour[1], "dev", device, "nud", "permanent")


BOX_V4, OUT_V4 = "10.77.0.1", "10.77.0.2"
BOX_V6, OUT_V6 = "fd77::1", "fd77::2"
BOX_MAC, OUT_MAC = "02:00:00:00:77:01", "02:00:00:00:77:02"
