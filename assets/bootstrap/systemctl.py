"""Starts and stops units of ours; one that fails says why."""

import subprocess


class UnitError(Exception):
    """systemd did not do as it was asked."""


def systemctl(verb: str, unit: str, *options: str) -> None:
    """`systemctl VERB UNIT`; raises UnitError with what it said."""
    done = subprocess.run(["systemctl", verb, *options, unit], capture_output=True, text=True)
    if done.returncode:
        why = " ".join(done.stderr.split()) or f"exit {done.returncode}"
        raise UnitError(f"systemctl {verb} {unit}: {why}")
