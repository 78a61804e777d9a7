"""What lasts: spot boxes that do not, a return that is never due, on-demand in silence, replacements without end."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fleet.config.settings import Policy, Settings
from lambdas.watchdog.cloud import Alarm, CloudError
from lambdas.watchdog.state import Mode, State
from tests.watchdog.still_cloud import NOW, SETTINGS, StillCloud, ago, event, group_event, wake

DARK = SETTINGS.watchdog.dark_seconds_allowed // 60
GOOD, POOR = {"use2-az1": 3}, {"use2-az1": 2}
TRIAL = SETTINGS.watchdog.trial_return_seconds
BRIDGE = replace(SETTINGS, policy="bridge")

# --- the served share ---------------------------------------------------------------------------------------------


def churning(minutes: int = DARK, settings: Settings = SETTINGS, **state: Any) -> StillCloud:
    """No alarm is lit, nothing answers just now, and nothing did for that many minutes of the last four hours."""
    cloud = StillCloud(settings=settings, live_alarm=Alarm("OK", ago(300)), dark=minutes)
    cloud.set_state(State(Mode.ARMED, **{"since": ago(50000), "launched_at": ago(300), **state}))
    cloud.put_box("i-0young", age=60, lifecycle="Pending:Wait")
    return cloud


@pytest.mark.parametrize("payload", ["scan", "terminate-successful"])
@pytest.mark.parametrize("settings", [SETTINGS, BRIDGE])
def test_window_served_for_too_little_is_a_failover_though_no_alarm_is_lit_and_a_box_is_young(
    payload: str, settings: Settings
) -> None:
    assert wake(churning(DARK - 1, settings), payload)["action"] in {"nothing", "recorded"}
    cloud = churning(DARK, settings)
    record = wake(cloud, payload)
    assert record["action"] == "failover"
    assert record["reason"] == "nothing served for 72 min of the last 240, bound 70 % served"
    assert record["world"]["dark_seconds"] == 4320
    assert (cloud.lever, cloud.parsed.cooldown_from, cloud.parsed.evidence.calm_seconds) == ("100", NOW, 0)
    assert [subject for subject, _ in cloud.mails] == ["[llm] on-demand failover"]


@pytest.mark.parametrize(("settings", "counted"), [(SETTINGS, 1), (BRIDGE, 4)])
def test_valve_counts_it_for_as_many_dark_minutes_as_it_cost(settings: Settings, counted: int) -> None:
    cloud = churning(settings=settings, failovers=(ago(100000), ago(9000)))
    wake(cloud, "scan")
    assert cloud.parsed.failovers == (ago(9000), *[NOW] * counted)


def test_valve_that_is_smaller_than_the_alarms_counts_it_once() -> None:
    cloud = churning(settings=replace(BRIDGE, bridge=replace(BRIDGE.bridge, valve_failovers=1)))
    wake(cloud, "scan")
    assert cloud.parsed.failovers == (NOW,)


def test_box_that_answers_now_and_a_day_of_spent_hours_hold_it_back() -> None:
    cloud = churning()
    cloud.put_box(age=900, health="healthy")
    assert wake(cloud, "scan")["reason"] == "failover skipped: i-0aaaaaaaaaaaaaaa1 answers now"
    limited = replace(SETTINGS, watchdog=replace(SETTINGS.watchdog, on_demand_hours_per_day=0))
    assert wake(churning(settings=limited), "scan")["reason"].startswith("failover skipped: 0.0 h on-demand today")


def test_deploy_does_not_hold_it_back_since_it_takes_longer_than_the_skip_cap() -> None:
    cloud = churning()
    cloud.deploying = True
    assert wake(cloud, "scan")["action"] == "failover"


@pytest.mark.parametrize(
    ("since", "read"),
    [(50000, "dark_minutes 20:35-00:25"), (9000, "dark_minutes 22:05-00:25"), (601, "dark_minutes 00:25-00:25")],
)
def test_minutes_are_counted_since_the_lever_last_moved_and_up_to_what_the_metric_tells(since: int, read: str) -> None:
    cloud = churning(since=ago(since))
    wake(cloud, "scan")
    assert read in cloud.calls


def test_lever_that_has_just_moved_leaves_nothing_to_count() -> None:
    cloud = churning(since=ago(600))
    wake(cloud, "scan")
    assert not [call for call in cloud.calls if call.startswith("dark")]


def test_fleet_that_never_moved_its_lever_is_counted_from_its_creation() -> None:
    cloud = churning(since=None)
    cloud.live_group = replace(cloud.live_group, created_at=ago(6000))
    wake(cloud, "scan")
    assert "dark_minutes 22:55-00:25" in cloud.calls


def off(cloud: StillCloud) -> None:
    cloud.settings = replace(SETTINGS, watchdog=replace(SETTINGS.watchdog, served_percent=0))


def lit(cloud: StillCloud) -> None:
    cloud.live_alarm = Alarm("ALARM", ago(60))


def no_alarm(cloud: StillCloud) -> None:
    cloud.live_alarm = None


def on_demand(cloud: StillCloud) -> None:
    cloud.set_state(replace(cloud.parsed, mode=Mode.FAILOVER))


def returning(cloud: StillCloud) -> None:
    cloud.set_state(replace(cloud.parsed, mode=Mode.FAILOVER, rearm_from=ago(900)))


@pytest.mark.parametrize("change", [off, lit, no_alarm, on_demand, returning])
@pytest.mark.parametrize("payload", ["scan", "launch-successful"])
def test_nothing_is_counted_where_nothing_would_follow(change: Any, payload: str) -> None:
    cloud = churning(minutes=240)
    change(cloud)
    try:
        wake(cloud, payload)
    except CloudError:
        assert change is no_alarm
    assert not [call for call in cloud.calls if call.startswith("dark")]


def test_minutes_that_cannot_be_read_hold_nothing_else_back_and_are_raised() -> None:
    cloud = churning()
    cloud.fail("dark", CloudError("get_metric_statistics: Throttling"))
    with pytest.raises(CloudError, match="Throttling"):
        wake(cloud, "scan")
    cloud.live_alarm = Alarm("ALARM", ago(1800))
    assert wake(cloud, "scan")["action"] == "failover"


# --- trials -------------------------------------------------------------------------------------------------------


def waiting(seconds: int = TRIAL, settings: Settings = SETTINGS, **state: Any) -> StillCloud:
    """On on-demand for that long, with a score that stays low."""
    day = {"on_demand_since": ago(90000), "reminders": 1}
    cloud = StillCloud.on_demand(**{"since": ago(seconds), **day, **state})
    cloud.settings, cloud.scored = settings, POOR
    return cloud


@pytest.mark.parametrize("settings", [SETTINGS, BRIDGE])
def test_on_demand_that_lasts_is_tried_against_spot_launch_first(settings: Settings) -> None:
    assert wake(waiting(TRIAL - 1, settings), "scan")["action"] == "refused"
    cloud = waiting(TRIAL, settings)
    record = wake(cloud, "scan")
    assert record["action"] == "re-arm"
    assert record["reason"].startswith("a trial: nothing else was tried for 43200 s; ")
    assert record["also"] == ["refresh: roll 1 on-demand, launch first"]
    assert (cloud.parsed.trial, cloud.parsed.rearm_from, cloud.parsed.since) == (True, NOW, NOW)
    assert (cloud.lever, cloud.mails, cloud.parsed.scored_at) == ("0", [], NOW)


def suspended(cloud: StillCloud) -> None:
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": ""})


def deploying(cloud: StillCloud) -> None:
    cloud.deploying = True


def unserved(cloud: StillCloud) -> None:
    cloud.health = {}


def pinned(cloud: StillCloud) -> None:
    cloud.set_state(replace(cloud.parsed, mode=Mode.PINNED))


def first_day(cloud: StillCloud) -> None:
    cloud.set_state(replace(cloud.parsed, on_demand_since=ago(TRIAL), reminders=0))


def cooling(cloud: StillCloud) -> None:
    cloud.set_state(replace(cloud.parsed, cooldown_from=ago(100)))


@pytest.mark.parametrize("change", [suspended, deploying, unserved, pinned, cooling, first_day])
def test_trial_waits_where_a_return_would_and_a_pinned_fleet_has_none(change: Any) -> None:
    cloud = waiting()
    change(cloud)
    wake(cloud, "scan")
    assert (cloud.parsed.rearm_from, cloud.lever) == (None, "100")


def trying(refresh: bool = False, settings: Settings = SETTINGS, **state: Any) -> StillCloud:
    """A trial is under way; the old box serves."""
    cloud = waiting(300, settings, rearm_from=ago(300), trial=True, streak=1, **state)
    cloud.lever, cloud.live_group = "0", replace(cloud.live_group, on_demand_percentage=0)
    cloud.live_alarm = Alarm("OK", ago(90000))
    return cloud


def refused(words: str = "Could not launch Spot Instances. UnfulfillableCapacity", at: float = 10) -> dict[str, Any]:
    raw = group_event("launch-no-capacity", at=ago(at))
    raw["detail"]["StatusMessage"] = words
    return raw


@pytest.mark.parametrize("settings", [SETTINGS, BRIDGE])
def test_trial_whose_launch_is_refused_falls_back_at_once_with_no_mail_no_cooldown_and_no_count(
    settings: Settings,
) -> None:
    cloud = trying(settings=settings, cooldown_from=ago(80000))
    before = cloud.parsed
    assert wake(cloud, refused())["action"] == "fell-back"
    state = cloud.parsed
    assert (state.rearm_from, state.trial, state.since, state.streak) == (None, False, NOW, 0)
    assert (state.cooldown_from, state.failovers) == (before.cooldown_from, before.failovers)
    assert (cloud.lever, cloud.mails) == ("100", [])


def test_trial_that_runs_out_of_time_falls_back_in_silence() -> None:
    cloud = trying()
    cloud.set_state(replace(cloud.parsed, rearm_from=ago(2700), cooldown_from=None))
    assert wake(cloud, "scan")["action"] == "fell-back"
    assert (cloud.mails, cloud.parsed.cooldown_from, cloud.parsed.trial) == ([], None, False)


def test_launch_that_failed_before_the_trial_says_nothing_of_it() -> None:
    cloud = trying()
    assert wake(cloud, refused(at=301))["action"] == "recorded"
    assert wake(cloud, refused(at=300))["action"] == "fell-back"


def test_trial_that_succeeds_is_a_return_with_its_mail() -> None:
    cloud = trying(blocked="quota")
    cloud.live_group = replace(cloud.live_group, boxes=())
    cloud.put_box("i-0spot", age=290, health="healthy")
    assert wake(cloud, "scan")["action"] == "re-armed"
    assert [subject for subject, _ in cloud.mails] == ["[llm] back on spot"]
    assert (cloud.parsed.trial, cloud.parsed.blocked, cloud.parsed.on_demand_since) == (False, "", None)


def test_alarm_policy_gives_a_drought_the_whole_phase_to_pass() -> None:
    cloud = trying()
    cloud.set_state(replace(cloud.parsed, trial=False))
    assert wake(cloud, refused())["action"] == "recorded"


@pytest.mark.parametrize("settings", [SETTINGS, BRIDGE])
def test_return_refused_for_what_time_does_not_mend_is_mailed_once_and_only_trials_ask_again(
    settings: Settings,
) -> None:
    cloud = trying(settings=settings)
    cloud.set_state(replace(cloud.parsed, trial=False))
    words = "Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot instance count exceeded."
    assert wake(cloud, refused(words))["action"] == "fell-back"
    [(subject, body)] = cloud.mails
    assert subject == "[llm] return to spot failed, still on-demand"
    assert "What you may do: Raise the quota: fleetctl preflight says which, and by what command. Nothing: it" in body
    assert cloud.parsed.blocked == "quota"

    later = waiting(TRIAL - 1, settings, blocked="quota", streak=1, scored_at=ago(1800))
    later.scored = {"use2-az1": 9}
    later.set_state(replace(later.parsed, evidence=replace(later.parsed.evidence, calm_seconds=86400)))
    record = wake(later, "scan")
    assert record["action"] == "refused"
    assert record["reason"].endswith("; spot was refused (quota): only a trial asks again")
    assert (later.parsed.rearm_from, later.parsed.since, later.lever) == (None, ago(TRIAL - 1), "100")
    assert later.parsed.unfinished is None
    later.set_state(replace(later.parsed, since=ago(TRIAL), streak=1, scored_at=ago(1800)))
    assert wake(later, "scan")["reason"].startswith("a trial: ")
    assert later.parsed.trial


def test_drought_is_no_such_thing_and_an_arm_forgets_it() -> None:
    cloud = trying(settings=BRIDGE, blocked="quota")
    assert wake(cloud, refused())["action"] == "fell-back"
    assert cloud.parsed.blocked == ""
    cloud = waiting(500, blocked="quota")
    assert wake(cloud, "arm")["action"] == "armed"
    assert cloud.parsed.blocked == ""


# --- once a day ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.FAILOVER, Mode.PINNED])
@pytest.mark.parametrize(("seconds", "mailed"), [(86399, 0), (86400, 1), (3 * 86400, 1)])
def test_every_day_off_spot_is_mailed_with_what_it_costs(mode: Mode, seconds: int, mailed: int) -> None:
    cloud = waiting(600, on_demand_since=ago(seconds), reminders=0)
    cloud.set_state(replace(cloud.parsed, mode=mode))
    record = wake(cloud, "scan")
    assert record["action"] == ("still-on-demand" if mailed else "nothing" if mode is Mode.PINNED else "refused")
    assert mode is Mode.FAILOVER or record["reason"] == "pinned; nothing to do"
    assert [subject for subject, _ in cloud.mails] == ["[llm] still on-demand"] * mailed
    if mailed:
        days = seconds // 86400
        why = f"{days} days" if days > 1 else "1 day"
        assert f"Why: {why} off spot, now {mode}\n" in cloud.mails[0][1]
        assert "Cost: $19.32 to $24.14 a day for 1 box (on spot: $8.16 to $10.08)" in cloud.mails[0][1]
        assert cloud.parsed.reminders == days
    cloud.set_state(replace(cloud.parsed, scored_at=None))
    assert wake(cloud, "scan")["action"] != "still-on-demand"  # once


def test_reminder_touches_no_lever_and_is_no_transition_of_its_own_while_another_begins() -> None:
    cloud = waiting(600, reminders=0)
    cloud.lever = "0"
    assert wake(cloud, "scan")["action"] == "repaired"
    assert [subject for subject, _ in cloud.mails] == ["[llm] purchase lever repaired"]
    cloud.calls.clear()
    assert wake(cloud, "scan")["action"] == "still-on-demand"
    assert not [call for call in cloud.calls if call.startswith(("put_lever", "flip"))]


def test_days_are_counted_from_leaving_spot_whatever_is_tried_meanwhile() -> None:
    cloud = StillCloud(live_alarm=Alarm("ALARM", ago(1800)))
    wake(cloud, "alarm-lit")
    assert cloud.parsed.on_demand_since == NOW
    cloud = trying(on_demand_since=ago(90000), reminders=1)
    wake(cloud, refused())
    assert (cloud.parsed.on_demand_since, cloud.parsed.reminders) == (ago(90000), 1)
    cloud = trying(on_demand_since=ago(90000), reminders=1)
    cloud.live_group = replace(cloud.live_group, boxes=())
    cloud.put_box("i-0spot", age=290, health="healthy")
    wake(cloud, "scan")
    assert (cloud.parsed.on_demand_since, cloud.parsed.reminders) == (None, 0)


def test_state_of_an_older_version_is_counted_from_when_its_mode_began() -> None:
    cloud = waiting(86400, on_demand_since=None, reminders=0)
    assert wake(cloud, "scan")["action"] == "still-on-demand"


def recommend(cloud: StillCloud, number: int, now: datetime = NOW) -> str:
    box = f"i-0{number:016x}"
    cloud.put_box(box, age=600, health="healthy")
    raw = event("rebalance-recommendation")
    raw["detail"]["instance-id"] = box
    action: str = wake(cloud, raw, now=now)["action"]
    return action


def test_replacements_on_recommendations_are_mailed_once_a_day_above_the_setting_with_their_cost() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(10)))
    assert [recommend(cloud, number) for number in range(12)] == ["recorded"] * 12
    assert recommend(cloud, 11) == "recorded"  # told twice
    assert cloud.mails == []
    assert recommend(cloud, 12) == "many-replacements"
    assert [recommend(cloud, number) for number in range(13, 30)] == ["recorded"] * 17
    [(subject, body)] = cloud.mails
    assert subject == "[llm] many boxes replaced on recommendations"
    assert "Why: 13 boxes by 00:35 UTC, two running for 8 min each time: about $0.80\n" in body
    assert (cloud.parsed.replaced, cloud.parsed.replaced_on) == (30, "2026-07-22")
    assert len(cloud.parsed.recommended) == 20
    assert cloud.parsed.recommended[-1] == "0000001d"  # of the id's end, what tells a day's boxes apart
    assert recommend(cloud, 30, NOW + timedelta(days=1)) == "recorded"
    assert (cloud.parsed.replaced, cloud.parsed.replaced_on) == (1, "2026-07-23")


@pytest.mark.parametrize("policy", ["alarm", "bridge"])
def test_mail_of_replacements_keeps_the_bridge_policy_from_nothing(policy: Policy) -> None:
    cloud = StillCloud(settings=replace(SETTINGS, policy=policy), live_alarm=Alarm("OK", ago(10)))
    cloud.set_state(replace(cloud.parsed, replaced=12, replaced_on="2026-07-22"))
    assert recommend(cloud, 1) == "many-replacements"
    assert any(call.startswith("wake") for call in cloud.calls) is (policy == "bridge")
    assert cloud.parsed.unfinished is None


def test_cost_of_many_replacements_is_that_of_the_minutes_in_which_two_boxes_run() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(10)))
    cloud.settings = replace(SETTINGS, watchdog=replace(SETTINGS.watchdog, replacements_per_day=1000))
    cloud.set_state(replace(cloud.parsed, replaced=1000, replaced_on="2026-07-22"))
    assert recommend(cloud, 0) == "many-replacements"
    usd = 1001 * 530 / 3600 * max(cloud.settings.pool(name).spot_usd for name in cloud.settings.pools)
    assert f"about ${usd:.2f}\n" in cloud.mails[0][1]
