"""The event log is complete: a stranger's ten lines get degraded minutes and cost from it, without any code of ours."""

import ast
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from fleet.config.settings import Capacity
from fleet.eventlog import events
from fleet.sim.drills import replay
from fleet.sim.drills.drill import default_settings
from fleet.sim.markets import synthetic
from fleet.sim.markets.market import Market
from fleet.sim.policies.catalogue import COMPARED, POLICIES, without_valve
from tests.drills.by_hand import lived

pytestmark = pytest.mark.slow  # drills whole regions


def strangers_sums(path: Path) -> tuple[float, float]:
    """(degraded minutes, USD). Written from docs/event-log.md alone."""
    at, serving, living, degraded, usd, desired = 0.0, set(), {}, 0.0, 0.0, 1
    for e in map(json.loads, path.read_text().splitlines()):
        now, kind, box = datetime.fromisoformat(e["at"]).timestamp(), e["kind"], e.get("box")
        degraded += (now - at) * max(0, desired - len(serving)) / desired if at else 0
        usd += sum(living.values()) * (now - at) / 3600 if at else 0
        at = now
        desired = e["desired"] if kind == "start" else desired
        living.update({box: e["usd_per_hour"]} if kind == "box.launched" else {})
        living.pop(box if kind == "box.ended" else None, None)
        serving = serving | {box} if kind == "box.serving" else serving - {box} if kind == "box.unserving" else serving
    return degraded / 60, usd


THREE = Capacity(min=3, max=6, on_demand_base=1)
SCENES: dict[str, tuple[object, Capacity]] = {
    "a history": (replay.load("07-21"), Capacity()),
    "20 days of a region": (synthetic.market(synthetic.region("us-east-2"), 3, days=20), Capacity()),
    "a fleet of three": (synthetic.market(synthetic.region("us-east-1"), 4, days=10, supply=2), THREE),
}


@pytest.mark.parametrize("name", [name for name in COMPARED if name != "bridge"])
@pytest.mark.parametrize("scene", SCENES)
def test_a_strangers_ten_lines_come_to_the_same_minutes_and_dollars(scene: str, name: str, tmp_path: Path) -> None:
    market, capacity = SCENES[scene]
    assert isinstance(market, Market | replay.History)
    settings = without_valve(default_settings().__class__(**{**vars(default_settings()), "capacity": capacity}))
    log, result = lived(market, POLICIES[name], settings=settings)
    path = tmp_path / "events.jsonl"
    events.write(log, path)
    minutes, usd = strangers_sums(path)
    for event in log:
        assert set(event.fields) <= set(events.FIELDS[event.kind]), event
    assert minutes == pytest.approx(result.measure.degraded_minutes, abs=0.01)
    assert usd == pytest.approx(result.measure.cost_usd, abs=0.001)


def test_the_page_has_every_kind_with_its_fields_row_by_row() -> None:
    page = (Path(__file__).parents[2] / "docs" / "event-log.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    told = {
        kind: tuple(re.findall(r"`([a-z_]+)`", row[1])) for row in rows for kind in re.findall(r"`([a-z._]+)`", row[0])
    }
    assert told == events.FIELDS


def test_every_kind_and_field_of_a_history_and_of_the_demo_is_known() -> None:
    lives = (lived(replay.load(name), POLICIES["alarm"])[0] for name in replay.names())
    written = {(event.kind, key) for log in lives for event in log for key in event.fields} | set(told_by_the_demo())
    assert ("deploy", "lever") in written
    assert written <= {(kind, key) for kind, keys in events.FIELDS.items() for key in keys}


def told_by_the_demo() -> Iterator[tuple[str, str]]:
    """(kind, field) of every line that its acts write."""
    for path in Path(__file__).parents[2].joinpath("fleet/demo").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("log.add"):
                kind = ast.literal_eval(node.args[1])
                yield from ((kind, keyword.arg) for keyword in node.keywords if keyword.arg)
