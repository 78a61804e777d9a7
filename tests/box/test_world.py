"""The suite itself: whatever ends a test, nothing of its boxes stays."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.box import world
from tests.box.conftest import Base


def left_over(mark: str) -> list[str]:
    """Processes, loop devices and mounts that name a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if mark in command and int(entry.name) != os.getpid():
            found.append(command)
    loops = subprocess.run(
        ["losetup", "--list", "--noheadings", "-O", "NAME,BACK-FILE"], capture_output=True, text=True
    )
    found += [line for line in loops.stdout.splitlines() if mark in line]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if mark in line]
    return found


def test_nothing_of_a_box_survives_a_killed_test(base: Base, tmp_path: Path) -> None:
    here = tmp_path / "doomed"
    program = f"""
        import sys, time
        sys.path.insert(0, {str(world.CHECKOUT / "assets" / "bootstrap")!r})
        from pathlib import Path
        from fleet import localaws
        from fleet.localaws.admission import Keys
        from tests.box import world
        keys = Keys({base.aws.keys.id!r}, {base.aws.keys.secret!r})
        aws = localaws.Aws({base.aws.endpoint!r}, Path({str(base.aws.log_dir)!r}), keys)
        with world.world(Path({str(here)!r}), aws, "", world.SETTINGS) as box:
            box.probe()
            box.systemctl("cloud-init", "/dev/null")
            print("up", flush=True)
            time.sleep(600)
    """
    environment = {**os.environ, "PYTHONPATH": str(world.CHECKOUT)}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert len(left_over(str(here))) >= 3
    process.send_signal(signal.SIGKILL)
    process.wait()
    world.wait(lambda: not left_over(str(here)), why=lambda: "\n".join(left_over(str(here))))
