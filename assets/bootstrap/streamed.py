"""The boot's part in a model that loads while it arrives: whether that can be, and how the file's server is doing.

StreamError   it cannot be, or not any more: the blobs are fetched before the load, as without it
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import fuse
import model_file
import paths
import readiness
from config import Box
from download import DamagedError, Item
from log import say
from s3 import Bucket, GoneError
from stream_state import DAMAGED, FAILED, KEPT, VERIFIED, said
from systemctl import UnitError, systemctl
from wedge import Asked
from window import LEAST_PARTS

UNIT = "fleet-stream.service"
START_SECONDS = 10.0  # to a mounted file
POLL_SECONDS = 0.1
STANDSTILLS = 3  # a server without a byte says so after one
REFUSALS = 3  # of the load, by an engine that answers
MEMORY_LEAST_BYTES = 1 << 30  # beside the parts: what an engine needs to begin


class StreamError(Exception):
    """The model cannot be loaded while it arrives."""


def begin(box: Box, bucket: Bucket, item: Item) -> "Streamed":
    """Have the file served and put it where the engine looks; raises StreamError, DamagedError, StoreError."""
    if item.size > shutil.disk_usage(paths.MODELS).free:
        raise StreamError("the disk has no room for the copy")
    if model_file.memory("MemAvailable") < MEMORY_LEAST_BYTES + LEAST_PARTS * box.stream_part_bytes:
        raise StreamError("too little memory")
    try:
        known = bucket.head(item.key)
    except GoneError as error:
        raise DamagedError(str(error)) from None
    if known.size != item.size:
        raise DamagedError(f"{item.key}: {known.size} bytes, not {item.size}")
    for mark in (paths.TOLD_STREAM, paths.LOADED):
        mark.unlink(missing_ok=True)
    job = {"key": item.key, "name": item.path.name, "size": item.size, "etag": known.etag, "sha256": item.sha256}
    paths.mark(paths.STREAM, json.dumps(job))
    try:
        systemctl("start", UNIT)
    except UnitError as error:
        raise StreamError(str(error)) from None
    deadline = time.monotonic() + START_SECONDS
    while True:
        told = said()
        if told.get("state") in (FAILED, DAMAGED):
            raise StreamError(told["why"])
        if told and (paths.STREAMED / item.path.name).is_file():
            break
        if time.monotonic() > deadline:
            raise StreamError(f"{UNIT} serves nothing after {START_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
    item.path.unlink(missing_ok=True)
    item.path.symlink_to(Path("..", "..", paths.STREAMED.name, item.path.name))
    return Streamed(item, told["server"])


class Streamed:
    """A file that is being served, by one run of its server: another one knows nothing of what this one handed out."""

    def __init__(self, item: Item, server: str) -> None:
        self.item, self._server = item, server
        self._told: tuple[bool, dict[str, Any]] = (False, {})
        self._moved_at = time.monotonic()

    def load(self, box: Box, patience_seconds: float) -> int:
        """Have the engine load the file, and wait for the digest of all that it was given; returns the bytes. Raises
        DamagedError, StreamError.
        """
        deadline, refusals = time.monotonic() + patience_seconds, 0
        while refusals < REFUSALS:
            request = readiness.Request(box, readiness.load(box), max(1.0, deadline - time.monotonic()))
            while not request.done.wait(POLL_SECONDS):
                self._watch(box, deadline)
            if request.asked is Asked.CAME:
                break
            say(f"STREAM load: {request.outcome}")
            refusals += readiness.answered()  # one that was restarted meanwhile is asked again
            self._watch(box, deadline)
            time.sleep(readiness.PAUSE_SECONDS)
        else:
            raise StreamError(f"the engine does not load it: {request.outcome}")
        paths.mark(paths.LOADED)
        while not self.checked():
            self._watch(box, deadline)
            time.sleep(POLL_SECONDS)
        return self.item.size

    def _watch(self, box: Box, deadline: float) -> None:
        """Raise where the load cannot end well."""
        told, now = (self.checked(), said()), time.monotonic()
        if told != self._told:
            self._told, self._moved_at = told, now
        if not told[0] and now - self._moved_at > STANDSTILLS * box.stream_stall_seconds:
            raise StreamError("its server stands still")
        if now > deadline:
            raise StreamError("the load takes too long")

    def checked(self) -> bool:
        """Whether the digest of all that was served is right, once it is known; raises as `load` does."""
        told = said()
        if told.get("state") == DAMAGED:
            raise DamagedError(told["why"])
        if told.get("state") == FAILED:
            raise StreamError(told["why"])
        if told.get("server") != self._server:
            raise StreamError("its server was ended amid the load")
        return told["state"] in (VERIFIED, KEPT)


def end(item: Item) -> None:
    """Take the file away from whoever reads it: its server is killed if need be, so that nobody hangs in a read."""
    try:
        systemctl("stop", UNIT)
    except UnitError as error:
        say(f"{error}")
    while fuse.detach(paths.STREAMED):
        continue
    for path in (item.path, paths.STREAM, paths.LOADED, paths.TOLD_STREAM):
        path.unlink(missing_ok=True)
