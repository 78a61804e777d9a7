"""Drills of boxes that die while their launch hook holds them: who sees it, and how long the fleet is dark."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.config.settings import Settings
from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Behaviour
from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from lambdas.watchdog.cloud import GoneError
from lambdas.watchdog.state import Mode, State
from tests.drills.by_hand import BOOT_SECONDS, HOUR, START, build, dark_seconds, exact, market, told

RECLAIM = market((2 * HOUR, 0), (2 * HOUR + 125, 1000), hours=5)  # the box goes, and the market sells again
HEARTBEAT = 1800
ENDS = "held by the launch hook, and for nothing"


def lived(settings: Settings, behaviour: Behaviour, *, watched: bool = True) -> tuple[SimulatedCloud, list[Event]]:
    """A serving spot box is reclaimed, and so is, or dies in its user data, whatever the behaviour says."""
    state = State(Mode.ARMED).dumps()
    cloud, log = build(settings, RECLAIM, behaviour, watched=watched, state=state, serving="spot")
    cloud.run()
    return cloud, log


def dies(**changes: Any) -> Behaviour:
    """The successor powers off in its user data, a minute after its launch, and gives no hook back."""
    return exact(boots=replace(exact().boots, dies_first=2), **changes)


def seen(log: list[Event]) -> float:
    """When the watchdog first saw it."""
    return next(
        event.at.timestamp() - START
        for event in log
        if event.kind == "decision" and ENDS in event.fields.get("detail", "")
    )


@pytest.mark.parametrize("policy", ["alarm", "bridge"])
def test_box_that_died_in_its_user_data_is_replaced_within_a_minute(policy: Any, settings: Settings) -> None:
    """Before, and with nobody who looks, its place was kept for the half hour of its hook's heartbeat."""
    _, unwatched = lived(settings, dies(), watched=False)
    _, log = lived(replace(settings, policy=policy), dies())
    (died,) = told(log, "box.ended", why="user data failed")
    launched = [at for at in told(log, "box.launched") if at > died]
    assert 0 <= seen(log) - died <= 60
    assert launched[0] - died <= 60
    assert dark_seconds(unwatched) > HEARTBEAT + BOOT_SECONDS
    assert dark_seconds(log) < 2 * BOOT_SECONDS + 120


def test_box_that_died_held_is_replaced_within_a_minute_of_the_look_that_sees_it_where_its_end_is_not_told(
    settings: Settings,
) -> None:
    silent = dies(events=replace(exact().events, lost_share=1.0))
    state = State(Mode.ARMED).dumps()
    cloud, log = build(settings, RECLAIM, silent, watched=True, state=state, serving="spot")
    cloud.command("scan", at=START + 2 * HOUR + 600)
    cloud.run()
    assert seen(log) == 2 * HOUR + 600
    assert min(at for at in told(log, "box.launched") if at > seen(log)) - seen(log) <= 60


def test_box_that_is_taken_before_its_agent_runs_is_replaced_within_a_minute_of_its_notice(settings: Settings) -> None:
    scene = market((20, 0), (21, 1000), hours=2)
    for watched in (True, False):
        slow = exact(register_after_kernel=(200, 200))
        cloud, log = build(settings, scene, slow, watched=watched, state=State(Mode.ARMED).dumps())
        cloud.run()
        first, second = told(log, "box.launched")[:2]
        assert (second - 20 <= 60) is watched, (first, second)
        assert (second - first >= HEARTBEAT) is not watched


def test_group_that_sees_such_a_box_by_itself_replaces_it_without_us(settings: Settings) -> None:
    cloud, log = lived(settings, dies(judges_held=True), watched=False)
    (died,) = told(log, "box.ended", why="user data failed")
    assert min(at for at in told(log, "box.launched") if at > died) - died <= 60
    with pytest.raises(GoneError):
        cloud.abandon("i-00000000000000002")
    _, log = lived(settings, dies(judges_held=True))
    assert len(told(log, "box.launched")) == 3
    assert not any(ENDS in str(event.fields) for event in log if event.kind == "decision")


def test_group_that_ends_a_held_box_by_name_does_so_after_its_death_too(settings: Settings) -> None:
    cloud, log = lived(settings, dies(terminates_held=True), watched=False)
    assert len(told(log, "box.launched")) == 3
    cloud, log = build(settings, RECLAIM, dies(terminates_held=True), serving="spot")
    cloud.run(START + 2 * HOUR + 300)
    (dead,) = [box.id for box in cloud.group().boxes]
    assert cloud.instances((dead,))[dead].state == "terminated"
    cloud.end_box(dead)
    cloud.run(START + 2 * HOUR + 310)
    assert dead not in {box.id for box in cloud.group().boxes}
    assert len(told(log, "box.launched")) == 3
