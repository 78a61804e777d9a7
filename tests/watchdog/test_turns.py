"""Turns of a dark fleet: after a failover that bought nothing the lever goes to whichever kind sells."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet.config.settings import Policy
from lambdas.watchdog.cloud import Alarm
from lambdas.watchdog.state import Evidence, Kind, Mode, State
from tests.watchdog.still_cloud import NOW, SETTINGS, StillCloud, ago, event, group_event, wake

LONG_AGO = ago(50000)


def dark(
    since: float = 600, turns: int = 0, drought: float | None = None, policy: Policy = "alarm", **state: Any
) -> StillCloud:
    """A failover that bought nothing: the group is empty, the alarm is lit."""
    lever = 0 if turns % 2 else 100
    cloud = StillCloud(
        settings=replace(SETTINGS, policy=policy), lever=str(lever), live_alarm=Alarm("ALARM", ago(3000))
    )
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=lever)
    seen = Evidence(drought_at=None if drought is None else ago(drought))
    history: dict[str, Any] = {"failovers": (LONG_AGO, ago(since)), "cooldown_from": ago(since)}
    history |= {"launched_at": LONG_AGO, "dry_at": ago(since), "refused": ("on-demand capacity",), **state}
    cloud.set_state(State(Mode.FAILOVER, since=ago(since), turns=turns, evidence=seen, **history))
    return cloud


def refused(at: float = 0, kind: str = "on-demand") -> dict[str, Any]:
    return group_event("launch-no-capacity-on-demand" if kind == "on-demand" else "launch-no-capacity", at=ago(at))


def flips(cloud: StillCloud) -> list[str]:
    return [call for call in cloud.calls if call.startswith("flip")]


@pytest.mark.parametrize(("drought", "turned"), [(129, False), (130, True)])
@pytest.mark.parametrize("payload", [refused(), event("scan"), event("terminate-successful"), {"command": "patience"}])
@pytest.mark.parametrize("policy", ["alarm", "bridge"])
def test_dark_fleet_whose_on_demand_is_refused_turns_to_spot(
    policy: Policy, payload: dict[str, Any], drought: int, turned: bool
) -> None:
    cloud = dark(drought=drought, policy=policy)
    cloud.live_alarm = Alarm("OK", ago(3000))
    record = wake(cloud, payload)
    assert record["action"] == ("turned" if turned else "waiting")
    assert record["reason"] == (
        f"nothing serves and on-demand has been refused for {drought} s, spot is tried after 130 s"
    )
    assert flips(cloud) == (["flip 0"] if turned else [])
    assert cloud.lever == ("0" if turned else "100")
    assert cloud.mails == []
    assert (f"wake {ago(drought) + timedelta(seconds=130):%H:%M:%S}" in cloud.calls) is (
        policy == "bridge" and not turned
    )


def test_turn_counts_for_neither_cooldown_nor_valve_and_takes_its_failover_back() -> None:
    cloud = dark(drought=200)
    assert wake(cloud, refused())["action"] == "turned"
    state = cloud.parsed
    assert (state.mode, state.turns, state.since) == (Mode.FAILOVER, 1, NOW)
    assert (state.failovers, state.cooldown_from, state.evidence.drought_at) == ((LONG_AGO,), None, None)


def test_failover_that_did_buy_a_box_is_not_taken_back() -> None:
    cloud = dark(drought=200, failovers=(LONG_AGO,))
    wake(cloud, refused())
    assert cloud.parsed.failovers == (LONG_AGO,)


def test_later_turn_takes_no_failover_back() -> None:
    cloud = dark(drought=900, turns=2, failovers=(ago(600),), cooldown_from=ago(600))
    assert wake(cloud, refused())["action"] == "turned"
    assert (cloud.parsed.failovers, cloud.parsed.cooldown_from) == ((ago(600),), ago(600))


@pytest.mark.parametrize(("turns", "wait"), [(0, 130), (1, 260), (2, 520), (3, 900), (40, 900)])
def test_each_kind_is_tried_for_longer_than_the_one_before_up_to_a_quarter_of_an_hour(turns: int, wait: int) -> None:
    kind = "spot" if turns % 2 else "on-demand"
    assert wake(dark(since=2000, turns=turns, drought=wait - 1), refused(kind=kind))["action"] == "waiting"
    cloud = dark(since=2000, turns=turns, drought=wait)
    assert wake(cloud, refused(kind=kind))["action"] == "turned"
    assert flips(cloud) == [f"flip {0 if turns % 2 == 0 else 100}"]
    assert cloud.parsed.turns == turns + 1


@pytest.mark.parametrize(("since", "learned"), [(129, False), (130, True)])
def test_scan_sees_the_refusal_that_nobody_told_once_the_group_had_time_to_launch(since: int, learned: bool) -> None:
    cloud = dark(since=since)
    wake(cloud, event("scan"))
    assert cloud.parsed.evidence.drought_at == (NOW if learned else None)


@pytest.mark.parametrize(("at", "learned"), [(101, False), (100, False), (99, True)])
def test_refusal_of_a_launch_from_before_the_flip_says_nothing_of_the_wanted_kind(at: int, learned: bool) -> None:
    cloud = dark(since=100)
    wake(cloud, refused(at=at))
    assert cloud.parsed.evidence.drought_at == (ago(at) if learned else None)


@pytest.mark.parametrize("mode", [Mode.ARMED, Mode.PINNED])
def test_refusal_is_a_drought_of_a_failover_alone(mode: Mode) -> None:
    cloud = dark()
    cloud.set_state(replace(cloud.parsed, mode=mode))
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=cloud.parsed.expected_lever)
    wake(cloud, refused())
    assert cloud.parsed.evidence.drought_at is None


@pytest.mark.parametrize("lifecycle", ["Pending", "Pending:Wait", "InService"])
def test_box_that_is_there_ends_the_drought(lifecycle: str) -> None:
    cloud = dark(drought=500)
    cloud.put_box(age=20, spot=False, lifecycle=lifecycle)
    wake(cloud, refused())
    assert cloud.parsed.evidence.drought_at is None
    assert flips(cloud) == []


def test_box_with_a_notice_is_no_box_that_comes() -> None:
    cloud = dark(drought=500, turns=1)
    cloud.put_box("i-0going", age=20, lifecycle="Pending:Wait")
    cloud.set_state(replace(cloud.parsed, evidence=replace(cloud.parsed.evidence, noticed=("i-0going",))))
    assert wake(cloud, refused(kind="spot"))["action"] == "turned"


def test_group_that_does_not_show_the_lever_yet_says_nothing_of_it() -> None:
    cloud = dark(drought=500)
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=0)
    wake(cloud, refused())
    assert cloud.parsed.evidence.drought_at is None


@pytest.mark.parametrize("mode", [Mode.PINNED, Mode.ARMED])
def test_pinned_and_armed_fleets_do_not_turn(mode: Mode) -> None:
    cloud = dark(drought=500)
    cloud.set_state(replace(cloud.parsed, mode=mode))
    cloud.lever, cloud.live_group = (
        "0",
        replace(cloud.live_group, on_demand_percentage=0 if mode is Mode.ARMED else 100),
    )
    cloud.live_alarm = Alarm("OK", ago(100))
    wake(cloud, refused())
    assert (cloud.parsed.turns, flips(cloud)) == (0, [])


def test_pinned_fleet_whose_on_demand_is_refused_is_left_alone_and_mailed() -> None:
    cloud = dark(drought=500, refused=(), dry_at=None)
    cloud.set_state(replace(cloud.parsed, mode=Mode.PINNED))
    assert wake(cloud, refused(at=10))["action"] == "on-demand-dry"
    assert ([subject for subject, _ in cloud.mails], flips(cloud)) == (["[llm] on-demand is dry too"], [])


def test_return_under_way_is_no_turn() -> None:
    cloud = dark(drought=500, rearm_from=ago(400))
    cloud.lever, cloud.live_group = "0", replace(cloud.live_group, on_demand_percentage=0)
    cloud.live_alarm = Alarm("OK", ago(100))
    assert wake(cloud, refused(at=10, kind="spot"))["action"] == "recorded"


def test_suspended_launch_and_a_deploy_hold_turns_back() -> None:
    cloud = dark(drought=500)
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": ""})
    assert wake(cloud, event("scan"))["reason"] == "nothing serves yet: whichever kind sells is right"
    cloud = dark(drought=500)
    cloud.deploying = True
    record = wake(cloud, refused())
    assert record["reason"].startswith(
        "no turn: a deploy is in progress; nothing serves and on-demand has been refused"
    )
    assert flips(cloud) == []
    assert wake(cloud, event("scan"))["action"] == "turned"  # the alarm has been lit for the skip cap


def test_spent_hours_keep_turns_from_on_demand() -> None:
    limited = replace(SETTINGS, watchdog=replace(SETTINGS.watchdog, on_demand_hours_per_day=1))
    cloud = dark(turns=1, drought=500, metered_at=ago(10), metered_seconds=3600)
    cloud.settings = limited
    record = wake(cloud, refused(kind="spot"))
    assert (record["action"], flips(cloud)) == ("skipped", [])
    assert record["reason"].startswith("no turn: 1.0 h on-demand today, limit 1 h; nothing serves and spot has been")
    cloud = dark(drought=10, metered_at=ago(10), metered_seconds=3600)
    cloud.settings = limited
    assert wake(cloud, event("scan"))["action"] == "on-demand-limit"
    assert cloud.parsed.turns == 0


def test_valve_does_not_pin_a_fleet_to_the_kind_that_is_dry() -> None:
    cloud = dark(drought=10, failovers=(ago(9000), ago(600)))
    record = wake(cloud, event("scan"))
    assert (record["action"], cloud.parsed.mode) == ("waiting", Mode.FAILOVER)
    cloud = dark(turns=2, failovers=(ago(9000), ago(600)))
    cloud.put_box(age=20, spot=False, lifecycle="Pending:Wait")
    assert wake(cloud, event("scan"))["action"] == "waiting"


@pytest.mark.parametrize("payload", ["launch-successful", "scan"])
def test_spot_box_that_serves_ends_the_turns_on_spot_with_the_mail_of_a_return(payload: str) -> None:
    cloud = dark(turns=1)
    cloud.put_box("i-0spot", age=400, health="healthy")
    raw = event("scan") if payload == "scan" else group_event(payload, at=NOW, box="i-0spot")
    record = wake(cloud, raw)
    assert (record["action"], record["reason"]) == ("re-armed", "spot box i-0spot serves, on-demand was refused")
    state = cloud.parsed
    assert (state.mode, state.turns, state.since, state.refused, state.dry_at) == (Mode.ARMED, 0, NOW, (), None)
    assert [subject for subject, _ in cloud.mails] == ["[llm] back on spot"]
    if payload != "scan":
        assert state.launched_at == NOW


@pytest.mark.parametrize(
    ("turns", "action", "reason", "moved"),
    [(2, "recorded", "i-0demand serves", []), (3, "turned", "on-demand box i-0demand serves", ["flip 100"])],
    ids=["where they stand", "and turns the lever back where spot is tried"],
)
def test_on_demand_box_that_serves_ends_the_turns(turns: int, action: str, reason: str, moved: list[str]) -> None:
    cloud = dark(turns=turns)
    cloud.put_box("i-0demand", age=400, spot=False, health="healthy")
    record = wake(cloud, event("scan"))
    assert (record["action"], record["reason"]) == (action, reason)
    assert (cloud.parsed.turns, cloud.parsed.mode, flips(cloud), cloud.mails) == (0, Mode.FAILOVER, moved, [])


@pytest.mark.parametrize(("boot", "wait"), [("warm", 1160), ("cold", 1760), (None, 1160)])
def test_kind_whose_boxes_come_to_nothing_is_left_after_its_wait_and_a_boot(boot: str | None, wait: int) -> None:
    for since, action in ((wait - 1, "waiting"), (wait, "turned")):
        cloud = dark(since=since, turns=1)
        cloud.put_box("i-0spot", age=60, lifecycle="Pending:Wait", boot=boot)
        record = wake(cloud, event("scan"))
        assert record["action"] == action
        assert record["reason"] == (
            f"nothing serves and spot has come to nothing for {since} s, on-demand is tried after {wait} s"
        )


def test_empty_group_waits_for_its_first_refusal_to_be_seen() -> None:
    cloud = dark(since=5000, turns=1)
    assert wake(cloud, {"command": "patience"})["action"] == "nothing"


def test_box_that_does_not_answer_yet_ends_no_turns() -> None:
    cloud = dark(turns=1)
    cloud.put_box("i-0spot", age=400, lifecycle="Pending:Wait", health="initial")
    wake(cloud, event("scan"))
    assert (cloud.parsed.turns, cloud.parsed.mode) == (1, Mode.FAILOVER)


def test_pin_ends_the_turns_and_an_arm_does_not_though_one_is_due() -> None:
    cloud = dark(turns=1, drought=5000)
    assert wake(cloud, "arm")["action"] == "armed"
    assert (cloud.parsed.turns, cloud.lever) == (1, "0")
    assert wake(cloud, "pin")["action"] == "pinned"
    assert (cloud.parsed.turns, cloud.lever) == (0, "100")


def test_turn_that_a_crash_interrupted_is_finished_by_whoever_comes_next() -> None:
    cloud = dark(drought=200)
    cloud.set_state(replace(cloud.parsed, turns=1).begin(Kind.TURNED, ago(5), "half done"))
    assert wake(cloud, event("alarm-ok"))["also"][0].startswith("finish: finish turned")
    assert (cloud.lever, flips(cloud), cloud.mails) == ("0", ["flip 0"], [])


def test_quiet_failover_reads_nothing_for_turns() -> None:
    cloud = dark()
    wake(cloud, {"command": "patience"})
    assert cloud.calls == ["parameters"]


# --- any wake judges ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lit", "action"), [(1799, "recorded"), (1800, "failover")])
@pytest.mark.parametrize(
    "payload", ["launch-no-capacity", "launch-successful", "terminate-successful", "refresh-failed", "box-ended"]
)
def test_alarm_that_has_been_lit_for_the_skip_cap_is_judged_by_whatever_comes(
    payload: str, lit: int, action: str
) -> None:
    cloud = StillCloud(live_alarm=Alarm("ALARM", ago(lit)))
    cloud.put_box("i-0young", age=60, lifecycle="Pending:Wait")
    cloud.put_box(age=60, lifecycle="Pending:Wait", state="terminated")
    assert wake(cloud, payload)["action"] == action
    assert (cloud.lever == "100") is (action == "failover")


def test_what_the_signal_told_is_kept_beside_the_failover() -> None:
    cloud = StillCloud(live_alarm=Alarm("ALARM", ago(1800)))
    cloud.put_box(age=60, lifecycle="Pending:Wait")
    assert wake(cloud, "interruption-warning")["action"] == "failover"
    assert cloud.parsed.evidence.noticed == ("i-0aaaaaaaaaaaaaaa1",)
