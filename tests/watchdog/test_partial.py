"""What turns, bridge and the daily mails read of a fleet that lacks some of its boxes: their rules, one by one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fleet.config.settings import Settings
from lambdas.watchdog import bridge, daily, failures, observe, shares, turns
from lambdas.watchdog.cloud import Box, Instance
from lambdas.watchdog.decision import Action, Decision
from lambdas.watchdog.signals import Signal, Wake
from lambdas.watchdog.state import Evidence, Kind, Mode, State
from lambdas.watchdog.world import World
from tests.watchdog.still_cloud import EMPTY, NOW, SETTINGS, StillCloud, ago, wake

SCAN, LOST = Signal(Wake.SCAN), Signal(Wake.TERMINATED)
REFUSAL = Signal(Wake.LAUNCH_FAILED, detail="Code=InsufficientInstanceCapacity", at=NOW, began=ago(5))


def several(size: int = 4, base: int = 0, policy: str = "bridge") -> Settings:
    return replace(
        SETTINGS, policy=policy, capacity=replace(SETTINGS.capacity, min=size, max=2 * size, on_demand_base=base)
    )


FOUR, FOUR_WITH_BASE = several(), several(base=1)


def look(
    lever: int,
    spot: Sequence[str] = (),
    on_demand: Sequence[str] = (),
    *,
    silent: Sequence[str] = (),
    booting: Sequence[str] = (),
    unknown: Sequence[str] = (),
) -> World:
    """The group with these boxes; all answer but the silent ones and those that boot, EC2 knows all but the unknown."""
    known = list(dict.fromkeys([*booting, *spot, *on_demand]))
    boxes = tuple(
        Box(box, "Pending:Wait" if box in booting else "InService", "us-east-2a", "g6.xlarge")
        for box in (*known, *unknown)
    )
    return World(
        lever=str(lever),
        group=replace(EMPTY, on_demand_percentage=lever, boxes=boxes),
        instances={box: Instance(ago(400), box not in on_demand, None) for box in known},
        health={box.id: "initial" if box.id in {*silent, *booting} else "healthy" for box in boxes},
        scores={"use2-az1": 3},
    )


def failover(part: int = 0, *, turned: int = 0, drought: float | None = 5000, **more: object) -> State:
    seen = Evidence(drought_at=None if drought is None else ago(drought))
    values = {"since": ago(9000), "failovers": (ago(9000),), "cooldown_from": ago(9000), "evidence": seen, **more}
    return State(Mode.FAILOVER, part=part, turns=turned, **values)  # type: ignore[arg-type]


# --- turns: what is learned ---------------------------------------------------------------------------------------


def test_a_return_under_way_learns_nothing_of_on_demand() -> None:
    state = failover(25, drought=None, rearm_from=ago(300))
    assert turns.learn(SCAN, look(25), state, FOUR, NOW) is state


def test_a_look_without_the_group_forgets_no_drought() -> None:
    state = failover()
    assert turns.learn(SCAN, World(), state, FOUR, NOW) is state


def test_a_box_that_was_launched_and_given_up_is_no_refusal_of_its_kind() -> None:
    given_up = replace(REFUSAL, box="i-0given", detail="The lifecycle hook was abandoned")
    assert turns.learn(given_up, look(100), failover(drought=None), FOUR, NOW).evidence.drought_at is None
    assert turns.learn(REFUSAL, look(100), failover(drought=None), FOUR, NOW).evidence.drought_at == ago(5)


def test_a_state_that_does_not_say_since_when_learns_from_any_refusal() -> None:
    learned = turns.learn(REFUSAL, look(100), failover(drought=None, since=None), FOUR, NOW)
    assert learned.evidence.drought_at == ago(5)


def test_the_base_is_no_part_of_what_a_failover_bought() -> None:
    part = shares.part(1, FOUR_WITH_BASE)
    assert not turns.lacks_spot(look(part, on_demand=["i-0base"]), failover(part), FOUR_WITH_BASE)
    assert turns.lacks_spot(look(part, on_demand=["i-0base", "i-0bought"]), failover(part), FOUR_WITH_BASE)
    assert not turns.lacks_spot(
        look(part, on_demand=["i-0base", "i-0bought"]), failover(part, turned=1), FOUR_WITH_BASE
    )


# --- turns: the next one ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "world"),
    [
        (failover(25, rearm_from=ago(300)), look(25)),
        (failover(turned=1), World(lever="0")),
        (failover(drought=None), look(100, on_demand=["i-01", "i-02", "i-03", "i-04"])),
        (failover(25), look(25, on_demand=["i-01"])),
    ],
    ids=["a return is under way", "the group was not read", "no turn was made", "on-demand has sold its part"],
)
def test_no_turn_is_made(state: State, world: World) -> None:
    assert turns.step(SCAN, world, state, FOUR, NOW) is None


@pytest.mark.parametrize(("turned", "wanted"), [(0, "on-demand"), (1, "spot"), (2, "on-demand"), (3, "spot")])
def test_the_reason_names_the_kind_that_was_tried(turned: int, wanted: str) -> None:
    decision = turns.step(SCAN, look(0 if turned % 2 else 100), failover(turned=turned), FOUR, NOW)
    assert decision is not None
    assert f"nothing serves and {wanted} has been refused" in decision.reason


def test_spent_hours_keep_nobody_from_spot() -> None:
    limited = replace(FOUR, watchdog=replace(FOUR.watchdog, on_demand_hours_per_day=1))
    spent = failover(metered_at=ago(10), metered_seconds=3600)
    decision = turns.step(SCAN, look(100), spent, limited, NOW)
    assert decision is not None
    assert decision.kind is Kind.TURNED


@pytest.mark.parametrize(
    ("base", "turned", "spot", "on_demand", "boxes", "taken_back"),
    [
        (1, 0, 0, 1, 0, True),  # to spot: only the base is there, so nothing was bought
        (1, 0, 0, 0, 0, True),
        (0, 0, 0, 2, 2, False),
        (0, 2, 0, 0, 0, False),
        (1, 1, 1, 1, 2, False),  # to on-demand, for what spot has not sold
        (1, 1, 2, 0, 1, False),
        (1, 1, 3, 0, 1, False),  # at least one: the base alone is missing
    ],
)
def test_a_turn_asks_for_what_is_missing_and_leaves_what_was_sold(
    base: int, turned: int, spot: int, on_demand: int, boxes: int, taken_back: bool
) -> None:
    settings, state = several(base=base), failover(turned=turned)
    world = look(0, [f"i-0a{n}" for n in range(spot)], [f"i-0d{n}" for n in range(on_demand)])
    decision = turns.step(SCAN, world, state, settings, NOW)
    assert decision is not None
    assert decision.state is not None
    assert decision.state.part == shares.part(boxes, settings)
    assert (decision.state.failovers == ()) is taken_back


# --- turns: their end ---------------------------------------------------------------------------------------------


def test_turns_go_on_while_any_box_is_missing() -> None:
    world = look(0, ["i-0a1", "i-0a2", "i-0a3"])
    decision = turns.step(SCAN, world, failover(turned=1, drought=10), FOUR, NOW)
    assert decision is not None
    assert decision.action is Action.WAITING


@pytest.mark.parametrize(
    ("turned", "spot", "on_demand", "booting", "kind", "reason"),
    [
        (1, ["i-0a1", "i-0a2"], [], [], Kind.REARMED, "spot box i-0a1 serves, on-demand was refused"),
        (1, [], ["i-0d1", "i-0d2"], ["i-0new"], Kind.TURNED, "on-demand box i-0d1 serves"),
        (2, ["i-0a1", "i-0a2"], [], [], None, "i-0a1 serves"),
        (2, ["i-0a1"], ["i-0d1", "i-0d2"], [], None, "i-0d1 serves"),
    ],
)
def test_turns_end_with_what_serves(
    turned: int, spot: list[str], on_demand: list[str], booting: list[str], kind: Kind | None, reason: str
) -> None:
    world = look(0 if turned % 2 else 100, spot, on_demand, booting=booting)
    decision = turns.step(SCAN, world, failover(turned=turned), several(2), NOW)
    assert decision is not None
    assert (decision.kind, decision.reason) == (kind, reason)


@pytest.mark.parametrize("turned", [1, 2])
def test_turns_do_not_end_with_a_box_of_which_ec2_cannot_say_its_kind_yet(turned: int) -> None:
    lever = 0 if turned % 2 else 100
    assert turns._found(look(lever, unknown=["i-0new"]), failover(turned=turned), several(1), NOW) is None


# --- bridge: what is learned --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "before", "at", "box", "after"),
    [
        (4, ("i-0old",), None, "i-0a1", ("i-0a1",)),  # decided on long ago
        (4, ("i-0a1",), 10, "i-0a2", ("i-0a1", "i-0a2")),
        (4, ("i-0a1", "i-0a2"), 10, "i-0a1", ("i-0a2", "i-0a1")),  # told twice
        (1, ("i-0a1",), 10, "i-0a2", ("i-0a2",)),
    ],
)
def test_warned_together_are_as_many_as_should_serve(
    size: int, before: tuple[str, ...], at: float | None, box: str, after: tuple[str, ...]
) -> None:
    state = State(Mode.ARMED, evidence=Evidence(warned=before, warned_at=None if at is None else ago(at)))
    learned = bridge.learn(Signal(Wake.REBALANCE, box=box), look(0), state, several(size), NOW)
    assert (learned.evidence.warned, learned.evidence.warned_at) == (after, NOW)


def test_refusal_is_of_spot_only_once_on_demand_has_sold_its_part() -> None:
    sold, unsold = look(25, on_demand=["i-0d1"]), look(25, ["i-0a1"])
    state = failover(25, drought=None)
    assert bridge.learn(REFUSAL, sold, state, FOUR, NOW).evidence.drought_at is not None
    assert bridge.learn(REFUSAL, unsold, state, FOUR, NOW).evidence.drought_at is None
    assert bridge.learn(REFUSAL, look(0), State(Mode.ARMED), FOUR, NOW).evidence.drought_at is not None


@pytest.mark.parametrize(
    ("mode", "began", "learned"), [(Mode.FAILOVER, 101, False), (Mode.FAILOVER, 99, True), (Mode.ARMED, 101, True)]
)
def test_refusal_from_before_the_lever_moved_tells_of_no_drought(mode: Mode, began: float, learned: bool) -> None:
    state = State(mode, since=ago(100), part=25 if mode is Mode.FAILOVER else 0)
    signal = replace(REFUSAL, began=ago(began))
    evidence = bridge.learn(signal, look(state.part, on_demand=["i-0d1"]), state, FOUR, NOW).evidence
    assert (evidence.drought_at is not None) is learned


@pytest.mark.parametrize(("part", "dark"), [(50, True), (0, False)])
def test_fleet_that_goes_off_spot_with_all_of_it_misses_nothing_there(part: int, dark: bool) -> None:
    state = State(Mode.ARMED, launched_at=ago(90000), evidence=Evidence(drought_at=ago(100), dark_at=ago(100)))
    world = look(0, ["i-0a1", "i-0a2"] if part else [])
    decision = bridge.react(SCAN, world, state, FOUR, NOW)
    assert decision is not None
    assert decision.state is not None
    assert (decision.state.part, decision.state.evidence.dark_at) == (part, NOW if dark else None)


def test_refusal_during_a_return_is_of_spot_though_an_on_demand_box_is_missing() -> None:
    state = failover(25, drought=None, rearm_from=ago(300))
    assert bridge.learn(REFUSAL, look(25, ["i-0a1"]), state, FOUR, NOW).evidence.drought_at is not None


def test_drought_of_a_fleet_that_is_whole_is_over_wherever_the_lever_stands() -> None:
    whole = look(100, on_demand=["i-0d1", "i-0d2", "i-0d3", "i-0d4"])
    assert bridge.learn(SCAN, whole, failover(), FOUR, NOW).evidence.drought_at is None


# --- bridge: what is done -----------------------------------------------------------------------------------------


def test_a_fleet_that_turns_leaves_the_drought_to_its_turns() -> None:
    assert bridge.react(SCAN, look(25), failover(25, turned=1), FOUR, NOW) is None
    assert bridge.react(SCAN, look(25), failover(25), FOUR, NOW) is not None


@pytest.mark.parametrize(("size", "words"), [(1, "nothing has served for"), (4, "boxes have been missing for")])
def test_boots_that_come_to_nothing_are_told_by_the_size_of_the_fleet(size: int, words: str) -> None:
    state = State(Mode.ARMED, launched_at=ago(90000), evidence=Evidence(dark_at=ago(5000)))
    decision = bridge.react(SCAN, look(0, booting=["i-0new"]), state, several(size), NOW)
    assert decision is not None
    assert decision.reason.startswith(words)


@pytest.mark.parametrize(("spot", "action"), [(3, Action.SKIPPED), (2, Action.TRANSITION)])
def test_failover_buys_nothing_where_what_is_missing_is_on_demand_as_it_is(spot: int, action: Action) -> None:
    world = look(25, [f"i-0a{n}" for n in range(spot)], ["i-0d1"], silent=["i-0d1"])
    decision = bridge.react(SCAN, world, failover(25), FOUR, NOW)
    assert decision is not None
    assert decision.action is action
    if action is Action.SKIPPED:
        assert decision.reason.startswith("failover skipped: what is missing is on-demand as it is; 3 of 4 boxes serve")


def warned(*boxes: str, part: int = 0) -> State:
    seen = Evidence(warned=boxes, warned_at=ago(600))
    return State(
        Mode.FAILOVER if part else Mode.ARMED, part=part, since=ago(90000), launched_at=ago(90000), evidence=seen
    )


FIVE = ["i-0a1", "i-0a2", "i-0a3", "i-0a4", "i-0a5"]
ENOUGH, SUCCESSOR = "enough others serve", "its successor is on its way, so the group would not launch another"


@pytest.mark.parametrize(
    ("size", "world", "state", "why"),
    [
        (4, look(0, FIVE), warned("i-0a1"), ENOUGH),
        (1, look(0, FIVE[:2]), warned("i-0a1"), "it is not the only box that serves"),
        (4, look(0, FIVE[:4], booting=["i-0new"]), warned("i-0a1"), SUCCESSOR),
        (4, look(0, FIVE[:4], ["i-0d1"], booting=["i-0d1"]), warned("i-0a1"), SUCCESSOR),  # on-demand, from before
        (4, look(25, FIVE[:3], ["i-0d1"], booting=["i-0new"]), warned("i-0a1", part=25), SUCCESSOR),
        # One is bought already, and serves no more: what the warned box leaves is that one's place.
        (4, look(25, FIVE[:4], ["i-0d1"], silent=["i-0d1"]), warned("i-0a1", part=25), SUCCESSOR),
    ],
)
def test_warned_box_is_left_to_the_group_where_it_is_not_needed(
    size: int, world: World, state: State, why: str
) -> None:
    decision = bridge.react(Signal(Wake.PATIENCE), world, state, several(size), NOW)
    assert decision is not None
    assert (decision.action, decision.reason) == (Action.REFUSED, f"the warning of i-0a1 is left to the group: {why}")


def test_warning_is_named_by_the_box_that_was_warned_last() -> None:
    decision = bridge.react(Signal(Wake.PATIENCE), look(0, FIVE[:1]), warned("i-0gone", "i-0went"), several(2), NOW)
    assert decision is not None
    assert decision.reason.startswith("the warning of i-0went is left to the group")


def test_bridge_buys_for_all_that_were_warned_and_tells_the_age_of_the_oldest() -> None:
    world = look(0, FIVE[:4])
    world = replace(world, instances={**world.instances, "i-0a2": Instance(ago(7000), True, None)})
    decision = bridge.react(Signal(Wake.PATIENCE), world, warned("i-0a1", "i-0a2"), FOUR, NOW)
    assert decision is not None
    assert decision.state is not None
    assert decision.reason == "AWS warned that i-0a1, i-0a2 may go; it was launched 7000 s ago"
    assert decision.state.part == shares.part(2, FOUR)
    assert decision.state.evidence.dark_at is None, "nothing is missing yet"


# --- daily mails --------------------------------------------------------------------------------------------------


def test_reminder_reads_the_state_that_the_scan_decided_on() -> None:
    off = failover(on_demand_since=ago(2 * 86400 + 60))
    on = State(Mode.ARMED, since=ago(2 * 86400 + 60))
    quiet = Decision(Action.RECORDED, "seen", state=on)
    assert daily.reminded(quiet, off, NOW) is quiet
    assert daily.reminded(Decision(Action.RECORDED, "seen"), on, NOW).state is None
    mailed = daily.reminded(Decision(Action.RECORDED, "seen"), off, NOW).state
    assert mailed is not None
    assert mailed.unfinished is not None
    assert mailed.unfinished.why == "2 days off spot, now on-demand-failover"
    one = daily.reminded(Decision(Action.RECORDED, "seen"), replace(off, on_demand_since=ago(86400)), NOW).state
    assert one is not None
    assert one.unfinished is not None
    assert one.unfinished.why == "1 day off spot, now on-demand-failover"


def test_replacements_are_counted_against_the_limit_of_every_box() -> None:
    limit = FOUR.watchdog.replacements_per_day * 4
    signal = Signal(Wake.REBALANCE, box="i-0abcdef012345678")
    for count, mailed in ((limit - 1, False), (limit, True)):
        state = State(Mode.ARMED, replaced_on=f"{NOW:%Y-%m-%d}", replaced=count)
        new = daily.replaced(signal, state, FOUR, NOW).state
        assert new is not None
        assert (new.replaced, bool(new.unfinished)) == (count + 1, mailed)


# --- failures -----------------------------------------------------------------------------------------------------


def test_lever_at_its_end_says_which_kind_was_refused_whatever_the_words() -> None:
    words = "Could not launch Spot Instances. InsufficientInstanceCapacity"
    assert [failures.purchase(words, lever, 0) for lever in (0, 99, 100)] == ["spot", "spot", "on-demand"]


def test_code_that_is_put_in_front_is_the_first_of_its_row_that_aws_said() -> None:
    words = "x" * failures.CODE_WITHIN + " UnfulfillableCapacity - do not have sufficient"
    assert failures.with_code_first(words) == f"UnfulfillableCapacity: {words}"


# --- what is looked at --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "mode", "signal", "asked"),
    [
        (2, Mode.FAILOVER, REFUSAL, True),
        (1, Mode.FAILOVER, REFUSAL, False),
        (2, Mode.ARMED, REFUSAL, False),
        (2, Mode.FAILOVER, Signal(Wake.ALARM_LIT, at=NOW), False),
    ],
)
def test_which_kind_is_short_is_asked_where_a_fleet_of_several_is_refused_off_spot(
    size: int, mode: Mode, signal: Signal, asked: bool
) -> None:
    settings = several(size, policy="alarm")
    cloud = StillCloud(settings=settings, state=State(mode, since=ago(300)).dumps(), lever="100")
    cloud.put_box(age=9000, health="healthy")
    observe.observe(signal, cloud, settings, NOW)
    assert ("target_health" in cloud.calls) is asked


def test_box_that_its_hook_holds_is_told_from_its_neighbours() -> None:
    world = look(0, ["i-0a1"], booting=["i-0new"])
    assert [world.holds(box) for box in ("i-0new", "i-0a1", "i-0gone")] == [True, False, False]


def test_what_aws_suspended_is_resumed_by_its_own_transition_alone() -> None:
    cloud = StillCloud()
    cloud.live_group = replace(EMPTY, suspended={**EMPTY.suspended, "HealthCheck": "administrative suspension"})
    wake(cloud, "pin")
    assert cloud.lever == "100"
    assert not [call for call in cloud.calls if call.startswith("resume")]
