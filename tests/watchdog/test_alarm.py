"""An alarm: guards in FLEET order, each with its boundary, then the failover."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fleet.core import names
from lambdas.watchdog.cloud import Alarm, Refresh, RefreshActiveError
from lambdas.watchdog.state import Kind, Mode, State
from tests.watchdog.still_cloud import NOW, StillCloud, ago, event, wake

YOUNG = names.LINE_SKIPPED_YOUNG
FLIP = ["put_state", "put_lever 100", "flip 100"]
SETTLE = ["mail", "put_state"]


def lit_for(seconds: float) -> StillCloud:
    return StillCloud(live_alarm=Alarm("ALARM", ago(seconds)))


def test_drought_flips_after_five_reads_none_twice() -> None:
    cloud = StillCloud()
    record = wake(cloud, "alarm-lit")
    assert (record["action"], record["outcome"], record["mode"], record["lever"]) == (
        "failover", "done", "on-demand-failover", 100,
    )  # fmt: skip
    reads = ["parameters", "alarm", "group", "target_health", "stack_in_progress"]
    assert cloud.calls == [*reads, *FLIP, *SETTLE]
    assert (cloud.lever, cloud.live_group.on_demand_percentage) == ("100", 100)
    state = cloud.parsed
    assert (state.mode, state.failovers, state.cooldown_from, state.since) == (Mode.FAILOVER, (NOW,), NOW, NOW)
    assert (state.unfinished, state.owed, state.streak) == (None, (), 0)


def test_drought_with_a_stuck_box_flips_after_six_reads_and_ends_the_box() -> None:
    cloud = StillCloud()
    cloud.put_box("i-0stuck", age=901, lifecycle="Pending:Wait")
    wake(cloud, "alarm-lit")
    reads = ["parameters", "alarm", "group", "instances", "target_health", "stack_in_progress"]
    assert cloud.calls == [*reads, *FLIP, "abandon i-0stuck", *SETTLE]


def test_state_is_written_with_mode_transition_and_mail_before_anything_moves() -> None:
    cloud = StillCloud()
    seen: list[State] = []
    cloud.before = lambda call, number: seen.append(cloud.parsed) if call.startswith("put_lever") else None
    wake(cloud, "alarm-lit")
    assert seen[0].mode is Mode.FAILOVER
    assert seen[0].unfinished is not None
    assert seen[0].unfinished.kind is Kind.FAILOVER
    assert seen[0].owed == (seen[0].unfinished,)


@pytest.mark.parametrize("mode", [Mode.FAILOVER, Mode.PINNED])
def test_guard_1_mode_nothing_is_read_or_done_where_the_work_is_done(mode: Mode) -> None:
    cloud = StillCloud()
    cloud.set_state(State(mode))
    record = wake(cloud, "alarm-lit")
    assert (record["action"], record["reason"]) == ("nothing", f"already {mode}")
    assert cloud.calls == ["parameters"]


@pytest.mark.parametrize("state", ["OK", "INSUFFICIENT_DATA"])
def test_guard_2_a_stale_alarm_event_does_not_flip(state: str) -> None:
    cloud = StillCloud(live_alarm=Alarm(state, ago(5)))
    record = wake(cloud, "alarm-lit")
    assert (record["action"], record["reason"]) == ("skipped", f"the alarm is {state} now")
    assert cloud.calls == ["parameters", "alarm"]


@pytest.mark.parametrize(
    ("lifecycle", "boot", "age", "young"),
    [
        ("Pending", None, 899, True),
        ("Pending", None, 900, False),
        ("Pending:Proceed", names.BOOT_COLD, 899, True),
        ("Pending:Proceed", names.BOOT_COLD, 900, False),
        ("InService", None, 899, True),
        ("InService", None, 900, False),
        ("InService", names.BOOT_COLD, 900, False),
        ("Pending:Wait", None, 899, True),
        ("Pending:Wait", None, 900, False),
        ("Pending:Wait", names.BOOT_WARM, 900, False),
        ("Pending:Wait", names.BOOT_COLD, 1499, True),
        ("Pending:Wait", names.BOOT_COLD, 1500, False),
        ("Terminating", None, 10, False),
        ("Terminating:Wait", None, 10, False),
        ("Standby", None, 10, False),
        ("Detaching", None, 10, False),
    ],
)
def test_guard_3_a_young_box_defers_failover(lifecycle: str, boot: str | None, age: int, young: bool) -> None:
    cloud = StillCloud()
    cloud.put_box(age=age, lifecycle=lifecycle, boot=boot)
    record = wake(cloud, "alarm-lit")
    assert (record["reason"] == YOUNG) is young
    assert (record["action"] == "failover") is not young
    assert (cloud.lever == "0") is young
    assert bool(cloud.mails) is not young


def test_held_box_counts_by_the_boot_budgets_not_by_grace() -> None:
    cloud = StillCloud()
    cloud.settings = replace(cloud.settings, boot=replace(cloud.settings.boot, warm_budget_seconds=1000))
    cloud.put_box(age=950, lifecycle="Pending:Wait")
    assert wake(cloud, "alarm-lit")["detail"].startswith("i-0aaaaaaaaaaaaaaa1 is 950 s old, grace 1000 s")


def test_any_young_box_among_old_ones_defers_failover() -> None:
    cloud = StillCloud()
    cloud.put_box("i-0old", age=5000)
    cloud.put_box("i-0new", age=10)
    assert wake(cloud, "alarm-lit")["detail"].startswith("i-0new is 10 s old")


@pytest.mark.parametrize(("created", "young"), [(1499, True), (1500, False)])
def test_group_that_never_served_is_young_for_a_cold_boot(created: int, young: bool) -> None:
    cloud = StillCloud(state=State(Mode.ARMED).dumps())
    cloud.live_group = replace(cloud.live_group, created_at=ago(created))
    assert (wake(cloud, "alarm-lit")["reason"] == YOUNG) is young


def test_group_that_served_once_is_not_young_for_its_creation() -> None:
    cloud = StillCloud(state=State(Mode.ARMED, launched_at=ago(300)).dumps())
    cloud.live_group = replace(cloud.live_group, created_at=ago(1000))
    assert wake(cloud, "alarm-lit")["action"] == "failover"


@pytest.mark.parametrize(("lit", "skipped"), [(1799, True), (1800, False)])
def test_young_instance_defers_failover_until_the_skip_cap(lit: int, skipped: bool) -> None:
    cloud = lit_for(lit)
    cloud.put_box(age=10)
    cloud.live_group = replace(cloud.live_group, created_at=ago(20))
    assert (wake(cloud, "alarm-lit")["reason"] == YOUNG) is skipped


@pytest.mark.parametrize("lit", [2, 7200])
def test_guard_4_a_target_that_answers_now_holds_failover_back_at_any_time(lit: int) -> None:
    cloud = lit_for(lit)
    cloud.put_box(age=3000, health="healthy")
    record = wake(cloud, "alarm-lit")
    assert (record["action"], record["reason"]) == (
        "skipped", "failover skipped: i-0aaaaaaaaaaaaaaa1 answers now",
    )  # fmt: skip


def test_all_targets_that_answer_are_named() -> None:
    cloud = StillCloud()
    cloud.put_box("i-0a", age=3000, health="healthy")
    cloud.put_box("i-0b", age=3000, health="healthy")
    assert wake(cloud, "alarm-lit")["reason"] == "failover skipped: i-0a, i-0b answers now"


@pytest.mark.parametrize("health", ["initial", "unhealthy", "draining", "unused", "unavailable"])
def test_only_a_healthy_target_answers(health: str) -> None:
    cloud = StillCloud()
    cloud.put_box(age=3000, health=health)
    assert wake(cloud, "alarm-lit")["action"] == "failover"


@pytest.mark.parametrize(("lit", "skipped"), [(1799, True), (1800, False)])
def test_guard_5_a_deploy_holds_failover_back_until_the_skip_cap(lit: int, skipped: bool) -> None:
    cloud = lit_for(lit)
    cloud.deploying = True
    record = wake(cloud, "alarm-lit")
    if skipped:
        assert record["reason"] == f"failover skipped: a deploy is in progress, alarm lit for {lit} s, skip cap 1800 s"
        assert cloud.lever == "0"
    else:
        assert record["action"] == "failover"
        assert cloud.templates_sent == [False]  # a version sent back would revert the deploy


def test_flip_outside_a_deploy_sends_the_template() -> None:
    cloud = StillCloud()
    wake(cloud, "alarm-lit")
    assert cloud.templates_sent == [True]


def test_guards_stand_in_order_the_first_names_the_reason() -> None:
    cloud = StillCloud()
    cloud.put_box(age=10, health="healthy")
    cloud.deploying = True
    assert wake(cloud, "alarm-lit")["reason"] == YOUNG
    cloud.known["i-0aaaaaaaaaaaaaaa1"] = replace(cloud.known["i-0aaaaaaaaaaaaaaa1"], launched_at=ago(900))
    assert "answers now" in wake(cloud, "alarm-lit")["reason"]
    cloud.health.clear()
    assert "a deploy is in progress" in wake(cloud, "alarm-lit")["reason"]
    cloud.deploying = False
    assert wake(cloud, "alarm-lit")["action"] == "failover"


@pytest.mark.parametrize(
    ("lifecycle", "age", "health", "ended"),
    [
        ("Pending:Wait", 900, None, True),
        ("Pending:Wait", 900, "initial", True),
        ("Pending:Wait", 900, "healthy", False),
        ("Pending:Wait", 899, None, False),
        ("Pending", 900, None, False),
        ("InService", 5000, None, False),
    ],
)
def test_flip_ends_boxes_held_for_longer_than_grace_and_no_other(
    lifecycle: str, age: int, health: str | None, ended: bool
) -> None:
    cloud = lit_for(1800)
    cloud.put_box("i-0held", age=age, lifecycle=lifecycle, health=health)
    cloud.set_state(State(Mode.ARMED, launched_at=ago(86400)).begin(Kind.FAILOVER, ago(60), "half done"))
    wake(cloud, "alarm-lit")
    assert ("abandon i-0held" in cloud.calls) is ended


@pytest.mark.parametrize(("lit", "cancelled"), [(1799, False), (1800, True)])
def test_refresh_in_the_way_is_cancelled_only_past_the_skip_cap(lit: int, cancelled: bool) -> None:
    cloud = lit_for(lit)
    cloud.refreshed = (Refresh("r-deploy", "InProgress", ago(3000), like_ours=False),)
    cloud.block_flips()
    if cancelled:
        assert wake(cloud, "alarm-lit")["outcome"] == "done"
        assert cloud.calls[-5:] == ["flip 100", "cancel_refresh", "flip 100", *SETTLE]
    else:
        with pytest.raises(RefreshActiveError):
            wake(cloud, "alarm-lit")
        assert "cancel_refresh" not in cloud.calls
        assert cloud.parsed.unfinished is not None
        cloud.live_alarm = Alarm("ALARM", ago(lit - 1))
        wake(cloud, "scan", now=NOW + timedelta(seconds=1800))
        assert "cancel_refresh" in cloud.calls
        assert cloud.live_group.on_demand_percentage == 100
        assert cloud.parsed.failovers == (NOW,)


def test_ok_alarm_event_reads_only_the_state() -> None:
    cloud = StillCloud()
    assert wake(cloud, "alarm-ok")["action"] == "recorded"
    assert cloud.calls == ["parameters"]


def test_failover_history_keeps_only_what_the_valve_may_count() -> None:
    cloud = StillCloud()
    times = (ago(90000), ago(86401), ago(86400), ago(50))
    cloud.set_state(State(Mode.ARMED, failovers=times, launched_at=ago(40)))
    wake(cloud, "alarm-lit")
    assert cloud.parsed.failovers == (ago(86400), ago(50), NOW)


def test_alarm_of_another_fleet_is_ignored_without_a_read() -> None:
    cloud = StillCloud()
    payload = event("alarm-lit")
    payload["detail"]["alarmName"] = "other-no-healthy-target"
    assert wake(cloud, payload)["action"] == "ignored"
    assert cloud.calls == []


@pytest.mark.parametrize(("lit", "boot", "age", "ended"), [
    (1799, names.BOOT_COLD, 1499, False),
    (1799, names.BOOT_COLD, 1500, True),
    (1799, None, 899, False),
    (1799, None, 900, True),
    (1800, names.BOOT_COLD, 899, False),
    (1800, names.BOOT_COLD, 900, True),
])  # fmt: skip
def test_box_is_ended_by_its_own_boot_budget_and_past_the_skip_cap_by_grace(
    lit: int, boot: str | None, age: int, ended: bool
) -> None:
    cloud = lit_for(lit)
    cloud.put_box("i-0held", age=age, lifecycle="Pending:Wait", boot=boot)
    wake(cloud, "pin")
    # A pin does not look at the alarm: its own budget counts whatever the alarm says.
    assert ("abandon i-0held" in cloud.calls) is (age >= (1500 if boot else 900))
    cloud = lit_for(lit)
    cloud.put_box("i-0held", age=age, lifecycle="Pending:Wait", boot=boot)
    cloud.set_state(State(Mode.FAILOVER, launched_at=ago(86400)).begin(Kind.FAILOVER, ago(60), "half done"))
    wake(cloud, "alarm-lit")
    assert ("abandon i-0held" in cloud.calls) is ended


@pytest.mark.parametrize("cause", ["gave-up", "pinned", "repaired", "failover"])
def test_boot_of_the_kind_that_is_wanted_is_never_ended(cause: str) -> None:
    cloud = StillCloud.on_demand(failovers=(ago(9000), ago(1000)), cooldown_from=ago(1000))
    if cause == "repaired":
        cloud = lit_for(1799)
        cloud.lever = "100"
    else:
        cloud.live_group = replace(cloud.live_group, boxes=())
    if cause == "failover":
        cloud.set_state(cloud.parsed.begin(Kind.FAILOVER, ago(60), "half done"))
    cloud.live_alarm = Alarm("ALARM", ago(1799))
    cloud.health = {}
    spot = cause == "repaired"
    cloud.put_box("i-0cold", age=2000, lifecycle="Pending:Wait", spot=spot, boot=names.BOOT_COLD)
    if spot:
        cloud.put_box("i-0new", age=10)
    record = wake(cloud, "pin" if cause == "pinned" else "scan")
    assert cause in {record["action"], *(line.split()[2] for line in record.get("also", []))}
    assert "abandon i-0cold" not in cloud.calls


def test_alarm_that_went_out_long_ago_caps_nothing() -> None:
    cloud = StillCloud(lever="100", live_alarm=Alarm("OK", ago(9000)))
    cloud.put_box("i-0cold", age=1200, lifecycle="Pending:Wait", boot=names.BOOT_COLD)
    cloud.set_state(State(Mode.FAILOVER, launched_at=ago(86400)).begin(Kind.FAILOVER, ago(60), "half done"))
    wake(cloud, "alarm-ok")
    assert cloud.live_group.on_demand_percentage == 100
    assert "abandon i-0cold" not in cloud.calls


def test_refresh_of_a_deploy_is_cancelled_for_a_failover_alone() -> None:
    cloud = lit_for(1800)
    cloud.refreshed = (Refresh("r-deploy", "InProgress", ago(3000), like_ours=False),)
    cloud.set_state(State(Mode.PINNED, launched_at=ago(86400)).begin(Kind.PINNED, ago(60), "half done"))
    cloud.block_flips()
    with pytest.raises(RefreshActiveError):
        wake(cloud, "scan")
    assert cloud.refreshed[0].active
