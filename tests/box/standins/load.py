"""One load by the box's own code, as a program of its own: `bench-boot` times it; an engine is played by a reader.

load.py ENDPOINT streamed|downloaded FOLDER BYTES DIGEST READER DISK
    READER and DISK are the most bytes a second that the reader takes from a served file, and from the disk's
load.py read PATH RATE      the reader: 1 MiB at a time, as an engine that does not map the file

Prints seconds and CPU seconds, digest right, as JSON.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "assets" / "bootstrap"))

import config
import download
import fuse
import paths
import restore
import s3
import window


def read(path: str, rate: float) -> None:
    """Read a file no faster than this."""
    buffer, done = bytearray(1 << 20), 0
    started = time.monotonic()
    with Path(path).open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            done += count
            time.sleep(max(0.0, started + done / rate - time.monotonic()))


def reader(path: Path, rate: str) -> None:
    """The reader, in a process of its own, as an engine is."""
    subprocess.run([sys.executable, __file__, "read", str(path), rate], check=True)


def streamed(bucket: s3.Bucket, item: download.Item, folder: Path, rate: str) -> None:
    """The model is read while it arrives, with the least of memory."""
    made = window.Window(bucket, item, lambda: 0, part_bytes=config.Box.stream_part_bytes)
    mount = fuse.Mount(folder, item.path.name, item.size, made.read)
    try:
        reader(item.path, rate)
        made.finish()
        while not made.verified:
            if made.failure:
                raise made.failure
            time.sleep(0.01)
    finally:
        fuse.detach(folder)
        mount.wait()


def forget(path: Path) -> float:
    """Have the reader meet the disk, since memory holds no 18 GB; the seconds that it took, which nobody waits for."""
    began = time.monotonic()
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return time.monotonic() - began


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read(sys.argv[2], float(sys.argv[3]))
        sys.exit()
    endpoint, how, where, size, digest, reader_rate, disk_rate = sys.argv[1:]
    os.environ["AWS_ENDPOINT_URL"], paths.LOG = endpoint, Path(where, "log")
    bucket = s3.Bucket("bench", "us-east-1", restore.Keys())  # type: ignore[arg-type]
    folder = Path(where, how)
    folder.mkdir()
    item = download.Item(f"blobs/sha256-{digest}", folder / digest, int(size), sha256=digest)
    started = time.monotonic()
    if how == "streamed":
        streamed(bucket, item, folder, reader_rate)
    else:
        download.download(bucket, [item])
        started += forget(item.path)
        reader(item.path, disk_rate)
    seconds = time.monotonic() - started
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    sys.stdout.write(json.dumps({"seconds": seconds, "cpu": sum(each.ru_utime + each.ru_stime for each in used)}))
    sys.stdout.flush()
    os._exit(0)  # as model_file does: connections may still be amid TLS
