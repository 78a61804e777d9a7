"""`make bench-walk`: the newcomer's path by the README, clone to teardown, each line timed; a table and JSON.

A real clone sets itself up; only the package caches are this machine's. The lines are those of the clone's README.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e import walk
from tests.e2e.walk import Typed
from tests.synth import ROOT

OUT = ROOT / "out" / "bench" / "walk.json"


def main() -> int:
    """1 where a line ends otherwise than the README says: the deploy onto the empty store stops there."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        clone, demo, _ = (ROOT / "README.md").read_text().split("```")[1].strip().splitlines()
        with walk.terminal(Path(folder)) as enter:
            typed = [enter(clone.replace("REPOSITORY", str(ROOT))), enter(demo)]
        checkout, began = Path(folder) / "fleet", time.monotonic()
        with walk.cloud(checkout), walk.terminal(checkout) as enter:
            first, lines = walk.lines(checkout)
            typed.append(Typed(first, "", 0, time.monotonic() - began))
            typed += [enter(line) for line in lines]
    walk.tell(OUT, typed, load, total_seconds=round(sum(line.seconds for line in typed)))
    return int([line.code for line in typed if line.code] != [2])


if __name__ == "__main__":
    sys.exit(main())
