"""Serves the model's file to the engine while it arrives, and makes its copy on the disk once the box serves.

fleet-stream.service, started by the boot, which waits for what it tells (`stream_state`). It ends by itself when the
copy stands in the file's place and no engine holds the served one any more.

    arrives     read in the order of a load while it is fetched; its digest is taken; the gate is shut
    verified    the digest is right: only now the boot goes on, and what is fetched again must be the same
    kept        the copy is on the disk, its digest right again, and what the engine opens from now on
    damaged     the store holds something else; whoever reads is told so by an error
    failed      the store does not answer; the same

A server that starts after the load (the one before was killed) has no digest to hold bytes against: it makes the copy
first, as fast as it can, and whoever reads waits for it.
"""

import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import config
import fuse
import paths
from config import Box
from download import DamagedError, Item
from imds import Imds
from log import say
from s3 import Bucket, StoreError
from stream_state import ARRIVES, DAMAGED, FAILED, KEPT, VERIFIED
from window import Window

TICK_SECONDS = 0.2
RESERVE_SHARE = 0.25  # of the machine's memory: what an engine takes beside the file
READER_SECONDS = 2.0  # since the last read: the copy gives way to a load
MEMORY = Path("/proc/meminfo")


def memory(field: str) -> int:
    """Bytes of MemTotal or MemAvailable."""
    lines = dict(line.split(":") for line in MEMORY.read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def blob(item: Item) -> Path:
    """Where the engine looks for the file."""
    return paths.MODELS / "blobs" / item.path.name


class ModelFile:
    """The file as it is served."""

    def __init__(self, box: Box, bucket: Bucket, item: Item) -> None:
        self._box, self._item = box, item
        self._strict = paths.LOADED.exists()
        self._server = secrets.token_hex(8)
        self._copy: Optional[int] = None
        self._kept = threading.Event()
        self._copying: Optional[threading.Thread] = None
        self._read_at, self._served = float("-inf"), 0
        self._failure: Optional[Exception] = None  # of the copy
        self._told: dict[str, Any] = {}
        reserve = int(memory("MemTotal") * RESERVE_SHARE)
        self._window = Window(
            bucket,
            item,
            lambda: (memory("MemAvailable") - reserve) // box.stream_part_bytes,
            part_bytes=box.stream_part_bytes,
            stall_seconds=box.stream_stall_seconds,
        )

    def read(self, offset: int, size: int) -> Sequence[memoryview]:
        """Bytes for whoever has the file open; raises OSError."""
        self._read_at = time.monotonic()
        self._served += size
        while self._strict and not self._kept.wait(TICK_SECONDS):
            if self._wrong:
                raise OSError(5, str(self._wrong))
        try:
            if self._copy is None:
                return self._window.read(offset, size)
        except (DamagedError, StoreError) as error:
            if self._copy is None:
                raise OSError(5, str(error)) from None
        data = os.pread(self._copy, size, offset)
        if len(data) < size:
            raise OSError(5, "the copy is cut")
        return [memoryview(data)]

    @property
    def _wrong(self) -> Optional[Exception]:
        return None if self._kept.is_set() else self._failure or self._window.failure

    def tell(self) -> str:
        """Write down how it stands, for boot and agent; returns the state."""
        wrong = self._wrong
        if wrong:
            state = DAMAGED if isinstance(wrong, DamagedError) else FAILED
        else:
            state = KEPT if self._kept.is_set() else VERIFIED if self._window.verified else ARRIVES
        told = {
            "server": self._server,
            "state": state,
            "why": str(wrong or ""),
            "served": self._served + (self._window.fetched if self._strict else 0),
            "fetched": self._window.fetched,
        }
        if told != self._told:
            paths.mark(paths.TOLD_STREAM, json.dumps(told))
        self._told = told
        return state

    def step(self) -> None:
        """What is due: the rest of the digest once the engine is done, the copy once the box serves."""
        if paths.LOADED.exists():
            self._window.finish()
        due = self._strict or (self._window.verified and paths.serves())
        if due and not self._copying:
            self._copying = threading.Thread(target=self._keep, daemon=True)
            self._copying.start()

    def _keep(self) -> None:
        started = time.monotonic()
        try:
            self._write_copy()
        except (DamagedError, StoreError, OSError) as error:
            say(f"STREAM not kept: {error}")
            self._failure = error
            return
        self._copy = os.open(paths.KEPT, os.O_RDONLY)
        paths.KEPT.replace(blob(self._item))  # whoever opens it reads the one or the other, both whole
        self._kept.set()
        say(f"STREAM kept on the disk in {time.monotonic() - started:.0f} s")
        fuse.detach(paths.STREAMED)  # where nobody reads, the server ends with it
        self._window.close()

    def _write_copy(self) -> None:
        digest, position, item = hashlib.sha256(), 0, self._item
        with paths.KEPT.open("wb") as copy:
            started, rested = time.monotonic(), 0.0
            while position < item.size:
                size = min(self._box.stream_part_bytes, item.size - position)
                for piece in self._window.read(position, size):
                    digest.update(piece)
                    copy.write(piece)
                copy.flush()
                os.fdatasync(copy.fileno())  # piece by piece: a whole cache of it would hold callers' reads up
                position += size
                if not self._strict:
                    rested += self._rest(started + rested + position / self._box.stream_copy_bytes_per_second)
        if digest.hexdigest() != item.sha256:
            raise DamagedError(f"{item.key}: the copy's sha256 is {digest.hexdigest()}")

    def _rest(self, until: float) -> float:
        """Keep to the rate, and out of the way of a load; returns how long that was for loads."""
        time.sleep(max(0.0, until - time.monotonic()))
        began = time.monotonic()
        while time.monotonic() - self._read_at < READER_SECONDS:
            time.sleep(TICK_SECONDS)
        return time.monotonic() - began


def main() -> int:
    """Serve until nobody reads; returns the exit status."""
    box, job = config.load(), json.loads(paths.STREAM.read_text())
    item = Item(job["key"], Path(job["name"]), job["size"], job["etag"], job["sha256"])
    fuse.detach(paths.STREAMED)  # of a server that was killed
    if paths.LOADED.exists() and not blob(item).is_symlink():
        say("STREAM ended: the copy stands in the file's place")
        return 0
    paths.STREAMED.mkdir(exist_ok=True)
    served = ModelFile(box, Bucket(box.bucket, box.region, Imds()), item)
    try:
        mount = fuse.Mount(paths.STREAMED, item.path.name, item.size, served.read)
    except fuse.FuseError as error:
        paths.mark(paths.TOLD_STREAM, json.dumps({"server": "", "state": FAILED, "why": str(error)}))
        say(f"STREAM none: {error}")
        return 0
    ended = threading.Thread(target=mount.wait, daemon=True)
    ended.start()
    while ended.is_alive():
        served.step()
        state = served.tell()
        if state in (FAILED, DAMAGED) and paths.serves():
            return 1  # no boot waits for what it says: another try, from the start
        ended.join(TICK_SECONDS)
    served.tell()
    say("STREAM ended: nobody reads it any more")
    return 0


if __name__ == "__main__":
    # No goodbye: connections may still be amid TLS, and libcrypto, which clears its tables as a program exits, has
    # crashed under them. systemd would start a server that ended so again, to fetch the whole model once more.
    os._exit(main())
