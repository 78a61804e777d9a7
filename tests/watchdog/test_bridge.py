"""The bridge policy, decision by decision, through the real handler."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet.config.settings import Settings
from lambdas.watchdog.cloud import CloudError, ThrottledError
from lambdas.watchdog.state import Evidence, Kind, Mode, State, loads
from tests.watchdog.still_cloud import NOW, SETTINGS, StillCloud, ago, event, group_event, wake

# Patience and bar of these tests' own: what is tried is how they are kept, whatever the defaults are.
BRIDGE = replace(
    SETTINGS, policy="bridge", bridge=replace(SETTINGS.bridge, patience_seconds=130, return_after_seconds=3300)
)
LIMITS, LIMITS_OF_ALARM = BRIDGE.bridge, BRIDGE.watchdog
BOX = "i-0aaaaaaaaaaaaaaa1"
PATIENCE = {"command": "patience"}
SCAN = {"command": "scan"}
SELLS = {"use2-az1": 5, "use2-az2": 1}
DRY = {"use2-az1": 1, "use2-az2": 1}


def armed(settings: Settings = BRIDGE, **evidence: Any) -> StillCloud:
    """On spot, nothing lit."""
    cloud = StillCloud(settings=settings)
    cloud.live_alarm = replace(cloud.live_alarm, state="OK")
    cloud.set_state(State(Mode.ARMED, launched_at=ago(86400), evidence=Evidence(**evidence)))
    return cloud


def seen(cloud: StillCloud) -> Evidence:
    return loads(cloud.state).evidence


def failed(began: float = 0) -> dict[str, Any]:
    raw = group_event("launch-no-capacity", at=ago(began), box="")
    raw["detail"]["StatusMessage"] = "Could not launch Spot Instances. InsufficientInstanceCapacity"
    return raw


def about(name: str, box: str = BOX) -> dict[str, Any]:
    raw = event(name)
    raw["detail"]["instance-id"] = box
    return raw


# --- drought ------------------------------------------------------------------------------------------------------


def test_first_failed_launch_with_nothing_serving_sets_the_clock_to_the_end_of_patience() -> None:
    cloud = armed()
    assert wake(cloud, failed(1))["action"] == "waiting"
    assert seen(cloud).drought_at == NOW
    due = NOW + timedelta(seconds=LIMITS.patience_seconds)
    assert f"wake {due:%H:%M:%S}" in cloud.calls


def test_every_further_failure_asks_for_the_same_clock_in_case_the_first_was_refused() -> None:
    cloud = armed(drought_at=ago(60))
    wake(cloud, failed(1))
    due = NOW + timedelta(seconds=LIMITS.patience_seconds - 60)
    assert f"wake {due:%H:%M:%S}" in cloud.calls


@pytest.mark.parametrize(("since", "action"), [(129, "waiting"), (130, "failover")])
@pytest.mark.parametrize("payload", [PATIENCE, SCAN, failed(1), event("terminate-successful")])
def test_failover_falls_when_patience_has_run_out(since: int, action: str, payload: dict[str, Any]) -> None:
    cloud = armed(drought_at=ago(since))
    assert wake(cloud, payload)["action"] == action
    assert (cloud.lever == "100") is (action == "failover")


def test_failover_of_a_drought_is_counted_and_mailed_once() -> None:
    cloud = armed(drought_at=ago(131))
    wake(cloud, PATIENCE)
    assert loads(cloud.state).failovers == (NOW,)
    assert [subject for subject, _ in cloud.mails] == ["[llm] on-demand failover"]
    assert wake(cloud, PATIENCE)["action"] == "nothing"
    assert len(cloud.mails) == 1


@pytest.mark.parametrize(("began", "since"), [(1, 0), (10, 9), (15, 14), (16, 0), (500, 0)])
def test_drought_runs_from_the_launch_that_failed_unless_the_event_is_late(began: int, since: int) -> None:
    cloud = armed()
    wake(cloud, failed(began))
    assert seen(cloud).drought_at == ago(since)


def test_drought_says_what_it_counts() -> None:
    numbers = f"no box serves or is on its way, launches have failed for 129 s, patience {LIMITS.patience_seconds} s"
    assert wake(armed(drought_at=ago(129)), PATIENCE)["reason"] == numbers
    assert wake(armed(drought_at=ago(131)), PATIENCE)["reason"] == numbers.replace("129", "131")
    cloud = armed(drought_at=ago(131))
    cloud.deploying = True
    deploying = f"failover skipped: a deploy is in progress; {numbers.replace('129', '131')}"
    assert wake(cloud, PATIENCE)["reason"] == deploying


@pytest.mark.parametrize("began", [0, 1, 20])
def test_refused_launch_while_no_zone_sells_is_a_failover_at_once(began: int) -> None:
    cloud = armed()
    cloud.scored = DRY
    record = wake(cloud, failed(began))
    assert (record["action"], cloud.lever) == ("failover", "100")
    assert record["reason"].endswith("patience 0 s, spot sells in no zone")
    assert record["scores"] == DRY
    assert not [call for call in cloud.calls if call.startswith("wake")]


def test_refused_launch_while_a_zone_sells_or_none_is_told_has_its_patience() -> None:
    for scored in (SELLS, {}, {"use1-az1": 1}):
        cloud = armed()
        cloud.scored = scored
        assert wake(cloud, failed(1))["action"] == "waiting"


def test_scores_that_cannot_be_read_leave_a_drought_its_patience_and_are_raised() -> None:
    cloud = armed()
    cloud.scored = DRY
    cloud.fail("scores", ThrottledError("GetSpotPlacementScores: throttled"))
    with pytest.raises(CloudError, match="throttled"):
        wake(cloud, failed(1))
    assert (cloud.lever, seen(cloud).drought_at) == ("0", NOW)
    assert f"wake {NOW + timedelta(seconds=LIMITS.patience_seconds):%H:%M:%S}" in cloud.calls


def test_scores_are_asked_of_a_refused_spot_launch_alone() -> None:
    boot = group_event("launch-abandoned", at=ago(1), box=BOX)
    alarm = armed(replace(BRIDGE, policy="alarm"))
    for cloud, payload in (
        (armed(), boot),
        (bridging(), failed(1)),
        (alarm, failed(1)),
        (armed(), about("interruption-warning")),
    ):
        wake(cloud, payload)
        assert "scores" not in cloud.calls


def test_failover_begins_without_calm_and_streak() -> None:
    cloud = armed(drought_at=ago(131), calm_seconds=5000)
    cloud.set_state(replace(loads(cloud.state), streak=1))
    wake(cloud, PATIENCE)
    assert (seen(cloud), loads(cloud.state).streak) == (Evidence(), 0)


def test_failed_launches_on_on_demand_are_no_drought() -> None:
    cloud = bridging()
    cloud.health.clear()
    wake(cloud, failed(1))
    assert seen(cloud).drought_at is None
    cloud = bridging(drought_at=ago(500))
    cloud.health.clear()
    assert wake(cloud, PATIENCE)["action"] == "nothing"


@pytest.mark.parametrize("name", ["alarm-ok", "rebalance-recommendation"])
def test_event_that_does_not_tell_of_a_drought_moves_nothing(name: str) -> None:
    cloud = armed(drought_at=ago(500))
    assert wake(cloud, event(name))["action"] in {"recorded", "ignored"}
    assert cloud.lever == "0"


def test_only_as_many_failovers_are_remembered_as_the_valve_counts() -> None:
    cloud = armed(drought_at=ago(131))
    before = tuple(ago(seconds) for seconds in (5000, 4000, 3000, 2000))
    cloud.set_state(replace(loads(cloud.state), failovers=before))
    cloud.settings = replace(BRIDGE, bridge=replace(LIMITS, valve_failovers=2))
    wake(cloud, PATIENCE)
    assert loads(cloud.state).failovers == (ago(3000), ago(2000), NOW)


def test_failover_during_a_return_says_so() -> None:
    cloud = armed(drought_at=ago(131))
    cloud.set_state(replace(loads(cloud.state), mode=Mode.FAILOVER, rearm_from=ago(400)))
    record = wake(cloud, PATIENCE)
    assert record["action"] == "failover"
    assert record["reason"].endswith(f"patience {LIMITS.patience_seconds} s, during a re-arm")


def test_serving_box_makes_a_failed_launch_no_drought_and_nothing_is_written() -> None:
    cloud = armed()
    cloud.put_box(age=4000, health="healthy")
    wake(cloud, failed(1))
    assert seen(cloud).drought_at is None
    assert "put_state" not in cloud.calls


@pytest.mark.parametrize("lifecycle", ["Pending", "Pending:Wait"])
def test_box_on_its_way_ends_the_drought(lifecycle: str) -> None:
    cloud = armed(drought_at=ago(129))
    cloud.put_box(age=5, lifecycle=lifecycle)
    assert wake(cloud, PATIENCE)["action"] == "nothing"
    assert seen(cloud).drought_at is None


def test_noticed_box_neither_serves_nor_is_on_its_way() -> None:
    cloud = armed()
    cloud.put_box(age=4000, health="healthy")
    wake(cloud, about("interruption-warning"))
    assert seen(cloud).noticed == (BOX,)
    assert wake(cloud, failed(1))["action"] == "waiting"


def test_notice_of_the_last_box_ends_the_wait_where_patience_has_run_out() -> None:
    cloud = armed(drought_at=ago(131))
    cloud.put_box(age=4000, health="healthy")
    assert wake(cloud, about("interruption-warning"))["action"] == "failover"


def test_last_notices_are_remembered_and_each_once() -> None:
    cloud = armed()
    for number in (1, 2, 3, 3, 4, 5):
        box = f"i-0{number}"
        cloud.put_box(box, age=4000)
        wake(cloud, about("interruption-warning", box))
    assert seen(cloud).noticed == ("i-01", "i-02", "i-03", "i-04", "i-05")


def test_notice_of_a_box_of_somebody_else_is_ignored() -> None:
    cloud = armed()
    cloud.health["i-0other"] = "healthy"
    before = cloud.state
    assert wake(cloud, about("interruption-warning", "i-0other"))["action"] == "ignored"
    assert wake(cloud, about("rebalance-recommendation", "i-0other"))["action"] == "ignored"
    assert cloud.state == before


def test_hung_boot_is_not_on_its_way() -> None:
    cloud = armed(drought_at=ago(131))
    cloud.put_box(age=2000, lifecycle="Pending:Wait")
    assert wake(cloud, PATIENCE)["action"] == "failover"


def test_abandoned_boot_is_no_drought() -> None:
    cloud = armed()
    wake(cloud, group_event("launch-abandoned", at=ago(1), box=BOX))
    assert seen(cloud).drought_at is None


def test_deploy_holds_the_failover_back_and_the_alarm_path_takes_over() -> None:
    cloud = armed(drought_at=ago(131))
    cloud.deploying = True
    assert wake(cloud, PATIENCE)["action"] == "skipped"
    assert wake(cloud, SCAN)["action"] == "skipped"
    assert cloud.lever == "0"
    cloud.live_alarm = replace(cloud.live_alarm, state="ALARM", since=ago(LIMITS_OF_ALARM.skip_cap_seconds))
    assert wake(cloud, SCAN)["action"] == "failover"
    assert cloud.lever == "100"


def test_drought_that_waits_keeps_a_scan_from_nothing_else() -> None:
    cloud = armed(drought_at=ago(10))
    cloud.live_group = replace(cloud.live_group, suspended={})
    record = wake(cloud, SCAN)
    assert record["reason"].startswith("no box serves or is on its way, launches have failed for 10 s")
    assert set(cloud.live_group.suspended) == {"AZRebalance"}
    cloud.calls.clear()
    cloud.lever = "rubbish"
    assert wake(cloud, SCAN)["action"] == "repaired"
    assert cloud.lever == "0"
    due = NOW + timedelta(seconds=LIMITS.patience_seconds - 10)
    assert f"wake {due:%H:%M:%S}" in cloud.calls


def test_specified_policy_ignores_patience_and_drought() -> None:
    cloud = armed(SETTINGS, drought_at=ago(1000))
    record = wake(cloud, PATIENCE)
    assert (record["action"], record["reason"]) == ("nothing", "no drought")
    assert wake(cloud, failed(1))["action"] == "recorded"
    assert not [call for call in cloud.calls if call.startswith("wake")]


# --- warnings -----------------------------------------------------------------------------------------------------


def warned(**evidence: Any) -> StillCloud:
    cloud = armed(**{"warned": (BOX,), "warned_at": ago(6), **evidence})
    cloud.put_box(age=9000, health="healthy")
    cloud.scored = SELLS
    return cloud


def test_warning_is_decided_on_once_a_notice_that_came_with_it_would_have_shown() -> None:
    cloud = warned(warned=(), warned_at=None)
    assert wake(cloud, about("rebalance-recommendation"))["action"] == "waiting"
    assert seen(cloud).warned_at == NOW
    assert f"wake {NOW + timedelta(seconds=6):%H:%M:%S}" in cloud.calls


def test_only_serving_box_is_left_for_on_demand_while_it_can_be_bought_back() -> None:
    cloud = warned(calm_seconds=9000)
    assert wake(cloud, PATIENCE)["action"] == "bridged"
    assert (cloud.lever, loads(cloud.state).failovers) == ("100", ())
    assert (seen(cloud).calm_seconds, seen(cloud).false_warnings) == (LIMITS.return_after_seconds, 1)


@pytest.mark.parametrize(
    ("calm", "lived", "kept"), [(0, 500, 500), (600, 500, 600), (0, 9000, LIMITS.return_after_seconds)]
)
def test_life_of_the_box_is_calm_as_well(calm: int, lived: int, kept: int) -> None:
    cloud = warned(calm_seconds=calm)
    cloud.known[BOX] = replace(cloud.known[BOX], launched_at=ago(lived))
    wake(cloud, PATIENCE)
    assert seen(cloud).calm_seconds == kept


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("spot sells nothing now, so the box could not be bought back", lambda cloud: setattr(cloud, "scored", DRY)),
        ("it is not the only box that serves", lambda cloud: cloud.put_box("i-0other", age=900, health="healthy")),
        ("it is not the only box that serves", lambda cloud: cloud.health.update({BOX: "draining"})),
        ("it is not the only box that serves", lambda cloud: cloud.known.clear()),
        (
            "its successor is on its way, so the group would not launch another",
            lambda cloud: cloud.put_box("i-0next", age=5, lifecycle="Pending"),
        ),
        ("a deploy is in progress", lambda cloud: setattr(cloud, "deploying", True)),
    ],
)
def test_warning_is_left_to_the_group(why: str, change: Any) -> None:
    cloud = warned()
    change(cloud)
    record = wake(cloud, PATIENCE)
    assert record["action"] == "refused"
    assert record["reason"] == f"the warning of {BOX} is left to the group: {why}"
    assert (cloud.lever, seen(cloud).warned_at) == ("0", None)


def test_warning_says_what_it_waits_for_and_what_it_did() -> None:
    cloud = warned(warned=(), warned_at=None)
    assert wake(cloud, about("rebalance-recommendation"))["reason"] == f"{BOX} may go"
    assert wake(warned(), PATIENCE)["reason"] == f"AWS warned that {BOX} may go; it was launched 9000 s ago"


def test_second_warning_of_the_same_box_starts_the_wait_anew() -> None:
    cloud = warned(warned_at=ago(5))
    assert wake(cloud, PATIENCE)["action"] == "nothing"
    assert wake(cloud, about("rebalance-recommendation"))["action"] == "waiting"
    assert wake(cloud, PATIENCE)["action"] == "nothing"


def test_other_signals_decide_on_no_warning() -> None:
    cloud = warned(warned_at=ago(60))
    assert wake(cloud, SCAN)["action"] == "nothing"
    assert wake(cloud, about("rebalance-recommendation", "i-0other"))["action"] == "ignored"
    assert wake(cloud, about("interruption-warning"))["action"] == "recorded"
    assert cloud.lever == "0"


def test_warning_during_a_return_is_left_to_the_return() -> None:
    cloud = warned()
    cloud.set_state(replace(loads(cloud.state), mode=Mode.FAILOVER, rearm_from=ago(100)))
    assert wake(cloud, PATIENCE)["action"] == "nothing"


def test_warning_of_a_day_whose_on_demand_hours_are_used_up_is_left_to_the_group() -> None:
    cloud, noon = warned(), NOW.replace(hour=12)
    cloud.settings = limited(1, "bridge")
    evidence = replace(seen(cloud), warned_at=noon - timedelta(seconds=6))
    cloud.set_state(replace(loads(cloud.state), metered_at=noon, metered_seconds=3600, evidence=evidence))
    spent = "1.0 h on-demand today, limit 1 h"
    assert wake(cloud, PATIENCE, now=noon)["reason"] == f"the warning of {BOX} is left to the group: {spent}"


def test_warnings_that_come_to_nothing_are_believed_no_more_until_one_comes_true() -> None:
    cloud = warned(false_warnings=LIMITS.false_warnings)
    why = f"the last {LIMITS.false_warnings} warnings came to nothing"
    assert wake(cloud, PATIENCE)["reason"] == f"the warning of {BOX} is left to the group: {why}"
    cloud.put_box("i-0other", age=900)
    wake(cloud, about("interruption-warning", "i-0other"))
    assert seen(cloud).false_warnings == LIMITS.false_warnings
    wake(cloud, about("interruption-warning"))
    assert seen(cloud).false_warnings == 0


def test_warnings_can_be_left_to_the_group_altogether() -> None:
    cloud = warned()
    cloud.settings = replace(BRIDGE, bridge=replace(LIMITS, on_warning=False))
    assert wake(cloud, PATIENCE)["action"] == "nothing"


# --- the bar ------------------------------------------------------------------------------------------------------


def bridging(**evidence: Any) -> StillCloud:
    """An on-demand box serves; the last reading was one scan ago."""
    cloud = StillCloud.on_demand(scored_at=ago(300), evidence=Evidence(**evidence))
    cloud.settings = BRIDGE
    cloud.scored = SELLS
    return cloud


def test_supply_makes_calm_and_calm_up_to_the_bar_returns_to_spot() -> None:
    cloud = bridging(calm_seconds=LIMITS.return_after_seconds - LIMITS.scan_seconds - 1)
    assert wake(cloud, SCAN)["action"] == "refused"
    assert seen(cloud).calm_seconds == LIMITS.return_after_seconds - 1
    cloud = bridging(calm_seconds=LIMITS.return_after_seconds - LIMITS.scan_seconds)
    assert wake(cloud, SCAN)["action"] == "re-arm"
    assert cloud.lever == "0"


def test_one_reading_without_supply_may_be_an_error_and_two_end_the_calm() -> None:
    cloud = bridging(calm_seconds=1000, selling=("use2-az1",))
    cloud.scored = DRY
    wake(cloud, SCAN)
    assert (seen(cloud).calm_seconds, seen(cloud).selling) == (1000, ())
    wake(cloud, SCAN, now=NOW + timedelta(seconds=LIMITS.scan_seconds))
    assert seen(cloud).calm_seconds == 0


def test_supply_in_one_zone_after_another_is_calm() -> None:
    cloud = bridging(calm_seconds=1000, selling=("use2-az2",))
    wake(cloud, SCAN)
    assert seen(cloud).calm_seconds == 1000 + LIMITS.scan_seconds


def test_reading_that_failed_says_nothing_of_the_market() -> None:
    cloud = bridging(calm_seconds=1000, selling=("use2-az1",))
    before = cloud.state
    cloud.fail("scores", ThrottledError("GetSpotPlacementScores: throttled"))
    with pytest.raises(CloudError, match="GetSpotPlacementScores: throttled"):
        wake(cloud, SCAN)
    assert cloud.state == before


def test_dry_market_says_so_and_never_sells_a_return() -> None:
    cloud = bridging()
    cloud.scored = DRY
    cloud.settings = replace(BRIDGE, bridge=replace(LIMITS, return_after_seconds=0))
    record = wake(cloud, SCAN)
    assert (record["action"], record["reason"]) == ("refused", "spot calm for 0 s, bar 0 s, sells in no zone")


def test_moderate_score_sells() -> None:
    cloud = bridging()
    cloud.scored = {"use2-az1": 3, "use2-az2": 2}
    assert wake(cloud, SCAN)["reason"].endswith("sells in use2-az1")
    cloud = bridging()
    cloud.scored = {"use2-az1": 3, "use2-az2": 9}
    assert wake(cloud, SCAN)["reason"].endswith("sells in use2-az1, use2-az2")


def test_notice_told_again_later_changes_nothing() -> None:
    cloud = armed(noticed=(BOX,), warned=(BOX,), false_warnings=2)
    cloud.put_box(age=3600, health="healthy")
    wake(cloud, about("interruption-warning"))
    assert seen(cloud).false_warnings == 2  # one more bridge came to nothing since


def test_one_on_demand_box_that_serves_is_enough_to_return() -> None:
    cloud = bridging(calm_seconds=9000)
    cloud.put_box("i-0second", age=100, spot=False, health="initial")
    assert wake(cloud, SCAN)["action"] == "re-arm"


def test_repeated_scan_is_no_second_reading() -> None:
    cloud = bridging(calm_seconds=1000)
    wake(cloud, SCAN)
    assert seen(cloud).calm_seconds == 1000 + LIMITS.scan_seconds
    before = cloud.state
    record = wake(cloud, SCAN, now=NOW + timedelta(seconds=LIMITS.scan_seconds // 2 - 1))
    assert record["reason"] == "59 s since the last reading of the market"
    assert cloud.state == before


def test_no_return_before_an_on_demand_box_serves() -> None:
    cloud = bridging(calm_seconds=9000)
    cloud.health.clear()
    bar = LIMITS.return_after_seconds
    numbers = f"spot calm for {bar} s, bar {bar} s, sells in use2-az1"
    assert wake(cloud, SCAN)["reason"] == f"{numbers}; no on-demand box serves yet"
    cloud = bridging(calm_seconds=9000)
    cloud.deploying = True
    assert wake(cloud, SCAN)["reason"] == f"{numbers}; a deploy is in progress"
    assert wake(bridging(calm_seconds=9000), SCAN)["reason"] == numbers


def test_calm_counts_from_the_way_out_and_no_longer_than_a_scan() -> None:
    for since, scored, calm in [(100, 5000, 100), (5000, 59, 0), (5000, 90, 90), (5000, 900, 120)]:
        cloud = bridging()
        cloud.set_state(replace(loads(cloud.state), since=ago(since), scored_at=ago(scored)))
        wake(cloud, SCAN)
        assert seen(cloud).calm_seconds == calm


def test_failed_spot_launch_ends_the_return_at_once_and_takes_the_calm() -> None:
    cloud = bridging(calm_seconds=9000)
    state = replace(loads(cloud.state), rearm_from=ago(20))
    cloud.set_state(state)
    cloud.lever, cloud.live_group = "0", replace(cloud.live_group, on_demand_percentage=0)
    assert wake(cloud, failed(21))["action"] == "recorded"  # begun before the return
    assert wake(cloud, group_event("launch-abandoned", at=ago(5), box=BOX))["action"] == "recorded"
    assert wake(cloud, group_event("terminate-successful", at=ago(5), box=BOX))["action"] != "fell-back"
    record = wake(cloud, failed(20))
    assert record["action"] == "fell-back"
    assert record["reason"] == "spot launch failed: Could not launch Spot Instances. InsufficientInstanceCapacity"
    assert (cloud.lever, seen(cloud).calm_seconds, loads(cloud.state).streak) == ("100", 0, 0)


def test_failed_spot_launch_without_a_reason_says_that() -> None:
    cloud = bridging()
    cloud.set_state(replace(loads(cloud.state), rearm_from=ago(20)))
    cloud.lever, cloud.live_group = "0", replace(cloud.live_group, on_demand_percentage=0)
    raw = failed(5)
    raw["detail"]["StatusMessage"] = None
    assert wake(cloud, raw)["reason"] == "spot launch failed: no reason given"


def test_valve_pins_after_its_failovers() -> None:
    cloud = bridging()
    cloud.set_state(replace(loads(cloud.state), failovers=tuple(ago(3600 + n) for n in range(LIMITS.valve_failovers))))
    assert wake(cloud, SCAN)["action"] == "gave-up"


# --- on-demand hours ----------------------------------------------------------------------------------------------


def limited(hours: int, policy: str = "alarm") -> Settings:
    return replace(SETTINGS, policy=policy, watchdog=replace(SETTINGS.watchdog, on_demand_hours_per_day=hours))


@pytest.mark.parametrize("policy", ["alarm", "bridge"])
def test_used_up_hours_end_on_demand_with_a_mail(policy: str) -> None:
    cloud = StillCloud.on_demand(metered_at=ago(1800), metered_seconds=3600 - 1800)
    cloud.settings = limited(1, policy)
    noon = NOW.replace(hour=12)
    cloud.set_state(replace(loads(cloud.state), metered_at=noon - timedelta(seconds=1800)))
    assert wake(cloud, SCAN, now=noon)["action"] == "on-demand-limit"
    assert cloud.lever == "0"
    assert "end_box i-0demand" in cloud.calls
    assert [subject for subject, _ in cloud.mails] == ["[llm] on-demand hours of the day used up"]


def test_used_up_hours_do_not_end_the_boxes_that_are_always_on_demand() -> None:
    cloud = StillCloud.on_demand(metered_at=NOW, metered_seconds=3600)
    capacity = replace(SETTINGS.capacity, min=2, max=3, on_demand_base=1)
    cloud.settings = replace(limited(1), capacity=capacity)
    cloud.put_box("i-0second", age=9000, spot=False, health="healthy")
    wake(cloud, SCAN)
    assert [call for call in cloud.calls if call.startswith("end_box")] == ["end_box i-0second"]


def test_used_up_hours_hold_the_failover_of_a_drought_back() -> None:
    cloud, noon = armed(limited(1, "bridge")), NOW.replace(hour=12)
    evidence = Evidence(drought_at=noon - timedelta(seconds=131))
    cloud.set_state(replace(loads(cloud.state), metered_at=noon, metered_seconds=3600, evidence=evidence))
    record = wake(cloud, PATIENCE, now=noon)
    assert record["action"] == "skipped"
    assert record["reason"].startswith("failover skipped: 1.0 h on-demand today, limit 1 h; no box serves")


def test_used_up_hours_hold_a_failover_back_until_midnight() -> None:
    cloud = StillCloud(settings=limited(1))
    noon = NOW.replace(hour=12)
    cloud.live_alarm = replace(cloud.live_alarm, since=noon - timedelta(seconds=60))
    cloud.set_state(State(Mode.ARMED, launched_at=ago(86400), metered_at=noon, metered_seconds=3600))
    record = wake(cloud, SCAN, now=noon)
    assert (record["action"], record["reason"]) == ("skipped", "failover skipped: 1.0 h on-demand today, limit 1 h")
    assert wake(cloud, SCAN, now=noon + timedelta(hours=12, seconds=1))["action"] == "failover"


def test_hours_are_counted_from_scan_to_scan_within_the_day() -> None:
    cloud = StillCloud.on_demand(metered_at=NOW - timedelta(hours=2), metered_seconds=7200)
    cloud.settings = limited(20)
    wake(cloud, SCAN)
    since_midnight = int((NOW - NOW.replace(hour=0, minute=0, second=0)).total_seconds())
    assert (loads(cloud.state).metered_at, loads(cloud.state).metered_seconds) == (NOW, since_midnight)


def test_hours_are_counted_by_every_scan_and_every_change_and_by_nothing_else() -> None:
    half = {"metered_at": ago(1800), "metered_seconds": 60}
    cloud = StillCloud.on_demand(scored_at=ago(10), **half)
    cloud.settings = limited(20, "bridge")
    wake(cloud, "alarm-ok")
    assert "put_state" not in cloud.calls
    wake(cloud, SCAN)  # too soon for another reading of the market
    assert loads(cloud.state).metered_at == NOW
    cloud = armed(limited(20, "bridge"), drought_at=ago(131))
    wake(cloud, PATIENCE)
    assert loads(cloud.state).metered_at == NOW


# --- what is read -------------------------------------------------------------------------------------------------


def test_only_a_fleet_on_spot_looks_for_boxes_at_an_event_of_the_market() -> None:
    cloud = StillCloud.on_demand()
    cloud.settings = BRIDGE
    cloud.put_box(BOX, age=4000)
    wake(cloud, about("interruption-warning"))
    assert [call for call in cloud.calls if call != "put_state"] == ["parameters", "instances", "group"]


def test_only_an_event_of_the_market_makes_a_fleet_on_spot_look_for_boxes() -> None:
    cloud = armed()
    wake(cloud, "alarm-ok")
    assert cloud.calls == ["parameters"]


def test_patience_of_a_fleet_that_has_left_spot_asks_for_no_scores() -> None:
    cloud = bridging(warned=(BOX,), warned_at=ago(10))
    wake(cloud, PATIENCE)
    assert cloud.calls == ["parameters"]


def test_box_that_boots_under_a_notice_is_not_on_its_way() -> None:
    cloud = armed(noticed=(BOX,))
    cloud.put_box(BOX, age=60, lifecycle="Pending:Wait")
    assert wake(cloud, failed(1))["action"] == "waiting"


# --- beside the specified policy ----------------------------------------------------------------------------------


def test_what_was_learned_never_replaces_what_was_decided() -> None:
    cloud = armed(drought_at=ago(10))
    cloud.put_box(age=4000, health="healthy")
    cloud.lever = "100"
    assert wake(cloud, SCAN)["action"] == "repaired"
    assert (cloud.lever, seen(cloud).drought_at) == ("0", None)


def test_finish_writes_no_state_before_its_work() -> None:
    cloud = armed()
    cloud.put_box(age=4000, health="healthy")
    cloud.set_state(loads(cloud.state).begin(Kind.REPAIRED, ago(60), "cut short"))
    wake(cloud, SCAN)
    assert [call for call in cloud.calls if call in {"put_state", "mail"}] == ["put_state", "mail", "put_state"]


def test_record_shows_of_the_world_only_what_was_read() -> None:
    assert set(wake(armed(), PATIENCE)["world"]) == {"lever", "alarm", "percentage", "boxes"}
    everything = {"lever", "alarm", "percentage", "boxes", "healthy"}
    assert set(wake(warned(), PATIENCE)["world"]) == everything


# --- boots that come to nothing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dark", "left"), [(1029, False), (1030, True)])
@pytest.mark.parametrize("payload", [SCAN, PATIENCE, event("terminate-successful"), failed(1)])
def test_boxes_that_come_one_after_the_other_and_never_serve_are_left_after_a_boot_and_patience(
    payload: dict[str, Any], dark: int, left: bool
) -> None:
    cloud = armed(dark_at=ago(dark))
    cloud.put_box("i-0next", age=60, lifecycle="Pending:Wait")
    record = wake(cloud, payload)
    assert (record["action"] == "failover") is left
    if left:
        assert record["reason"] == "nothing has served for 1030 s though boxes came, limit 1030 s"
        assert loads(cloud.state).failovers == (NOW,)
        assert seen(cloud).dark_at is None


@pytest.mark.parametrize(
    ("launched", "boot", "limit"), [(86400, "cold", 1630), (86400, None, 1030), (None, None, 1630)]
)
def test_boot_that_may_take_longer_is_waited_for(launched: int | None, boot: str | None, limit: int) -> None:
    for dark, action in ((limit - 1, "nothing"), (limit, "failover")):
        cloud = armed(dark_at=ago(dark))
        cloud.set_state(replace(loads(cloud.state), launched_at=launched and ago(launched)))
        cloud.put_box("i-0next", age=60, lifecycle="Pending:Wait", boot=boot)
        assert wake(cloud, SCAN)["action"] == action


def test_dark_is_counted_from_the_first_look_that_found_nothing_serving_to_the_first_that_does() -> None:
    cloud = armed()
    cloud.put_box(BOX, age=4000, health="healthy")
    wake(cloud, SCAN)
    assert seen(cloud).dark_at is None
    wake(cloud, about("interruption-warning"))
    assert seen(cloud).dark_at == NOW
    wake(cloud, SCAN, now=NOW + timedelta(seconds=100))
    assert seen(cloud).dark_at == NOW
    wake(cloud, event("rebalance-recommendation"))  # tells nothing of it
    assert seen(cloud).dark_at == NOW
    cloud.put_box("i-0next", age=400, health="healthy")
    wake(cloud, SCAN)
    assert seen(cloud).dark_at is None


def test_fleet_that_has_left_spot_counts_nothing() -> None:
    cloud = bridging(dark_at=ago(5000))
    cloud.health = {}
    wake(cloud, SCAN)
    assert (seen(cloud).dark_at, cloud.lever) == (None, "100")
