"""Both receipts, drilled: how long they were degraded, and what they become where AWS behaves otherwise.

What is decided in them, and when: tests/watchdog/test_histories.py.
"""

import json
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fleet.config.settings import Drain
from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Behaviour
from fleet.sim.drills import drill
from fleet.sim.drills import replay as history
from fleet.sim.drills.drill import Drill
from fleet.sim.policies.catalogue import watchdog
from tests.drills.by_hand import lived

Replay = tuple[drill.Result, tuple[Event, ...], dict[str, Any]]


@cache
def replay(name: str, *, drain: Drain | None = None, **group: Any) -> Replay:
    record = history.load(name)
    settings = replace(drill.default_settings(), drain=drain or Drain())
    log, result = lived(record, settings=settings, behaviour=replace(record.behaviour, **group))
    return result, tuple(log), record.outcome


def decisions(log: tuple[Event, ...], action: str) -> list[Event]:
    return [event for event in log if event.kind == "decision" and event.fields["action"] == action]


def test_four_reclaims_are_degraded_for_26_minutes_per_drought_and_ride_out_the_others() -> None:
    result, _, outcome = replay("07-21")
    minutes = [window.seconds / 60 for window in result.measure.windows]
    first, drought, third, second_drought = minutes
    assert abs(drought - outcome["degraded_minutes_per_drought"]) <= 1.5
    assert abs(second_drought - outcome["degraded_minutes_per_drought"]) <= 1.5
    assert max(first, third) < 9  # a routine reclaim: no alarm


def overlap_minutes(log: tuple[Event, ...]) -> float:
    """How long the spot successor and the on-demand box both ran, at the re-arm."""
    rearm = decisions(log, "re-arm")[0].at
    spot = next(e.at for e in log if e.kind == "box.launched" and e.at > rearm)
    old = next(e.at for e in log if e.kind == "box.ended" and e.at > rearm)
    return (old - spot).total_seconds() / 60


def test_recorded_overlap_of_15_minutes_is_that_of_a_group_without_hooks_whose_warm_up_is_its_grace() -> None:
    """An unset warm-up falls back to the grace of 15 min; with hooks and a warm-up of its own the group needs less."""
    _, log, outcome = replay(
        "07-21", launch_hook=False, warmup_seconds=900, drain=Drain(deregistration_delay_seconds=0)
    )
    assert abs(overlap_minutes(log) - outcome["overlap_minutes_at_rearm"]) <= 1
    _, today, _ = replay("07-21")
    assert overlap_minutes(today) < outcome["overlap_minutes_at_rearm"]


def test_seven_reclaims_boot_eight_times_and_answer_before_the_alarm_fires() -> None:
    result, log, outcome = replay("07-27")
    spot = [e for e in log if e.kind == "box.launched" and e.fields["purchase"] == "spot"]
    assert len(spot) == outcome["boots"]
    alarm = datetime.fromisoformat(outcome["skipped"][0])
    assert abs((alarm - spot[-1].at).total_seconds() / 60 - outcome["instance_age_at_alarm_minutes"]) <= 1
    healthy = [e.at for e in log if e.kind == "box.serving"][-1]
    assert abs((healthy - datetime.fromisoformat(outcome["healthy_target_about"])).total_seconds()) <= 60
    assert all(window.seconds < 12 * 60 for window in result.measure.windows)


@pytest.mark.parametrize("name", history.names())
def test_a_history_holds_under_any_luck_of_lags(name: str) -> None:
    """The recorded market with everything else drawn: the watchdog still never leaves the fleet empty for an hour."""
    record = history.load(name)
    drawn = replace(Behaviour(), alarm=replace(Behaviour().alarm, recorded=None), scores=record.behaviour.scores)
    for seed in range(5):
        result = drill.run(Drill(record, behaviour=drawn, seed=seed), watchdog)
        assert max(window.seconds for window in result.measure.windows) < 3600


def told(name: str, *, minutes: int = 12, boots: float = 1.0) -> tuple[Drill, list[Event]]:
    """A history with another alarm or other boots than it was recorded with."""
    log: list[Event] = []
    record, plain = history.load(name), drill.default_settings()
    settings = replace(plain, watchdog=replace(plain.watchdog, alarm_minutes=minutes))
    behaviour = replace(record.behaviour, boots=replace(record.behaviour.boots, factor=boots))
    changed = Drill(record, settings, behaviour=behaviour, emit=log.append)
    watchdog(changed)
    return changed, log


def test_another_alarm_window_than_the_recorded_one_is_told_by_the_model_and_said() -> None:
    lit = []
    for minutes in (5, 30):
        changed, log = told("07-21", minutes=minutes)
        assert any(f"alarm_minutes {minutes} (12) not as recorded" in said for said in changed.assumptions)
        lit.append(next(e.at for e in log if e.kind == "alarm" and e.fields["state"] == "ALARM"))
    assert (lit[1] - lit[0]).total_seconds() == 25 * 60
    assert not any("not as recorded" in said for said in Drill(history.load("07-21")).assumptions)


def test_boots_three_times_as_slow_light_the_alarm_and_ok_waits_for_a_box_that_serves() -> None:
    changed, log = told("07-27", boots=3)
    assert any("boots 3 (1) not as recorded" in said for said in changed.assumptions)
    serving, states = 0, []
    for event in log:
        serving += {"box.serving": 1, "box.unserving": -1}.get(event.kind, 0)
        if event.kind == "alarm":
            states.append(event.fields["state"])
            assert serving or event.fields["state"] != "OK"
    assert states.count("ALARM") >= 6


def test_failovers_before_the_start_count_for_the_valve(tmp_path: Path) -> None:
    raw = json.loads((history.FOLDER / f"{history.names()[0]}.json").read_text())
    raw["fleet"]["failovers_in_last_24h_at_start"] = 2
    raw["alarm"], raw["market"] = [], raw["market"][:2]
    path = tmp_path / "pinned.json"
    raw["fleet"] |= {"mode_at_start": "on-demand-failover", "lever_at_start": 100}
    path.write_text(json.dumps(raw))
    log, _ = lived(history.load(path))
    assert [e.fields["mode"] for e in log if e.kind == "mode"] == ["on-demand-failover", "on-demand-pinned"]
