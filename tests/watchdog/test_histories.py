"""Real nights replayed through the real handler on a virtual clock: the same decisions at the same times."""

import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fleet.core import names
from fleet.eventlog.events import Event
from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from fleet.sim.drills import replay as history
from lambdas.watchdog.handler import run
from lambdas.watchdog.state import Mode, State
from tests.watchdog.still_cloud import SHIPPED as SETTINGS

TOLERANCE = timedelta(seconds=2)  # receipts are good to 2 s


def replay(name: str, **other: object) -> list[Event]:
    """The log of a history; `other`: an AWS that behaves otherwise in these ways."""
    record = history.load(name)
    log: list[Event] = []
    cloud = SimulatedCloud(
        record.market,
        settings=SETTINGS,
        behaviour=replace(record.behaviour, **other),  # type: ignore[arg-type]
        emit=log.append,
        lever=record.fleet.lever_at_start,
        state=State(Mode(record.fleet.mode_at_start)).dumps(),
        serving="on-demand" if record.fleet.lever_at_start else "spot",
        scans_from=record.scans_from,
    )
    cloud.watch(lambda payload, now: run(payload, cloud=cloud, settings=SETTINGS, now=now))
    cloud.run()
    return log


def decided(log: list[Event], *actions: str) -> list[tuple[datetime, str]]:
    return [(e.at, e.fields["reason"]) for e in log if e.kind == "decision" and e.fields["action"] in actions]


def subjects(log: list[Event]) -> list[str]:
    return [event.fields["subject"] for event in log if event.kind == "mail"]


def at(*texts: str) -> list[datetime]:
    return [datetime.fromisoformat(text) for text in texts]


def assert_times(found: list[tuple[datetime, str]], recorded: list[datetime]) -> None:
    assert len(found) == len(recorded), found
    for (time, reason), expected in zip(found, recorded, strict=True):
        assert abs(time - expected) <= TOLERANCE, f"{reason}: {time}, recorded {expected}"


@pytest.fixture(scope="module")
def july_21() -> list[Event]:
    return replay("2026-07-21")


@pytest.fixture(scope="module")
def july_27() -> list[Event]:
    return replay("2026-07-27")


def test_both_failovers_of_22_july_come_when_they_came(july_21: list[Event]) -> None:
    recorded = history.load("2026-07-21").outcome["failovers"]
    assert at(*recorded) == at("2026-07-22T00:35:43Z", "2026-07-22T21:27:43Z")
    assert_times(decided(july_21, "failover"), at(*recorded))


def test_six_scans_refuse_to_rearm_with_the_seconds_since_the_failover(july_21: list[Event]) -> None:
    refusals = [
        (time, int(found[1]))
        for time, reason in decided(july_21, "refused")
        if (found := re.fullmatch(r"(\d+) s since failover, cooldown 10800 s", reason))
    ]
    for (time, seconds), recorded, number in zip(refusals, [352, 2152, 3952, 5752, 7552, 9352], range(6), strict=True):
        assert abs(seconds - recorded) <= TOLERANCE.total_seconds()
        assert abs(time - (at("2026-07-22T00:41:35Z")[0] + number * timedelta(minutes=30))) <= TOLERANCE


def test_rearm_comes_at_the_tick_of_04_11_35_after_one_good_score(july_21: list[Event]) -> None:
    assert_times(decided(july_21, "re-arm"), at("2026-07-22T04:11:35Z"))
    one_good = [(t, r) for t, r in decided(july_21, "refused") if "streak 1 of 2" in r]
    assert_times(one_good, at("2026-07-22T03:41:35Z"))


def test_old_box_leaves_only_after_the_spot_box_serves(july_21: list[Event]) -> None:
    bought = {e.fields["box"]: e.fields["purchase"] for e in july_21 if e.kind == "box.launched"}
    night = [e for e in july_21 if at("2026-07-22T04:11:00Z")[0] < e.at < at("2026-07-22T05:00:00Z")[0]]
    served = [(e.kind, bought[e.fields["box"]]) for e in night if e.kind in {"box.serving", "box.unserving"}]
    assert served == [("box.serving", "spot"), ("box.unserving", "on-demand")]
    assert len(decided(july_21, "re-armed")) == 1


@pytest.mark.parametrize("replaces", [True, False])
def test_rearm_is_right_whether_or_not_the_group_replaces_boxes_of_the_wrong_kind_unasked(replaces: bool) -> None:
    log = replay("2026-07-21", replaces_wrong_kind=replaces)
    [(ended, _)] = decided(log, "re-armed")
    begun = at("2026-07-22T04:11:35Z")[0]
    assert timedelta() < ended - begun < timedelta(minutes=15)
    serving = 0
    for event in log:
        serving += {"box.serving": 1, "box.unserving": -1}.get(event.kind, 0)
        if begun < event.at < ended + timedelta(minutes=5) and event.kind == "box.unserving":
            assert serving >= 1, "the last serving box was ended"


def test_valve_pins_at_the_tick_of_21_41_35(july_21: list[Event]) -> None:
    assert_times(decided(july_21, "gave-up"), at("2026-07-22T21:41:35Z"))
    later = [reason for time, reason in decided(july_21, "nothing") if time > at("2026-07-22T21:42:00Z")[0]]
    assert set(later) == {names.LINE_PINNED}


def test_two_ridden_out_reclaims_send_no_mail_and_every_transition_sends_one(july_21: list[Event]) -> None:
    assert subjects(july_21) == [
        "[llm] on-demand failover",
        "[llm] back on spot",
        "[llm] on-demand failover",
        "[llm] giving up on spot, pinned to on-demand",
    ]
    assert not decided(july_21, "boot-loop", "repaired", "failed")


def test_on_demand_box_launches_as_soon_after_each_failover_as_recorded(july_21: list[Event]) -> None:
    low, high = history.load("2026-07-21").outcome["on_demand_launch_after_alarm_seconds"]
    alarms = [e.at for e in july_21 if e.kind == "alarm" and e.fields["state"] == "ALARM"]
    launches = [e.at for e in july_21 if e.kind == "box.launched" and e.fields["purchase"] == "on-demand"]
    gaps = [(launch - alarm).total_seconds() for alarm, launch in zip(alarms, launches, strict=True)]
    assert all(low <= gap <= high for gap in gaps), gaps


def test_night_of_28_july_is_one_skip_with_the_verbatim_line(july_27: list[Event]) -> None:
    outcome = history.load("2026-07-27").outcome
    skips = decided(july_27, "skipped")
    assert_times(skips, at(*outcome["skipped"]))
    assert skips[0][1] == outcome["skip_reason"] == "failover skipped: instance younger than grace is still warming"


def test_night_of_28_july_has_no_retry_no_failover_and_no_mail(july_27: list[Event]) -> None:
    assert not decided(july_27, "failover")
    [(skipped_at, _)] = decided(july_27, "skipped")
    after = {reason for time, reason in decided(july_27, "nothing", "refused") if time > skipped_at}
    assert after == {"spot-armed; nothing to do"}
    assert subjects(july_27) == ["[llm] back on spot"]  # of 08:41 on the 27th, after a human had armed
    levers = [e.fields["percentage"] for e in july_27 if e.kind == "lever"]
    assert levers == [100, 0]


def test_every_decision_names_its_reason(july_21: list[Event], july_27: list[Event]) -> None:
    for event in (*july_21, *july_27):
        if event.kind == "decision":
            assert event.fields["reason"]
            assert event.fields["outcome"] == "done"
