"""Boots whose engine loads the model while it arrives: what goes wrong midway, and the download that is always left."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import config
import disk
import fuse
import model_file
import paths
import pytest
import s3
import streamed
from download import DamagedError, Item
from stream_state import DOWNLOADED, STREAMED

from fleet.core import names
from tests.box import servers, world
from tests.box.conftest import MakeWorld, Serving, a_box
from tests.box.test_boot import stage
from tests.box.test_window import opened

MIDWAY = 16  # of the model's 32 parts

try:
    os.close(os.open(fuse.DEVICE, os.O_RDWR))
    NO_FUSE = ""
except OSError as error:
    NO_FUSE = f"this machine's kernel serves no files of programs: {fuse.DEVICE}: {error.strerror}"
needs_fuse = pytest.mark.skipif(bool(NO_FUSE), reason=NO_FUSE)


class Midway:
    """Holds every read of the model from the middle on, or denies it, until it is let go."""

    def __init__(self, box: world.World, *, denies: bool = False) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._blob, self._asked = box.model().name, 0
        box.front.faults.append(servers.Fault(self._holds, "403" if denies else self.go_on, -1))

    def _holds(self, method: str, path: str) -> bool:
        if method == "HEAD" or not path.endswith(self._blob) or self.go_on.is_set():
            return False
        self._asked += 1
        if self._asked > MIDWAY:
            self.reached.set()
        return self._asked > MIDWAY


def begun(box: world.World, *, denies: bool = False) -> Midway:
    """A boot that is amid the load."""
    midway = Midway(box, denies=denies)
    box.boot()
    box.wait_for("stage=start_engine outcome=done")
    assert midway.reached.wait(world.PATIENCE_SECONDS), box.journal()
    if not denies:
        time.sleep(0.5)  # the engine reads, and waits
        assert "stage=load" not in box.log()
    return midway


def forget_pages(box: world.World) -> None:
    """The kernel's cache of the served file is gone, as that of 18 GB would be."""
    file = os.open(box.model(), os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def reads(box: world.World) -> int:
    """How often the model was asked for, in ranges."""
    blob = box.model().name
    return sum(method == "GET" and path.endswith(blob) for _, method, path, _ in list(box.front.requests))


def served(box: world.World) -> bool:
    """Whether a file of the server's is mounted in the box."""
    return "fleet-stream" in box.inside("/proc/1/mountinfo").read_text()


def serves(box: world.World, log: Path, how: str) -> None:
    """The boot has ended well, the model came in this way, is the very one, and nobody was answered before the gate."""
    box.wait_for("BOOTPATH")
    assert stage(box, "load")["how"] == how
    assert world.wait(box.streamed_metric) == [float(how == STREAMED)]
    assert box.model_is_right()
    assert box.generate().end()[0] == 0
    opened_at = float(stage(box, "open")["start"]) + box.monotonic_at_kernel
    assert {probe["outcome"] for probe in world.probes(log) if float(probe["at"]) < opened_at - 1} == {"refused"}


@needs_fuse
def test_model_loads_while_it_arrives_and_the_disk_has_it_once_the_box_serves(serving: Serving) -> None:
    box = serving()
    assert (stage(box, "restore")["how"], stage(box, "load")["how"]) == ("streamed", "streamed")
    assert float(stage(box, "load")["end"]) <= float(stage(box, "open")["start"])
    assert "WARNING" not in box.log()
    device = box.inside("/var/lib/fleet/nvme").stat().st_dev
    read_ahead = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    assert int(read_ahead.read_text()) == disk.READ_AHEAD_KB  # of what the engine reads later
    assert world.wait(box.streamed_metric) == [1]
    box.systemctl("stop", "fleet-boot")
    box.wait_for("STREAM kept")
    assert box.model_is_right()
    world.wait(lambda: not served(box))
    assert "STREAM ended" not in box.log()  # the engine maps what it was given
    before = reads(box)
    box.signal("engine", "KILL")
    box.wait_for("STREAM ended")
    box.wait_for("ENGINE warm-up: gate open again")
    assert box.generate().end()[0] == 0
    assert reads(box) == before


@needs_fuse
def test_engine_killed_midway_restarted_then_left_by_its_server_has_the_very_model(make: MakeWorld) -> None:
    """The engine is killed amid the load and restarted before the copy is whole; then the server is killed."""
    box = make(stream_copy_bytes_per_second=1.0)
    log = box.probe()
    midway = begun(box)
    box.signal("engine", "KILL")
    midway.go_on.set()
    serves(box, log, STREAMED)

    before = reads(box)
    box.systemctl("stop", "fleet-engine")
    forget_pages(box)
    box.systemctl("start", "fleet-engine")
    box.wait_for("ENGINE warm-up: gate open again")
    assert box.generate().end()[0] == 0
    assert reads(box) >= before + MIDWAY  # streamed again
    assert served(box)

    box.signal("stream", "KILL")
    box.wait_for("STREAM kept")  # of a server that hands out nothing that it has not checked
    box.signal("engine", "KILL")
    box.wait_for("(?s)gate open again.*gate open again")
    assert box.model_is_right()


@needs_fuse
def test_object_that_changed_when_its_server_was_killed_is_served_to_nobody(
    serving: Callable[..., world.World],
) -> None:
    box = serving(stream_copy_bytes_per_second=1.0)
    key = names.cache_blob(box.model().name)
    s3_client = box.aws.client("s3")
    data = bytearray(s3_client.get_object(Bucket=world.BUCKET, Key=key)["Body"].read())
    data[-100] ^= 1
    s3_client.put_object(Bucket=world.BUCKET, Key=key, Body=bytes(data))
    box.signal("stream", "KILL")
    box.signal("engine", "KILL")
    log = box.probe()
    world.wait(lambda: not box.lifecycle(), why=box.journal)
    assert "answered" not in {probe["outcome"] for probe in world.probes(log)}
    assert "STREAM kept" not in box.log()


@needs_fuse
@pytest.mark.parametrize(
    ("unit", "signal"),
    [("stream", "KILL"), ("stream", "STOP"), ("", "")],
    ids=["server killed", "server hangs", "S3 denies"],
)
def test_server_lost_midway_or_denied_ends_in_a_box_that_serves_what_it_downloaded(
    make: MakeWorld, unit: str, signal: str
) -> None:
    box = make(stream_stall_seconds=1.0)
    log = box.probe()
    midway = begun(box, denies=not unit)
    if unit:
        box.signal(unit, signal)
    box.wait_for("WARNING the model does not load while it arrives")
    midway.go_on.set()
    serves(box, log, DOWNLOADED)
    assert not served(box)


@pytest.mark.parametrize(("field", "why"), [("disk", "the disk has no room"), ("memory", "too little memory")])
def test_no_room_is_told_before_anything_is_started(field: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (streamed.paths.MODELS / "blobs").mkdir(parents=True)
    if field == "memory":
        monkeypatch.setattr(model_file, "memory", lambda _: 1 << 30)
    size = 1 << 60 if field == "disk" else 1000
    bucket = s3.Bucket("b", "us-east-2", None)  # type: ignore[arg-type] - which nobody asks
    with pytest.raises(streamed.StreamError, match=why):
        streamed.begin(a_box(), bucket, Item("key", Path("x"), size))


ASK = """
import sys, xllamacpp
for path, way in zip(sys.argv[1::2], sys.argv[2::2]):
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = path, 256, 1, False
    params.load_mode = getattr(xllamacpp.llama_load_mode, "LLAMA_LOAD_MODE_" + way)
    params.cpuparams.n_threads, params.verbosity = 1, 0
    server = xllamacpp.Server(params)
    asked = {"prompt": "Hello", "max_tokens": 24, "temperature": 0, "stream": False}
    answer = server.handle_completions(asked)
    print((answer[0] if isinstance(answer, list) else answer)["choices"][0]["text"])
"""
WAYS = ("MMAP", "NONE", "DIRECT_IO")


@pytest.mark.root
@needs_fuse
def test_real_engine_answers_from_the_served_file_what_it_answers_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.box import tiny_model  # a second to load

    on_disk = tmp_path / "tiny.gguf"
    tiny_model.write(on_disk)
    data = on_disk.read_bytes()
    with opened(monkeypatch, data=data, sha256=hashlib.sha256(data).hexdigest()) as made, ExitStack() as mounted:
        words = [str(on_disk), "MMAP"]
        for way in WAYS:  # a mount each: the kernel keeps pages of one for nobody else
            folder = tmp_path / way
            folder.mkdir()
            mounted.callback(fuse.Mount(folder, "blob", len(data), made.read).wait)
            mounted.callback(fuse.detach, folder)
            words += [str(folder / "blob"), way]
        said = subprocess.run([sys.executable, "-c", ASK, *words], capture_output=True, text=True, check=True).stdout
        made.finish()
        world.wait(lambda: made.verified, 10)
    from_disk, *served_by_way = said.splitlines()
    assert dict(zip(WAYS, served_by_way, strict=True)) == dict.fromkeys(WAYS, from_disk)
    assert len(from_disk.strip()) > 10


ENDS = """
import atexit, os, runpy, sys
from pathlib import Path
from tests.box.conftest import a_box
import config, fuse, paths
atexit.register(os.write, 1, b"cleared")
folder, config.load, fuse.DEVICE = Path(sys.argv[1]), a_box, "/nonexistent"
paths.MODELS, paths.STREAMED, paths.RUN, paths.LOG = folder, folder / "streamed", folder, folder / "log"
paths.STREAM, paths.TOLD_STREAM, paths.LOADED = folder / "stream.json", folder / "stream", folder / "loaded"
paths.STREAM.write_text('{"key": "k", "name": "n", "size": 9, "etag": "", "sha256": ""}')
runpy.run_path(sys.argv[2], run_name="__main__")
"""


def test_server_ends_without_clearing_what_its_connections_may_be_using(tmp_path: Path) -> None:
    """libcrypto's own goodbye has crashed under 24 connections: a server that ended so would be started again."""
    ended = subprocess.run([sys.executable, "-c", ENDS, tmp_path, model_file.__file__], capture_output=True, check=True)
    assert b"STREAM none" in ended.stdout
    assert b"cleared" not in ended.stdout


@pytest.mark.parametrize("kept", [True, False])
def test_server_that_is_killed_once_the_copy_stands_does_not_fetch_the_model_again(
    kept: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that maps the file keeps its server for as long as the box serves."""
    fetched: list[Item] = []

    def fetch(_box: config.Box, _bucket: s3.Bucket, item: Item) -> SimpleNamespace:
        fetched.append(item)
        return SimpleNamespace(read=None)

    monkeypatch.setattr(config, "load", a_box)
    monkeypatch.setattr(model_file, "ModelFile", fetch)
    monkeypatch.setattr(fuse, "DEVICE", "/nonexistent")
    job = {"key": "k", "name": "sha256-0", "size": 9, "etag": "", "sha256": ""}
    paths.mark(paths.STREAM, json.dumps(job))
    paths.mark(paths.LOADED)
    file = paths.MODELS / "blobs" / "sha256-0"
    file.parent.mkdir(parents=True)
    if kept:
        file.write_bytes(b"the model")
    else:
        file.symlink_to(paths.STREAMED / "sha256-0")
    assert model_file.main() == 0
    assert bool(fetched) is not kept


@pytest.mark.root
@needs_fuse
def test_damaged_file_is_an_error_to_whoever_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(monkeypatch, sha256="0" * 64) as made:
        made.finish()
        world.wait(lambda: made.failure, 10)
        assert isinstance(made.failure, DamagedError)
        mount = fuse.Mount(tmp_path, "blob", made.item.size, made.read)
        try:
            with pytest.raises(OSError, match="Input/output error"):
                (tmp_path / "blob").read_bytes()
        finally:
            fuse.detach(tmp_path)
            mount.wait()
