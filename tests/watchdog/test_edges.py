"""Rules where two of them meet, and reads that nothing needs: what a change to one line of the watchdog would break."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lambdas.watchdog import failures
from lambdas.watchdog.cloud import Alarm, CloudError, Instance, ThrottledError
from lambdas.watchdog.state import Evidence, Kind, Mode, State
from tests.watchdog.still_cloud import LIT, NOW, SETTINGS, StillCloud, ago, event, group_event, wake
from tests.watchdog.test_bridge import BRIDGE, SELLS, about, armed
from tests.watchdog.test_failures import refuse
from tests.watchdog.test_group_events import notice
from tests.watchdog.test_rearm import OLD, under_way, without

OK = Alarm("OK", ago(300))
BOX = "i-0aaaaaaaaaaaaaaa1"
LONG = BRIDGE.bridge.patience_seconds + 1


# --- which of two comes first -------------------------------------------------------------------------------------


def test_drought_that_is_due_comes_before_a_repair() -> None:
    cloud = armed(drought_at=ago(LONG))
    cloud.lever = "100"
    assert wake(cloud, "scan")["action"] == "failover"


def test_boots_that_fail_suspend_launch_even_where_the_alarm_is_lit_past_the_skip_cap() -> None:
    abandoned = tuple((f"i-0{number}", ago(900 - number)) for number in range(4))
    cloud = StillCloud(live_alarm=replace(LIT, since=ago(2000)))
    cloud.set_state(State(Mode.ARMED, launched_at=ago(86400), abandoned=abandoned))
    cloud.known["i-04"] = Instance(ago(700), True, "failed", "shutting-down")
    assert wake(cloud, group_event("launch-abandoned", at=ago(10), box="i-04"))["action"] == "boot-loop"


def test_failed_boot_counts_while_a_drought_is_waited_out() -> None:
    cloud = armed(drought_at=ago(min(60, LONG - 2)))
    cloud.known["i-04"] = Instance(ago(700), True, "failed", "shutting-down")
    assert wake(cloud, group_event("launch-abandoned", at=ago(10), box="i-04"))["action"] == "waiting"
    assert [box for box, _ in cloud.parsed.abandoned] == ["i-04"]


def test_alarm_that_does_not_exist_is_told_before_a_read_that_failed() -> None:
    cloud = StillCloud(live_alarm=None)
    cloud.fail("stack_in_progress", ThrottledError("Rate exceeded"))
    with pytest.raises(CloudError, match="the alarm does not exist"):
        wake(cloud, "scan")


def test_day_off_spot_is_mailed_by_a_scan_alone() -> None:
    cloud = StillCloud.on_demand(since=ago(200000), on_demand_since=ago(200000))
    assert wake(cloud, "alarm-ok")["action"] == "recorded"
    assert cloud.mails == []


def test_alarm_counts_once_for_the_valve_of_the_bridge_policy_too() -> None:
    cloud = StillCloud(settings=BRIDGE)
    assert wake(cloud, "alarm-lit")["action"] == "failover"
    assert cloud.parsed.failovers == (NOW,)


def test_failovers_that_no_valve_needs_are_forgotten() -> None:
    cloud = StillCloud()
    cloud.set_state(State(Mode.ARMED, launched_at=ago(86400), failovers=tuple(ago(900 - n) for n in range(5))))
    wake(cloud, "alarm-lit")
    assert cloud.parsed.failovers == (ago(897), ago(896), NOW)


def test_alarm_that_was_lit_before_an_armed_fleet_was_armed_again_counts_in_full() -> None:
    """The operator let it launch again, and its drought is as old as the alarm."""
    cloud = StillCloud(live_alarm=replace(LIT, since=ago(1800)))
    cloud.set_state(State(Mode.ARMED, since=ago(60), launched_at=ago(86400)))
    cloud.put_box(age=50, lifecycle="Pending:Wait")
    assert wake(cloud, "scan")["action"] == "failover"


# --- words --------------------------------------------------------------------------------------------------------


def test_all_strangers_are_named_after_what_else_a_scan_says() -> None:
    cloud = StillCloud(health={"i-0x": "healthy", "i-0y": "initial"})
    cloud.put_box(age=60, lifecycle="Pending:Wait")
    detail = wake(cloud, "scan")["detail"]
    assert detail == (
        f"{BOX} is 60 s old, grace 900 s; alarm lit for 2 s, skip cap 1800 s; "
        "deregisters i-0x, i-0y: no box of the group"
    )


def test_refusal_says_which_kind_was_refused() -> None:
    cloud = StillCloud(live_alarm=OK)
    refuse(cloud, "VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit.")
    [(_, body)] = cloud.mails
    assert "Why: spot: VcpuLimitExceeded - You have requested" in body


def test_code_that_stands_last_is_put_first_only_where_a_mail_would_cut_it_off() -> None:
    for gap in (99, 100, 101):
        words = "x" * (gap - len("InvalidAMIID")) + "InvalidAMIID.NotFound"
        assert failures.with_code_first(words).startswith("InvalidAMIID: ") is (gap > failures.CODE_WITHIN)
    assert failures.CODE_WITHIN == 100
    unknown = "y" * 110 + " Server.BrandNew: words"
    assert failures.with_code_first(unknown) == f"Server.BrandNew: {unknown}"
    of_an_error = f"{'Launching another box. ' * 5}BrandNewFault - nobody knows it"
    assert failures.with_code_first(of_an_error) == f"BrandNewFault: {of_an_error}"


# --- what is remembered -------------------------------------------------------------------------------------------


def test_box_that_ended_is_no_notice_and_a_notice_told_twice_writes_nothing() -> None:
    cloud = StillCloud(live_alarm=OK)
    cloud.put_box(age=5000, health="healthy")
    payload = event("box-ended")
    payload["detail"]["instance-id"] = BOX
    wake(cloud, payload)
    assert cloud.parsed.evidence.noticed == ()
    notice(cloud, BOX)
    assert cloud.parsed.evidence.noticed == (BOX,)
    cloud.calls.clear()
    notice(cloud, BOX)
    assert "put_state" not in cloud.calls


def test_refusal_of_a_rearm_that_time_mends_is_no_news() -> None:
    cloud = under_way()
    without(cloud, OLD)
    assert refuse(cloud, "BrandNewError - Launching EC2 instance failed.") == "recorded"
    assert cloud.mails == []


def test_quota_is_named_while_the_box_with_a_notice_is_still_there() -> None:
    """Short patience has the fleet on on-demand before that box is gone."""
    cloud = StillCloud(live_alarm=OK)
    cloud.put_box(age=5000, health="healthy")
    words = "MaxSpotInstanceCountExceeded - Max spot instance count exceeded"
    assert refuse(cloud, words) == "recorded"
    notice(cloud, BOX)
    assert refuse(cloud, words) == "launch-refused"
    [(subject, _)] = cloud.mails
    assert subject == "[llm] launches are refused: a quota of the account is used up"


def test_drought_of_on_demand_began_with_its_first_refusal_whatever_the_next_is_for() -> None:
    cloud = StillCloud.on_demand(since=ago(1000))
    without(cloud, OLD)
    for at, words in ((100, "BrandNewError - words"), (50, "VcpuLimitExceeded - words")):
        refuse(cloud, words, at)
    assert (cloud.parsed.dry_at, len(cloud.parsed.refused)) == (ago(100), 2)


# --- the way back -------------------------------------------------------------------------------------------------


def on_trial(**state: Any) -> StillCloud:
    cloud = StillCloud.on_demand(since=ago(43200), reminders=1, on_demand_since=ago(90000), streak=1, **state)
    cloud.set_state(replace(cloud.parsed, cooldown_from=None, failovers=()))
    cloud.scored = {"use2-az1": 1}
    return cloud


def test_trial_needs_one_box_that_serves_and_begins_the_streak_anew() -> None:
    cloud = on_trial()
    cloud.put_box("i-0second", age=19400, spot=False)
    record = wake(cloud, "scan")
    assert record["action"] == "re-arm"
    assert record["reason"].startswith("a trial: nothing else was tried for 43200 s; score 1 in use2-az1")
    assert (cloud.parsed.streak, cloud.parsed.trial) == (0, True)


@pytest.mark.parametrize(("settings", "cools"), [(SETTINGS, True), (BRIDGE, False)])
def test_return_that_was_refused_cools_under_the_alarm_policy_alone(settings: Any, cools: bool) -> None:
    cloud = under_way(cooldown_from=None)
    cloud.settings = settings
    assert refuse(cloud, "VcpuLimitExceeded - words") == "fell-back"
    assert cloud.parsed.cooldown_from == (NOW if cools else None)


def test_return_on_calm_is_no_trial() -> None:
    bar = BRIDGE.bridge.return_after_seconds
    cloud = StillCloud.on_demand(
        since=ago(90000), trial=True, evidence=Evidence(calm_seconds=bar, selling=("use2-az1",))
    )
    cloud.settings, cloud.scored = BRIDGE, SELLS
    assert wake(cloud, "scan")["action"] == "re-arm"
    assert cloud.parsed.trial is False


# --- boots that come to nothing -----------------------------------------------------------------------------------


def test_boots_that_come_to_nothing_are_judged_by_what_tells_of_a_drought_and_need_a_box() -> None:
    dark = ago(5000)
    empty = armed(dark_at=dark)
    assert wake(empty, "scan")["action"] == "nothing"
    cloud = armed(dark_at=dark)
    cloud.put_box(age=60, lifecycle="Pending:Wait")
    assert wake(cloud, about("rebalance-recommendation"))["action"] != "failover"
    assert wake(cloud, "scan")["action"] == "failover"


def test_box_that_ec2_does_not_know_yet_is_no_measure_of_a_boot() -> None:
    cloud = armed(dark_at=ago(5000))
    cloud.put_box(age=1, lifecycle="Pending")
    del cloud.known[BOX]
    assert wake(cloud, "scan")["action"] == "failover"


# --- reads that nothing needs -------------------------------------------------------------------------------------


def test_refused_launch_is_judged_on_the_group_alone() -> None:
    cloud = StillCloud(live_alarm=OK)
    cloud.put_box(age=60, lifecycle="Pending:Wait")
    refuse(cloud, "InsufficientInstanceCapacity - words")
    assert cloud.calls == ["parameters", "alarm", "group"]


def test_box_is_asked_for_once() -> None:
    cloud = armed()
    cloud.put_box(age=5000, health="healthy")
    wake(cloud, about("interruption-warning"))
    assert cloud.calls.count("instances") == 1


def test_box_of_somebody_else_is_ignored_unless_something_is_unfinished() -> None:
    cloud = StillCloud(live_alarm=OK)
    cloud.known["i-0other"] = Instance(ago(500), True, None, ours=False)
    assert notice(cloud, "i-0other") == "ignored"
    cloud.set_state(cloud.parsed.begin(Kind.PINNED, NOW, "by an operator"))
    cloud.calls.clear()
    notice(cloud, "i-0other")
    assert cloud.parsed.unfinished is None
    assert not [call for call in cloud.calls if call.startswith("dark_minutes")]


def test_held_box_of_several_is_ended_by_its_end() -> None:
    cloud = StillCloud(live_alarm=OK)
    cloud.put_box(age=5000, health="healthy")
    cloud.put_box("i-0held", age=60, lifecycle="Pending:Wait", state="shutting-down")
    payload = event("box-ended")
    payload["detail"]["instance-id"] = "i-0held"
    assert "ends i-0held" in wake(cloud, payload)["detail"]


def test_dark_fleet_is_looked_at_by_the_clock_only_where_it_is_on_on_demand() -> None:
    cloud = StillCloud(live_alarm=OK)
    cloud.set_state(replace(cloud.parsed, evidence=Evidence(drought_at=ago(60))))
    wake(cloud, "launch-successful", now=NOW + timedelta(seconds=1))
    assert cloud.calls[:2] == ["parameters", "alarm"]
    assert "group" not in cloud.calls
