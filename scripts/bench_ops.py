"""`make bench-ops`: seconds and calls of `fleetctl status` and `preflight` on the embedded AWS, as a table and JSON.

Each run is a process of its own, as an operator starts it; `fleetctl --help` beside it says what of that is Python.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fleet.core.errors import EXIT_ATTENTION
from fleet.localaws.standing_fleet import standing

RUNS = 7
BUDGET_SECONDS = {"status": 2.0, "preflight": 15.0}
BUDGET_CALLS = {"status": 12}
OUT = Path("out/bench/ops.json")


def main() -> int:
    """Measure, print, keep."""
    found = {}
    program = str(Path(sys.executable).parent / "fleetctl")
    with tempfile.TemporaryDirectory() as folder, standing(Path(folder)) as fleet:
        environment = {**os.environ, **fleet.aws.environment()}
        for command in ("--help", "status", "preflight"):
            seconds, calls = [], []
            for _ in range(RUNS + 1):  # the first warms the disk's cache
                before, began = len(fleet.aws.requests()), time.monotonic()
                done = subprocess.run([program, command], env=environment, capture_output=True, check=False)  # noqa: S603
                seconds.append(time.monotonic() - began)
                if done.returncode not in (0, EXIT_ATTENTION):
                    sys.exit(f"fleetctl {command} ended with {done.returncode}: {done.stderr.decode()}")
                calls.append(len(fleet.aws.requests()) - before)
            found[command] = {
                "median_seconds": round(statistics.median(seconds[1:]), 2),
                "worst_seconds": round(max(seconds[1:]), 2),
                "calls": max(calls),
                "budget_seconds": BUDGET_SECONDS.get(command),
                "budget_calls": BUDGET_CALLS.get(command),
            }
    found["load_average"] = {"before_last_minute": round(os.getloadavg()[0], 1)}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name, row in found.items():
        print(f"{name:14}" + "  ".join(f"{key} {value}" for key, value in row.items() if value is not None))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
