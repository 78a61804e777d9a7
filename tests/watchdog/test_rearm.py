"""The re-arm as a phase: flipped, successor launching, serving, old box gone; no invocation waits for the next."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fleet.core import names
from lambdas.watchdog.cloud import Alarm, Refresh, RefreshActiveError
from lambdas.watchdog.state import Kind, Mode
from tests.watchdog.still_cloud import NOW, StillCloud, ago, group_event, wake

SPOT, OLD = "i-0spot", "i-0demand"


def due() -> StillCloud:
    """One good score short of a re-arm."""
    cloud = StillCloud.on_demand(streak=1, scored_at=ago(1800))
    cloud.scored = {"use2-az1": 3}
    return cloud


def under_way(seconds: float = 300, refresh: str | None = "refresh-1", **state: object) -> StillCloud:
    """The lever is down, the old box serves."""
    cloud = StillCloud.on_demand(rearm_from=ago(seconds), refresh_id=refresh, **state)
    cloud.lever, cloud.live_group = "0", replace(cloud.live_group, on_demand_percentage=0)
    if refresh:
        cloud.refreshed = (Refresh(refresh, "InProgress", ago(seconds), like_ours=True),)
    return cloud


def without(cloud: StillCloud, box: str, lifecycle: str | None = None) -> None:
    """The box is gone, or on its way."""
    boxes = [replace(b, lifecycle=lifecycle or "") if b.id == box else b for b in cloud.live_group.boxes]
    cloud.live_group = replace(cloud.live_group, boxes=tuple(b for b in boxes if b.lifecycle))
    cloud.health.pop(box, None)


def test_rearm_flips_then_rolls_launch_first_and_mails_only_at_its_end() -> None:
    cloud = due()
    record = wake(cloud, "scan")
    assert (record["action"], record["mode"], record["rearming"]) == ("re-arm", "on-demand-failover", True)
    assert record["also"] == ["refresh: roll 1 on-demand, launch first"]
    changes = [call for call in cloud.calls if call.split()[0] in {"put_state", "put_lever", "flip", "start_refresh"}]
    assert changes == ["put_state", "put_lever 0", "flip 0", "put_state", "start_refresh", "put_state"]
    assert (cloud.parsed.rearm_from, cloud.parsed.refresh_id, cloud.parsed.unfinished) == (NOW, "refresh-1", None)
    assert (cloud.parsed.streak, cloud.parsed.since, cloud.mails) == (0, NOW, [])


def test_rearm_starts_no_roll_where_the_group_has_begun_a_replacement() -> None:
    cloud = due()
    original = cloud.flip

    def flip_and_replace(group: object, percentage: int, *, send_template: bool) -> None:
        original(cloud.live_group, percentage, send_template=send_template)
        cloud.put_box(SPOT, age=0, lifecycle="Pending")

    cloud.flip = flip_and_replace  # type: ignore[method-assign]  # this group replaces by itself
    wake(cloud, "scan")
    assert "start_refresh" not in cloud.calls
    assert cloud.parsed.rearm_from == NOW


def test_rearm_of_a_fleet_rolls_what_the_group_left_alone() -> None:
    cloud = under_way(refresh=None)
    cloud.live_group = replace(cloud.live_group, desired=2)
    cloud.put_box("i-0demand2", age=4000, spot=False, health="healthy")
    without(cloud, OLD)
    cloud.put_box(SPOT, age=200, lifecycle="Pending:Wait")
    assert wake(cloud, "scan")["reason"] == "re-arm: successor launching, 300 s of 2700 s"
    without(cloud, SPOT)
    cloud.put_box(SPOT, age=200, health="healthy")
    assert wake(cloud, "scan")["action"] == "refresh"
    assert cloud.parsed.refresh_id == "refresh-1"


def test_base_capacity_on_demand_is_not_rolled_and_not_waited_for() -> None:
    cloud = under_way()
    cloud.settings = replace(cloud.settings, capacity=replace(cloud.settings.capacity, min=2, on_demand_base=1))
    cloud.live_group = replace(cloud.live_group, desired=2)
    cloud.put_box(SPOT, age=200, health="healthy")
    assert wake(cloud, "scan")["action"] == "re-armed"


def fleet_of_two(*, base: int = 0) -> StillCloud:
    """Two boxes are wanted, two on-demand boxes serve, the lever is down and no roll was started."""
    cloud = under_way(refresh=None)
    cloud.settings = replace(cloud.settings, capacity=replace(cloud.settings.capacity, min=2, on_demand_base=base))
    cloud.live_group = replace(cloud.live_group, desired=2)
    cloud.put_box("i-0demand2", age=4000, spot=False, health="healthy")
    return cloud


def test_box_that_ec2_does_not_know_yet_is_neither_spot_nor_on_demand() -> None:
    cloud = under_way()
    cloud.put_box(SPOT, age=0, lifecycle="Pending")
    del cloud.known[SPOT]
    assert wake(cloud, "scan")["reason"] == "re-arm: flipped, 300 s of 2700 s"


def test_roll_is_not_started_where_spot_boxes_enough_serve_already() -> None:
    cloud = fleet_of_two()
    cloud.put_box(SPOT, age=200, health="healthy")
    cloud.put_box("i-0spot2", age=200, health="healthy")
    assert wake(cloud, "scan")["reason"] == "re-arm: old box leaving, 300 s of 2700 s"


def test_base_capacity_counts_as_served_when_the_roll_is_weighed() -> None:
    cloud = fleet_of_two(base=1)
    cloud.put_box(SPOT, age=200, health="healthy")
    assert wake(cloud, "scan")["action"] == "nothing"


def test_roll_is_not_started_for_a_group_without_old_boxes() -> None:
    cloud = under_way(refresh=None)
    without(cloud, OLD)
    assert wake(cloud, "scan")["reason"] == "re-arm: flipped, 300 s of 2700 s"


def test_first_of_several_spot_boxes_is_named_at_the_end() -> None:
    cloud = under_way()
    without(cloud, OLD)
    cloud.put_box(SPOT, age=200, health="healthy")
    cloud.put_box("i-0spot2", age=200, health="healthy")
    assert wake(cloud, "scan")["reason"] == f"spot box {SPOT} serves, 300 s after the lever moved"


def test_time_limit_ends_the_phase_though_a_failover_is_held_back() -> None:
    cloud = under_way(2700)
    cloud.live_alarm = Alarm("ALARM", ago(5))
    assert wake(cloud, "scan")["action"] == "fell-back"


def test_phase_that_stands_still_writes_nothing() -> None:
    cloud = under_way()
    wake(cloud, "scan")
    assert "put_state" not in cloud.calls


def test_roll_waits_for_a_deploy() -> None:
    cloud = under_way(refresh=None)
    cloud.deploying = True
    assert wake(cloud, "scan")["reason"] == "re-arm: flipped, 300 s of 2700 s"


def test_roll_that_a_crash_forgot_is_adopted_not_started_twice() -> None:
    cloud = under_way(refresh=None)
    cloud.refreshed = (
        Refresh("r-new", "Successful", ago(300), like_ours=True),
        Refresh("r-older", "Successful", ago(301), like_ours=True),
    )
    assert wake(cloud, "scan")["reason"] == "re-arm: flipped, 300 s of 2700 s"
    assert "start_refresh" not in cloud.calls
    assert cloud.parsed.refresh_id == "r-new"


def test_active_roll_that_a_crash_forgot_is_ended_with_the_phase() -> None:
    cloud = under_way(refresh=None)
    cloud.refreshed = (Refresh("r-new", "InProgress", ago(300), like_ours=True),)
    without(cloud, OLD)
    cloud.put_box(SPOT, age=200, health="healthy")
    assert wake(cloud, "scan")["action"] == "re-armed"
    assert cloud.refreshed[0].status == "Cancelled"


@pytest.mark.parametrize(
    "old",
    [
        Refresh("r", "Successful", ago(301), like_ours=True),
        Refresh("r", "Successful", ago(299), like_ours=False),
    ],
)
def test_roll_of_an_earlier_rearm_or_of_a_deploy_is_not_adopted(old: Refresh) -> None:
    cloud = under_way(refresh=None)
    cloud.refreshed = (old,)
    wake(cloud, "scan")
    assert "start_refresh" in cloud.calls


@pytest.mark.parametrize("name", ["launch-successful", "terminate-successful", "refresh-succeeded", "alarm-ok", "scan"])
def test_events_and_scans_advance_the_phase(name: str) -> None:
    cloud = under_way()
    assert wake(cloud, name)["reason"] == "re-arm: flipped, 300 s of 2700 s"
    cloud.put_box(SPOT, age=200, lifecycle="Pending:Wait")
    assert wake(cloud, name)["reason"] == "re-arm: successor launching, 300 s of 2700 s"
    without(cloud, SPOT)
    cloud.put_box(SPOT, age=200, health="healthy")
    assert wake(cloud, name)["reason"] == "re-arm: old box leaving, 300 s of 2700 s"
    assert cloud.parsed.mode is Mode.FAILOVER
    without(cloud, OLD, "Terminating:Wait")
    record = wake(cloud, name)
    assert (record["action"], record["reason"]) == ("re-armed", f"spot box {SPOT} serves, 300 s after the lever moved")
    state = cloud.parsed
    assert (state.mode, state.since, state.rearm_from, state.refresh_id) == (Mode.ARMED, NOW, None, None)
    assert (state.cooldown_from, state.failovers) == (None, (ago(20000),))
    assert [subject for subject, _ in cloud.mails] == ["[llm] back on spot"]
    assert (cloud.lever, cloud.refreshed[0].status) == ("0", "Cancelled"), "or it would roll the spot boxes again"


@pytest.mark.parametrize(("lifecycle", "health"), [("Pending:Wait", "healthy"), ("InService", "initial")])
def test_phase_does_not_end_before_a_spot_box_is_in_service_and_answers(lifecycle: str, health: str) -> None:
    cloud = under_way()
    without(cloud, OLD)
    cloud.put_box(SPOT, age=200, lifecycle=lifecycle, health=health)
    assert wake(cloud, "scan")["action"] == "nothing"
    assert cloud.parsed.rearm_from is not None


def test_end_of_the_phase_leaves_a_deploys_refresh_alone() -> None:
    cloud = under_way()
    cloud.refreshed = (
        Refresh("r-deploy", "InProgress", ago(10), like_ours=False),
        replace(cloud.refreshed[0], status="Successful"),
    )
    without(cloud, OLD)
    cloud.put_box(SPOT, age=200, health="healthy")
    wake(cloud, "scan")
    assert cloud.refreshed[0].status == "InProgress"


@pytest.mark.parametrize(("elapsed", "fell_back"), [(2699, False), (2700, True)])
def test_phase_falls_back_after_45_minutes_and_leaves_the_serving_box_alone(elapsed: int, fell_back: bool) -> None:
    cloud = under_way(elapsed, streak=0)
    cloud.put_box(SPOT, age=elapsed - 10, lifecycle="Pending:Wait")
    record = wake(cloud, "scan")
    assert (record["action"] == "fell-back") is fell_back
    if fell_back:
        state = cloud.parsed
        assert record["reason"] == "no spot box took over in 2700 s, limit 2700 s"
        assert (state.mode, state.rearm_from, state.cooldown_from, state.since) == (Mode.FAILOVER, None, NOW, NOW)
        assert (state.failovers, state.streak) == ((ago(20000),), 0)
        assert (cloud.lever, cloud.live_group.on_demand_percentage) == ("100", 100)
        assert cloud.refreshed[0].status == "Cancelled"
        assert f"abandon {SPOT}" in cloud.calls
        assert OLD in {box.id for box in cloud.live_group.boxes}
        assert [subject for subject, _ in cloud.mails] == ["[llm] return to spot failed, still on-demand"]


@pytest.mark.parametrize("status", ["Failed", "Cancelled", "RollbackFailed", "RollbackSuccessful"])
def test_failed_roll_falls_back_at_once(status: str) -> None:
    cloud = under_way()
    cloud.refreshed = (replace(cloud.refreshed[0], status=status),)
    assert wake(cloud, "refresh-failed")["reason"] == f"instance refresh {status}"
    assert (cloud.parsed.rearm_from, cloud.lever) == (None, "100")
    assert "cancel_refresh" not in cloud.calls


def test_failed_roll_of_somebody_else_does_not_end_the_phase() -> None:
    cloud = under_way()
    other = Refresh("r-other", "Failed", ago(50), like_ours=False)
    cloud.refreshed = (other, *cloud.refreshed)
    assert wake(cloud, "refresh-failed")["action"] == "nothing"


def test_our_roll_is_cancelled_whatever_older_ones_there_are() -> None:
    cloud = under_way(2700)
    cloud.refreshed += (Refresh("r-older", "Successful", ago(90000), like_ours=False),)
    wake(cloud, "scan")
    assert [refresh.status for refresh in cloud.refreshed] == ["Cancelled", "Successful"]


def test_success_wins_over_the_time_limit() -> None:
    cloud = under_way(5000)
    without(cloud, OLD)
    cloud.put_box(SPOT, age=4000, health="healthy")
    assert wake(cloud, "scan")["action"] == "re-armed"


def test_lit_alarm_that_passes_the_guards_ends_the_phase_as_a_counted_failover() -> None:
    cloud = under_way(1000, streak=0)
    without(cloud, OLD)
    cloud.live_alarm = Alarm("ALARM", ago(5))
    record = wake(cloud, "alarm-lit")
    assert record["reason"] == "no healthy target, alarm lit for 5 s, during a re-arm"
    state = cloud.parsed
    assert (state.failovers, state.cooldown_from, state.rearm_from) == ((ago(20000), NOW), NOW, None)
    assert (cloud.lever, cloud.refreshed[0].status, state.refresh_id) == ("100", "Cancelled", None)
    assert [subject for subject, _ in cloud.mails] == ["[llm] on-demand failover"]


@pytest.mark.parametrize("name", ["alarm-lit", "scan"])
def test_young_successor_holds_the_failover_back_during_the_phase(name: str) -> None:
    cloud = under_way()
    without(cloud, OLD)
    cloud.put_box(SPOT, age=200, lifecycle="Pending:Wait")
    cloud.live_alarm = Alarm("ALARM", ago(5))
    assert wake(cloud, name)["reason"] == names.LINE_SKIPPED_YOUNG


@pytest.mark.parametrize(("elapsed", "skipped"), [(1799, True), (1800, False)])
def test_alarm_lit_before_the_phase_gives_the_rearm_the_skip_cap(elapsed: int, skipped: bool) -> None:
    cloud = under_way(elapsed)
    without(cloud, OLD)
    cloud.live_alarm = Alarm("ALARM", ago(7000))
    record = wake(cloud, "alarm-lit")
    assert (record["action"] == "skipped") is skipped
    if skipped:
        numbers = "alarm lit for 1799 s, skip cap 1800 s"
        assert record["reason"] == f"failover skipped: the re-arm is the recovery in progress, {numbers}"


def test_alarm_lit_during_the_phase_needs_no_skip_cap() -> None:
    cloud = under_way(1000)
    without(cloud, OLD)
    cloud.live_alarm = Alarm("ALARM", ago(999))
    assert wake(cloud, "alarm-lit")["action"] == "failover"
    cloud = under_way(1000)
    without(cloud, OLD)
    cloud.live_alarm = Alarm("ALARM", ago(1000))
    assert wake(cloud, "alarm-lit")["action"] == "skipped"


def test_lever_moved_by_hand_during_the_phase_is_repaired_to_0() -> None:
    cloud = under_way()
    cloud.put_box(SPOT, age=200, lifecycle="Pending:Wait")
    cloud.lever = "100"
    assert wake(cloud, "scan")["reason"] == "parameter 100, group 0: on-demand-failover expects 0"
    assert cloud.lever == "0"
    assert cloud.parsed.rearm_from is not None
    assert cloud.refreshed[0].status == "InProgress"
    assert cloud.parsed.refresh_id == "refresh-1"


def test_pin_ends_the_phase() -> None:
    cloud = under_way()
    wake(cloud, "pin")
    assert (cloud.parsed.mode, cloud.parsed.rearm_from, cloud.lever) == (Mode.PINNED, None, "100")
    assert cloud.refreshed[0].status == "Cancelled"


def test_launch_during_the_phase_is_remembered_with_the_roll_it_starts() -> None:
    cloud = under_way(refresh=None, launched_at=ago(9000))
    wake(cloud, group_event("launch-successful", at=ago(1), box=OLD))
    assert (cloud.parsed.refresh_id, cloud.parsed.launched_at) == ("refresh-1", NOW - timedelta(seconds=1))


@pytest.mark.parametrize("way", ["fell-back", "failover", "pinned"])
def test_our_own_roll_is_cancelled_where_it_blocks_the_way_out_of_the_phase(way: str) -> None:
    cloud = under_way(2700 if way == "fell-back" else 300, failovers=())
    cloud.block_flips()
    if way == "failover":
        without(cloud, OLD)
        cloud.live_alarm = Alarm("ALARM", ago(5))
    assert wake(cloud, {"fell-back": "scan", "failover": "alarm-lit", "pinned": "pin"}[way])["action"] == way
    assert (cloud.live_group.on_demand_percentage, cloud.refreshed[0].status) == (100, "Cancelled")


def test_roll_that_still_runs_is_not_cancelled_for_a_repair() -> None:
    cloud = under_way()
    cloud.block_flips()
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=50)
    cloud.put_box(SPOT, age=200, lifecycle="Pending:Wait")
    with pytest.raises(RefreshActiveError):
        wake(cloud, "scan")
    assert cloud.refreshed[0].active


def test_somebody_elses_roll_is_not_cancelled_for_a_fall_back() -> None:
    cloud = under_way(2700)
    cloud.block_flips()
    deploys = Refresh("r-deploy", "InProgress", ago(10), like_ours=False)
    cloud.refreshed = (deploys, replace(cloud.refreshed[0], status="Successful"))
    with pytest.raises(RefreshActiveError):
        wake(cloud, "scan")
    assert cloud.refreshed[0].active


def test_roll_of_a_deploy_is_not_taken_for_ours_where_the_group_replaced_unasked() -> None:
    cloud = under_way(600, refresh=None)
    without(cloud, OLD)
    cloud.put_box(SPOT, age=500, health="healthy")
    cloud.refreshed = (Refresh("r-deploy", "InProgress", ago(60), like_ours=False),)
    assert wake(cloud, "scan")["action"] == "re-armed"
    assert cloud.refreshed[0].status == "InProgress"


# --- a re-arm whose flip is refused -------------------------------------------------------------------------------


def unfinished(seconds: float) -> StillCloud:
    """State and parameter say spot, the group was not flipped and cannot be."""
    cloud = StillCloud.on_demand(rearm_from=ago(seconds))
    cloud.set_state(cloud.parsed.begin(Kind.REARM, ago(seconds), "score 3"))
    cloud.lever = "0"
    cloud.fail("flip 0", RefreshActiveError("An active instance refresh with a desired configuration exists"))
    return cloud


def test_pin_takes_the_place_of_a_rearm_that_cannot_be_finished() -> None:
    cloud = unfinished(60)
    record = wake(cloud, "pin")
    assert (record["action"], record["mode"]) == ("pinned", "on-demand-pinned")
    assert (cloud.lever, cloud.parsed.rearm_from, cloud.parsed.unfinished) == ("100", None, None)
    assert [subject for subject, _ in cloud.mails] == ["[llm] pinned to on-demand"]


@pytest.mark.parametrize("name", ["scan", "alarm-ok"])
@pytest.mark.parametrize(("elapsed", "ends"), [(2699, False), (2700, True)])
def test_rearm_that_cannot_be_finished_falls_back_after_45_minutes(name: str, elapsed: int, ends: bool) -> None:
    cloud = unfinished(elapsed)
    if not ends:
        with pytest.raises(RefreshActiveError):
            wake(cloud, name)
        assert cloud.parsed.unfinished
        return
    record = wake(cloud, name)
    assert (record["action"], record["reason"]) == ("fell-back", "no spot box took over in 2700 s, limit 2700 s")
    assert (cloud.lever, cloud.live_group.on_demand_percentage, cloud.parsed.cooldown_from) == ("100", 100, NOW)


def test_arm_that_is_unfinished_is_finished_first_for_nobody_else_resumes_launch() -> None:
    cloud = under_way(2700)
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": ""})
    cloud.set_state(cloud.parsed.begin(Kind.ARMED, ago(60), "by ann"))
    assert wake(cloud, "pin")["action"] == "pinned"
    assert "Launch" not in cloud.live_group.suspended
