"""Events of the group and of EC2: boot loop, dry on-demand, and what is only recorded."""

from dataclasses import replace
from typing import Any

import pytest

from lambdas.watchdog.cloud import Alarm, Instance
from lambdas.watchdog.state import Kind, Mode, State
from tests.watchdog.still_cloud import EMPTY, NOW, StillCloud, ago, event, group_event, wake


def abandon(cloud: StillCloud, number: int, *, at: float | None = None) -> str:
    """A box gives up its boot, says so on itself and gives its launch back."""
    cloud.known[f"i-0{number}"] = Instance(ago(1200), True, "failed", "shutting-down")
    payload = group_event("launch-abandoned", at=ago(1000 - number if at is None else at), box=f"i-0{number}")
    action: str = wake(cloud, payload)["action"]
    return action


def in_a_boot_loop() -> StillCloud:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(10)))
    assert [abandon(cloud, number) for number in range(4)] == ["recorded"] * 4
    cloud.known["i-04"] = cloud.known["i-03"]
    return cloud


def test_five_abandoned_launches_running_suspend_launch_with_one_mail() -> None:
    cloud = in_a_boot_loop()
    assert abandon(cloud, 4) == "boot-loop"
    assert "Launch" in cloud.live_group.suspended
    assert [subject for subject, _ in cloud.mails] == ["[llm] boots keep failing, launching is suspended"]
    assert "Why: 5 consecutive boots failed, the last: the box says fleet:boot=failed\n" in cloud.mails[0][1]


def test_stopped_boot_loop_moves_no_lever_whatever_the_parameter_says() -> None:
    cloud = in_a_boot_loop()
    cloud.lever = "100"  # by hand: the next scan's to repair
    assert abandon(cloud, 4) == "boot-loop"
    assert cloud.lever == "100"
    assert not [call for call in cloud.calls if call.startswith(("put_lever", "flip"))]


def test_abandoned_launch_told_twice_counts_once() -> None:
    cloud = in_a_boot_loop()
    before = cloud.state
    assert abandon(cloud, 3) == "recorded"
    assert cloud.state == before


def test_launch_that_serves_ends_the_run() -> None:
    cloud = in_a_boot_loop()
    wake(cloud, group_event("launch-successful", at=ago(900)))
    assert abandon(cloud, 4, at=800) == "recorded"
    assert len(cloud.parsed.abandoned) == 1


def test_late_news_of_a_launch_that_served_ends_only_the_run_before_it() -> None:
    cloud = in_a_boot_loop()
    wake(cloud, group_event("launch-successful", at=ago(998)))
    assert [box for box, _ in cloud.parsed.abandoned] == ["i-03"]
    before = cloud.state
    wake(cloud, group_event("launch-successful", at=ago(998)))
    wake(cloud, group_event("launch-successful", at=ago(5000)))
    assert cloud.state == before


@pytest.mark.parametrize("since", ["launched_at", "since"], ids=["one served", "the mode began"])
@pytest.mark.parametrize(("at", "counted"), [(999, True), (1000, False)])
def test_late_news_of_an_abandoned_launch_does_not_count_after_one_that_served_or_since_another_mode_began(
    at: int, counted: bool, since: Any
) -> None:
    cloud = StillCloud(state=replace(State(Mode.ARMED), **{since: ago(1000)}).dumps())
    abandon(cloud, 1, at=at)
    assert bool(cloud.parsed.abandoned) is counted


def test_launches_that_an_operator_has_forgiven_stay_forgiven_when_they_are_told_again() -> None:
    cloud = in_a_boot_loop()
    wake(cloud, {"command": "arm", "who": "me", "why": "mended"})
    assert cloud.parsed.since == NOW
    assert abandon(cloud, 3) == "recorded"
    assert cloud.parsed.abandoned == ()


def test_boot_loop_already_stopped_only_records() -> None:
    cloud = in_a_boot_loop()
    abandon(cloud, 4)
    assert abandon(cloud, 5) == "recorded"
    assert [box for box, _ in cloud.parsed.abandoned] == [f"i-0{n}" for n in range(1, 6)]
    assert len(cloud.mails) == 1


def test_boot_loop_that_a_human_resumed_by_hand_is_stopped_again() -> None:
    cloud = in_a_boot_loop()
    abandon(cloud, 4)
    cloud.live_group = replace(cloud.live_group, suspended={})
    assert abandon(cloud, 5) == "boot-loop"


def test_arm_resumes_launch_and_begins_the_count_anew() -> None:
    cloud = in_a_boot_loop()
    abandon(cloud, 4)
    assert wake(cloud, "arm")["action"] == "armed"
    assert (cloud.parsed.mode, cloud.parsed.abandoned) == (Mode.ARMED, ())
    assert "Launch" not in cloud.live_group.suspended
    assert wake(cloud, "arm")["action"] == "nothing"


def test_launches_that_the_market_refused_are_no_boot_loop() -> None:
    cloud = StillCloud()
    for _ in range(66):
        assert wake(cloud, "launch-no-capacity")["action"] == "recorded"
    assert (cloud.parsed.abandoned, cloud.mails) == ((), [])
    assert "put_state" not in cloud.calls


# --- on-demand dry too ------------------------------------------------------------------------------------------


def failed_over() -> StillCloud:
    cloud = StillCloud(lever="100")
    state = State(Mode.FAILOVER, since=ago(60), failovers=(ago(60),), cooldown_from=ago(60), launched_at=ago(9000))
    cloud.set_state(state)
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=100)
    return cloud


def refuse(cloud: StillCloud, at: float) -> str:
    action: str = wake(cloud, group_event("launch-no-capacity-on-demand", at=ago(at)))["action"]
    return action


def test_on_demand_dry_too_is_one_mail_however_often_it_is_told() -> None:
    cloud = failed_over()
    assert refuse(cloud, 50) == "on-demand-dry"
    assert [refuse(cloud, at) for at in (50, 30, 10)] == ["waiting"] * 3
    assert [subject for subject, _ in cloud.mails] == ["[llm] on-demand is dry too"]
    assert "Why: Could not launch On-Demand Instances." in cloud.mails[0][1]
    assert cloud.parsed.dry_at == ago(50)


def test_new_drought_after_a_launch_is_a_new_mail() -> None:
    cloud = failed_over()
    refuse(cloud, 50)
    wake(cloud, group_event("launch-successful", at=ago(40)))
    assert cloud.parsed.dry_at is None
    assert refuse(cloud, 45) == "waiting"
    assert refuse(cloud, 30) == "on-demand-dry"


def test_launch_before_the_drought_does_not_end_it() -> None:
    cloud = failed_over()
    refuse(cloud, 50)
    wake(cloud, group_event("launch-successful", at=ago(51)))
    assert cloud.parsed.dry_at == ago(50)
    wake(cloud, group_event("launch-successful", at=ago(50)))
    assert cloud.parsed.dry_at is None


@pytest.mark.parametrize(("began", "dry"), [(61, False), (60, False), (59, True)])  # event times are cut to seconds
def test_launch_begun_before_the_flip_says_nothing_of_on_demand(began: int, dry: bool) -> None:
    assert (refuse(failed_over(), began) == "on-demand-dry") is dry


def test_failed_extra_launch_beside_a_full_group_is_no_drought() -> None:
    cloud = failed_over()
    cloud.put_box(age=3000, spot=False)
    assert refuse(cloud, 50) == "recorded"
    cloud.live_group = replace(cloud.live_group, desired=2)
    assert refuse(cloud, 50) == "on-demand-dry"


@pytest.mark.parametrize("when", ["on spot", "not flipped yet", "during a re-arm"])
def test_failed_launch_of_spot_is_no_dry_on_demand(when: str) -> None:
    cloud = StillCloud() if when == "on spot" else failed_over()
    if when == "not flipped yet":
        cloud.live_group = replace(cloud.live_group, on_demand_percentage=0)
    if when == "during a re-arm":
        cloud.set_state(replace(cloud.parsed, rearm_from=ago(55)))
    assert refuse(cloud, 50) == "recorded"


# --- recorded, ignored ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["interruption-warning", "rebalance-recommendation"])
def test_notices_of_our_boxes_are_recorded_those_of_others_ignored(name: str) -> None:
    cloud = StillCloud()
    assert wake(cloud, name)["reason"] == "i-0aaaaaaaaaaaaaaa1 is not of this fleet"
    cloud.put_box(age=5000)
    record = wake(cloud, name)
    assert record["action"] == "recorded"
    assert record["reason"] == f"{name.split('-')[0]} i-0aaaaaaaaaaaaaaa1"
    reads = ["parameters", "instances", "parameters", "instances", "alarm", "group"]
    assert cloud.calls == [*reads, "put_state"]


@pytest.mark.parametrize("name", ["terminate-successful", "refresh-succeeded", "refresh-failed", "refresh-cancelled"])
def test_group_events_outside_a_rearm_are_recorded(name: str) -> None:
    cloud = StillCloud()
    assert wake(cloud, name)["action"] == "recorded"
    gone = ["group", "target_health", "stack_in_progress"]  # nothing may serve now
    assert cloud.calls == ["parameters", "alarm", *(gone if name == "terminate-successful" else [])]


def test_launch_that_serves_is_remembered_once() -> None:
    cloud = StillCloud(state=State(Mode.ARMED).dumps())
    assert wake(cloud, "launch-successful", now=NOW)["action"] == "recorded"
    assert cloud.calls == ["parameters", "alarm", "put_state"]
    wake(cloud, "launch-successful")
    assert cloud.calls == ["parameters", "alarm", "put_state", "parameters", "alarm"]


def test_unknown_event_is_ignored_with_its_reason_and_without_a_read() -> None:
    cloud = StillCloud()
    record = wake(cloud, event("unknown-event"))
    assert (record["action"], record["reason"]) == ("ignored", "aws.ec2 / EC2 Instance Stop Protection Change")
    assert cloud.calls == []


def test_finished_stop_is_not_sent_again() -> None:
    cloud = in_a_boot_loop()
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": ""})
    cloud.set_state(cloud.parsed.begin(Kind.BOOT_LOOP, ago(5), "5 launches"))
    wake(cloud, "alarm-ok")
    assert "suspend Launch" not in cloud.calls
    assert len(cloud.mails) == 1


def test_launches_abandoned_before_any_served_count() -> None:
    cloud = StillCloud(state=State(Mode.ARMED).dumps())
    abandon(cloud, 1)
    assert [box for box, _ in cloud.parsed.abandoned] == ["i-01"]


def test_forgotten_launch_of_the_same_second_as_a_known_one_stays_forgotten_when_it_is_told_again() -> None:
    cloud = StillCloud()
    for number, at in ((1, 900), (2, 900), (3, 800), (4, 700), (5, 600), (6, 500)):
        abandon(cloud, number, at=at)
    before = cloud.state
    assert [box for box, _ in cloud.parsed.abandoned] == ["i-02", "i-03", "i-04", "i-05", "i-06"]
    abandon(cloud, 1, at=900)
    assert cloud.state == before


def test_oldest_abandoned_launches_are_forgotten_first_whatever_their_names_and_order() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(10)))
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": ""})
    for number, at in ((9, 60), (8, 10), (7, 20), (1, 50), (2, 40), (3, 30)):
        abandon(cloud, number, at=at)
    assert [box for box, _ in cloud.parsed.abandoned] == ["i-01", "i-02", "i-03", "i-07", "i-08"]
    before = cloud.state
    abandon(cloud, 9, at=60)
    assert cloud.state == before


def test_news_told_twice_does_not_stop_a_loop_that_a_human_resumed() -> None:
    cloud = in_a_boot_loop()
    abandon(cloud, 4)
    cloud.live_group = replace(cloud.live_group, suspended={})
    assert abandon(cloud, 4) == "recorded"
    assert len(cloud.mails) == 1


# --- reclaims during a boot ---------------------------------------------------------------------------------------


def notice(cloud: StillCloud, box: str) -> str:
    cloud.known.setdefault(box, Instance(ago(200), True, None))
    payload = event("interruption-warning")
    payload["detail"]["instance-id"] = box
    action: str = wake(cloud, payload)["action"]
    return action


def test_boots_that_were_reclaimed_are_no_boot_loop_and_the_failover_after_them_launches() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(9000)))
    for number in range(6):
        cloud.live_group = replace(cloud.live_group, boxes=())
        cloud.put_box(f"i-0{number}", age=200, lifecycle="Pending:Wait")
        assert notice(cloud, f"i-0{number}") == "recorded"
        assert abandon(cloud, number) == "recorded"
    assert (cloud.parsed.abandoned, cloud.mails) == ((), [])
    cloud.live_group, cloud.live_alarm = replace(cloud.live_group, boxes=()), Alarm("ALARM", ago(5))
    assert wake(cloud, "alarm-lit")["action"] == "failover"
    assert set(cloud.live_group.suspended) == {"AZRebalance"}


def test_notice_that_comes_after_its_abandoned_launch_takes_it_out_of_the_count() -> None:
    cloud = in_a_boot_loop()
    assert notice(cloud, "i-02") == "recorded"
    assert [box for box, _ in cloud.parsed.abandoned] == ["i-00", "i-01", "i-03"]
    assert abandon(cloud, 4) == "recorded"


def test_notices_are_remembered_for_as_long_as_the_group_lists_their_boxes() -> None:
    cloud = StillCloud()
    for number in range(44):
        cloud.put_box(f"i-{number:02}", age=200)
        notice(cloud, f"i-{number:02}")
    assert len(cloud.parsed.evidence.noticed) == 44
    cloud.live_group = replace(cloud.live_group, boxes=cloud.live_group.boxes[-2:])
    notice(cloud, "i-0gone")
    assert cloud.parsed.evidence.noticed == ("i-42", "i-43", "i-0gone")


def test_recommendation_is_no_notice() -> None:
    cloud = StillCloud()
    cloud.put_box(age=200)
    wake(cloud, "rebalance-recommendation")
    assert cloud.parsed.evidence.noticed == ()


@pytest.mark.parametrize("way", ["failover", "re-armed"])
def test_drought_of_long_ago_does_not_swallow_the_mail_of_the_next(way: str) -> None:
    if way == "failover":
        cloud = StillCloud()
        cloud.set_state(replace(cloud.parsed, dry_at=ago(900000)))
        wake(cloud, "alarm-lit")
    else:
        cloud = StillCloud.on_demand(rearm_from=ago(300), dry_at=ago(900000))
        cloud.lever, cloud.live_group = "0", replace(EMPTY, on_demand_percentage=0)
        cloud.put_box("i-0spot", age=200, health="healthy")
        assert wake(cloud, "scan")["action"] == "re-armed"
    assert cloud.parsed.dry_at is None
