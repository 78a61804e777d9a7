"""Starts and stops units of ours; one that fails says why."""

import subprocess


class UnitError(Exception):
    """systemd did not do as it was asked."""


def start(unit: str, *options: str) -> None:
    """`systemctl start`; raises UnitError with what it said."""
    _do("start", unit, *options)


def stop(unit: str) -> None:
    """`systemctl stop`, which ends what does not end by itself; raises UnitError."""
    _do("stop", unit)


def _do(verb: str, unit: str, *options: str) -> None:
    done = subprocess.run(["systemctl", verb, *options, unit], capture_output=True, text=True)
    if done.returncode:
        why = " ".join(done.stderr.split()) or f"exit {done.returncode}"
        raise UnitError(f"systemctl {verb} {unit}: {why}")
