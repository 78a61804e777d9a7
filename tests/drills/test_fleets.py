"""Drills of several boxes: box-minutes, minutes without any, and what the watchdog makes of a missing share."""

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from fleet.cli import drill_and_sweep
from fleet.config.settings import Policy, Settings
from fleet.eventlog.events import Event
from fleet.eventlog.measure import Measure
from fleet.sim.drills.drill import default_settings
from fleet.sim.drills.droughts import Droughts
from fleet.sim.drills.scene import Scene
from fleet.sim.experiments.experiment import Job, Row
from fleet.sim.markets.market import PLENTY
from fleet.sim.policies.catalogue import without_valve
from lambdas.watchdog.state import Mode, State
from tests.drills import by_hand

AT = datetime(2026, 7, 22, tzinfo=UTC)


def event(minute: float, kind: str, **fields: object) -> Event:
    return Event(AT + timedelta(minutes=minute), kind, fields)


def test_box_minutes_and_minutes_without_any_box_are_told_apart() -> None:
    measure = Measure()
    launched = [
        event(0, "box.launched", box=box, purchase="spot", pool="g6.xlarge", usd_per_hour=0.34)
        for box in ("i-1", "i-2")
    ]
    for told in (
        event(0, "start", name="x", desired=2),
        *launched,
        event(10, "box.serving", box="i-1"),
        event(20, "box.serving", box="i-2"),
        event(60, "box.unserving", box="i-1", why="notice"),
        event(70, "box.unserving", box="i-2", why="notice"),
        event(75, "end", name="x", desired=2),
    ):
        measure.add(told)
    assert measure.box_minutes == pytest.approx(10 * 2 + 10 + 10 + 5 * 2)
    assert measure.dark_minutes == pytest.approx(10 + 5)
    assert measure.degraded_minutes == pytest.approx(25)


def test_lever_that_moves_up_a_part_is_the_failover_of_its_drought() -> None:
    droughts = Droughts(130)
    for told in (
        event(0, "start", name="x", desired=2),
        event(0, "lever", percentage=0),
        event(0, "box.serving", box="i-1"),
        event(0, "box.serving", box="i-2"),
        event(10, "box.ended", box="i-2", why="reclaim"),
        event(10, "launch.failed", purchase="spot", pool=None, why="dry"),
        event(13, "lever", percentage=50),
        event(60, "lever", percentage=0),
    ):
        droughts.add(told)
    assert droughts.late_seconds == [50.0]
    assert droughts.bridges == 0


def fleet_of(size: int, base: int) -> Settings:
    shipped = replace(default_settings(), region="us-west-2")
    return without_valve(
        replace(shipped, capacity=replace(shipped.capacity, min=size, max=2 * size, on_demand_base=base))
    )


@pytest.mark.parametrize(("size", "base", "days"), [(4, 1, 6), (20, 5, 6)])
def test_fleet_with_a_base_is_guarded_share_by_share(size: int, base: int, days: int) -> None:
    def lived(policy: str) -> Measure:
        return Job(Scene(region="us-west-2", days=days), policy, 901, fleet_of(size, base)).run().measure

    unwatched, alarm, fallback = lived("spot-only"), lived("alarm"), lived("fallback")
    assert unwatched.box_minutes > 0
    assert alarm.counts["action failover"] > 0
    assert alarm.box_minutes < 0.6 * unwatched.box_minutes
    assert fallback.box_minutes < alarm.box_minutes
    assert alarm.dark_minutes <= unwatched.dark_minutes


@pytest.mark.parametrize("policy", ["alarm", "bridge"])
def test_base_that_on_demand_refuses_holds_up_what_spot_sells_and_a_mail_says_why(policy: Policy) -> None:
    settings = replace(fleet_of(2, 1), policy=policy)
    refuses = by_hand.exact(on_demand_refused_with="MaxSpotInstanceCountExceeded")
    market = by_hand.market((by_hand.HOUR, 0), (2 * by_hand.HOUR, PLENTY))
    armed = State(Mode.ARMED).dumps()
    cloud, log = by_hand.build(settings, market, refuses, watched=True, serving="spot", state=armed)
    cloud.run(until=by_hand.START + 6 * by_hand.HOUR)
    launched = by_hand.told(log, "box.launched", purchase="spot")
    assert max(launched) < by_hand.HOUR
    mails = [event.fields for event in log if event.kind == "mail" and "quota" in str(event.fields["subject"])]
    assert "a quota of the account is used up" in str(mails[0]["subject"])
    assert all("Why: on-demand: Could not launch On-Demand Instances." in str(mail["body"]) for mail in mails)


@pytest.mark.parametrize("columns", [80, 160])
def test_comparison_of_several_boxes_is_printed_whole(columns: int) -> None:
    scene = Scene(region="us-west-2", days=1)
    row = Row("clairvoyant bound", tuple(Job(scene, "on-demand", seed, fleet_of(4, 1)).run() for seed in (1, 2)))
    console = Console(width=columns, record=True, file=io.StringIO())
    drill_and_sweep._table([row], console, "us-west-2, 2 markets")
    text = console.export_text()
    assert "…" not in text
    for mean in (row.box_minutes, row.dark_minutes, row.cost_usd):
        for figure in str(mean).split():
            assert f" {figure} " in text
