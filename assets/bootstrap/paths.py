"""Where things stand on the box, and the marks by which its programs know of each other. Imported by all of them."""

import os
import threading
from pathlib import Path

BOX_JSON = Path("/etc/fleet/box.json")
LOG = Path("/var/log/fleet/box.log")

STATE = Path("/var/lib/fleet")  # on the root volume: survives a reboot
BOOT_ID = STATE / "boot-id"  # which start of the machine ran the boot
COMPLETED = STATE / "completed"  # the launch hook is completed: leaving no longer abandons it
STORE = STATE / "store"  # a link to our folder on the instance store: empty after a reboot
MODELS = STORE / "models"  # OLLAMA_MODELS
ENGINE = STORE / "engine"
STREAMED = STORE / "streamed"  # where the model's file is mounted while it arrives
KEPT = STORE / "kept"  # its copy on the disk, until that is whole

RUN = Path("/run/fleet")  # gone after a reboot
GATE = RUN / "gate"  # the gate's state
NOTICE = RUN / "notice"  # the box was told to go: leaving is no failure
WHY = RUN / "why"  # why the box leaves, for whoever carries it out
TOLD = RUN / "told"  # the leaving box has told CloudWatch why, or has tried
OPENED = RUN / "opened"  # the gate was opened by the boot: the agent keeps the engine from here on
STREAM = RUN / "stream.json"  # what the model's file is, for its server
TOLD_STREAM = RUN / "stream"  # what that server last told of it
LOADED = RUN / "loaded"  # the engine holds the whole model: bytes that no digest vouches for are served to nobody
FIGURES = RUN / "figures"  # of this box, a file each: the lane tells them as Prometheus text
LEAVING = RUN / "leaving"  # no way back: the gate refuses to open


def serves() -> bool:
    """Whether this boot got as far as serving: what fails after that is no reason to leave."""
    return COMPLETED.exists() and OPENED.exists()


def mark(path: Path, text: str = "") -> None:
    """Set a mark. Repeating it is harmless; who reads it meanwhile reads the old text or the new, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    fresh.write_text(text, errors="backslashreplace")
    fresh.replace(path)
