"""Makes the instance store usable and points `paths.STORE` at it. The boot runs it once, on an empty disk."""

import os
import subprocess
from collections.abc import Container
from pathlib import Path

import paths
from log import say

# Names that udev gives to instance-store disks; EBS volumes are called nvme-Amazon_Elastic_Block_Store_*.
DISKS = ("/dev/disk/by-id", "nvme-Amazon_EC2_NVMe_Instance_Storage_*")
# Where the deep-learning image mounts it (over LVM): mkfs would find it busy (aws-behaviours: image-mounts-store).
IMAGE_MOUNT = Path("/opt/dlami/nvme")
OWN_MOUNT = paths.STATE / "nvme"
# Of a file that is read in order: at the kernel's 128 KiB a loop device gave 262 to 430 MB/s, at this 917 to 1300.
READ_AHEAD_KB = 8192


class DiskError(Exception):
    """There is no instance store to use."""


def prepare() -> str:
    """Find, format if it is blank, mount; returns what was done. Raises DiskError."""
    mount, how = _mount()
    folder = mount / "fleet"
    folder.mkdir(exist_ok=True)
    read_ahead(folder)
    paths.STORE.unlink(missing_ok=True)
    paths.STORE.symlink_to(folder)
    for part in (paths.MODELS / "blobs", paths.MODELS / "manifests", paths.ENGINE):
        part.mkdir(parents=True, exist_ok=True)
    return how


def read_ahead(folder: Path) -> None:
    """Have the kernel read further ahead in a folder's file system; where it has no such, all stays as it is."""
    device = folder.stat().st_dev
    try:
        Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").write_text(str(READ_AHEAD_KB))
    except OSError as error:
        say(f"read-ahead of {folder} stays as it is: {error}")


def _mount() -> tuple[Path, str]:
    if IMAGE_MOUNT.is_mount():
        return IMAGE_MOUNT, "reused the image's mount"
    root, pattern = DISKS
    disks = sorted({path.resolve() for path in Path(root).glob(pattern)}) if Path(root).is_dir() else []
    if not disks:
        raise DiskError("no instance store: neither a mount of the image nor a disk")
    disk = str(disks[0])
    OWN_MOUNT.mkdir(parents=True, exist_ok=True)
    for line in Path("/proc/mounts").read_text().splitlines():
        source, target = line.split()[:2]
        if os.path.realpath(source) == disk:
            _run("mount", "--bind", target, str(OWN_MOUNT))  # where the engine's sandbox lets it write
            return OWN_MOUNT, "reused a mount"
    mount = ("mount", "-o", "noatime", disk, str(OWN_MOUNT))
    blank = _run("blkid", "--probe", disk, accept=(0, 2)) == 2  # 2: no signature of any file system
    if not blank and _run(*mount, accept=range(256)) == 0:
        return OWN_MOUNT, "mounted"
    if not blank:
        _run("wipefs", "--all", disk)  # a label of LVM, say: nothing of ours is on it at a first boot
    _run("mkfs.xfs", "-q", disk)
    _run(*mount)
    return OWN_MOUNT, "formatted" if blank else "wiped and formatted"


def _run(*command: str, accept: Container[int] = (0,)) -> int:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in accept:
        raise DiskError(f"{command[0]}: {' '.join(done.stderr.split())}")
    return done.returncode
