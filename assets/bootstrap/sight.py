"""One look at a serving engine: what it, the kernel and the GPU tell. What follows from it is `wedge`'s to say."""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

import engine
import gate
import paths
import stream_state
import streams
import warm
import wedge
from config import Box
from log import say
from wedge import Asked

GPU_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
GPU_BUSY_PERCENT = 5
GPU_SECONDS = 5.0  # it answers in a fraction of one; a look must not wait longer than to the next
SECTOR_BYTES = 512  # in which the kernel counts, whatever the device's are
PROCESSOR = Path("/proc/stat")
CORES_BUSY = 1.5  # a GPU that hangs has one core wait for it; half a model on the processor takes all of them


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


class Processor:
    """The machine's processor, as the kernel counts its work: part of a model may run there."""

    def __init__(self) -> None:
        self._at, self._busy_seconds = time.monotonic(), 0.0

    def busy(self) -> bool:
        """Whether more than a core was at work since the last time."""
        before_at, before = self._at, self._busy_seconds
        user, nice, system, *_ = map(int, PROCESSOR.read_text().split()[1:8])
        self._at, self._busy_seconds = time.monotonic(), (user + nice + system) / os.sysconf("SC_CLK_TCK")
        return self._busy_seconds - before > CORES_BUSY * (self._at - before_at)


class Sight:
    """What a look needs to remember of the one before."""

    def __init__(self) -> None:
        self.gpu, self.store, self.processor = Gpu(), Store(), Processor()


def look(
    box: Box, live: Sequence[streams.Connection], sight: Sight, load: Optional[Asked], token: Optional[Asked]
) -> wedge.Look:
    """One look at engine, connections, store and, only where something waits, the GPU. `load` and `token` are ours."""
    answers = answered(box)
    loaded = running(box) if answers else None
    shut = gate.current() != gate.OPEN
    seen = told(box, time.monotonic(), live, answers=answers, loaded=loaded, gate_shut=shut, load=load, token=token)
    busy = sight.gpu.busy() if seen.waiting or seen.pending else None
    if sight.processor.busy() and loaded and loaded.partial:
        busy = True
    elif loaded and loaded.partial and not busy:
        busy = None  # an idle GPU proves nothing
    return replace(seen, gpu_busy=busy, reading=sight.store.reading(box))


def told(
    box: Box,
    at: float,
    live: Sequence[streams.Connection],
    *,
    answers: bool,
    loaded: Optional[engine.Loaded],
    gate_shut: bool,
    load: Optional[Asked],
    token: Optional[Asked],
) -> wedge.Look:
    """What engine and connections tell, without the GPU and the store. Pure."""
    outstanding = frozenset(found.peer for found in live if found.outstanding is not False)
    flowing = any(found.sent_bytes and found.since_sent_seconds <= box.poll_seconds for found in live)
    return wedge.Look(
        at=at,
        answers=answers,
        loaded=loaded,
        gate_shut=gate_shut,
        active=any(found.stream for found in live),
        waiting=bool(outstanding),
        flowing=flowing,
        gpu_busy=None,
        load=load,
        token=token,
        peers=outstanding,
    )


def stored(box: Box) -> bool:
    """Whether the instance store holds the model; a disk that fails holds nothing."""
    try:
        return engine.manifest(box.model).is_file()
    except OSError as error:
        say(f"instance store: {error}")
        return False


def answered(box: Box) -> bool:
    """Whether the engine answers at all."""
    try:
        return bool(engine.ask(box, "GET", "/api/version").get("version"))
    except engine.EngineError as error:
        say(f"engine: {error}")
        return False


def running(box: Box) -> Optional[engine.Loaded]:
    """What is loaded; None where the engine does not say, as while it loads."""
    try:
        answer = engine.ask(box, "GET", "/api/ps")
        return engine.loaded(box, warm.digest(box), answer, datetime.now(timezone.utc).year)
    except (engine.EngineError, OSError) as error:
        say(f"engine: {error}")
        return None


def connections(box: Box, watch: Optional[streams.Watch] = None) -> tuple[streams.Connection, ...]:
    """Connections from outside; none where the kernel does not tell, which is logged."""
    try:
        return watch.look() if watch else streams.connections(box.port)
    except streams.StreamsError as error:
        say(f"streams: {error}")
        return ()
