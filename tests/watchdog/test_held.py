"""Boxes that their launch hook holds for nothing, since they died or soon will: given up by whoever sees it first."""

from dataclasses import replace
from typing import Any

import pytest

from lambdas.watchdog.cloud import Alarm, BusyError, GoneError
from lambdas.watchdog.state import Kind, Mode, State
from lambdas.watchdog.world import World
from tests.watchdog.still_cloud import NOW, StillCloud, ago, event, group_event, wake
from tests.watchdog.test_rearm import under_way

BOX = "i-0aaaaaaaaaaaaaaa1"
ENDED = ["shutting-down", "terminated", "stopping", "stopped"]
ENDS = f"ends {BOX}: held by the launch hook, and for nothing"


def holding(*, state: str = "terminated", **box: Any) -> StillCloud:
    """A spot box was launched four minutes ago; its launch hook holds it."""
    cloud = StillCloud()
    cloud.put_box(**{"age": 240, "lifecycle": "Pending:Wait", "state": state, **box})
    return cloud


@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("payload", ["alarm-lit", "scan"])
def test_box_that_died_held_is_given_up_and_is_neither_alive_nor_young(payload: str, state: str) -> None:
    cloud = holding(state=state)
    record = wake(cloud, payload)
    assert (record["action"], record["detail"]) == ("failover", ENDS)
    assert cloud.calls.count(f"abandon {BOX}") == 1
    assert record["world"]["boxes"][BOX] == {
        "lifecycle": "Pending:Wait", "purchase": "spot", "pool": "g6.xlarge", "state": state,
    }  # fmt: skip


@pytest.mark.parametrize("state", ["pending", "running"])
def test_box_that_lives_is_left_to_its_hook(state: str) -> None:
    cloud = holding(state=state)
    record = wake(cloud, "alarm-lit")
    assert record["reason"] == "failover skipped: instance younger than grace is still warming"
    assert [call for call in cloud.calls if call.startswith(("abandon", "end_box"))] == []
    assert "terminated" not in str(record["world"])


@pytest.mark.parametrize("lifecycle", ["Pending", "Pending:Proceed", "InService", "Terminating:Wait"])
def test_box_that_died_unheld_is_left_to_its_group(lifecycle: str) -> None:
    cloud = holding(lifecycle=lifecycle)
    assert "detail" not in wake(cloud, "scan")
    assert f"abandon {BOX}" not in cloud.calls


@pytest.mark.parametrize("lit", [True, False])
def test_box_that_died_held_is_given_up_by_a_scan_whatever_the_alarm_says(lit: bool) -> None:
    cloud = holding()
    cloud.put_box("i-0serves", age=9000, health="healthy")
    cloud.live_alarm = Alarm("ALARM" if lit else "OK", ago(60))
    assert wake(cloud, "scan")["detail"] == ENDS
    assert [box.id for box in cloud.live_group.boxes] == ["i-0serves"]


def test_scan_gives_up_a_box_that_died_held_while_pinned_too() -> None:
    cloud = StillCloud.on_demand()
    cloud.set_state(replace(cloud.parsed, mode=Mode.PINNED))
    cloud.put_box(age=240, lifecycle="Pending:Wait", spot=False, state="terminated")
    record = wake(cloud, "scan")
    assert (record["reason"], record["detail"]) == ("pinned; nothing to do", ENDS)
    assert cloud.calls == ["parameters", "group", "instances", "target_health", f"abandon {BOX}"]


@pytest.mark.parametrize("payload", ["box-ended", "interruption-warning"])
@pytest.mark.parametrize("mode", Mode)
def test_box_that_is_told_to_end_while_its_hook_holds_it_is_given_up_at_once(payload: str, mode: Mode) -> None:
    cloud = holding(state="running")
    cloud.set_state(State(mode, launched_at=ago(86400)))
    record = wake(cloud, payload)
    assert (record["action"], record["detail"]) == ("recorded", ENDS)
    assert (cloud.live_group.boxes, cloud.mails) == ((), [])
    assert cloud.calls.count("instances") == 1  # whose it is; the event is word enough for the rest


@pytest.mark.parametrize("payload", ["box-ended", "interruption-warning", "rebalance-recommendation"])
def test_box_that_serves_is_left_to_its_agent_and_one_that_may_go_to_its_boot(payload: str) -> None:
    lifecycle = "Pending:Wait" if payload.startswith("rebalance") else "InService"
    cloud = holding(lifecycle=lifecycle, state="running")
    cloud.put_box("i-0other", age=240, lifecycle="Pending:Wait")
    record = wake(cloud, payload)
    assert (record["action"], "detail" in record) == ("recorded", False)
    assert len(cloud.live_group.boxes) == 2


@pytest.mark.parametrize(("payload", "ended"), [("interruption-warning", False), ("box-ended", True)])
def test_box_that_answers_before_its_hook_is_given_back_serves_until_it_goes(payload: str, ended: bool) -> None:
    cloud = holding(state="running", health="healthy")
    record = wake(cloud, payload)
    assert ("detail" in record, f"abandon {BOX}" in cloud.calls) == (ended, ended)


@pytest.mark.parametrize("wake_up", ["launch-successful", "refresh-failed"])
def test_event_of_a_rearm_that_finds_a_box_dead_gives_it_up(wake_up: str) -> None:
    cloud = under_way()
    cloud.put_box(age=240, lifecycle="Pending:Wait", state="terminated")
    assert ENDS in str(wake(cloud, wake_up).get("detail"))
    assert f"abandon {BOX}" in cloud.calls


def test_end_of_a_box_of_somebody_else_is_ignored_after_two_reads() -> None:
    cloud = StillCloud()
    assert wake(cloud, "box-ended")["reason"] == f"{BOX} is not of this fleet"
    assert cloud.calls == ["parameters", "instances"]


def test_notice_is_remembered_and_its_box_given_up_once_what_is_unfinished_is_finished() -> None:
    cloud = holding(state="running")
    cloud.live_alarm = Alarm("OK", ago(60))
    cloud.set_state(State(Mode.ARMED, launched_at=ago(86400)).begin(Kind.REPAIRED, ago(60), "half done"))
    record = wake(cloud, "interruption-warning")
    assert (record["action"], record["detail"]) == ("recorded", ENDS)
    assert cloud.calls.count(f"abandon {BOX}") == 1
    assert cloud.parsed.evidence.noticed == (BOX,)


@pytest.mark.parametrize("unfinished", [True, False])
def test_probe_gives_nothing_up(unfinished: bool) -> None:
    cloud = holding()
    if unfinished:  # then the boxes are looked at
        cloud.set_state(cloud.parsed.begin(Kind.REPAIRED, ago(60), "half done"))
    wake(cloud, "probe")
    assert f"abandon {BOX}" not in cloud.calls


# --- hung boxes -------------------------------------------------------------------------------------------------


def test_hung_box_that_we_ended_is_no_failed_boot_however_often() -> None:
    cloud = StillCloud()
    for number in range(6):
        cloud.put_box(f"i-0{number}", age=2000, lifecycle="Pending:Wait")
        assert wake(cloud, "pin")["action"] in {"pinned", "nothing"}
        assert f"i-0{number}" in cloud.parsed.evidence.noticed
        wake(cloud, group_event("launch-abandoned", at=NOW, box=f"i-0{number}"))
        wake(cloud, "arm")
        cloud.set_state(State(Mode.ARMED, evidence=cloud.parsed.evidence))
        cloud.lever, cloud.live_group = "0", replace(cloud.live_group, on_demand_percentage=0)
    assert cloud.parsed.abandoned == ()
    assert "Launch" not in cloud.live_group.suspended


def test_hung_box_is_remembered_before_it_is_ended() -> None:
    cloud = StillCloud(live_alarm=Alarm("ALARM", ago(1900)))
    cloud.put_box(age=2000, lifecycle="Pending:Wait")
    cloud.set_state(State(Mode.FAILOVER, launched_at=ago(86400)).begin(Kind.FAILOVER, ago(60), "half done"))
    wake(cloud, "alarm-lit")
    assert cloud.calls.index("put_state") < cloud.calls.index(f"abandon {BOX}")
    assert cloud.parsed.evidence.noticed == (BOX,)


def test_box_that_went_into_service_and_fell_silent_is_not_taken_for_a_hung_boot() -> None:
    cloud = StillCloud(live_alarm=Alarm("ALARM", ago(1900)))
    cloud.put_box("i-0silent", age=9000)
    cloud.put_box(age=2000, lifecycle="Pending:Wait")
    assert wake(cloud, "alarm-lit")["detail"] == ENDS
    assert [box.id for box in cloud.live_group.boxes] == ["i-0silent"]


NO_HOOK = GoneError("CompleteLifecycleAction: ValidationError: No active Lifecycle Action found")


def test_box_whose_hook_does_not_answer_is_ended_by_name() -> None:
    cloud = holding()
    cloud.fail("abandon", NO_HOOK)
    assert wake(cloud, "scan")["outcome"] == "done"
    assert f"end_box {BOX}" in cloud.calls
    assert cloud.live_group.boxes == ()


def test_box_that_went_into_service_meanwhile_is_not_ended() -> None:
    cloud = StillCloud.on_demand()
    cloud.live_alarm = Alarm("ALARM", ago(1900))
    cloud.put_box(age=2000, lifecycle="Pending:Wait")

    def in_service_now(call: str, number: int) -> None:
        if call.startswith("abandon"):
            boxes = tuple(replace(box, lifecycle="InService") for box in cloud.live_group.boxes)
            cloud.live_group = replace(cloud.live_group, boxes=boxes)
            raise NO_HOOK

    cloud.before = in_service_now
    assert wake(cloud, "scan")["outcome"] == "done"
    assert f"end_box {BOX}" not in cloud.calls


def test_hook_that_cannot_be_given_back_now_is_tried_by_whoever_comes_next() -> None:
    cloud = holding()
    cloud.fail("abandon", BusyError("CompleteLifecycleAction: ResourceContention"))
    with pytest.raises(BusyError):
        wake(cloud, "scan")
    assert f"end_box {BOX}" not in cloud.calls
    cloud.before = lambda call, number: None
    wake(cloud, "scan")
    assert cloud.live_group.boxes == ()


def test_empty_world_holds_nothing() -> None:
    assert (World().holds(BOX), World().died_held) == (False, ())


def test_every_end_that_ec2_tells_first_wakes() -> None:
    for state, action in (("shutting-down", "recorded"), ("stopping", "recorded"), ("terminated", "ignored")):
        cloud = holding(state="running")
        payload = event("box-ended")
        payload["detail"]["state"] = state
        assert wake(cloud, payload)["action"] == action


def test_hung_box_is_ended_where_a_flip_is_finished_after_the_alarm_went_out() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(60)))
    cloud.put_box(age=2000, lifecycle="Pending:Wait")
    cloud.set_state(State(Mode.PINNED, launched_at=ago(86400)).begin(Kind.PINNED, ago(60), "half done"))
    wake(cloud, "alarm-ok")
    assert f"abandon {BOX}" in cloud.calls


def test_what_is_ended_stands_beside_what_else_is_to_be_said() -> None:
    cloud = StillCloud.on_demand()
    cloud.set_state(replace(cloud.parsed, mode=Mode.PINNED))
    cloud.lever = "0"
    cloud.put_box(age=240, lifecycle="Pending:Wait", spot=False, state="terminated")
    said = "parameter 0, group 100: on-demand-pinned expects 100"
    assert wake(cloud, "scan")["detail"] == f"{said}; {ENDS}"
