"""Notices at random moments of keep-alive and streaming traffic, on the box's own agent, gate and streams in a lab.

    python -m tests.box.leaving COUNT AT_A_TIME

Times are scaled: a notice leaves a few seconds. Where the drain ended before its deadline nobody may have been cut, and
at the deadline none may be missing in its count. A caller who was told to go elsewhere, by a 503 or by a reset before
the engine had read a byte of his request, was refused; that is no cut.
"""

import dataclasses
import http.client
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fleet.config import box_config

sys.path.insert(0, str(box_config.BUNDLE))

import agent
import aws
import ending
import gate
import imds
import leave
import notices
import paths

from tests.box import lab, netns, servers, world
from tests.box.conftest import a_box

BUDGET_SECONDS = (1.0, 5.0)  # of 105: some callers have time to end, some have not
# Longest request, longest pause, whether it streams, whether its connection is used again.
CALLERS = ((0.5, 0.003, False, True), (0.3, 0.6, False, True), (1.5, 0.003, True, True), (1.5, 0.3, True, False))


@dataclass
class Outcome:
    """What became of the requests of one notice, or of many."""

    notices: int = 0
    answered: int = 0
    refused: int = 0  # told to go elsewhere
    cut: int = 0
    cut_with_time: int = 0  # though the drain did not last until its deadline
    uncounted: int = 0  # cut, and not in the drain's figures

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))


class NoAws(aws.Aws):
    """No balancer is asked here."""

    def _call(self, *_: Any, **__: Any) -> Any:
        return {"TargetHealthDescriptions": []}


@dataclass
class Callers:
    """Everybody who calls, until he is refused."""

    lab: lab.Lab
    luck: random.Random
    failed: set[int] = field(default_factory=set)
    answered: int = 0
    refused: int = 0
    _number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> list[threading.Thread]:
        """One thread a caller."""
        threads = [threading.Thread(target=self._call, args=kind, daemon=True) for kind in CALLERS]
        for thread in threads:
            thread.start()
        return threads

    def _call(self, seconds: float, pause: float, stream: bool, again: bool) -> None:
        connection = None
        while True:
            with self._lock:
                self._number += 1
                number, mine = self._number, self.luck.random()
            try:
                connection = connection or self.lab.connect()
                status = lab.ask(connection, number, 0.05 + seconds * mine, stream=stream)
            except (OSError, http.client.HTTPException, ValueError, IndexError):
                status = 0
            if status != 200:
                self.refused += status == 503
                self.failed |= {number} if status != 503 else set()
                return
            self.answered += 1
            connection = connection if again else connection.close()
            time.sleep(pause * mine)


def one(seed: int) -> Outcome:
    """One notice."""
    luck = random.Random(seed)  # noqa: S311 - a moment, not a secret
    ended: list[ending.Ended] = []
    budget = luck.uniform(*BUDGET_SECONDS)
    box = dataclasses.replace(a_box(), drain_budget_seconds=budget, token_seconds=20.0)
    metadata = servers.Metadata({})
    for mark in (paths.LEAVING, paths.NOTICE, paths.WHY):
        mark.unlink(missing_ok=True)
    for mark in (paths.OPENED, paths.COMPLETED):
        paths.mark(mark)
    with lab.lab() as made:
        netns.ip("addr", "add", f"{imds.HOST}/32", "dev", "lo")
        server = metadata.serve(netns.listener(made.box, imds.HOST, 80))
        gate.set_state(gate.OPEN, lab.PORT)
        own = agent.Agent(box, imds.Imds(), NoAws(box, "i-1"))
        callers = Callers(made, luck)
        threads = callers.start()
        own.poll()
        time.sleep(luck.uniform(0.3, 1.5))
        time_left = (datetime.now(UTC) + timedelta(seconds=119)).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata.paths[notices.INTERRUPTION] = json.dumps({"action": "terminate", "time": time_left})
        real = ending.wait

        def wait(*args: Any) -> ending.Ended:
            ended.append(real(*args))
            return ended[-1]

        ending.wait = wait
        began = time.monotonic()
        try:
            own.poll()
        finally:
            ending.wait = real
        early = time.monotonic() - began < budget
        gate.set_state(gate.CLOSED, lab.PORT)  # the box is gone
        subprocess.run(["ss", "-HKtn", f"( sport = :{lab.PORT} )"], check=True, capture_output=True)
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        server.shutdown()
        server.server_close()
    cut = sum(number in made.requests for number in callers.failed)
    return Outcome(
        notices=1,
        answered=callers.answered,
        refused=callers.refused + len(callers.failed) - cut,
        cut=cut,
        cut_with_time=cut if early else 0,
        uncounted=max(0, cut - ended[0].cut),
    )


def _some(seeds: Sequence[int]) -> Outcome:
    """Some notices, one after another, in a process of their own."""
    ending.QUIET_SECONDS = 0.3
    leave.request = lambda why: None
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="leaving-") as folder:
        for name, path in list(vars(paths).items()):
            if isinstance(path, Path):
                setattr(paths, name, Path(folder).joinpath(*path.parts[1:]))
        for seed in seeds:
            outcome += one(seed)
    return outcome


def many(count: int, at_a_time: int) -> Outcome:
    """Notices with their own seeds, so many of them at a time; in a program of its own, which may fork."""
    command = [sys.executable, "-m", "tests.box.leaving", str(count), str(at_a_time)]
    done = subprocess.run(command, cwd=world.CHECKOUT, stdout=subprocess.PIPE, text=True, check=True)
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """What became of everybody, as one JSON line."""
    count, at_a_time = int(sys.argv[1]), int(sys.argv[2])
    shares = [range(first, count, at_a_time) for first in range(at_a_time)]
    with multiprocessing.get_context("fork").Pool(at_a_time) as pool:
        told = sum(pool.map(_some, shares, chunksize=1), Outcome())
    print(json.dumps(dataclasses.asdict(told)))  # noqa: T201 - its output


if __name__ == "__main__":
    main()
