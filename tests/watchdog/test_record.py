"""The record: one per invocation, with what was seen in words, and nothing that was not looked at."""

from datetime import timedelta

import pytest

from fleet.core import names
from lambdas.watchdog.cloud import Alarm, CloudError, Refresh, ThrottledError
from lambdas.watchdog.handler import run
from lambdas.watchdog.record import Record
from lambdas.watchdog.state import Kind
from lambdas.watchdog.world import World
from tests.watchdog.still_cloud import NOW, StillCloud, ago, event, wake


def test_record_tells_all_that_was_seen() -> None:
    cloud = StillCloud.on_demand(streak=1, scored_at=ago(1800))
    cloud.put_box("i-0spot", age=60, lifecycle="Pending:Wait")
    cloud.put_box("i-0new", age=1, lifecycle="Pending")
    del cloud.known["i-0new"]
    cloud.refreshed = (Refresh("r2", "Successful", ago(50), like_ours=False),)
    cloud.refreshed += (Refresh("r1", "Failed", ago(90), like_ours=False),)
    cloud.scored = {"use2-az1": 2}
    cloud.deploying = True
    record = wake(cloud, "scan")
    assert record["world"] == {
        "lever": "100",
        "alarm": {"state": "OK", "since": "2026-07-21T19:35:43+00:00"},
        "percentage": 100,
        "boxes": {
            "i-0demand": {
                "lifecycle": "InService", "purchase": "on-demand", "pool": "g6.xlarge", "health": "healthy",
            },
            "i-0spot": {"lifecycle": "Pending:Wait", "purchase": "spot", "pool": "g6.xlarge"},
            "i-0new": {"lifecycle": "Pending", "pool": "g6.xlarge"},
        },
        "healthy": ["i-0demand"],
        "deploying": True,
        "refresh": "Successful",
    }  # fmt: skip
    assert record["scores"] == {"use2-az1": 2}


def test_record_holds_nothing_that_was_not_looked_at() -> None:
    assert wake(StillCloud(), "alarm-ok")["world"] == {"lever": "0"}
    assert "world" not in wake(StillCloud(), "unknown-event")


def throttled(cloud: StillCloud, read: str, *, after: str = "parameters") -> Record:
    """The record of a scan in which that read fails, once another call was made."""
    told: list[Record] = []

    def strike(call: str, number: int) -> None:
        if call == read and after in cloud.calls:
            raise ThrottledError(f"{read}: Rate exceeded")

    cloud.before = strike
    with pytest.raises(CloudError):
        run(event("scan"), cloud=cloud, settings=cloud.settings, now=NOW, report=told.append)
    return told[0]


def test_look_that_failed_halfway_is_not_told_as_an_empty_world() -> None:
    assert throttled(StillCloud(), "target_health") == {
        "signal": {"wake": "scan"},
        "action": "nothing",
        "reason": "no decision",
        "outcome": "failed: ThrottledError: target_health: Rate exceeded",
    }


def test_second_look_that_failed_leaves_the_first_in_the_record() -> None:
    cloud = StillCloud()
    cloud.set_state(cloud.parsed.begin(Kind.ARMED, ago(60), "mended"))
    record = throttled(cloud, "group", after="put_state")
    assert (record["action"], record["world"]["percentage"]) == ("finish", 0)
    assert record["outcome"] == "failed: ThrottledError: group: Rate exceeded"


def test_deploy_that_could_not_be_looked_for_stands_with_its_reason() -> None:
    world = throttled(StillCloud(), "stack_in_progress")["world"]
    assert (world["deploying"], world["unread"]) == (True, "stack_in_progress: Rate exceeded")


def test_quiet_fleet_makes_a_short_record() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(5000)))
    assert wake(cloud, "scan") == {
        "signal": {"wake": "scan"},
        "world": {"lever": "0", "alarm": {"state": "OK", "since": "2026-07-21T23:12:23+00:00"}, "percentage": 0,
                  "boxes": {}},
        "action": "nothing",
        "reason": "spot-armed; nothing to do",
        "outcome": "done",
        "mode": "spot-armed",
        "lever": 0,
        "streak": 0,
        "owed_mails": 0,
    }  # fmt: skip


def test_signal_is_told_with_its_time_box_and_words() -> None:
    record = wake(StillCloud(), "launch-no-capacity")
    assert record["signal"]["wake"] == "launch-failed"
    assert record["signal"]["at"] == "2026-07-22T00:41:03+00:00"
    assert record["signal"]["detail"].startswith("Could not launch Spot Instances.")
    assert wake(StillCloud(), "pin")["signal"] == {"wake": "pin", "who": "ann", "detail": "game day"}


def test_young_box_that_ec2_does_not_know_is_named() -> None:
    cloud = StillCloud()
    cloud.put_box(age=0)
    cloud.known.clear()
    assert wake(cloud, "alarm-lit")["detail"] == (
        "i-0aaaaaaaaaaaaaaa1 is too new for EC2 to know it; alarm lit for 2 s, skip cap 1800 s"
    )


def test_young_box_is_named_with_its_numbers() -> None:
    cloud = StillCloud()
    cloud.put_box(age=600)
    record = wake(cloud, event("alarm-lit"))
    assert record["reason"] == names.LINE_SKIPPED_YOUNG
    assert record["detail"] == "i-0aaaaaaaaaaaaaaa1 is 600 s old, grace 900 s; alarm lit for 2 s, skip cap 1800 s"


def test_young_group_is_named_with_its_numbers() -> None:
    cloud = StillCloud(state='{"version":1,"mode":"spot-armed"}')
    record = wake(cloud, "alarm-lit", now=cloud.live_group.created_at + timedelta(seconds=1000))
    assert record["detail"].startswith("the group never served and is 1000 s old, cold boot 1500 s; alarm lit for ")


def test_events_keep_the_time_of_the_wake_up_in_utc() -> None:
    assert wake(StillCloud(), "alarm-ok", now=NOW)["signal"]["at"] == "2026-07-22T00:44:41+00:00"


def test_a_group_that_was_not_read_is_a_mistake_of_ours_and_said_so() -> None:
    with pytest.raises(LookupError, match=r"^the group was not read for this signal$"):
        World().seen_group  # noqa: B018 - reading it is what fails
