"""One read-only file that a program of ours serves to every process of the box, over the kernel's raw FUSE protocol.

Only what a reader of one file asks for is answered; the kernel caches what was read, and does without what is not
implemented: opening, closing, leave to read. Sizes and flags are those of the kernel's include/uapi/linux/fuse.h,
protocol 7.31.

FuseError   this machine serves no such file: no module, no device, no leave to mount
"""

import ctypes
import errno
import os
import stat
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Union

import disk
from log import say

DEVICE = "/dev/fuse"
THREADS = 8  # each may wait for a part that is on its way
READ_MOST_BYTES = 1 << 20  # one request: as much as an engine asks for at once
REQUEST_BYTES = 16384  # one request of the kernel's, none of which brings data
CACHED_SECONDS = 3600  # nothing about the file ever changes

MS_NOSUID, MS_NODEV, MS_RDONLY = 2, 4, 1
MNT_DETACH = 2

LOOKUP, FORGET, GETATTR, READ, STATFS, INIT, READDIR, INTERRUPT, BATCH_FORGET = 1, 2, 3, 15, 17, 26, 28, 36, 42
UNANSWERED = (FORGET, BATCH_FORGET, INTERRUPT)
ASYNC_READ, MAX_PAGES = 1 << 0, 1 << 22

HEADER_IN, HEADER_OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
ROOT, FILE = 1, 2  # nodes

Reply = Union[bytes, Sequence[Union[bytes, memoryview]]]
_LIBC = ctypes.CDLL(None, use_errno=True)


class FuseError(Exception):
    """No such file can be served here."""


class Mount:
    """A folder in which one file stands; `read(offset, size)` gives its bytes, raising OSError where it cannot."""

    def __init__(self, folder: Path, name: str, size: int, read: Callable[[int, int], Sequence[memoryview]]) -> None:
        self._folder, self._name, self._size, self._read = folder, name.encode(), size, read
        try:
            self._device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise FuseError(f"{DEVICE}: {error.strerror}") from None
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
        flags = MS_RDONLY | MS_NOSUID | MS_NODEV
        if _LIBC.mount(b"fleet-stream", os.fsencode(folder), b"fuse", flags, options.encode()):
            os.close(self._device)
            raise FuseError(f"mount {folder}: {os.strerror(ctypes.get_errno())}")
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(THREADS)]
        for thread in self._threads:
            thread.start()
        disk.read_ahead(folder)  # at the kernel's 128 KiB a reader waits for every request's way to and fro

    def wait(self) -> None:
        """Until nobody holds the file any more and it is mounted nowhere."""
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, REQUEST_BYTES)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue  # a request that its caller took back
                return  # ENODEV: unmounted, and the last reader has let go
            _, code, unique, node, *_ = HEADER_IN.unpack_from(request)
            if code in UNANSWERED:
                continue
            try:
                status, body = 0, self._answer(code, node, request[HEADER_IN.size :])
            except OSError as error:
                status, body = -(error.errno or errno.EIO), b""
            except Exception as error:  # whoever asked waits for an answer, and no signal would end him
                say(f"stream: {type(error).__name__}: {error}")
                status, body = -errno.EIO, b""
            parts = [body] if isinstance(body, bytes) else body
            try:
                os.writev(
                    self._device, [HEADER_OUT.pack(HEADER_OUT.size + sum(map(len, parts)), status, unique), *parts]
                )
            except OSError as error:
                if error.errno != errno.ENOENT:  # its caller was killed
                    return

    def _answer(self, code: int, node: int, body: bytes) -> Reply:
        if code == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            size = min(size, self._size - offset)
            return self._read(offset, size) if size > 0 else b""
        if code == INIT:
            _, _, ahead, offered = struct.unpack_from("<IIII", body)
            flags = (ASYNC_READ | MAX_PAGES) & offered
            pages = READ_MOST_BYTES // os.sysconf("SC_PAGE_SIZE")
            numbers = (7, 31, ahead, flags, 64, 48, 4096, 1, pages, 0)
            return struct.pack("<IIIIHHIIHH", *numbers) + bytes(32)
        if code == LOOKUP:
            if node != ROOT or body.rstrip(b"\0") != self._name:
                raise OSError(errno.ENOENT, "")
            return struct.pack("<QQQQII", FILE, 0, CACHED_SECONDS, CACHED_SECONDS, 0, 0) + self._attributes(FILE)
        if code == GETATTR:
            return struct.pack("<QII", CACHED_SECONDS, 0, 0) + self._attributes(node)
        if code == STATFS:
            return struct.pack("<QQQQQIIII", 0, 0, 0, 1, 0, 4096, 255, 4096, 0) + bytes(24)
        if code == READDIR:
            return b""
        raise OSError(errno.ENOSYS, "")

    def _attributes(self, node: int) -> bytes:
        folder = node == ROOT
        size = 0 if folder else self._size
        mode = (stat.S_IFDIR | 0o555) if folder else (stat.S_IFREG | 0o444)
        return ATTRIBUTES.pack(node, size, -(-size // 512), 0, 0, 0, 0, 0, 0, mode, 1 + folder, 0, 0, 0, 4096, 0)


def detach(folder: Path) -> bool:
    """Take the mount from every path at once; who has the file open goes on reading. False where nothing is mounted."""
    return not _LIBC.umount2(os.fsencode(folder), MNT_DETACH)
