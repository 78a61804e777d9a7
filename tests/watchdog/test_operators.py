"""Operators: pin, arm, probe."""

from dataclasses import replace

import pytest

from lambdas.watchdog.cloud import Alarm, CloudError, DeniedError, Refresh
from lambdas.watchdog.state import Kind, Mode, State, StateError
from tests.watchdog.still_cloud import EMPTY, NOW, StillCloud, ago, wake


def armed() -> StillCloud:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(9000)))
    cloud.put_box(age=9000, health="healthy")
    return cloud


def test_pin_from_spot_moves_the_lever_and_says_who_and_why() -> None:
    cloud = armed()
    cloud.set_state(replace(cloud.parsed, streak=1))
    record = wake(cloud, "pin")
    assert (record["action"], record["reason"], record["mode"]) == ("pinned", "by ann: game day", "on-demand-pinned")
    assert (cloud.lever, cloud.live_group.on_demand_percentage) == ("100", 100)
    assert (cloud.parsed.since, cloud.parsed.streak, cloud.parsed.failovers) == (NOW, 0, ())
    assert "Why: by ann: game day" in cloud.mails[0][1]


def test_pin_from_failover_moves_nothing_and_a_second_pin_does_nothing() -> None:
    cloud = StillCloud.on_demand()
    assert wake(cloud, "pin")["action"] == "pinned"
    assert wake(cloud, "pin")["reason"] == "already pinned"
    assert len(cloud.mails) == 1
    assert not {"put_lever 100", "flip 100"} & set(cloud.calls)


def test_pin_without_a_name_is_taken_from_an_operator_without_a_reason() -> None:
    assert wake(armed(), {"command": "pin"})["reason"] == "by an operator: no reason given"


def test_pin_during_a_deploy_sends_no_template_version_back() -> None:
    cloud = armed()
    cloud.deploying = True
    wake(cloud, "pin")
    assert cloud.templates_sent == [False]


@pytest.mark.parametrize("mode", [Mode.PINNED, Mode.FAILOVER])
def test_arm_clears_history_and_cooldown_and_flips_nothing(mode: Mode) -> None:
    cloud = StillCloud.on_demand(streak=1, scored_at=ago(60), abandoned=(("i-0x", ago(70)),))
    cloud.set_state(replace(cloud.parsed, mode=mode))
    assert wake(cloud, "arm")["action"] == "armed"
    state = cloud.parsed
    assert (state.mode, state.failovers, state.cooldown_from, state.since) == (Mode.FAILOVER, (), None, NOW)
    assert (state.streak, state.scored_at, state.abandoned) == (0, None, ())
    assert cloud.live_group.on_demand_percentage == 100
    assert not [call for call in cloud.calls if call.startswith("resume")], "Launch was not suspended"
    assert len(cloud.mails) == 1


def test_arm_waives_the_cooldown_but_not_the_streak() -> None:
    cloud = StillCloud.on_demand(failovers=(ago(60),), cooldown_from=ago(60))
    cloud.scored = {"use2-az1": 9}
    wake(cloud, "arm")
    assert wake(cloud, "scan")["reason"] == "score 9 in use2-az1 (3 needed), streak 1 of 2"


def test_second_arm_does_nothing() -> None:
    cloud = StillCloud.on_demand()
    wake(cloud, "arm")
    before = cloud.state
    assert wake(cloud, "arm")["reason"] == "armed already: the next good scores re-arm"
    assert (cloud.state, len(cloud.mails)) == (before, 1)


@pytest.mark.parametrize("history", [{"failovers": (ago(60),)}, {"cooldown_from": ago(60)}])
def test_arm_in_failover_has_work_as_long_as_anything_holds_the_rearm_back(history: dict[str, object]) -> None:
    cloud = StillCloud.on_demand(**{"failovers": (), "cooldown_from": None, **history})
    assert wake(cloud, "arm")["action"] == "armed"


def test_arm_in_failover_resumes_a_suspended_launch() -> None:
    cloud = StillCloud.on_demand(failovers=(), cooldown_from=None)
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": ""})
    wake(cloud, "arm")
    assert set(cloud.live_group.suspended) == {"AZRebalance"}


def test_arm_while_armed_or_rearming_does_nothing() -> None:
    assert wake(armed(), "arm")["reason"] == "already spot-armed"
    assert wake(StillCloud.on_demand(rearm_from=ago(10)), "arm")["reason"] == "a re-arm is under way"


# --- probe ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("percentage", [0, 100])
def test_probe_sends_the_current_distribution_again_and_changes_no_state(percentage: int) -> None:
    cloud = armed()
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=percentage)
    before = cloud.state
    record = wake(cloud, "probe")
    assert (record["action"], record["reason"]) == ("probe", f"sent the group its own {percentage} % again")
    assert cloud.calls == ["parameters", "group", "stack_in_progress", "refreshes", f"flip {percentage}"]
    assert cloud.templates_sent == [True]
    assert cloud.state == before


def test_probe_refuses_during_a_deploy_and_during_a_refresh() -> None:
    cloud = armed()
    cloud.deploying = True
    assert wake(cloud, "probe")["reason"] == "probe refused: a deploy is in progress"
    cloud.deploying = False
    cloud.refreshed = (Refresh("r", "Pending", ago(5), like_ours=True),)
    record = wake(cloud, "probe")
    assert (record["action"], record["reason"]) == ("refused", "probe refused: instance refresh r is Pending")
    assert not cloud.templates_sent


def test_probe_that_cannot_see_refreshes_refuses_and_raises() -> None:
    cloud = armed()
    cloud.fail("refreshes", DeniedError("DescribeInstanceRefreshes: AccessDenied"))
    with pytest.raises(CloudError, match="AccessDenied"):
        wake(cloud, "probe")
    assert not cloud.templates_sent


# --- a state that is not there ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scan", "alarm-lit", "probe", "launch-successful"])
def test_absent_state_stops_everything_but_an_operator(name: str) -> None:
    cloud = StillCloud(state=None)
    with pytest.raises(StateError):
        wake(cloud, name)
    assert cloud.calls == ["parameters"]


@pytest.mark.parametrize(("command", "mode"), [("pin", Mode.PINNED), ("arm", Mode.FAILOVER)])
def test_operator_begins_a_new_state_where_there_is_none(command: str, mode: Mode) -> None:
    cloud = StillCloud(state=None)
    wake(cloud, command)
    assert cloud.parsed == State(mode, since=NOW, on_demand_since=NOW)
    assert cloud.lever == "100"


def test_pin_writes_the_first_state_of_a_fleet_whose_levers_are_up_already() -> None:
    cloud = StillCloud(state=None, lever="100", live_group=replace(EMPTY, on_demand_percentage=100))
    assert wake(cloud, "pin")["action"] == "pinned"
    assert cloud.parsed == State(Mode.PINNED, since=NOW, on_demand_since=NOW)


@pytest.mark.parametrize(("lever", "percentage"), [("0", 0), ("100", 0), ("0", 100)])
def test_pin_again_sets_a_pinned_fleet_right_that_was_rolled_back(lever: str, percentage: int) -> None:
    cloud = StillCloud.on_demand()
    cloud.set_state(replace(cloud.parsed, mode=Mode.PINNED))
    cloud.lever, cloud.live_group = lever, replace(cloud.live_group, on_demand_percentage=percentage)
    assert wake(cloud, "pin")["action"] == "pinned"
    assert (cloud.lever, cloud.live_group.on_demand_percentage, len(cloud.mails)) == ("100", 100, 1)
    assert wake(cloud, "pin")["reason"] == "already pinned"


def test_pin_again_finishes_an_unfinished_pin_with_one_mail() -> None:
    cloud = armed()
    cloud.set_state(replace(cloud.parsed, mode=Mode.PINNED).begin(Kind.PINNED, ago(60), "half done"))
    assert wake(cloud, "pin")["reason"] == "already pinned"
    assert (cloud.lever, cloud.live_group.on_demand_percentage, len(cloud.mails)) == ("100", 100, 1)


def test_probe_leaves_something_unfinished_and_a_mail_owed_as_they_are() -> None:
    cloud = armed()
    cloud.set_state(State(Mode.FAILOVER).begin(Kind.FAILOVER, ago(60), "half done"))
    before = cloud.state
    record = wake(cloud, "probe")
    assert (record["action"], record["reason"]) == ("refused", "probe refused: failover of 00:34:43 is unfinished")
    assert not {"put_state", "put_lever 100", "flip 100", "mail"} & set(cloud.calls)
    cloud.set_state(replace(cloud.parsed, unfinished=None, mode=Mode.ARMED))
    assert wake(cloud, "probe")["action"] == "probe"
    cloud.deploying = True
    assert wake(cloud, "probe")["action"] == "refused"
    assert not {"put_state", "mail"} & set(cloud.calls)
    assert before != cloud.state


def test_arm_on_spot_says_only_what_it_did() -> None:
    cloud = armed()
    cloud.set_state(replace(cloud.parsed, failovers=(ago(5000),), abandoned=(("i-1", ago(5)),)))
    wake(cloud, "arm")
    assert cloud.parsed.failovers == (ago(5000),)
    words = "Launch is not suspended. On on-demand, failovers and cooldown are forgotten too."
    assert cloud.mails[0][1].startswith(f"An operator armed the fleet: {words}\n")


# --- resume -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
def test_resume_lets_the_group_launch_and_leaves_mode_history_and_cooldown_alone(mode: Mode) -> None:
    cloud = StillCloud.on_demand(streak=1, scored_at=ago(60), abandoned=(("i-0x", ago(70)),))
    state = replace(cloud.parsed, mode=mode, on_demand_since=None if mode is Mode.ARMED else ago(9000))
    cloud.set_state(state)
    before = cloud.parsed
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": "User suspended"})
    record = wake(cloud, "resume")
    assert (record["action"], record["reason"]) == ("resumed", "by ann: game day")
    assert cloud.parsed == replace(before, since=NOW, abandoned=())
    assert set(cloud.live_group.suspended) == {"AZRebalance"}
    assert [subject for subject, _ in cloud.mails] == ["[llm] launching resumed"]
    assert not [call for call in cloud.calls if call.startswith(("put_lever", "flip"))]
    assert wake(cloud, "resume")["reason"] == "Launch is not suspended"
    assert len(cloud.mails) == 1


def test_resume_moves_no_lever_whatever_the_parameter_says() -> None:
    cloud = armed()
    cloud.lever = "100"
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": ""})
    wake(cloud, "resume")
    assert set(cloud.live_group.suspended) == {"AZRebalance"}
    assert (cloud.lever, cloud.live_group.on_demand_percentage) == ("100", 0)


def test_resume_begins_the_count_anew_before_the_loop_is_stopped() -> None:
    cloud = armed()
    cloud.set_state(replace(cloud.parsed, abandoned=(("i-0x", ago(70)),)))
    assert wake(cloud, "resume")["action"] == "resumed"
    assert cloud.parsed.abandoned == ()
    assert "resume Launch" not in cloud.calls


def test_unfinished_resume_is_finished_before_a_failover_that_is_due() -> None:
    cloud = StillCloud()
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": ""})
    cloud.set_state(replace(cloud.parsed, launched_at=ago(9000)).begin(Kind.RESUMED, ago(60), "half done"))
    record = wake(cloud, "alarm-lit")
    assert (record["action"], record["also"][0][:14]) == ("failover", "finish: finish")
    assert "Launch" not in cloud.live_group.suspended
