"""One look at a box that serves: what engine, lane, store and GPU tell. What follows from it is `wedge`'s to say."""

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Optional

import gate
import line
import paths
import readiness
import stream_state
import wedge
from config import Box
from log import say

GPU_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
GPU_BUSY_PERCENT = 5
GPU_SECONDS = 5.0  # it answers in a fraction of one; a look must not wait longer than to the next
SECTOR_BYTES = 512  # in which the kernel counts, whatever the device's are


class Gpu:
    """The GPU, as nvidia-smi tells of it: one at a time, and one that hangs in the driver, where no signal reaches it,
    is not waited for.
    """

    def __init__(self) -> None:
        self._asking: Optional[subprocess.Popen[str]] = None
        self._known = True

    def busy(self) -> Optional[bool]:
        """Whether it works; None where nobody can tell, which is logged once."""
        try:
            busy = self._percent() >= GPU_BUSY_PERCENT
        except (OSError, subprocess.TimeoutExpired, ValueError) as error:
            if self._known:
                say(f"nobody can tell whether the GPU works: {error}")
            self._known = False
            return None
        self._known = True
        return busy

    def _percent(self) -> int:
        if self._asking and self._asking.poll() is None:
            raise ValueError("nvidia-smi hangs")
        self._asking = subprocess.Popen(GPU_QUERY, stdout=subprocess.PIPE, text=True)
        try:
            output, _ = self._asking.communicate(timeout=GPU_SECONDS)
        except subprocess.TimeoutExpired:
            self._asking.kill()
            raise
        return max(int(value) for value in output.split())


class Store:
    """The instance store's device, whose reads the kernel counts, and the file that is served while it arrives: a load
    in progress, which no engine tells.
    """

    def __init__(self) -> None:
        self._at, self._device, self._served = time.monotonic(), 0, 0

    def reading(self, box: Box) -> bool:
        """Whether the device was read since the last time as fast as a load reads, or the served file at all.

        Others read the device too; the served file only the engine, at the pace of the network. False where nobody
        counts (a tmpfs).
        """
        before_at, device, served = self._at, self._device, self._served
        self._at, self._served = time.monotonic(), int(stream_state.said().get("served", 0))
        with suppress(OSError):
            self._device = int(device_counters(paths.MODELS).read_text().split()[2]) * SECTOR_BYTES
        return self._served > served or self._device - device > box.load_bytes_per_second * (self._at - before_at)


def device_counters(path: Path) -> Path:
    """Where the kernel counts what is done to the device that holds a path; a file that is not there for a tmpfs."""
    device = path.stat().st_dev  # aws-behaviours: store-reads-counted
    return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")


class Sight:
    """What a look needs to remember of the one before."""

    def __init__(self) -> None:
        self.gpu, self.store = Gpu(), Store()

    def look(self, box: Box, told: Optional[line.Told], token: Optional[wedge.Asked]) -> wedge.Look:
        """One look at engine, line, store and, only where something waits, the GPU. `token` is ours."""
        answers = readiness.answered() and told is not None
        seen = wedge.Look(
            at=time.monotonic(),
            answers=answers,
            loaded=readiness.running(box) if answers else None,
            gate_shut=gate.current() != gate.OPEN,
            streams=told.streams if told else 0,
            served=told.served if told else None,
            token=token,
        )
        return replace(seen, gpu_busy=self.gpu.busy() if seen.waiting else None, reading=self.store.reading(box))
