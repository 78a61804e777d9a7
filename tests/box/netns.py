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
    """A listening socket in a namespace, usable from here."""
    with inside(namespace):
        return socket.create_server((address, port), backlog=128)


def join(box: int, box_pid: int, out: int) -> None:
    """A cable between the box and the outside, both families; the box reaches nothing else."""
    with inside(out):
        ip("link", "set", "lo", "up")
        ip("link", "add", "out", "type", "veth", "peer", "name", "box", "netns", str(box_pid))
        ip("addr", "add", f"{OUT_V4}/24", "dev", "out")
        ip("addr", "add", f"{OUT_V6}/64", "dev", "out", "nodad")
        ip("link", "set", "out", "up")
    with inside(box):
        ip("addr", "add", f"{BOX_V4}/24", "dev", "box")
        ip("addr", "add", f"{BOX_V6}/64", "dev", "box", "nodad")
        ip("link", "set", "box", "up")


BOX_V4, OUT_V4 = "10.77.0.1", "10.77.0.2"
BOX_V6, OUT_V6 = "fd77::1", "fd77::2"
