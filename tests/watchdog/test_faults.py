"""Every fault at every call of every transition: nothing is lost, the next event or scan finishes the work, and the
failure is raised so that the function's alarm sees it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lambdas.watchdog.cloud import (
    Alarm,
    BusyError,
    CloudError,
    DeniedError,
    GoneError,
    RefreshActiveError,
    ThrottledError,
)
from lambdas.watchdog.handler import run
from lambdas.watchdog.record import Record
from lambdas.watchdog.state import Kind, Mode, State, StateError
from tests.watchdog.still_cloud import NOW, SETTINGS, StillCloud, ago, event, group_event, wake
from tests.watchdog.test_group_events import failed_over, in_a_boot_loop
from tests.watchdog.test_operators import armed
from tests.watchdog.test_rearm import OLD, SPOT, due, under_way, without


def stuck() -> StillCloud:
    cloud = StillCloud()
    cloud.put_box("i-0stuck", age=901, lifecycle="Pending:Wait")
    return cloud


def lit_during_rearm() -> StillCloud:
    cloud = under_way(1000, failovers=())
    without(cloud, OLD)
    cloud.live_alarm = Alarm("ALARM", ago(5))
    return cloud


def taken_over() -> StillCloud:
    cloud = under_way()
    without(cloud, OLD)
    cloud.put_box(SPOT, age=200, health="healthy")
    return cloud


def too_long() -> StillCloud:
    cloud = under_way(2700)
    cloud.put_box(SPOT, age=2690, lifecycle="Pending:Wait")
    return cloud


def twice_failed() -> StillCloud:
    return StillCloud.on_demand(failovers=(ago(9000), ago(352)), cooldown_from=ago(352))


def stopped() -> StillCloud:
    cloud = StillCloud.on_demand(abandoned=(("i-0x", ago(70)),))
    cloud.set_state(replace(cloud.parsed, mode=Mode.PINNED))
    cloud.live_group = replace(cloud.live_group, suspended={"AZRebalance": "", "Launch": ""})
    return cloud


def disagreeing() -> StillCloud:
    cloud = armed()
    cloud.lever, cloud.live_group = "100", replace(cloud.live_group, on_demand_percentage=50)
    return cloud


Scenario = tuple[Callable[[], StillCloud], Any]
TRANSITIONS: dict[str, Scenario] = {
    "failover": (stuck, "alarm-lit"),
    "failover seen by a scan": (stuck, "scan"),
    "failover during a re-arm": (lit_during_rearm, "alarm-lit"),
    "re-arm": (due, "scan"),
    "re-armed": (taken_over, "launch-successful"),
    "fell-back": (too_long, "scan"),
    "gave-up": (twice_failed, "scan"),
    "pinned": (armed, "pin"),
    "armed": (stopped, "arm"),
    "resumed": (stopped, "resume"),
    "repaired": (disagreeing, "scan"),
    "boot-loop": (in_a_boot_loop, group_event("launch-abandoned", at=ago(900), box="i-04")),
    "on-demand-dry": (failed_over, group_event("launch-no-capacity-on-demand", at=ago(50))),
}
HOLDS_NOTHING_BACK = {"stack_in_progress", "refreshes", "zone_ids", "scores"}  # reads that not everything waits for
FOLLOW_UPS = ["the same again", "scan", "alarm-ok"]


def outcome(cloud: StillCloud) -> dict[str, Any]:
    """What must come out alike, whatever went wrong on the way."""
    state, group = cloud.parsed, cloud.live_group
    return {
        "state": replace(state, launched_at=None, scored_at=None, streak=0),
        "levers": (cloud.lever, group.on_demand_percentage),
        "suspended": set(group.suspended),
        "boxes": group.boxes,
        "refreshes": cloud.refreshed,
    }


def clean_run(name: str) -> StillCloud:
    build, payload = TRANSITIONS[name]
    cloud = build()
    cloud.calls.clear()
    wake(cloud, payload)
    return cloud


def strike(cloud: StillCloud, number: int, *, after: bool) -> None:
    """The call of that number fails: refused before it took effect, or its answer lost after."""

    def fail(call: str, at: int) -> None:
        if at == number:
            raise CloudError(f"{call}: timed out") if after else ThrottledError(f"{call}: Throttling")

    if after:
        cloud.after = fail
    else:
        cloud.before = fail


def still(cloud: StillCloud) -> None:
    cloud.before = cloud.after = lambda call, number: None


def crash(name: str, number: int, *, after: bool, follow_up: str) -> None:
    """One crash of one transition, then one more wake-up."""
    clean = clean_run(name)
    build, payload = TRANSITIONS[name]
    cloud = build()
    mails_before = len(cloud.mails)
    cloud.calls.clear()
    strike(cloud, number, after=after)
    with pytest.raises(CloudError):
        wake(cloud, payload)
    still(cloud)
    first_write = clean.calls.index("put_state") + 1
    if number < first_write or (number == first_write and not after):
        if clean.calls[number - 1] not in HOLDS_NOTHING_BACK:
            unmoved = (outcome(build()), mails_before)
            assert (outcome(cloud), len(cloud.mails)) == unmoved, "nothing moves before the state"
        follow_up = "the same again"
    wake(cloud, payload if follow_up == "the same again" else follow_up)
    assert outcome(cloud) == outcome(clean)
    mail_to_write = clean.calls[-2:] == ["mail", "put_state"]
    between = mail_to_write and (number, after) in {(len(clean.calls) - 1, True), (len(clean.calls), False)}
    assert len(cloud.mails) - len(clean.mails) == between, "exactly one mail, unless struck between mail and write"


@pytest.mark.parametrize("follow_up", FOLLOW_UPS)
@pytest.mark.parametrize("name", TRANSITIONS)
def test_crash_at_any_call_is_raised_and_finished_by_whoever_comes_next(name: str, follow_up: str) -> None:
    for number, call in enumerate(clean_run(name).calls, 1):
        for after in (False, True):
            try:
                crash(name, number, after=after, follow_up=follow_up)
            except BaseException as error:
                error.add_note(f"struck {'after' if after else 'before'} call {number}, {call}; then {follow_up}")
                raise


# --- faults by name ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        DeniedError("UpdateAutoScalingGroup: not authorized to use launch template"),
        BusyError("UpdateAutoScalingGroup: ScalingActivityInProgress"),
        RefreshActiveError("UpdateAutoScalingGroup: An active instance refresh with a desired configuration exists"),
    ],
)
def test_flip_that_fails_leaves_a_failover_to_finish_counted_once(error: CloudError) -> None:
    cloud = StillCloud()
    cloud.fail("flip 100", error)
    for payload in ("alarm-lit", "alarm-lit", "scan"):  # the event, its retry, the scan
        with pytest.raises(type(error)):
            wake(cloud, payload)
    assert (cloud.lever, cloud.live_group.on_demand_percentage) == ("100", 0)
    assert (cloud.parsed.mode, len(cloud.parsed.owed), cloud.mails) == (Mode.FAILOVER, 1, [])
    still(cloud)
    record = wake(cloud, "alarm-ok")
    assert record["also"] == ["finish: finish failover of 00:35:43"]
    assert cloud.live_group.on_demand_percentage == 100
    assert cloud.parsed.failovers == (NOW,)
    assert len(cloud.mails) == 1


def test_group_that_is_gone_changes_nothing_and_is_raised() -> None:
    cloud = StillCloud()
    cloud.fail("group", GoneError("DescribeAutoScalingGroups: group llm-gpu does not exist"))
    before = cloud.state
    with pytest.raises(GoneError):
        wake(cloud, "alarm-lit")
    assert (cloud.state, cloud.lever, cloud.mails) == (before, "0", [])


def test_held_box_that_ended_first_is_no_failure() -> None:
    cloud = stuck()

    def vanish(call: str, number: int) -> None:
        if call == "flip 100":
            cloud.live_group = replace(cloud.live_group, boxes=())

    cloud.before = vanish
    assert wake(cloud, "alarm-lit")["outcome"] == "done"


def test_roll_that_ended_first_is_no_failure() -> None:
    cloud = lit_during_rearm()

    def finish(call: str, number: int) -> None:
        if call == "refreshes":
            cloud.live_group = replace(cloud.live_group, desired=1)

    def end(call: str, number: int) -> None:
        if call == "refreshes":
            cloud.refreshed = (replace(cloud.refreshed[0], status="Successful"),)

    cloud.before, cloud.after = finish, end  # it ends between our look and our cancel
    assert wake(cloud, "alarm-lit")["outcome"] == "done"


def sns_down(cloud: StillCloud) -> None:
    cloud.fail("mail", ThrottledError("Publish: Throttling"))


def test_mail_that_fails_after_the_flip_is_sent_by_whoever_comes_next() -> None:
    cloud = StillCloud()
    sns_down(cloud)
    with pytest.raises(ThrottledError):
        wake(cloud, "alarm-lit")
    assert cloud.live_group.on_demand_percentage == 100
    assert cloud.parsed.unfinished is None
    still(cloud)
    wake(cloud, "alarm-ok")
    wake(cloud, "alarm-ok")
    assert [subject for subject, _ in cloud.mails] == ["[llm] on-demand failover"]
    assert cloud.parsed.owed == ()


def test_broken_mail_holds_no_failover_back_and_mails_come_in_order_later() -> None:
    cloud = armed()
    cloud.lever = "50"
    sns_down(cloud)
    with pytest.raises(ThrottledError):
        wake(cloud, "scan")  # a repair, its mail owed
    cloud.live_alarm, cloud.health = Alarm("ALARM", ago(5)), {}
    with pytest.raises(ThrottledError):
        wake(cloud, "alarm-lit")
    assert cloud.live_group.on_demand_percentage == 100
    still(cloud)
    wake(cloud, "alarm-ok")
    assert [subject for subject, _ in cloud.mails] == ["[llm] purchase lever repaired", "[llm] on-demand failover"]


def test_mail_owed_by_something_unfinished_does_not_hold_the_command_back() -> None:
    cloud = armed()
    cloud.set_state(cloud.parsed.begin(Kind.REPAIRED, ago(60), "half done"))
    sns_down(cloud)
    with pytest.raises(ThrottledError):
        wake(cloud, "pin")
    assert (cloud.parsed.mode, cloud.lever, len(cloud.parsed.owed)) == (Mode.PINNED, "100", 2)


def test_finish_writes_the_state_only_once_it_is_finished() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(1)), lever="100")
    cloud.set_state(State(Mode.FAILOVER).begin(Kind.FAILOVER, ago(60), "half done"))
    wake(cloud, "alarm-ok")
    writes = [call for call in cloud.calls if call.startswith(("put", "flip", "mail"))]
    assert writes == ["flip 100", "put_state", "mail", "put_state"]


def test_mails_sent_before_one_that_fails_are_not_sent_again() -> None:
    cloud = armed()
    owed = State(Mode.ARMED).begin(Kind.REPAIRED, ago(9), "one").begin(Kind.REPAIRED, ago(8), "two")
    cloud.set_state(replace(owed, unfinished=None))
    calls: list[str] = []

    def second_fails(call: str, number: int) -> None:
        calls.append(call)
        if call == "mail" and calls.count("mail") == 2:
            raise ThrottledError("Publish: Throttling")

    cloud.before = second_fails
    with pytest.raises(ThrottledError):
        wake(cloud, "alarm-ok")
    still(cloud)
    wake(cloud, "alarm-ok")
    assert ["one" in body for _, body in cloud.mails] == [True, False]


@pytest.mark.parametrize("payload", ["alarm-lit", "scan"])
def test_unfinished_repair_gives_way_to_a_failover_that_is_due(payload: str) -> None:
    cloud = StillCloud(lever="0")
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=50)
    cloud.set_state(replace(cloud.parsed, launched_at=ago(9000)).begin(Kind.REPAIRED, ago(60), "half done"))
    cloud.fail("flip 0", BusyError("ScalingActivityInProgress"))
    assert wake(cloud, payload)["action"] == "failover"
    assert (cloud.lever, cloud.live_group.on_demand_percentage, len(cloud.mails)) == ("100", 100, 2)


@pytest.mark.parametrize(("command", "action"), [("pin", "pinned"), ("arm", "armed")])
def test_command_is_not_lost_to_an_unfinished_repair_under_a_lit_alarm(command: str, action: str) -> None:
    cloud = StillCloud()
    state = replace(cloud.parsed, launched_at=ago(9000), abandoned=(("i-0x", ago(70)),))
    cloud.set_state(state.begin(Kind.REPAIRED, ago(60), "half done"))
    assert wake(cloud, command)["action"] == action


def test_unfinished_repair_is_finished_where_no_failover_is_due() -> None:
    cloud = StillCloud()
    cloud.put_box(age=10)
    cloud.live_group = replace(cloud.live_group, on_demand_percentage=50)
    cloud.set_state(replace(cloud.parsed, launched_at=ago(9000)).begin(Kind.REPAIRED, ago(60), "half done"))
    record = wake(cloud, "alarm-lit")
    assert record["action"] == "skipped"
    assert cloud.live_group.on_demand_percentage == 0


@pytest.mark.parametrize("name", sorted({payload for _, payload in TRANSITIONS.values() if isinstance(payload, str)}))
def test_unfinished_failover_is_finished_by_any_signal_never_repaired_backwards(name: str) -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(1)))
    state = State(Mode.FAILOVER, since=ago(60), failovers=(ago(60),), cooldown_from=ago(60), launched_at=ago(9000))
    cloud.set_state(state.begin(Kind.FAILOVER, ago(60), "crashed before the lever"))
    wake(cloud, name)
    assert (cloud.lever, cloud.live_group.on_demand_percentage) == ("100", 100)
    assert cloud.mails[0][0] == "[llm] on-demand failover"


def test_every_event_delivered_twice_changes_nothing_the_second_time() -> None:
    for name, (build, payload) in TRANSITIONS.items():
        cloud = build()
        wake(cloud, payload)
        state, mails = cloud.state, list(cloud.mails)
        if payload == "scan":
            continue  # a scan is a look at the world, not an event: what it may do twice is the streak's test
        wake(cloud, payload)
        assert (cloud.state, cloud.mails) == (state, mails), name


def test_failure_is_in_the_record_and_raised() -> None:
    cloud = StillCloud()
    sns_down(cloud)
    records: list[Record] = []
    with pytest.raises(ThrottledError):
        run(event("alarm-lit"), cloud=cloud, settings=SETTINGS, now=NOW, report=records.append)
    assert records[0]["action"] == "failover"
    assert records[0]["outcome"] == "failed: ThrottledError: Publish: Throttling"


@pytest.mark.parametrize("payload", ["alarm-lit", "pin"])
@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version":1}', '{"version":2,"mode":"spot-armed"}'])
def test_state_that_cannot_be_read_is_never_overwritten_and_stops_everything(text: str, payload: str) -> None:
    cloud = StillCloud(state=text)
    records: list[Record] = []
    with pytest.raises(StateError):
        run(event(payload), cloud=cloud, settings=SETTINGS, now=NOW, report=records.append)
    assert (cloud.state, cloud.calls) == (text, ["parameters"])
    assert records[0]["outcome"].startswith("failed: StateError")


def test_mail_that_cannot_be_sent_holds_nothing_else_back() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(5000)))
    cloud.set_state(replace(cloud.parsed, owed=cloud.parsed.begin(Kind.DRY, ago(60), "dry").owed))
    cloud.live_group = replace(cloud.live_group, suspended={})
    cloud.fail("mail", CloudError("Publish: AuthorizationError"))
    with pytest.raises(CloudError, match="Publish"):
        wake(cloud, "scan")
    assert "AZRebalance" in cloud.live_group.suspended
