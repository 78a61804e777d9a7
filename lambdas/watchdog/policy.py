"""Step 3, decide: the whole policy in one place, pure. From signal, world, state, settings and now to one Decision.

Nothing here calls AWS or reads a clock. The reason of a decision becomes the log line and the mail.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from fleet.config.settings import Settings
from fleet.core import names
from lambdas.watchdog import bridge, daily, failover, failures, rearm, shares, suspension, turns
from lambdas.watchdog.cloud import Alarm
from lambdas.watchdog.decision import Action, Decision, recorded, seconds, transition
from lambdas.watchdog.signals import Signal, Wake
from lambdas.watchdog.state import HOURS_OF_A_DAY, MOVES_LEVERS, RESUMES_LAUNCH, Kind, Mode, State, Transition
from lambdas.watchdog.world import World

NO_ALARM = "the alarm does not exist, so nothing wakes the watchdog: deploy again"


def decide(signal: Signal, world: World, state: State | None, settings: Settings, now: datetime) -> Decision:
    """One decision, at a whole second; `state` is None only for a signal that is ignored."""
    if state is None:
        return Decision(Action.IGNORED, signal.detail or f"{signal.box} is not of this fleet")
    if world.group and (kept := state.of_group(world.group.created_at)) is not state:
        return Decision(
            Action.FORGOT, f"dropped what is older than the group of {world.group.created_at:%d %b %H:%M}", state=kept
        )
    return _ending_held(_decide_known(signal, world, state, settings, now), signal, world, state, settings, now)


def _decide_known(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> Decision:
    if state.unfinished:
        return _finish(state.unfinished, signal, world, state, settings, now)
    learned = turns.learn(signal, world, _launched(signal, state, now), settings, now)
    early = None
    if settings.on_events:
        learned = bridge.learn(signal, world, learned, settings, now)
        early = bridge.react(signal, world, learned, settings, now)
    early = (
        early
        or rearm.refused(signal, world, learned, settings, now)
        or turns.step(signal, world, learned, settings, now)
    )
    if early and early.action is Action.TRANSITION:
        decision = early
    else:
        decision = _beside(early, _decide(signal, world, learned, settings, now))
    if decision.action is not Action.TRANSITION and (world.capped(settings, now) or world.churns(settings)):
        decision = due_failover(world, decision.state or learned, settings, now) or decision  # whatever woke us
    if learned != state:
        decision = replace(decision, state=decision.state or learned)
    if signal.wake is Wake.SCAN:
        decision = daily.reminded(decision, state, now)
    if decision.state and (kept := daily.since(decision.state, now)) is not decision.state:
        decision = replace(decision, state=kept)
    if settings.watchdog.on_demand_hours_per_day < HOURS_OF_A_DAY and (decision.state or signal.wake is Wake.SCAN):
        decision = replace(decision, state=(decision.state or state).metered(state, now))
    problem = decision.problem or world.unread
    return replace(decision, problem=problem) if problem else decision


def _beside(early: Decision | None, own: Decision) -> Decision:
    """What is waited for, or held up, keeps a signal from nothing else."""
    if early is None:
        return own
    if own.action in {Action.NOTHING, Action.RECORDED}:
        own = replace(own, action=early.action, reason=early.reason, state=own.state or early.state)
    return replace(own, wake_at=early.wake_at)


def _decide(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> Decision:
    match signal.wake:
        case Wake.ALARM_LIT:
            return _alarm(world, state, settings, now)
        case Wake.SCAN:
            return _scan(world, state, settings, now)
        case Wake.LAUNCH_FAILED:
            return _launch_failed(signal, world, state, settings, now)
        case Wake.LAUNCHED | Wake.ALARM_OK | Wake.TERMINATED | Wake.REFRESH_ENDED:
            return rearm.advance(world, state, settings, now) or recorded(signal)
        case Wake.REBALANCE:
            return daily.replaced(signal, state, settings, now)
        case Wake.INTERRUPTION | Wake.BOX_ENDED:
            return _of_a_box(signal, world, state)
        case Wake.PATIENCE:
            return Decision(Action.NOTHING, "no drought")
        case Wake.PIN:
            return _pin(signal, world, state, now)
        case Wake.ARM:
            return _arm(signal, world, state, now)
        case Wake.RESUME:
            return _resume(signal, world, state, now)
        case Wake.PROBE:
            return _probe(world)
        case Wake.IGNORED:
            return Decision(Action.IGNORED, signal.detail)
        case _:
            assert_never(signal.wake)


def _ending_held(
    decision: Decision, signal: Signal, world: World, state: State, settings: Settings, now: datetime
) -> Decision:
    """The decision, and what the launch hook holds for nothing: a box that has ended, or soon will; a hung one."""
    # aws-behaviours: held-counts, held-dead-keeps-place
    if decision.leaves_state or not world.held:
        return decision
    after = decision.state or state
    finishes = decision.action is Action.FINISH  # the signal's own box is then looked at after it
    moves = finishes or decision.kind in MOVES_LEVERS
    hung = world.hung_spot(settings, now) if after.expected_lever and (world.lit or moves) else ()
    # a box under notice that answers already is about to be in service, and serves until it goes
    lost = signal.wake is Wake.BOX_ENDED or (signal.wake is Wake.INTERRUPTION and signal.box not in world.healthy)
    told = not finishes and lost and world.holds(signal.box)
    ends = tuple(dict.fromkeys([*world.died_held, *hung, *([signal.box] if told else [])]))
    if not ends:
        return decision
    for box in hung:
        after = after.with_notice(box, {member.id for member in world.seen_group.boxes})
    words = f"ends {', '.join(ends)}: held by the launch hook, and for nothing"
    detail = "; ".join(filter(None, [decision.detail, words]))
    return replace(decision, end_boxes=ends, detail=detail, state=after)


# --- failover ---------------------------------------------------------------------------------------------------


def due_failover(world: World, state: State, settings: Settings, now: datetime) -> Decision | None:
    """The failover that a lit alarm, or churn, calls for, unless a guard holds it back."""
    if not (world.lit or world.churns(settings)):
        return None  # as at nearly every scan
    decision = _alarm(world, state, settings, now)
    return decision if decision.action is Action.TRANSITION else None


def _alarm(world: World, state: State, settings: Settings, now: datetime) -> Decision:
    if not state.exposed:
        return Decision(Action.NOTHING, f"already {state.mode}")
    if world.alarm is None:
        return Decision(Action.SKIPPED, NO_ALARM, problem=NO_ALARM)
    capped = _capped(world.alarm, world, state, settings, now)
    if skip := _guard(world.alarm, world, state, settings, now, capped=capped):
        return skip
    stays = {*world.healthy, *([] if capped else world.young(settings, now))}
    boxes = failover.boxes(world, stays, settings)
    if boxes <= shares.bought(state.expected_lever, settings):
        return Decision(Action.SKIPPED, f"failover skipped: {failover.words(world, settings)}, on-demand as it is")
    new = failover.buys(state, boxes, settings, now, weight=1 if world.lit else _weight(settings))
    new = replace(new, cooldown_from=now, streak=0, rearm_from=None, dry_at=None, refused=())
    new = replace(new, evidence=replace(state.evidence, drought_at=None, calm_seconds=0))
    why = (
        f"{failover.words(world, settings)}, alarm lit for {seconds(now - world.alarm.since)} s"
        if world.lit
        else _dark(world, settings)
    )
    why += ", during a re-arm" if state.rearm_from else ""
    why += "; Launch is suspended" if "Launch" in world.seen_group.suspended else ""
    return transition(new, Kind.FAILOVER, now, why)


def _weight(settings: Settings) -> int:
    """How often the valve counts a failover that many dark minutes led to: two of them are as good as it gets."""
    return max(settings.valve_failovers // settings.watchdog.valve_failovers, 1)


def _dark(world: World, settings: Settings) -> str:
    limits = settings.watchdog
    return (
        f"{'nothing served' if shares.floor(settings) == 1 else 'the fleet was missing'} for "
        f"{world.dark_seconds // 60} min of the last {limits.served_window_seconds // 60}, "
        f"bound {limits.served_percent} % served"
    )


def _lit_for(alarm: Alarm, state: State, now: datetime) -> timedelta:
    """An alarm that was lit before the re-arm, or a part's failover, is what that answers: it counts from there."""
    answered = state.rearm_from or (None if state.armed else state.since)
    return now - (max(alarm.since, answered) if answered else alarm.since)


def _capped(alarm: Alarm, world: World, state: State, settings: Settings, now: datetime) -> bool:
    """Whether grace no longer applies; the skip cap is shorter than what churn takes."""
    return world.churns(settings) or _lit_for(alarm, state, now) >= timedelta(
        seconds=settings.watchdog.skip_cap_seconds
    )


def _guard(
    alarm: Alarm, world: World, state: State, settings: Settings, now: datetime, *, capped: bool
) -> Decision | None:
    """What holds a failover back, in this order; None lets it pass."""
    limits = settings.watchdog
    if not (world.lit or world.churns(settings)):
        return Decision(Action.SKIPPED, f"the alarm is {alarm.state} now")
    numbers = f"alarm lit for {seconds(_lit_for(alarm, state, now))} s, skip cap {limits.skip_cap_seconds} s"
    young = world.young(settings, now)
    newborn = world.newborn(settings, now, ever_launched=state.launched_at is not None)
    recovers = bool(young) and not shares.missing({*world.healthy, *young}, settings)
    if (recovers or newborn) and not capped:
        why = next(iter(young.values()), newborn)
        return Decision(Action.SKIPPED, names.LINE_SKIPPED_YOUNG, f"{why}; {numbers}")
    if state.rearm_from and alarm.since <= state.rearm_from and not capped:
        return Decision(Action.SKIPPED, f"failover skipped: the re-arm is the recovery in progress, {numbers}")
    if not shares.missing(world.healthy, settings):
        who = ", ".join(world.healthy) if shares.floor(settings) == 1 else f"each of {len(world.healthy)} boxes"
        return Decision(Action.SKIPPED, f"failover skipped: {who} answers now")
    if spent := state.on_demand_spent(settings, now):
        return Decision(Action.SKIPPED, f"failover skipped: {spent}")
    if world.deploying and not capped:
        return Decision(Action.SKIPPED, f"failover skipped: a deploy is in progress, {numbers}", world.unread)
    return None


def _finish(
    unfinished: Transition, signal: Signal, world: World, state: State, settings: Settings, now: datetime
) -> Decision:
    """What was begun comes first, unless something takes its place that moves the same levers."""
    begun = f"{unfinished.kind} of {unfinished.at:%H:%M:%S}"
    if signal.wake is Wake.PROBE:
        return Decision(Action.REFUSED, f"probe refused: {begun} is unfinished", leaves_state=True)
    resumes_launch = unfinished.kind in RESUMES_LAUNCH  # which nothing else would do
    if not resumes_launch and (instead := _instead(signal, world, state, settings, now)):
        return replace(instead, problem=world.unread)
    return Decision(Action.FINISH, f"finish {begun}", state=state)


def _instead(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> Decision | None:
    """What is not held up by an unfinished transition, which may be one that cannot be finished."""
    if signal.wake is Wake.PIN and state.mode is not Mode.PINNED:
        return _pin(signal, world, state, now)
    if signal.wake in {Wake.ALARM_LIT, Wake.SCAN} and (due := due_failover(world, state, settings, now)):
        return due
    if why := rearm.expired(world, state, settings, now):
        return rearm.fell_back(world, state, settings, now, why)
    return None


# --- scan -------------------------------------------------------------------------------------------------------


def _scan(world: World, state: State, settings: Settings, now: datetime) -> Decision:
    noted, due = state, None
    if state.repair_waits_since and world.agrees(state.expected_lever):
        noted = replace(state, repair_waits_since=None)
    if state.mode is not Mode.PINNED:
        noted, due = suspension.step(world.seen_group, noted, now)
    decision = due or _scan_mode(world, noted, settings, now)
    if noted is not state:
        decision = replace(decision, state=decision.state or noted)
    suspend = "AZRebalance" not in world.seen_group.suspended
    missing = NO_ALARM if world.alarm is None and state.mode is not Mode.PINNED else ""
    if world.strangers:
        words = f"deregisters {', '.join(world.strangers)}: no box of the group"
        detail = "; ".join(filter(None, [decision.detail, words]))
        decision = replace(decision, deregister=world.strangers, detail=detail)
    return replace(decision, suspend_rebalance=suspend, problem=missing) if suspend or missing else decision


def _scan_mode(world: World, state: State, settings: Settings, now: datetime) -> Decision:
    if state.mode is Mode.PINNED:
        wrong = ["" if world.agrees(100) else _disagreement(world, state), suspension.words(world.seen_group)]
        return Decision(Action.NOTHING, names.LINE_PINNED, "; ".join(filter(None, wrong)))
    acts = state.exposed and (world.lit or world.churns(settings))
    due = _alarm(world, state, settings, now) if acts else None
    standing = [step for step in (due, rearm.advance(world, state, settings, now)) if step]
    for step in standing:
        if step.action not in {Action.SKIPPED, Action.NOTHING}:
            return step
    if not world.agrees(state.expected_lever):
        return _repair(world, state, settings, now)
    if standing:
        return standing[0]
    if state.armed:
        return Decision(Action.NOTHING, f"{state.mode}; nothing to do")
    if (state.turns or state.evidence.drought_at) and not state.on_demand_spent(settings, now):
        return Decision(Action.NOTHING, "nothing serves yet: whichever kind sells is right")
    return rearm.begin(world, state, settings, now)


def _repair(world: World, state: State, settings: Settings, now: datetime) -> Decision:
    """The levers as the state expects them. A deploy is waited for while a box serves, else up to the skip cap."""
    why, busy = _disagreement(world, state), world.busy(ours=state.refresh_id)
    if busy and world.capped(settings, now) and not world.healthy:
        why, busy = f"{why}; nothing serves, {busy}", ""
    if not busy:
        return transition(replace(state, repair_waits_since=None), Kind.REPAIRED, now, why)
    if world.unread or not world.healthy or state.repair_waits_since:
        return Decision(Action.REFUSED, f"{why}; repaired later: {busy}")
    return transition(replace(state, repair_waits_since=now), Kind.REPAIR_WAITS, now, f"{why}; {busy}")


# --- events of the group ----------------------------------------------------------------------------------------


def _launched(signal: Signal, state: State, now: datetime) -> State:
    """The state once a launch has reached service, as this signal says."""
    if signal.wake is not Wake.LAUNCHED:
        return state
    at = signal.at or now
    new = replace(
        state,
        launched_at=max(state.launched_at or at, at),
        abandoned=tuple((box, when) for box, when in state.abandoned if when > at),
        resumed=0,
    )
    return replace(new, dry_at=None, refused=()) if state.dry_at and state.dry_at <= at else new


def _of_a_box(signal: Signal, world: World, state: State) -> Decision:
    listed = {box.id for box in world.seen_group.boxes}
    new = state.with_notice(signal.box, listed) if signal.wake is Wake.INTERRUPTION else state
    return replace(recorded(signal), state=new if new != state else None)


def _launch_failed(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> Decision:
    at = signal.at or now
    if state.launched_at and at <= state.launched_at:
        return recorded(signal)
    return (_refused if signal.refused else _boot_ended)(signal, at, world, state, settings, now)


def _refused(signal: Signal, at: datetime, world: World, state: State, settings: Settings, now: datetime) -> Decision:
    """No box: a mail for what AWS says of it, once until a launch reaches service. Spot that is dry is no news."""
    group, failure = world.seen_group, failures.read(signal.detail)
    ours = signal.began and (state.since is None or signal.began > state.since)  # event times are cut to seconds
    staying = [box for box in world.alive if box.id not in state.evidence.noticed]
    short = len(staying) < group.desired and group.on_demand_percentage == state.expected_lever
    purchase = failures.purchase(signal.detail, state.expected_lever, shares.base(settings))
    told = f"{purchase} {failure.name}"
    dry = failure is failures.CAPACITY
    if not (ours and short) or state.rearm_from or told in state.refused or told == "spot capacity":
        return recorded(signal)
    new = replace(state, dry_at=state.dry_at or at, refused=(*state.refused, told))
    why = signal.detail if dry else f"{purchase}: {signal.detail}"
    return transition(new, Kind.DRY if dry else Kind.REFUSED, now, why)


def _boot_ended(
    signal: Signal, at: datetime, world: World, state: State, settings: Settings, now: datetime
) -> Decision:
    """A box that ended before it served: counted where there is evidence that its boot failed."""
    limit, noted = settings.watchdog.boot_loop_launches, recorded(signal)
    if signal.box in state.evidence.noticed:
        return noted  # told to go
    why = failures.failed_boot(world.instances.get(signal.box), signal.detail, at, settings)
    if not why or (state.since and at <= state.since):
        return noted  # told again, from before a failover or an operator's arm: counted, or forgiven
    known = {**dict(state.abandoned), signal.box: at}
    new = replace(state, abandoned=tuple(sorted(known.items(), key=lambda item: (item[1], item[0]))[-limit:]))
    if new == state:
        return noted
    if len(new.abandoned) >= limit and "Launch" not in world.seen_group.suspended:
        new = replace(new, suspended_at=now)
        return transition(new, Kind.BOOT_LOOP, now, f"{limit} consecutive boots failed, the last: {why}")
    return replace(noted, state=new)


# --- operators --------------------------------------------------------------------------------------------------


def _pin(signal: Signal, world: World, state: State, now: datetime) -> Decision:
    if state.mode is Mode.PINNED and world.agrees(100):
        return Decision(Action.NOTHING, "already pinned")
    new = replace(state, mode=Mode.PINNED, since=now, part=0, rearm_from=None, turns=0, streak=0)
    return transition(new, Kind.PINNED, now, _by(signal))


def _arm(signal: Signal, world: World, state: State, now: datetime) -> Decision:
    """Clears what keeps the scan from re-arming; never flips by itself."""
    stopped = "Launch" in world.seen_group.suspended or state.abandoned
    if state.armed:
        if not stopped:
            return Decision(Action.NOTHING, "a re-arm is under way" if state.rearm_from else f"already {state.mode}")
        return transition(replace(state, since=now, abandoned=()), Kind.ARMED, now, _by(signal))
    if state.mode is Mode.FAILOVER and not (stopped or state.failovers or state.cooldown_from):
        return Decision(Action.NOTHING, "armed already: the next good scores re-arm")
    new = replace(
        state, mode=Mode.FAILOVER, since=now, failovers=(), cooldown_from=None, streak=0, scored_at=None, abandoned=()
    )
    new = replace(new, parts=(), blocked="")
    return transition(new, Kind.ARMED, now, _by(signal))


def _resume(signal: Signal, world: World, state: State, now: datetime) -> Decision:
    """Lets the group launch again and begins the count of failed boots anew; mode, history and cooldown stay."""
    if "Launch" not in world.seen_group.suspended and not state.abandoned:
        return Decision(Action.NOTHING, "Launch is not suspended")
    return transition(replace(state, since=now, abandoned=()), Kind.RESUMED, now, _by(signal))


def _probe(world: World) -> Decision:
    if busy := world.busy():
        return Decision(Action.REFUSED, f"probe refused: {busy}", leaves_state=True)
    return Decision(Action.PROBE, f"sent the group its own {world.percentage} % again", leaves_state=True)


# --- words ------------------------------------------------------------------------------------------------------


def _disagreement(world: World, state: State) -> str:
    return f"parameter {world.lever}, group {world.percentage}: {state.mode} expects {state.expected_lever}"


def _by(signal: Signal) -> str:
    return f"by {signal.who or 'an operator'}: {signal.detail or 'no reason given'}"
