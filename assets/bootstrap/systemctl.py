"""Starts a unit of ours; a start that fails says why."""

import subprocess


class UnitError(Exception):
    """systemd did not start a unit."""


def start(unit: str, *options: str) -> None:
    """`systemctl start`; raises UnitError with what it said."""
    done = subprocess.run(["systemctl", "start", *options, unit], capture_output=True, text=True)
    if done.returncode:
        why = " ".join(done.stderr.split()) or f"exit {done.returncode}"
        raise UnitError(f"systemctl start {unit}: {why}")
