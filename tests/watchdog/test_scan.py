"""A scan: upkeep, retry, repair, then valve, cooldown, streak; every refusal is one line with its numbers."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleet.core import names
from lambdas.watchdog.cloud import Alarm, CloudError, DeniedError, Refresh, RefreshActiveError, ThrottledError
from lambdas.watchdog.handler import run
from lambdas.watchdog.record import Record
from lambdas.watchdog.state import MOVES_LEVERS, Evidence, Kind, Mode, State
from tests.watchdog.still_cloud import EMPTY, NOW, StillCloud, ago, event, wake

GOOD = {"use2-az1": 3, "use2-az3": 9}  # the group stands in az1 and az2
DEPLOY_REFRESH = Refresh("r-deploy", "InProgress", ago(60), like_ours=False)


def scan_again(cloud: StillCloud, after: float) -> str:
    reason: str = wake(cloud, "scan", now=NOW + timedelta(seconds=after))["reason"]
    return reason


# --- upkeep and retry -------------------------------------------------------------------------------------------


def test_quiet_scan_while_spot_armed_changes_nothing() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(5000)))
    cloud.put_box(age=5000, health="healthy")
    record = wake(cloud, "scan")
    assert (record["action"], record["reason"]) == ("nothing", "spot-armed; nothing to do")
    assert "detail" not in record
    reads = ["parameters", "alarm", "group", "instances", "target_health", "stack_in_progress"]
    assert cloud.calls == [*reads, "dark_minutes 20:35-00:25", "refreshes"]


@pytest.mark.parametrize("mode", list(Mode))
def test_scan_keeps_az_rebalance_suspended_in_every_mode(mode: Mode) -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(5000)))
    cloud.set_state(State(mode))
    cloud.live_group = replace(cloud.live_group, suspended={})
    wake(cloud, "scan")
    assert "suspend AZRebalance" in cloud.calls
    wake(cloud, "scan")
    assert cloud.calls.count("suspend AZRebalance") == 1


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("health", ["healthy", "initial", "unhealthy"])
def test_scan_deregisters_what_is_no_member_of_the_group(mode: Mode, health: str) -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(5000)), lever=str(0 if mode is Mode.ARMED else 100))
    cloud.set_state(State(mode))
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=int(cloud.lever or 0))
    cloud.put_box(age=5000, health="healthy")
    cloud.health["i-0stranger"] = health
    assert wake(cloud, "scan")["detail"] == "deregisters i-0stranger: no box of the group"
    assert list(cloud.health) == ["i-0aaaaaaaaaaaaaaa1"]
    cloud.calls.clear()
    cloud.health["i-0terminated"] = "draining"  # the group's own way out
    wake(cloud, "scan")
    assert not [call for call in cloud.calls if call.startswith("deregister")]


def test_stranger_that_answers_holds_no_failover_back() -> None:
    cloud = StillCloud(health={"i-0stranger": "healthy"})
    record = wake(cloud, "scan")
    assert (record["action"], record["detail"]) == ("failover", "deregisters i-0stranger: no box of the group")
    assert (cloud.lever, cloud.health) == ("100", {})


def test_scan_retries_a_skipped_failover() -> None:
    cloud = StillCloud()
    cloud.put_box(age=600)
    assert wake(cloud, "alarm-lit")["action"] == "skipped"
    assert scan_again(cloud, 352) == "no healthy target, alarm lit for 354 s"
    assert cloud.parsed.failovers == (NOW + timedelta(seconds=352),)


def test_failover_that_is_due_comes_before_a_repair() -> None:
    cloud = StillCloud(lever="50")
    assert wake(cloud, "scan")["action"] == "failover"
    assert (cloud.lever, len(cloud.mails)) == ("100", 1)


def test_scan_says_why_a_failover_is_still_skipped() -> None:
    cloud = StillCloud()
    cloud.put_box(age=10)
    record = wake(cloud, "scan")
    assert (record["action"], record["reason"]) == ("skipped", names.LINE_SKIPPED_YOUNG)


def test_failover_of_a_scan_reads_nothing_that_only_repairs_and_rearms_look_at() -> None:
    cloud = StillCloud()
    cloud.put_box(age=2000)
    assert wake(cloud, "scan")["action"] == "failover"
    reads = ["parameters", "alarm", "group", "instances", "target_health", "stack_in_progress"]
    assert cloud.calls[: len(reads) + 1] == [*reads, "put_state"]


def test_failover_held_back_reads_what_a_repair_looks_at() -> None:
    cloud = StillCloud()
    cloud.put_box(age=10)
    wake(cloud, "scan")
    assert cloud.calls[-1] == "refreshes"


def test_refreshes_that_cannot_be_read_hold_repairs_back_and_are_raised() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(5000)), lever="100")
    cloud.fail("refreshes", DeniedError("DescribeInstanceRefreshes: AccessDenied"))
    with pytest.raises(CloudError, match="DescribeInstanceRefreshes: AccessDenied"):
        wake(cloud, "scan")
    assert cloud.lever == "100"


@pytest.mark.parametrize(("lit", "flips"), [(1799, False), (1800, True)])
@pytest.mark.parametrize("payload", ["alarm-lit", "scan"])
def test_deploy_that_cannot_be_read_holds_a_failover_no_longer_than_one_that_is_seen(
    payload: str, lit: int, flips: bool
) -> None:
    cloud = StillCloud(live_alarm=Alarm("ALARM", ago(lit)))
    cloud.fail("stack_in_progress", DeniedError("DescribeStacks: AccessDenied"))
    with pytest.raises(CloudError, match="DescribeStacks: AccessDenied"):
        wake(cloud, payload)
    assert (cloud.lever, len(cloud.mails)) == (("100", 1) if flips else ("0", 0))
    assert cloud.templates_sent == [False] * flips  # there may be a deploy


def test_repair_waits_where_deploys_cannot_be_read() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(5000)), lever="100")
    cloud.fail("stack_in_progress", ThrottledError())
    records: list[Record] = []
    with pytest.raises(CloudError, match=r"^ThrottledError$"):
        run(event("scan"), cloud=cloud, settings=cloud.settings, now=NOW, report=records.append)
    assert records[0]["reason"].endswith("repaired later: ThrottledError")


# --- hung boots on on-demand --------------------------------------------------------------------------------------


def after_a_failover(age: float, **box: Any) -> StillCloud:
    """Half an hour after a flip that found a young box, which has not come up since."""
    cloud = StillCloud.on_demand(failovers=(ago(1800),), cooldown_from=ago(1800), since=ago(1800))
    cloud.live_group, cloud.health = replace(cloud.live_group, boxes=()), {}
    cloud.put_box("i-0hung", age=age, **{"lifecycle": "Pending:Wait", **box})
    cloud.live_alarm = Alarm("ALARM", ago(3600))
    return cloud


def test_scan_on_demand_under_a_lit_alarm_ends_a_spot_box_that_hung_since_the_flip() -> None:
    cloud = after_a_failover(2200)
    cloud.put_box("i-0too", age=2100, lifecycle="Pending:Wait")
    record = wake(cloud, "scan")
    assert record["reason"] == "1800 s since failover, cooldown 10800 s"
    assert record["detail"] == "ends i-0hung, i-0too: held by the launch hook, and for nothing"
    assert cloud.live_group.boxes == ()
    assert cloud.mails == []


def test_mail_that_cannot_be_sent_keeps_no_hung_box() -> None:
    cloud = after_a_failover(2200)
    cloud.set_state(replace(cloud.parsed.begin(Kind.FAILOVER, ago(1800), "owed"), unfinished=None))
    cloud.fail("mail", ThrottledError("Publish: Throttling"))
    with pytest.raises(ThrottledError):
        wake(cloud, "scan")
    assert cloud.live_group.boxes == ()


@pytest.mark.parametrize("why_not", ["young", "on-demand", "answers", "in service", "not lit", "re-arming", "pinned"])
def test_scan_ends_no_other_box(why_not: str) -> None:
    cloud = after_a_failover(
        899 if why_not == "young" else 2200,
        spot=why_not != "on-demand",
        health="healthy" if why_not == "answers" else None,
        lifecycle="InService" if why_not == "in service" else "Pending:Wait",
    )
    if why_not == "not lit":
        cloud.live_alarm = Alarm("OK", ago(9))
    if why_not == "re-arming":
        cloud.set_state(replace(cloud.parsed, rearm_from=ago(60)))
        cloud.lever, cloud.live_group = "0", replace(cloud.live_group, on_demand_percentage=0)
    if why_not == "pinned":
        cloud.set_state(replace(cloud.parsed, mode=Mode.PINNED))
    record = wake(cloud, "scan")
    assert len(cloud.live_group.boxes) == 1
    assert "ends" not in record.get("detail", "")


def test_hung_box_that_a_transition_ends_is_ended_once() -> None:
    cloud = after_a_failover(2200)
    cloud.set_state(replace(cloud.parsed, failovers=(ago(9000), ago(1800))))
    record = wake(cloud, "scan")
    assert record["action"] == "gave-up"
    assert record["detail"] == "ends i-0hung: held by the launch hook, and for nothing"
    assert cloud.calls.count("abandon i-0hung") == 1


def test_deleted_alarm_is_raised_once_the_rest_of_the_scan_is_done() -> None:
    cloud = StillCloud(live_alarm=None, lever="100")
    with pytest.raises(CloudError, match=r"^the alarm does not exist, so nothing wakes the watchdog: deploy again$"):
        wake(cloud, "scan")
    assert cloud.lever == "0"


def test_stale_event_of_a_deleted_alarm_does_not_flip_and_is_raised() -> None:
    cloud = StillCloud(live_alarm=None)
    with pytest.raises(CloudError, match="the alarm does not exist"):
        wake(cloud, "alarm-lit")
    assert cloud.lever == "0"


# --- pinned -----------------------------------------------------------------------------------------------------


def test_pinned_scan_says_so_and_asks_about_targets_and_no_box_where_no_hook_holds_one() -> None:
    cloud = StillCloud.on_demand()
    cloud.set_state(replace(cloud.parsed, mode=Mode.PINNED))
    record = wake(cloud, "scan")
    assert (record["action"], record["reason"]) == ("nothing", "pinned; nothing to do")
    assert "detail" not in record
    assert cloud.calls == ["parameters", "group", "target_health"]


def test_pinned_reports_a_disagreement_and_leaves_it() -> None:
    cloud = StillCloud()
    cloud.set_state(State(Mode.PINNED))
    record = wake(cloud, "scan")
    assert record["reason"] == "pinned; nothing to do"
    assert record["detail"] == "parameter 0, group 0: on-demand-pinned expects 100"
    assert (cloud.lever, cloud.live_group.on_demand_percentage, cloud.mails) == ("0", 0, [])


# --- disagreement -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lever", ["0", "100", "50", "rubbish", None])
@pytest.mark.parametrize("percentage", [0, 50, 100])
@pytest.mark.parametrize("mode", [Mode.ARMED, Mode.FAILOVER])
def test_what_the_state_expects_wins_and_the_repair_is_mailed(mode: Mode, percentage: int, lever: str | None) -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(5000)), lever=lever)
    cloud.set_state(State(mode, cooldown_from=ago(10)))
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=percentage)
    expected = 0 if mode is Mode.ARMED else 100
    agreed = lever == str(expected) and percentage == expected
    record = wake(cloud, "scan")
    assert (record["action"] == "repaired") is not agreed
    assert (cloud.lever, cloud.live_group.on_demand_percentage) == (str(expected), expected)
    assert len(cloud.mails) == (not agreed)
    assert cloud.parsed.mode is mode


def test_repair_names_what_disagreed() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(5000)), lever="100")
    assert wake(cloud, "scan")["reason"] == "parameter 100, group 0: spot-armed expects 0"
    assert "Why: parameter 100, group 0: spot-armed expects 0" in cloud.mails[0][1]


def test_repair_waits_for_a_deploy_and_for_a_refresh() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(5000)), lever="100", deploying=True)
    assert wake(cloud, "scan")["reason"].endswith("repaired later: a deploy is in progress")
    cloud.deploying, cloud.refreshed = False, (DEPLOY_REFRESH,)
    assert wake(cloud, "scan")["reason"].endswith("repaired later: instance refresh r-deploy is InProgress")
    cloud.refreshed = (replace(DEPLOY_REFRESH, status="Successful"),)
    assert wake(cloud, "scan")["action"] == "repaired"


def test_repair_comes_before_a_skipped_failover_s_line() -> None:
    cloud = StillCloud(lever="100")
    cloud.put_box(age=10)
    assert wake(cloud, "scan")["action"] == "repaired"
    assert cloud.parsed.mode is Mode.ARMED


# --- valve, cooldown, streak ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "pinned"), [(86400, True), (86401, False)])
def test_two_failovers_in_a_day_pin(first: int, pinned: bool) -> None:
    cloud = StillCloud.on_demand(failovers=(ago(first), ago(352)), cooldown_from=ago(352), streak=1)
    record = wake(cloud, "scan")
    assert (cloud.parsed.mode is Mode.PINNED) is pinned
    if pinned:
        assert (record["action"], record["reason"]) == ("gave-up", "2 failovers in 24 h")
        assert "giving up" in cloud.mails[0][0]
        assert (cloud.parsed.since, cloud.parsed.streak) == (NOW, 0)
        assert not {"put_lever 100", "flip 100", "scores"} & set(cloud.calls)


@pytest.mark.parametrize(("elapsed", "refused"), [(352, True), (2152, True), (10799, True), (10800, False)])
def test_cooldown_refuses_with_its_numbers(elapsed: int, refused: bool) -> None:
    cloud = StillCloud.on_demand(failovers=(ago(elapsed),), cooldown_from=ago(elapsed))
    cloud.scored = GOOD
    record = wake(cloud, "scan")
    assert (record["reason"] == f"{elapsed} s since failover, cooldown 10800 s") is refused
    assert ("scores" in cloud.calls) is not refused
    assert (cloud.parsed.scored_at is None) is refused


@pytest.mark.parametrize("policy", ["alarm", "bridge"])
def test_return_that_ran_out_of_time_waits_for_the_cooldown_under_both_policies(policy: Any) -> None:
    cloud = StillCloud.on_demand(cooldown_from=ago(100))
    cloud.settings = replace(cloud.settings, policy=policy)
    cloud.scored = GOOD
    assert wake(cloud, "scan")["reason"] == "100 s since the re-arm fell back, cooldown 10800 s"


def test_day_whose_on_demand_hours_are_spent_goes_to_spot_with_nothing_counted() -> None:
    cloud = StillCloud.on_demand(streak=1, metered_at=ago(10), metered_seconds=3600)
    cloud.settings = replace(cloud.settings, watchdog=replace(cloud.settings.watchdog, on_demand_hours_per_day=1))
    assert wake(cloud, "scan")["action"] == "on-demand-limit"
    assert (cloud.parsed.mode, cloud.parsed.streak, cloud.parsed.cooldown_from) == (Mode.ARMED, 0, None)


@pytest.mark.parametrize(("score", "streak"), [(1, 0), (2, 0), (3, 1), (9, 1)])
def test_streak_counts_good_scores_of_the_groups_own_zones(score: int, streak: int) -> None:
    cloud = StillCloud.on_demand()
    cloud.scored = {"use2-az1": 1, "use2-az2": score, "use2-az3": 9}
    zone = "use2-az2" if score > 1 else "use2-az1"
    assert wake(cloud, "scan")["reason"] == f"score {score} in {zone} (3 needed), streak {streak} of 2"
    assert (cloud.parsed.streak, cloud.parsed.scored_at) == (streak, NOW)
    assert not cloud.mails


@pytest.mark.parametrize(
    ("zones", "scored", "said"),
    [
        ("ab", {"use2-az1": 2}, "2 in use2-az1"),
        ("bz", {"use2-az2": 2}, "2 in use2-az2"),
        ("ab", {"use2-az3": 9}, "0 in no zone"),
    ],
    ids=["of a zone", "of one beside a zone that EC2 does not list", "of no zone of the group"],
)
def test_one_bad_score_breaks_the_streak(zones: str, scored: dict[str, int], said: str) -> None:
    cloud = StillCloud.on_demand(streak=1, scored_at=ago(1800))
    cloud.live_group = replace(cloud.live_group, zones=tuple(f"us-east-2{zone}" for zone in zones))
    cloud.scored = scored
    assert wake(cloud, "scan")["reason"] == f"score {said} (3 needed), streak 0 of 2"


@pytest.mark.parametrize(("elapsed", "counts"), [(1739, False), (1740, True)])
def test_scans_close_together_are_one_score_not_a_trend(elapsed: int, counts: bool) -> None:
    cloud = StillCloud.on_demand(streak=1, scored_at=ago(elapsed))
    cloud.scored = GOOD
    record = wake(cloud, "scan")
    assert (record["action"] == "re-arm") is counts
    assert not cloud.parsed.trial, "a return on good scores is none"
    if not counts:
        assert record["reason"] == "1739 s since the last score, streak 1 of 2"
        assert "scores" not in cloud.calls


@pytest.mark.parametrize(("elapsed", "counts"), [(2700, True), (2701, False), (36000, False)])
def test_streak_begins_anew_after_a_scan_without_a_score(elapsed: int, counts: bool) -> None:
    cloud = StillCloud.on_demand(streak=1, scored_at=ago(elapsed))
    cloud.scored = GOOD
    assert (wake(cloud, "scan")["action"] == "re-arm") is counts
    assert cloud.parsed.streak == (0 if counts else 1)


@pytest.mark.parametrize("what", ["deploy", "refresh", "launch"])
def test_rearm_waits_for_a_deploy_a_refresh_and_a_suspended_launch_and_keeps_the_streak(what: str) -> None:
    cloud = StillCloud.on_demand(streak=1, scored_at=ago(1800))
    cloud.scored = GOOD
    cloud.deploying = what == "deploy"
    cloud.refreshed = (DEPLOY_REFRESH,) if what == "refresh" else ()
    if what == "launch":
        cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": ""})
    why = {
        "deploy": "a deploy is in progress",
        "refresh": "instance refresh r-deploy is InProgress",
        "launch": "Launch is suspended: fleetctl resume",
    }[what]
    numbers = "score 3 in use2-az1 (3 needed), streak 2 of 2"
    assert wake(cloud, "scan")["reason"] == f"{numbers}; {why}"
    assert (cloud.parsed.streak, cloud.lever) == (2, "100")
    cloud.deploying, cloud.refreshed = False, ()
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": ""})
    assert scan_again(cloud, 1800) == numbers
    assert cloud.parsed.rearm_from == NOW + timedelta(seconds=1800)


def test_scores_that_cannot_be_read_leave_the_streak_and_are_raised() -> None:
    cloud = StillCloud.on_demand(streak=1, scored_at=ago(1800))
    cloud.fail("scores", CloudError("GetSpotPlacementScores: Throttling"))
    with pytest.raises(CloudError, match="GetSpotPlacementScores"):
        wake(cloud, "scan")
    assert (cloud.parsed.streak, cloud.parsed.scored_at) == (1, ago(1800))


def test_scan_while_on_demand_ignores_a_lit_alarm() -> None:
    cloud = StillCloud.on_demand(failovers=(ago(50),), cooldown_from=ago(50))
    cloud.live_alarm = Alarm("ALARM", ago(52))
    assert scan_again(cloud, 0) == "50 s since failover, cooldown 10800 s"
    assert cloud.parsed.failovers == (ago(50),)


@pytest.mark.parametrize("kind", sorted(set(Kind) - MOVES_LEVERS))
def test_transition_kinds_that_only_mail_move_no_lever(kind: Kind) -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(9)), lever="100")
    cloud.set_state(State(Mode.ARMED).begin(kind, ago(5), "half done"))
    wake(cloud, "alarm-ok")
    assert cloud.lever == "100"
    assert not [call for call in cloud.calls if call.startswith(("put_lever", "flip"))]
    assert len(cloud.mails) == 1


def test_scores_are_not_asked_where_the_valve_decides() -> None:
    cloud = StillCloud.on_demand(failovers=(ago(80000), ago(20000)))
    assert wake(cloud, "scan")["action"] == "gave-up"
    assert "scores" not in cloud.calls


def test_scores_are_not_asked_during_a_rearm() -> None:
    cloud = StillCloud.on_demand(rearm_from=ago(300), refresh_id="refresh-1")
    wake(cloud, "scan")
    assert "scores" not in cloud.calls


def test_scores_are_asked_once_where_something_unfinished_comes_first() -> None:
    cloud = StillCloud.on_demand()
    cloud.set_state(cloud.parsed.begin(Kind.REPAIRED, ago(60), "half done"))
    wake(cloud, "scan")
    assert cloud.calls.count("scores") == 1


# --- a repair that a deploy holds up ------------------------------------------------------------------------------


def undone(*, lit: float | None, serves: bool) -> StillCloud:
    """A roll-back, which may take hours, has put the percentage of before the failover back."""
    cloud = StillCloud.on_demand()
    cloud.deploying = True
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=0)
    cloud.refreshed = (DEPLOY_REFRESH,)
    cloud.health = cloud.health if serves else {}
    cloud.live_alarm = Alarm("OK" if lit is None else "ALARM", ago(lit or 9000))
    cloud.block_flips()
    return cloud


@pytest.mark.parametrize(("lit", "repaired"), [(1799, False), (1800, True)])
def test_flip_that_a_roll_back_undid_is_repaired_at_the_skip_cap_where_nothing_serves(lit: int, repaired: bool) -> None:
    cloud = undone(lit=lit, serves=False)
    record = wake(cloud, "scan")
    assert (cloud.live_group.on_demand_percentage == 100) is repaired
    assert (cloud.refreshed[0].status == "Cancelled") is repaired
    assert "parameter 100, group 0: on-demand-failover expects 100" in record["reason"]
    assert ("repaired later" in record["reason"]) is not repaired
    assert [subject for subject, _ in cloud.mails] == (["[llm] purchase lever repaired"] if repaired else [])
    if repaired:
        assert record["reason"].endswith("; nothing serves, a deploy is in progress")
        assert cloud.templates_sent == [False, False]


@pytest.mark.parametrize("lit", [None, 1900])
def test_while_something_serves_the_repair_waits_for_the_deploy_with_one_mail(lit: float | None) -> None:
    cloud = undone(lit=lit, serves=True)
    for _ in range(3):
        wake(cloud, "scan")
    assert (cloud.live_group.on_demand_percentage, cloud.refreshed[0].active) == (0, True)
    subject = "[llm] purchase lever disagrees, its repair waits for a deploy"
    assert [told for told, _ in cloud.mails] == [subject]
    assert "expects 100; a deploy is in progress" in cloud.mails[0][1]
    assert cloud.parsed.repair_waits_since == NOW
    cloud.deploying, cloud.refreshed = False, (replace(DEPLOY_REFRESH, status="Cancelled"),)
    assert wake(cloud, "scan")["action"] == "repaired"
    assert cloud.parsed.repair_waits_since is None


def test_repair_that_nothing_holds_up_names_nothing() -> None:
    cloud = undone(lit=1900, serves=False)
    cloud.deploying, cloud.refreshed = False, (replace(DEPLOY_REFRESH, status="Successful"),)
    record = wake(cloud, "scan")
    assert (record["action"], record["reason"][-27:]) == ("repaired", "on-demand-failover expects 100"[-27:])


def test_repair_that_a_deploy_brings_about_itself_ends_the_wait() -> None:
    cloud = undone(lit=None, serves=True)
    wake(cloud, "scan")
    cloud.deploying, cloud.live_group = False, replace(cloud.live_group, on_demand_percentage=100)
    wake(cloud, "scan")
    assert (cloud.parsed.repair_waits_since, len(cloud.mails)) == (None, 1)


def test_repair_that_waits_is_not_mailed_where_deploys_cannot_be_read() -> None:
    cloud = undone(lit=None, serves=True)
    cloud.fail("stack_in_progress", CloudError("DescribeStacks: AccessDenied"))
    with pytest.raises(CloudError):
        wake(cloud, "scan")
    assert (cloud.mails, cloud.parsed.repair_waits_since) == ([], None)


def test_refresh_in_the_way_of_a_repair_is_not_cancelled_while_something_serves() -> None:
    cloud = undone(lit=1900, serves=True)
    cloud.deploying = False
    cloud.set_state(cloud.parsed.begin(Kind.REPAIRED, ago(60), "half done"))
    with pytest.raises(RefreshActiveError):
        wake(cloud, "alarm-ok")
    assert cloud.refreshed[0].active


# --- a state that outlived its fleet ------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "kept"), [(0, True), (1, False)])
def test_state_of_an_earlier_fleet_drags_nothing_that_it_began_into_a_new_one(age: int, kept: bool) -> None:
    group = replace(EMPTY, created_at=ago(2000), suspended={"AZRebalance": "", "Launch": "User suspended"})
    at = ago(2000 + age)
    began = State(
        Mode.FAILOVER, since=at, failovers=(at,), cooldown_from=at, rearm_from=at, refresh_id="r-1", launched_at=at,
        abandoned=(("i-0x", at),), dry_at=at, repair_waits_since=at, suspended_at=at,
        evidence=Evidence(drought_at=at, warned_at=at, calm_seconds=60),
    ).begin(Kind.REPAIRED, at, "half done")  # fmt: skip
    cloud = StillCloud(state=began.dumps(), live_group=group, live_alarm=Alarm("OK", ago(60)))
    assert began.of_group(group.created_at) == (
        began if kept else State(
            Mode.FAILOVER, since=at, failovers=(at,), cooldown_from=at, owed=began.owed,
            evidence=Evidence(calm_seconds=60),
        )
    )  # fmt: skip
    record = wake(cloud, "resume")
    said = "forgot: dropped what is older than the group of 22 Jul 00:02"
    assert (said in record.get("also", [])) is not kept
    assert (cloud.parsed.rearm_from, cloud.parsed.refresh_id) == ((at, "r-1") if kept else (None, None))
    assert cloud.parsed.failovers == (at,)


def test_roll_of_no_rearm_is_not_forgotten_with_it() -> None:
    state = State(Mode.ARMED, refresh_id="r-1")
    assert state.of_group(NOW) == state
