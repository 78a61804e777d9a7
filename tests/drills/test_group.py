"""The simulated group: hooks, replacement in both worlds, rebalancing, refreshes, health, quotas."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from fleet.config.settings import Capacity, Settings
from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Behaviour, Boots, Events
from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from fleet.sim.markets.market import Market, Step
from lambdas.watchdog.cloud import BusyError, DeniedError, GoneError, RefreshActiveError, ThrottledError
from lambdas.watchdog.state import Mode, State
from tests.drills.by_hand import BOOT_SECONDS, HOUR, START, build, dark_seconds, exact, market, told, with_steps

LAUNCH, FLIP = 2, 7


def flip(cloud: SimulatedCloud, percentage: int) -> None:
    cloud.flip(cloud.group(), percentage, send_template=True)


def flipped_back(
    settings: Settings, behaviour: Behaviour, scene: Market | None = None
) -> tuple[SimulatedCloud, list[Event]]:
    """A group whose on-demand box serves, an hour before its lever goes to 0."""
    cloud, log = build(settings, scene or market(hours=3), behaviour, lever=100, serving="on-demand")
    cloud.run(START + HOUR)
    flip(cloud, 0)
    return cloud, log


# --- hooks -----------------------------------------------------------------------------------------------------------


def test_a_held_box_counts_towards_desired_and_makes_a_flip_inert(settings: Settings) -> None:
    cloud, log = build(settings, market(hours=3), exact(boots=Boots(stuck_share=1)))
    cloud.run(START + 600)
    assert [box.lifecycle for box in cloud.group().boxes] == ["Pending:Wait"]
    flip(cloud, 100)
    cloud.run(START + 1200)
    assert told(log, "box.launched", purchase="on-demand") == []
    (held,) = (box.id for box in cloud.group().boxes)
    with pytest.raises(BusyError):
        cloud.end_box(held)  # undocumented at AWS: here it is refused
    cloud.abandon(held)
    cloud.run(START + 1300)
    assert len(told(log, "box.launched", purchase="on-demand")) == 1


def test_a_box_that_never_serves_is_given_up_when_its_hook_expires(settings: Settings) -> None:
    cloud, log = build(settings, market(hours=1), exact(boots=Boots(stuck_share=1)))
    cloud.run()
    assert told(log, "box.ended", why="launch hook expired") == [LAUNCH + 8 + settings.boot.hook_heartbeat_seconds]
    assert len(told(log, "box.launched")) == 2


def test_a_boot_that_gives_up_is_tried_again_with_another_box(settings: Settings) -> None:
    cloud, log = build(settings, market(hours=2), exact(boots=Boots(failed_first=2)))
    cloud.run()
    assert len(told(log, "box.ended", why="boot failed")) == 2
    assert len(told(log, "box.serving")) == 1


@pytest.mark.parametrize(("notice", "given_up"), [(150, 155), (40, 72)])
def test_a_box_that_hears_its_notice_while_it_boots_gives_its_launch_up(
    notice: int, given_up: int, settings: Settings
) -> None:
    cloud, log = build(settings, market((notice, 0), hours=3))
    cloud.run(START + 300)
    assert told(log, "box.ended", why="reclaim") == [given_up]
    assert told(log, "launch.failed", why="launch abandoned: notice") == [given_up]


def test_a_churn_of_reclaims_during_boots_ends_on_on_demand_and_not_in_a_suspended_launch(settings: Settings) -> None:
    churn = [(200 + 300 * n + 120 * sells, sells) for n in range(24) for sells in (0, 1)]
    cloud, log = build(settings, market(*churn, hours=3), state=State(Mode.ARMED).dumps(), serving="spot", watched=True)
    cloud.run()
    assert len(told(log, "launch.failed", why="launch abandoned: by the watchdog")) == 5
    actions = [event.fields["action"] for event in log if event.kind == "decision"]
    assert "failover" in actions
    assert "boot-loop" not in actions
    assert set(cloud.group().suspended) == {"AZRebalance"}
    assert cloud.balancer.healthy == 1


def test_a_cold_box_says_so_once_it_knows(settings: Settings) -> None:
    cloud, _ = build(settings, market(hours=1), exact(boots=Boots(launch_to_kernel=(30, 30, 30), cold_first=True)))
    cloud.run(START + 20)
    (box,) = cloud.group().boxes
    assert cloud.instances((box.id,))[box.id].boot is None
    cloud.run(START + 120)
    assert cloud.instances((box.id,))[box.id].boot == "cold"


# --- wrong kind, both worlds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("replaces", [True, False])
def test_a_flip_replaces_the_wrong_kind_launch_first_in_one_world_and_leaves_it_in_the_other(
    replaces: bool, settings: Settings
) -> None:
    cloud, log = flipped_back(settings, exact(replaces_wrong_kind=replaces))
    cloud.run()
    spot = told(log, "box.launched", purchase="spot")
    assert spot == ([HOUR + FLIP] if replaces else [])
    assert len(told(log, "box.ended")) == (1 if replaces else 0)
    assert dark_seconds(log) == 0


def test_the_swap_of_16_july_ends_the_serving_box_for_a_cold_one_where_no_hook_holds_it(settings: Settings) -> None:
    """8.7 s after its launch, in service but minutes from serving, the spot box cost the fleet its last healthy one."""
    unheld = exact(launch_hook=False, warmup_seconds=0, running_after=(8.7, 8.7))
    cloud, log = flipped_back(settings, unheld)
    cloud.run()
    (launched,) = told(log, "box.launched", purchase="spot")
    assert told(log, "box.unserving", why="replaced")[0] - launched == pytest.approx(8.7)
    assert dark_seconds(log) == pytest.approx(BOOT_SECONDS - 8.7, abs=0.01)


def test_an_armed_group_swaps_its_on_demand_box_as_soon_as_spot_appears(settings: Settings) -> None:
    """Never passive: in a drought it retries for ever, and takes the first spot box that it can get."""
    cloud, log = flipped_back(settings, exact(), market((0.5, 0), (2 * HOUR, 1000), hours=4))
    cloud.run()
    assert len(told(log, "launch.failed")) > 5
    assert 2 * HOUR <= told(log, "box.launched", purchase="spot")[0] <= 2 * HOUR + 600
    assert dark_seconds(log) == 0


# --- capacity rebalancing --------------------------------------------------------------------------------------------


def test_a_recommendation_ahead_of_the_notice_has_the_successor_serve_before_the_end(settings: Settings) -> None:
    ahead = exact(recommendation_ahead_share=1, recommendation_ahead=(600, 600))
    scene = market(hours=4)
    steps = [Step(START + 2 * HOUR, "g6.xlarge", 1), Step(START + 2 * HOUR + 1, "g6.xlarge", 1000)]
    cloud, log = build(replace(settings), with_steps(scene, steps), ahead, serving="spot")
    box = next(iter(cloud.ec2.running.values()))
    cloud.clock.at(START + 2 * HOUR - 600, cloud.ec2.recommend, box)
    cloud.clock.at(START + 2 * HOUR, cloud.ec2.notice, box)
    cloud.run()
    assert told(log, "rebalance") == [2 * HOUR - 600]
    assert dark_seconds(log) == 0


def test_without_rebalancing_the_successor_waits_for_the_end_and_the_box_goes_sooner(settings: Settings) -> None:
    scene = market((2 * HOUR, 0), (2 * HOUR + 5, 1000), hours=4)
    with_it, log_with = build(settings, scene, serving="spot")
    without, log_without = build(
        settings, scene, exact(capacity_rebalancing=False, gone_without_rebalancing=(30, 30)), serving="spot"
    )
    with_it.run()
    without.run()
    assert told(log_with, "box.launched")[1] == 2 * HOUR + 15
    assert told(log_without, "box.ended") == [2 * HOUR + 30]
    assert told(log_without, "box.launched")[1] == 2 * HOUR + 30 + LAUNCH


def test_rebalancing_stays_within_a_tenth_and_at_least_one_above_max(settings: Settings) -> None:
    full = replace(settings, capacity=Capacity(min=4, max=4))
    cloud, _ = build(full, market(hours=4), serving="spot")
    for box in list(cloud.ec2.running.values()):
        cloud.ec2.recommend(box)
    most = 0
    for second in range(0, 1200, 5):
        cloud.run(START + second)
        most = max(most, sum(box.counted for box in cloud.autoscaling.boxes.values()))
    assert most == 5


def test_attempts_of_a_group_in_a_drought_follow_the_measured_gaps_and_one_more_when_the_box_is_gone(
    settings: Settings,
) -> None:
    """The gaps count failed launches in a row: the end of the box, two minutes after its notice, adds one attempt."""
    measured = [11, 11, 65, 65, 120, 120, 240, 480, 600, 600]
    cloud, log = build(settings, market((HOUR, 0), hours=3), serving="spot")
    cloud.run()
    attempts = [at - HOUR - 15 for at in told(log, "launch.failed")]
    once_more = 120 + LAUNCH - 15
    assert once_more in attempts
    attempts.remove(once_more)
    assert attempts[: len(measured) + 1] == list(itertools.accumulate([0, *measured]))


# --- refresh ---------------------------------------------------------------------------------------------------------


def test_a_refresh_launches_first_reports_progress_and_ends_well(settings: Settings) -> None:
    cloud, log = flipped_back(settings, exact(replaces_wrong_kind=False))
    cloud.start_refresh()
    with pytest.raises(BusyError):
        cloud.start_refresh()
    cloud.run(START + HOUR + 300)
    assert cloud.refreshes()[0].status == "InProgress"
    cloud.run()
    assert cloud.refreshes()[0].status == "Successful"
    assert dark_seconds(log) == 0


def test_a_successor_warms_up_before_its_predecessor_ends(settings: Settings) -> None:
    cloud, log = flipped_back(settings, exact(warmup_seconds=60))
    cloud.run()
    in_service = told(log, "box.serving")[1] + 5  # the hook is completed at the box's next poll
    assert told(log, "box.unserving", why="replaced") == [in_service + 60]


def test_a_refresh_that_is_cancelled_leaves_the_serving_box(settings: Settings) -> None:
    cloud, log = flipped_back(settings, exact(replaces_wrong_kind=False), market((0.5, 0), hours=4))
    cloud.start_refresh()
    cloud.run(START + HOUR + 100)
    cloud.cancel_refresh()
    assert cloud.refreshes()[0].status == "Cancelling"
    cloud.run(START + HOUR + 200)
    assert cloud.refreshes()[0].status == "Cancelled"
    with pytest.raises(GoneError):
        cloud.cancel_refresh()
    assert told(log, "box.ended") == []


def test_a_deploys_refresh_with_a_desired_configuration_stands_in_the_way_of_a_flip(settings: Settings) -> None:
    cloud, _ = build(settings, market(hours=1), serving="spot")
    cloud.autoscaling.start_refresh(has_desired_configuration=True)
    with pytest.raises(RefreshActiveError):
        flip(cloud, 100)
    assert cloud.group().on_demand_percentage == 0


# --- health, quotas, suspension, faults ------------------------------------------------------------------------------


def test_a_wedged_box_is_replaced_launch_first_once_the_groups_grace_is_over(settings: Settings) -> None:
    cloud, log = build(settings, market(hours=2), serving="spot")
    cloud.run(START + 600)
    (box,) = cloud.group().boxes
    cloud.wedge(box.id)
    cloud.run()
    assert told(log, "box.unserving", why="wedge") == [635]
    assert told(log, "box.launched")[1] < 640
    assert told(log, "box.ended", box=box.id)[0] > told(log, "box.serving")[1]


def test_a_quota_of_one_box_refuses_the_successor_until_the_first_is_gone(settings: Settings) -> None:
    cloud, log = build(settings, market((HOUR, 0), (HOUR + 5, 1000), hours=2), exact(spot_vcpu_quota=4), serving="spot")
    cloud.run()
    assert "MaxSpotInstanceCountExceeded" in {event.fields["why"] for event in log if event.kind == "launch.failed"}
    assert told(log, "box.launched")[1] >= HOUR + 120


def test_a_suspended_launch_waits_and_a_resumed_one_goes_on(settings: Settings) -> None:
    cloud, log = build(settings, market(hours=1))
    cloud.suspend("Launch")
    cloud.run(START + 1000)
    assert told(log, "box.launched") == []
    assert "Launch" in cloud.group().suspended
    cloud.resume("Launch")
    cloud.run()
    assert told(log, "box.launched") == [1000 + LAUNCH]


def test_a_failed_invocation_is_tried_twice_more_and_then_given_up(settings: Settings) -> None:
    calls: list[float] = []

    def handle(payload: dict[str, Any], now: Any) -> None:
        calls.append(now.timestamp() - START)
        raise DeniedError("UpdateAutoScalingGroup: not authorized to use launch template")

    cloud, log = build(settings, market(hours=1))
    cloud.watch(handle)
    cloud.command("scan", at=START + 100)
    cloud.run(START + 600)
    scans = [at for at in calls if at in (100, 160, 280)]
    assert scans == [100, 160, 280]
    assert any("not authorized" in event.fields["reason"] for event in log if event.kind == "decision")


def test_an_event_that_is_too_old_is_not_tried_again(settings: Settings) -> None:
    calls: list[float] = []

    def handle(payload: dict[str, Any], now: Any) -> None:
        if "command" not in payload:
            calls.append(now.timestamp() - START)
            raise ThrottledError("DescribeAlarms: slow down")

    late = Events(delay=(1, 1), late_share=1, late_by=(799, 799), max_age_seconds=900)
    cloud, _ = build(settings, market(hours=1), exact(events=late))
    cloud.watch(handle)
    cloud.run()
    first = calls[0]
    assert [at - first for at in calls if at - first <= 180] == [0, 60]


def test_events_are_lost_doubled_and_late_by_their_shares(settings: Settings) -> None:
    def heard(events: Events) -> list[tuple[str, float]]:
        ids: list[tuple[str, float]] = []
        scene = market(*[(i * HOUR, 1000 * (1 - i % 2)) for i in range(1, 23)], hours=24)
        cloud, _ = build(settings, scene, exact(events=events))
        cloud.watch(lambda payload, now: ids.append((payload.get("id", "scan"), now.timestamp())))
        cloud.run()
        return [one for one in ids if one[0] != "scan"]

    plain = heard(Events(delay=(1, 1)))
    assert len({number for number, _ in plain}) == len(plain)
    assert heard(Events(lost_share=1)) == []
    assert len(heard(Events(doubled_share=1))) == 2 * len(plain)
    late = heard(Events(delay=(1, 1), late_share=1, late_by=(500, 500)))
    assert {number for number, _ in late} <= {number for number, _ in plain}
    assert min(at for _, at in late) == min(at for _, at in plain) + 500
