"""The simulated cloud against what was measured on a live one."""

import os
import subprocess
import sys
from itertools import pairwise

import pytest

from fleet.config.settings import Settings
from fleet.sim.cloud.behaviour import Behaviour
from fleet.sim.drills import replay
from tests.drills.by_hand import BOOT_SECONDS, START, build, market, told


def test_an_empty_group_in_a_drought_retries_at_the_measured_backoff(settings: Settings) -> None:
    cloud, log = build(settings, market((0.5, 0), hours=1))
    cloud.run()
    gaps = [round(after - before) for before, after in pairwise(told(log, "launch.failed"))]
    assert gaps[:10] == [11, 11, 65, 65, 120, 120, 240, 480, 600, 600]


def test_a_flip_makes_the_group_try_again_at_once(settings: Settings) -> None:
    cloud, log = build(settings, market((0.5, 0), hours=1))
    cloud.run(until=START + 1500)
    cloud.flip(cloud.group(), 100, send_template=True)
    cloud.run()
    assert [event.fields["purchase"] for event in log if event.kind == "box.launched"] == ["on-demand"]
    assert told(log, "box.launched") == [1507]


def test_a_first_boot_serves_after_kernel_boot_and_probes(settings: Settings) -> None:
    cloud, log = build(settings, market(hours=1))
    cloud.run()
    assert told(log, "box.serving") == [2 + BOOT_SECONDS]


def test_same_seed_same_bytes(settings: Settings) -> None:
    def lines(seed: int) -> list[str]:
        cloud, log = build(settings, replay.load("07-21").market, Behaviour(), seed=seed)
        cloud.run()
        return [event.line() for event in log]

    assert lines(1) == lines(1)
    assert lines(1) != lines(2)


@pytest.mark.slow
def test_same_seed_same_bytes_in_a_process_that_hashes_otherwise() -> None:
    """The order of no set or dictionary of strings may reach the log."""
    code = (
        "from fleet.sim.markets import synthetic\nfrom fleet.sim.drills.drill import Drill\n"
        "from fleet.sim.policies.catalogue import COMPARED, POLICIES\n"
        "for name in COMPARED:\n"
        "    market = synthetic.market(synthetic.region('us-east-2'), 1, days=3)\n"
        "    POLICIES[name](Drill(market, emit=lambda event: print(event.line())))\n"
    )
    logs = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert logs[0] == logs[1]
    assert logs[0].count(b"\n") > 100
