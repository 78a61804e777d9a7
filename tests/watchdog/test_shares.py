"""Fleets of several boxes: a failover buys the share that is missing, a return gives it back box by box."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fleet.config.settings import Policy
from fleet.core import names
from lambdas.watchdog import failover, rearm, shares
from lambdas.watchdog.cloud import Alarm, Refresh
from lambdas.watchdog.state import Evidence, Kind, Mode, State
from lambdas.watchdog.world import World
from tests.watchdog.still_cloud import NOW, SETTINGS, StillCloud, ago, event, group_event, wake
from tests.watchdog.test_failures import refuse


def fleet_of(size: int, *, spot: int, on_demand: int = 0, base: int = 0, part: int = 0) -> StillCloud:
    """A fleet of which so many boxes serve; `part` of the boxes above the base were bought before, as a lever."""
    cloud = StillCloud(live_alarm=Alarm("ALARM", ago(2)), lever=str(part))
    cloud.settings = replace(SETTINGS, capacity=replace(SETTINGS.capacity, min=size, max=2 * size, on_demand_base=base))
    cloud.live_group = replace(cloud.live_group, desired=size, on_demand_percentage=part, created_at=ago(864000))
    for number in range(spot):
        cloud.put_box(f"i-0a{number:02x}", age=40000, health="healthy")
    for number in range(on_demand):
        cloud.put_box(f"i-0d{number:02x}", age=40000, spot=False, health="healthy")
    if part:
        state = State(Mode.FAILOVER, since=ago(20000), part=part, failovers=(ago(20000),), parts=((ago(20000), part),))
        cloud.set_state(replace(state, cooldown_from=ago(20000), launched_at=ago(19000)))
    return cloud


@pytest.mark.parametrize(("base", "size"), [(base, size) for size in range(1, 21) for base in range(size + 1)])
def test_every_number_of_boxes_has_a_lever_with_which_a_group_that_rounds_up_buys_just_that(
    base: int, size: int
) -> None:
    settings = replace(SETTINGS, capacity=replace(SETTINGS.capacity, min=size, max=2 * size, on_demand_base=base))
    for boxes in range(size - base + 1):
        lever = shares.lever(boxes, settings)
        assert 0 <= lever <= 100
        assert shares.bought(lever, settings) == boxes
        assert shares.part(boxes, settings) == (lever if boxes < size - base else 0)  # 0 and 100 need no part
        assert -(-(size - base) * lever // 100) == boxes  # as both simulated groups reckon
        assert round((size - base) * lever / 100) == boxes  # and in case AWS rounds to the nearest


def test_fleet_that_is_all_spot_or_has_more_spot_boxes_than_it_needs_has_no_part() -> None:
    settings = replace(SETTINGS, capacity=replace(SETTINGS.capacity, min=4, max=8, on_demand_base=1))
    assert shares.part(-1, settings) == 0  # one box given back of none
    many = SimpleNamespace(spot_among=lambda stays: stays)
    assert failover.boxes(many, ("i-1", "i-2", "i-3", "i-4", "i-5"), settings) == 0


@pytest.mark.parametrize(
    ("size", "base", "spot", "on_demand", "lever"),
    [
        (2, 0, 1, 0, 50),
        (4, 0, 2, 0, 50),
        (4, 0, 3, 0, 25),
        (4, 1, 2, 1, 33),
        (4, 1, 0, 1, 100),
        (20, 0, 1, 0, 95),
        (20, 3, 10, 3, 41),
        (20, 0, 0, 0, 100),
    ],
)
def test_failover_buys_what_is_missing(size: int, base: int, spot: int, on_demand: int, lever: int) -> None:
    cloud = fleet_of(size, spot=spot, on_demand=on_demand, base=base)
    record = wake(cloud, "alarm-lit")
    assert (record["action"], record["lever"]) == ("failover", lever)
    assert (cloud.lever, cloud.live_group.on_demand_percentage) == (str(lever), lever)
    missing = size - spot - on_demand
    assert record["reason"] == f"{missing} of {size} boxes missing, alarm lit for 2 s"
    assert shares.bought(lever, cloud.settings) == missing
    assert cloud.parsed.expected_lever == lever


def test_mail_of_a_part_tells_how_many_were_bought_and_what_that_costs() -> None:
    cloud = fleet_of(4, spot=2, base=1, on_demand=1)
    wake(cloud, "alarm-lit")
    ((subject, body),) = cloud.mails
    assert subject == "[llm] on-demand failover"
    assert "Boxes were missing, so the watchdog bought them on-demand." in body
    assert "Why: 1 of 4 boxes missing, alarm lit for 2 s" in body
    cost = "$54.95 to $68.45 a day for 4 boxes, 2 of them on-demand (on spot: $43.80 to $54.38; all on-demand:"
    assert f"Cost: {cost}" in body


def test_box_that_only_the_base_lacks_is_bought_by_no_lever() -> None:
    record = wake(fleet_of(4, spot=3, base=1), "alarm-lit")
    assert record["reason"] == "failover skipped: 1 of 4 boxes missing, on-demand as it is"


@pytest.mark.parametrize("policy", ["alarm", "bridge"])
@pytest.mark.parametrize("size", [1, 4])
def test_fleet_whose_base_is_all_of_it_buys_nothing_and_has_nothing_to_give_back(size: int, policy: Policy) -> None:
    cloud = fleet_of(size, spot=0, on_demand=size - 1, base=size)
    cloud.settings = replace(cloud.settings, policy=policy)
    assert wake(cloud, "alarm-lit")["action"] == "skipped"
    assert (cloud.lever, cloud.mails) == ("0", [])
    cloud.put_box("i-0dff", age=400, spot=False, health="healthy")
    cloud.live_alarm = Alarm("OK", NOW)
    wake(cloud, "pin")
    wake(cloud, "arm")
    cloud.set_state(replace(cloud.parsed, streak=1))
    record = wake(cloud, "scan", now=NOW + timedelta(seconds=1800))
    assert (record["action"], cloud.lever, cloud.parsed.mode) == ("re-armed", "0", Mode.ARMED)
    assert (cloud.parsed.part, cloud.parsed.streak, cloud.parsed.turns) == (0, 0, 0)
    assert record["reason"] == "every box is of the on-demand base: there is nothing to give back"
    assert [subject for subject, _ in cloud.mails] == ["[llm] pinned to on-demand", "[llm] armed"]
    assert "start_refresh" not in cloud.calls


def test_young_boxes_hold_a_failover_back_as_far_as_they_replace_what_is_missing() -> None:
    cloud = fleet_of(4, spot=2)
    cloud.put_box("i-0e1", age=60, lifecycle="Pending:Wait")
    cloud.put_box("i-0e2", age=60, lifecycle="Pending:Wait")
    assert wake(cloud, "alarm-lit")["reason"] == names.LINE_SKIPPED_YOUNG
    cloud = fleet_of(4, spot=2)
    cloud.put_box("i-0e1", age=60, lifecycle="Pending:Wait")
    assert wake(cloud, "alarm-lit")["lever"] == 25


def test_past_the_skip_cap_young_boxes_count_for_nothing() -> None:
    cloud = fleet_of(4, spot=2)
    cloud.live_alarm = Alarm("ALARM", ago(1800))
    cloud.put_box("i-0e1", age=60, lifecycle="Pending:Wait")
    assert wake(cloud, "scan")["lever"] == 50


def grown(cloud: StillCloud, desired: int) -> StillCloud:
    """The same fleet, of which the lanes' wait has made more."""
    cloud.live_group = replace(cloud.live_group, desired=desired)
    return cloud


@pytest.mark.parametrize(("size", "desired"), [(1, 2), (2, 3), (4, 8)])
def test_boxes_above_what_should_serve_are_missed_by_nobody(size: int, desired: int) -> None:
    cloud = grown(fleet_of(size, spot=size), desired)
    cloud.live_alarm = Alarm("OK", ago(40000))
    assert wake(cloud, "scan")["action"] == "nothing"
    assert not cloud.mails
    cloud.live_alarm = Alarm("ALARM", ago(2))
    assert wake(cloud, "alarm-lit")["action"] == "skipped"
    assert (cloud.lever, cloud.live_group.desired) == ("0", desired)


def test_a_return_of_a_grown_fleet_expects_on_demand_what_its_lever_buys_of_all() -> None:
    cloud = grown(fleet_of(4, spot=5, on_demand=2, part=25), 7)  # AWS rounds 25 % of seven up
    cloud.live_alarm = Alarm("OK", ago(9000))
    cloud.set_state(replace(cloud.parsed, rearm_from=ago(600), since=ago(600)))
    wake(cloud, "scan")
    assert "start_refresh" not in cloud.calls  # no roll of what is as it should be
    assert (cloud.lever, cloud.parsed.rearm_from) == ("0", NOW)


def test_a_roll_of_a_grown_fleet_has_the_time_of_all_its_boxes() -> None:
    state = State(Mode.FAILOVER, rearm_from=ago(4000), refresh_id="r")
    world = World(group=replace(fleet_of(1, spot=1).live_group, desired=2))
    assert rearm.expired(world, state, SETTINGS, NOW) == ""
    assert rearm.expired(replace(world, group=None), state, SETTINGS, NOW)


def test_failover_is_skipped_once_all_answer() -> None:
    assert wake(fleet_of(2, spot=2), "alarm-lit")["reason"] == "failover skipped: each of 2 boxes answers now"


def test_more_that_goes_missing_is_bought_within_the_same_failover() -> None:
    cloud = fleet_of(4, spot=1, on_demand=1, part=25)
    record = wake(cloud, "alarm-lit")
    assert (record["action"], record["lever"]) == ("failover", 75)
    state = cloud.parsed
    assert (state.failovers, state.parts, state.cooldown_from) == ((ago(20000),), ((ago(20000), 75),), NOW)
    cloud = fleet_of(4, spot=0, on_demand=1, part=25)
    assert wake(cloud, "alarm-lit")["lever"] == 100
    assert (cloud.parsed.part, cloud.parsed.parts) == (0, ())


def test_alarm_that_the_failover_of_a_part_answers_is_lit_from_there() -> None:
    cloud = fleet_of(4, spot=2, part=50)
    cloud.set_state(replace(cloud.parsed, since=ago(300)))
    cloud.live_alarm = Alarm("ALARM", ago(4000))
    cloud.put_box("i-0e1", age=250, spot=False, lifecycle="Pending:Wait")
    cloud.put_box("i-0e2", age=250, spot=False, lifecycle="Pending:Wait")
    assert wake(cloud, "scan")["reason"] == names.LINE_SKIPPED_YOUNG


def test_fleet_that_churns_is_told_as_what_was_missing() -> None:
    cloud = fleet_of(4, spot=2)
    cloud.live_alarm, cloud.dark = Alarm("OK", ago(300)), 120
    record = wake(cloud, "scan")
    assert (record["action"], record["lever"]) == ("failover", 50)
    assert record["reason"].startswith("the fleet was missing for ")


def test_valve_counts_shares_of_the_fleet() -> None:
    settings = replace(SETTINGS, capacity=replace(SETTINGS.capacity, min=4, max=8))
    state = State(Mode.ARMED)
    for _ in range(3):
        state = state.failed_over(50, settings, NOW - timedelta(hours=5) + timedelta(hours=len(state.failovers)))
    assert state.fleets_bought(settings, NOW) == 1.5
    state = state.failed_over(100, settings, NOW)
    assert state.fleets_bought(settings, NOW) == 2.5
    cloud = fleet_of(4, spot=2, on_demand=2, part=50)
    cloud.live_alarm = Alarm("OK", ago(18000))
    cloud.set_state(replace(cloud.parsed, failovers=state.failovers, parts=state.parts))
    record = wake(cloud, "scan")
    assert (record["action"], record["reason"], cloud.lever) == ("gave-up", "2.5 failovers in 24 h", "100")


# --- the way back ----------------------------------------------------------------------------------------------------


def due() -> StillCloud:
    """Two of four are on-demand; one good score short of a re-arm."""
    cloud = fleet_of(4, spot=2, on_demand=2, part=50)
    cloud.live_alarm = Alarm("OK", ago(18000))
    cloud.set_state(replace(cloud.parsed, streak=1, scored_at=ago(1800)))
    cloud.scored = {"use2-az1": 3}
    return cloud


def step(cloud: StillCloud, box: str, old: str) -> None:
    """The group has replaced one: a spot box serves, an on-demand box is gone."""
    cloud.put_box(box, age=400, health="healthy")
    cloud.live_group = replace(cloud.live_group, boxes=tuple(b for b in cloud.live_group.boxes if b.id != old))
    cloud.health.pop(old)


def test_return_gives_one_box_back_after_the_other_and_mails_at_the_end() -> None:
    cloud = due()
    record = wake(cloud, "scan")
    assert (record["action"], cloud.lever, cloud.parsed.rearm_from) == ("re-arm", "25", NOW)
    assert "start_refresh" not in cloud.calls  # the group replaces one box by itself
    step(cloud, "i-0b1", "i-0d00")
    later = NOW + timedelta(seconds=400)
    launched = group_event("launch-successful", at=later, box="i-0b1")
    record = wake(cloud, launched, now=later)
    assert (record["action"], cloud.lever, cloud.parsed.rearm_from) == ("re-arm", "0", later)
    assert record["reason"] == "1 more on-demand, spot boxes serving: 3 after 400 s"
    step(cloud, "i-0b2", "i-0d01")
    record = wake(cloud, launched, now=later + timedelta(seconds=400))
    assert (record["action"], cloud.parsed.mode, cloud.parsed.part) == ("re-armed", Mode.ARMED, 0)
    assert [subject for subject, _ in cloud.mails] == ["[llm] back on spot"]


@pytest.mark.parametrize(
    ("size", "most", "levers"),
    [
        (1, 2, [0]),
        (4, 8, [75, 50, 25, 0]),
        (12, 24, [83, 66, 50, 33, 16, 0]),
        (20, 40, [80, 60, 40, 20, 0]),
        (20, 22, [90, 80, 70, 60, 50, 40, 30, 20, 10, 0]),  # as many as may launch ahead
    ],
)
def test_return_of_many_gives_a_fifth_back_at_once(size: int, most: int, levers: list[int]) -> None:
    settings = replace(SETTINGS, capacity=replace(SETTINGS.capacity, min=size, max=most))
    state, seen = State(Mode.FAILOVER, since=NOW), list[int]()
    while state.expected_lever:
        state = failover.gives_back(state, settings, NOW)
        seen.append(state.expected_lever)
    assert seen == levers


def test_return_that_fails_keeps_what_was_given_back() -> None:
    cloud = due()
    wake(cloud, "scan")
    step(cloud, "i-0b1", "i-0d00")
    later = NOW + timedelta(seconds=400)
    wake(cloud, group_event("launch-successful", at=later, box="i-0b1"), now=later)
    assert cloud.lever == "0"
    record = wake(cloud, "scan", now=later + timedelta(seconds=2700))
    assert (record["action"], cloud.lever, cloud.parsed.mode) == ("fell-back", "25", Mode.FAILOVER)


def test_group_that_replaces_nothing_by_itself_is_rolled_as_a_whole_box_by_box() -> None:
    cloud = due()
    wake(cloud, "scan")
    assert wake(cloud, "scan", now=NOW + timedelta(seconds=119))["action"] == "nothing"
    record = wake(cloud, "scan", now=NOW + timedelta(seconds=120))
    assert (record["action"], record["reason"], cloud.lever) == ("re-arm", "nothing is replaced", "0")
    record = wake(cloud, "scan", now=NOW + timedelta(seconds=240))
    assert (record["action"], cloud.parsed.refresh_id) == ("refresh", "refresh-1")
    assert shares.one_more_percent(cloud.settings) == 125
    record = wake(cloud, "scan", now=NOW + timedelta(seconds=120 + 4 * 2700 - 1))
    assert record["action"] == "nothing"
    record = wake(cloud, "scan", now=NOW + timedelta(seconds=120 + 4 * 2700))
    assert (record["action"], cloud.lever) == ("fell-back", "50")


@pytest.mark.parametrize(("base", "part"), [(0, 50), (1, 33)])
def test_failed_roll_of_several_falls_back_to_what_is_still_on_demand_above_the_base(base: int, part: int) -> None:
    cloud = fleet_of(4, spot=2, on_demand=2, base=base, part=part)
    cloud.live_alarm = Alarm("OK", ago(18000))
    cloud.lever, cloud.live_group = "0", replace(cloud.live_group, on_demand_percentage=0)
    cloud.set_state(replace(cloud.parsed, part=0, rearm_from=ago(600), refresh_id="r-1"))
    cloud.refreshed = (Refresh("r-1", "Failed", ago(600), like_ours=True),)
    assert wake(cloud, "scan")["action"] == "fell-back"
    assert (cloud.parsed.part, cloud.lever) == (part, str(part))


def giving_back(*, spot: int, on_demand: int, **state: Any) -> StillCloud:
    """Two of four were on-demand; for 300 s one of them has been given back."""
    cloud = fleet_of(4, spot=spot, on_demand=on_demand, part=25)
    cloud.live_alarm = Alarm("OK", ago(18000))
    cloud.set_state(replace(cloud.parsed, rearm_from=ago(300), since=ago(300), **state))
    return cloud


def test_box_that_spot_refuses_and_that_is_gone_already_is_bought_again() -> None:
    cloud = giving_back(spot=2, on_demand=1)
    assert refuse(cloud, "VcpuLimitExceeded - words") == "fell-back"
    assert (cloud.lever, cloud.parsed.part) == ("50", 50)


def test_next_box_is_given_back_once_a_spot_box_serves() -> None:
    cloud = giving_back(spot=0, on_demand=1)
    for number in range(3):
        cloud.put_box(f"i-0e{number}", age=200, lifecycle="Pending:Wait")
    assert wake(cloud, "scan")["reason"] == "re-arm: successor launching, 300 s of 2700 s"
    assert cloud.lever == "25"


def test_trial_and_what_blocked_the_return_end_with_the_first_box_that_serves() -> None:
    cloud = giving_back(spot=3, on_demand=1, trial=True, blocked="spot quota")
    assert wake(cloud, "scan")["action"] == "re-arm"
    assert (cloud.lever, cloud.parsed.trial, cloud.parsed.blocked) == ("0", False, "")


def test_successor_of_the_one_box_that_is_given_back_is_enough() -> None:
    cloud = giving_back(spot=3, on_demand=2)
    assert wake(cloud, "scan")["reason"] == "re-arm: old box leaving, 300 s of 2700 s"
    assert cloud.lever == "25"


@pytest.mark.parametrize(("elapsed", "action"), [(119, "nothing"), (120, "refresh")])
def test_group_of_two_is_given_time_to_replace_by_itself(elapsed: int, action: str) -> None:
    cloud = fleet_of(2, spot=0, on_demand=2, part=50)
    cloud.live_alarm = Alarm("OK", ago(18000))
    cloud.lever, cloud.live_group = "0", replace(cloud.live_group, on_demand_percentage=0)
    cloud.set_state(replace(cloud.parsed, part=0, rearm_from=ago(elapsed)))
    assert wake(cloud, "scan")["action"] == action


def test_lever_that_was_moved_off_a_part_is_set_back_to_it() -> None:
    cloud = fleet_of(4, spot=2, on_demand=2, part=50)
    cloud.live_alarm = Alarm("OK", ago(18000))
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=100)
    record = wake(cloud, "scan")
    assert (record["action"], cloud.lever, cloud.live_group.on_demand_percentage) == ("repaired", "50", 50)
    assert record["reason"] == "parameter 50, group 100: on-demand-failover expects 50"


# --- what is missing and refused -------------------------------------------------------------------------------------


def refused_part() -> StillCloud:
    """Two of four were to be bought, one was, and on-demand has refused the other for a while."""
    cloud = fleet_of(4, spot=2, on_demand=1, part=50)
    cloud.live_alarm = Alarm("OK", ago(18000))
    cloud.set_state(replace(cloud.parsed, since=ago(400), evidence=Evidence(drought_at=ago(130))))
    return cloud


def test_part_that_on_demand_refuses_is_asked_of_spot_and_what_was_bought_stays() -> None:
    cloud = refused_part()
    record = wake(cloud, "scan")
    assert (record["action"], cloud.lever, cloud.parsed.turns) == ("turned", "25", 1)
    assert cloud.parsed.failovers == (ago(20000),)  # it bought one
    assert record["reason"] == "1 boxes are missing and on-demand has been refused for 130 s, spot is tried after 130 s"


def test_turns_end_once_all_serve() -> None:
    cloud = refused_part()
    wake(cloud, "scan")
    cloud.put_box("i-0f1", age=300, health="healthy")
    wake(cloud, "scan", now=NOW + timedelta(seconds=500))
    assert (cloud.parsed.turns, cloud.parsed.part, cloud.parsed.mode) == (0, 25, Mode.FAILOVER)


def test_spot_that_goes_missing_beside_a_bought_part_is_no_turn() -> None:
    cloud = fleet_of(4, spot=1, on_demand=2, part=50)
    cloud.live_alarm = Alarm("OK", ago(18000))
    payload = event("launch-no-capacity")
    payload["detail"]["EC2InstanceId"] = ""
    wake(cloud, payload)
    assert cloud.parsed.evidence.drought_at is None


# --- the bridge policy -----------------------------------------------------------------------------------------------


def bridged(cloud: StillCloud) -> StillCloud:
    cloud.settings = replace(cloud.settings, policy="bridge")
    cloud.live_alarm = Alarm("OK", ago(18000))
    return cloud


def test_drought_of_a_share_is_waited_for_and_bought() -> None:
    cloud = bridged(fleet_of(4, spot=2))
    refusal = group_event("launch-no-capacity", at=ago(1))
    refusal["detail"]["EC2InstanceId"] = ""
    assert wake(cloud, refusal)["action"] == "waiting"
    record = wake(cloud, {"command": "patience"}, now=NOW + timedelta(seconds=130))
    assert (record["action"], record["lever"]) == ("failover", 50)
    assert record["reason"].startswith("2 of 4 boxes serve or are on their way, launches have failed for")


def test_boxes_that_are_warned_of_together_are_bridged_together() -> None:
    cloud = bridged(fleet_of(4, spot=4))
    cloud.scored = {"use2-az1": 9}
    for box in ("i-0a00", "i-0a01", "i-0a02"):
        payload = event("rebalance-recommendation")
        payload["detail"]["instance-id"] = box
        wake(cloud, payload)
    record = wake(cloud, {"command": "patience"}, now=NOW + timedelta(seconds=6))
    assert (record["action"], record["lever"]) == (str(Kind.BRIDGED), 75)
    assert record["reason"].startswith("AWS warned that i-0a00, i-0a01, i-0a02 may go")
