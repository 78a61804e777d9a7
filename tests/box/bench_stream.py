"""The load's part in `make bench-boot`: a model that is read while it arrives against one that is downloaded before.

In pairs, over TLS, at half the rates that are documented or were measured: this machine's cores serve and receive. The
network is shaped; the disk and the engine are played by a reader that takes no more than their rates.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from fleet.core import boot_length
from tests.box import bench_restore, netns, world

BYTES, ROUNDS = 4 << 30, 3  # so much that what is paid once counts little, as with 18 GB
SCALE = 0.5
NETWORK = boot_length.BASELINE * SCALE
READER = boot_length.MODEL_BYTES / boot_length.FASTEST_LOAD * SCALE
DISK = boot_length.MODEL_BYTES / boot_length.MEDIANS["load"] * SCALE
HOWS = ("streamed", "downloaded")


def measure() -> dict[str, Any]:
    """Both ways in turns; medians of what each pair came to."""
    runs: dict[str, list[dict[str, float]]] = {how: [] for how in HOWS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (digest,) = bench_restore.write_source(folder / bench_restore.BUCKET / "blobs", 1, BYTES)
        trusted = str(world.AUTHORITY.certificate(folder))
        environment = {**os.environ, **bench_restore.KEY, "AWS_CA_BUNDLE": trusted, "SSL_CERT_FILE": trusted}
        with bench_restore.served(folder) as (box, out), netns.inside(box):
            bench_restore.fill(folder, environment)
            with netns.inside(out):
                rate = f"{NETWORK * 8:.0f}bit"
                bench_restore.tc(f"class replace dev out parent 1: classid 1:1 htb rate {rate} burst 1m cburst 1m")
            world.wait(partial(bench_restore.succeeds, bench_restore.listing(), environment))
            for how in track(HOWS * ROUNDS, "load"):
                runs[how].append(once(how, folder / f"run-{time.monotonic_ns()}", digest, environment))
    pairs = list(zip(*runs.values(), strict=True))
    slower = BYTES / min(NETWORK, READER)
    median = {how: statistics.median(run["seconds"] for run in of) for how, of in runs.items()}
    return {
        "bytes": BYTES,
        "rates": {"network": NETWORK, "reader": READER, "disk": DISK},
        "seconds": median,
        "times": statistics.median(other["seconds"] / ours["seconds"] for ours, other in pairs),
        "of_the_slower": median["streamed"] / slower,
        "cpu_per_gb": {how: statistics.median(run["cpu"] for run in of) / (BYTES / 1e9) for how, of in runs.items()},
        "runs": runs,
    }


def once(how: str, where: Path, digest: str, environment: dict[str, str]) -> dict[str, float]:
    """One load."""
    where.mkdir()
    program = str(world.STANDINS / "load.py")
    rates = (f"{READER:.0f}", f"{DISK:.0f}")
    command = [sys.executable, program, bench_restore.endpoint(bench_restore.SEAWEED_TLS), how, str(where), str(BYTES)]
    done = subprocess.run([*command, digest, *rates], env=environment, check=True, capture_output=True, text=True)
    shutil.rmtree(where)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def report(console: Console, result: dict[str, Any]) -> None:
    """The table."""
    table = Table(
        "", "seconds", "of the slower rate", "CPU s per GB", title=f"load of {BYTES / 1e9:.1f} GB", title_justify="left"
    )
    for how in HOWS:
        of = f"{result['of_the_slower']:.2f}" if how == "streamed" else ""
        table.add_row(how, f"{result['seconds'][how]:.2f}", of, f"{result['cpu_per_gb'][how]:.2f}")
    console.print(table)
    console.print(f"streamed is {result['times']:.2f} times as fast, pair by pair")
