"""Guards on an alarm, in order, then the failover itself."""

import json
from pathlib import Path
from typing import Any

from lambdas.watchdog.handler import run
from tests.watchdog.still_cloud import NOW, SETTINGS, StillCloud, ago

EVENTS = Path(__file__).parents[1] / "events"


def event(name: str) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return raw


def wake(cloud: StillCloud, name: str = "alarm-lit") -> dict[str, Any]:
    return run(event(name), cloud=cloud, settings=SETTINGS, now=NOW)


def test_drought_flips_after_five_reads_each_thing_once() -> None:
    cloud = StillCloud()
    record = wake(cloud)
    assert record["action"] == "failover"
    assert cloud.calls == [
        "parameters", "alarm", "group", "target_health", "stack_in_progress",
        "put_state", "put_lever 100", "flip 100", "mail", "put_state",
    ]  # fmt: skip
    assert cloud.parsed.unfinished is None
    assert cloud.parsed.failovers == (NOW,)


def test_young_instance_defers_failover_with_the_verbatim_line() -> None:
    cloud = StillCloud()
    cloud.put_box(age=600)
    record = wake(cloud)
    assert record["reason"] == "failover skipped: instance younger than grace is still warming"
    assert cloud.lever == "0"
    assert not cloud.mails
    assert ago(600) == cloud.known["i-0aaaaaaaaaaaaaaa1"].launched_at
