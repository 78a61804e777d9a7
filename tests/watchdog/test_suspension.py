"""Processes that AWS or somebody else suspended: resumed, each time later, or mailed once; pinned reports only."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from lambdas.watchdog import suspension
from lambdas.watchdog.cloud import Alarm, CloudError
from lambdas.watchdog.state import Kind, Mode, State
from tests.watchdog.still_cloud import EMPTY, NOW, StillCloud, ago, wake

AWS = "Suspended administratively on 2026-07-22T00:00:00Z"
USER = "User suspended at 2026-07-22T00:00:00Z"
SUBJECTS = {
    "aws": "[llm] AWS had suspended launching, resumed",
    "others": "[llm] a process of the group is suspended",
}


def suspended(mode: Mode = Mode.FAILOVER, **processes: str) -> StillCloud:
    cloud = StillCloud.on_demand()
    cloud.set_state(replace(cloud.parsed, mode=mode))
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": USER, **processes})
    if mode is Mode.ARMED:
        cloud.lever, cloud.live_group = "0", replace(cloud.live_group, on_demand_percentage=0)
    return cloud


def subjects(cloud: StillCloud) -> list[str]:
    return [subject for subject, _ in cloud.mails]


@pytest.mark.parametrize("mode", [Mode.ARMED, Mode.FAILOVER])
def test_what_aws_suspended_is_resumed_by_the_first_scan_with_a_mail_and_the_scan_goes_on(mode: Mode) -> None:
    cloud = suspended(mode, Launch=AWS, Terminate=AWS)
    record = wake(cloud, "scan")
    assert set(cloud.live_group.suspended) == {"AZRebalance"}
    assert subjects(cloud) == [SUBJECTS["aws"]]
    assert f"Why: Launch is suspended: {AWS}; Terminate" in cloud.mails[0][1]
    assert record["action"] in {"nothing", "refused"}
    assert record["also"] == [f"unsuspended: Launch is suspended: {AWS}; Terminate is suspended: {AWS}"]
    assert (cloud.parsed.suspended_at, cloud.parsed.resumed) == (None, 1)


def test_a_failover_that_is_due_follows_in_the_same_scan() -> None:
    cloud = StillCloud()
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": USER, "Launch": AWS})
    record = wake(cloud, "scan")
    assert (record["action"], subjects(cloud)) == ("failover", [SUBJECTS["aws"], "[llm] on-demand failover"])
    assert "Launch is suspended" not in record["reason"]


def test_failover_under_a_suspended_launch_says_so() -> None:
    cloud = StillCloud()
    cloud.live_group = replace(cloud.live_group, suspended={"Launch": USER})
    assert wake(cloud, "alarm-lit")["reason"] == "no healthy target, alarm lit for 2 s; Launch is suspended"
    assert wake(StillCloud(), "alarm-lit")["reason"] == "no healthy target, alarm lit for 2 s"


@pytest.mark.parametrize(("resumed", "minutes"), [(0, 0), (1, 30), (2, 60), (3, 120), (4, 240), (5, 240), (99, 240)])
def test_each_time_that_aws_suspends_again_is_waited_longer_up_to_four_hours(resumed: int, minutes: int) -> None:
    cloud = suspended(Launch=AWS)
    cloud.set_state(replace(cloud.parsed, resumed=resumed))

    def scan(at: datetime) -> bool:
        wake(cloud, "scan", now=at)
        return "Launch" not in cloud.live_group.suspended

    if minutes:
        assert not scan(NOW)
        assert cloud.parsed.suspended_at == NOW
        assert not scan(NOW + timedelta(minutes=minutes, seconds=-1))
        assert cloud.parsed.suspended_at == NOW
        assert cloud.mails == []
    assert scan(NOW + timedelta(minutes=minutes))
    assert (cloud.parsed.resumed, cloud.parsed.suspended_at) == (resumed + 1, None)


def test_a_box_that_comes_into_service_ends_the_count() -> None:
    cloud = suspended()
    cloud.set_state(replace(cloud.parsed, resumed=4))
    wake(cloud, "launch-successful")
    assert cloud.parsed.resumed == 0


def test_what_somebody_else_suspended_is_mailed_once_and_left_alone() -> None:
    cloud = suspended(Launch=USER, Terminate="")
    for _ in range(3):
        wake(cloud, "scan")
    assert set(cloud.live_group.suspended) == {"AZRebalance", "Launch", "Terminate"}
    assert subjects(cloud) == [SUBJECTS["others"]]
    assert f"Why: Launch is suspended: {USER}; Terminate is suspended: no reason told\n" in cloud.mails[0][1]
    assert cloud.parsed.suspended_at == NOW


def test_the_next_suspension_is_mailed_again() -> None:
    cloud = suspended(Launch=USER)
    wake(cloud, "scan")
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": USER})
    wake(cloud, "scan")
    assert cloud.parsed.suspended_at is None
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": USER, "Launch": USER})
    wake(cloud, "scan")
    assert subjects(cloud) == [SUBJECTS["others"]] * 2


def test_a_boot_loops_own_suspension_is_no_second_mail() -> None:
    cloud = suspended(Launch=USER)
    cloud.set_state(replace(cloud.parsed, suspended_at=ago(600)))
    wake(cloud, "scan")
    assert cloud.mails == []


def test_aws_that_suspends_beside_somebody_else_is_undone_alone() -> None:
    cloud = suspended(Launch=AWS, Terminate=USER)
    wake(cloud, "scan")
    assert set(cloud.live_group.suspended) == {"AZRebalance", "Terminate"}
    assert subjects(cloud) == [SUBJECTS["aws"], SUBJECTS["others"]]


@pytest.mark.parametrize("reason", [AWS, USER])
def test_pinned_reports_and_changes_nothing(reason: str) -> None:
    cloud = suspended(Mode.PINNED, Launch=reason)
    before = cloud.state
    record = wake(cloud, "scan")
    assert (record["reason"], record["detail"]) == ("pinned; nothing to do", f"Launch is suspended: {reason}")
    assert (cloud.mails, cloud.state, "Launch" in cloud.live_group.suspended) == ([], before, True)
    cloud.lever = "0"
    assert wake(cloud, "scan")["detail"].endswith(f"expects 100; Launch is suspended: {reason}")


def test_resume_that_fails_is_finished_by_the_next_event() -> None:
    cloud = suspended(Launch=AWS)
    cloud.fail("resume Launch", CloudError("ResumeProcesses: InternalFailure"))
    with pytest.raises(CloudError):
        wake(cloud, "scan")
    assert (cloud.mails, cloud.parsed.unfinished and cloud.parsed.unfinished.kind) == ([], Kind.UNSUSPENDED)
    cloud.before = lambda call, number: None
    wake(cloud, "alarm-ok")
    assert ("Launch" in cloud.live_group.suspended, subjects(cloud)) == (False, [SUBJECTS["aws"]])


def test_neither_moves_a_lever_whatever_the_parameter_says() -> None:
    for reason in (AWS, USER):
        cloud = suspended(Launch=reason)
        cloud.set_state(replace(cloud.parsed, suspended_at=None))
        cloud.lever, cloud.deploying = "50", True
        cloud.health = {}
        wake(cloud, "scan")
        assert cloud.lever == "50"


def test_who_suspended_is_read_off_the_reason_in_any_case() -> None:
    group = replace(EMPTY, suspended={"AZRebalance": USER, "Launch": AWS.upper(), "Terminate": USER, "HealthCheck": ""})
    assert suspension.by_aws(group) == ("Launch",)
    assert suspension.by_others(group) == ("Terminate", "HealthCheck")
    assert suspension.words(replace(EMPTY, suspended={"AZRebalance": USER})) == ""
    assert suspension.step(EMPTY, State(Mode.ARMED), NOW) == (State(Mode.ARMED), None)


def test_stopped_boot_loop_is_remembered_as_told() -> None:
    from tests.watchdog.test_group_events import abandon, in_a_boot_loop

    cloud = in_a_boot_loop()
    abandon(cloud, 4)
    assert cloud.parsed.suspended_at == NOW
    cloud.live_alarm = Alarm("OK", ago(10))
    cloud.put_box(age=9000, health="healthy")
    wake(cloud, "scan")
    assert len(cloud.mails) == 1
