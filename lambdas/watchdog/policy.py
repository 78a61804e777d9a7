"""Step 3, decide: the whole policy in one place, pure. From signal, world, state, settings and now to one Decision.

Nothing here calls AWS or reads a clock. The reason of a decision becomes the log line and the mail.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from fleet import names
from fleet.settings import Settings
from lambdas.watchdog import bridge
from lambdas.watchdog.cloud import Alarm
from lambdas.watchdog.decision import Action, Decision, recorded, transition
from lambdas.watchdog.signals import Signal, Wake
from lambdas.watchdog.state import HOURS_OF_A_DAY, Kind, Mode, State, Transition
from lambdas.watchdog.world import World

NO_ALARM = "the alarm does not exist, so nothing wakes the watchdog: deploy again"


def decide(signal: Signal, world: World, state: State | None, settings: Settings, now: datetime) -> Decision:
    """One decision; `state` is None only for a signal that is ignored."""
    now = now.replace(microsecond=0)
    if state is None:
        return Decision(Action.IGNORED, signal.detail)
    if state.unfinished:
        return _finish(state.unfinished, signal, world, state, settings, now)
    if settings.policy == "bridge":
        learned = bridge.learn(signal, world, state, settings, now)
        decision = bridge.react(signal, world, learned, settings, now) or _decide(signal, world, learned, settings, now)
        if learned != state and decision.action is not Action.IGNORED:
            decision = replace(decision, state=decision.state or learned)
    else:
        decision = _decide(signal, world, state, settings, now)
    if settings.watchdog.on_demand_hours_per_day < HOURS_OF_A_DAY and (decision.state or signal.wake is Wake.SCAN):
        decision = replace(decision, state=(decision.state or state).metered(state, now))
    return replace(decision, problem=decision.problem or world.unread)


def _decide(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> Decision:
    match signal.wake:
        case Wake.ALARM_LIT:
            return _alarm(world, state, settings, now)
        case Wake.SCAN:
            return _scan(world, state, settings, now)
        case Wake.LAUNCHED:
            return _launched(signal, world, state, settings, now)
        case Wake.LAUNCH_FAILED:
            return _launch_failed(signal, world, state, settings, now)
        case Wake.ALARM_OK | Wake.TERMINATED | Wake.REFRESH_ENDED:
            return _advance(world, state, settings, now) or recorded(signal)
        case Wake.INTERRUPTION | Wake.REBALANCE:
            ours = any(box.id == signal.box for box in world.seen_group.boxes)
            return recorded(signal) if ours else Decision(Action.IGNORED, f"{signal.box} is not of this fleet")
        case Wake.PATIENCE:
            return Decision(Action.NOTHING, "no drought")
        case Wake.PIN:
            return _pin(signal, state, now)
        case Wake.ARM:
            return _arm(signal, world, state, now)
        case Wake.PROBE:
            return _probe(world)
        case Wake.IGNORED:
            return Decision(Action.IGNORED, signal.detail)
        case _:
            assert_never(signal.wake)


# --- failover ---------------------------------------------------------------------------------------------------


def _alarm(world: World, state: State, settings: Settings, now: datetime) -> Decision:
    if not state.armed:
        return Decision(Action.NOTHING, f"already {state.mode}")
    if world.alarm is None:
        return Decision(Action.SKIPPED, NO_ALARM, problem=NO_ALARM)
    if skip := _guard(world.alarm, world, state, settings, now):
        return skip
    history = (*state.recent_failovers(settings, now), now)
    new = replace(state, mode=Mode.FAILOVER, since=now, failovers=history, cooldown_from=now, streak=0, rearm_from=None)
    why = f"no healthy target, alarm lit for {_seconds(now - world.alarm.since)} s"
    return transition(new, Kind.FAILOVER, now, why + (", during a re-arm" if state.rearm_from else ""))


def _guard(alarm: Alarm, world: World, state: State, settings: Settings, now: datetime) -> Decision | None:
    """What holds a failover back, in this order; None lets it pass."""
    limits = settings.watchdog
    if not world.lit:
        return Decision(Action.SKIPPED, f"the alarm is {alarm.state} now")
    # An alarm that was lit before the re-arm began is what the re-arm answers: it counts from there.
    lit = now - (max(alarm.since, state.rearm_from) if state.rearm_from else alarm.since)
    capped = lit >= timedelta(seconds=limits.skip_cap_seconds)
    numbers = f"alarm lit for {_seconds(lit)} s, skip cap {limits.skip_cap_seconds} s"
    young = world.young(settings, now, ever_launched=state.launched_at is not None)
    if young and not capped:
        return Decision(Action.SKIPPED, names.LINE_SKIPPED_YOUNG, f"{young}; {numbers}")
    if state.rearm_from and alarm.since <= state.rearm_from and not capped:
        return Decision(Action.SKIPPED, f"failover skipped: the re-arm is the recovery in progress, {numbers}")
    if world.healthy:
        return Decision(Action.SKIPPED, f"failover skipped: {', '.join(world.healthy)} answers now")
    if spent := state.on_demand_spent(settings, now):
        return Decision(Action.SKIPPED, f"failover skipped: {spent}")
    if world.deploying and not capped:
        return Decision(Action.SKIPPED, f"failover skipped: a deploy is in progress, {numbers}")
    return None


def _finish(
    unfinished: Transition, signal: Signal, world: World, state: State, settings: Settings, now: datetime
) -> Decision:
    """What was begun comes first. Only a failover that is due takes its place: it moves the same levers."""
    if signal.wake in {Wake.ALARM_LIT, Wake.SCAN}:
        failover = _alarm(world, state, settings, now)
        if failover.action is Action.TRANSITION:
            return failover
    return Decision(Action.FINISH, f"finish {unfinished.kind} of {unfinished.at:%H:%M:%S}", state=state)


# --- scan -------------------------------------------------------------------------------------------------------


def _scan(world: World, state: State, settings: Settings, now: datetime) -> Decision:
    decision = _scan_mode(world, state, settings, now)
    suspend = "AZRebalance" not in world.seen_group.suspended
    missing = NO_ALARM if world.alarm is None and state.mode is not Mode.PINNED else ""
    return replace(decision, suspend_rebalance=suspend, problem=missing)


def _scan_mode(world: World, state: State, settings: Settings, now: datetime) -> Decision:
    if state.mode is Mode.PINNED:
        return Decision(Action.NOTHING, names.LINE_PINNED, "" if world.agrees(100) else _disagreement(world, state))
    failover = _alarm(world, state, settings, now) if world.lit and state.armed else None
    standing = [step for step in (failover, _advance(world, state, settings, now)) if step]
    for step in standing:
        if step.action not in {Action.SKIPPED, Action.NOTHING}:
            return step
    if not world.agrees(state.expected_lever):
        if busy := _busy(world, ours=state.refresh_id):
            return Decision(Action.REFUSED, f"{_disagreement(world, state)}; repaired later: {busy}")
        return transition(state, Kind.REPAIRED, now, _disagreement(world, state))
    if standing:
        return standing[0]
    if state.armed:
        return Decision(Action.NOTHING, f"{state.mode}; nothing to do")
    if spent := state.on_demand_spent(settings, now):
        new = replace(state, mode=Mode.ARMED, since=now, cooldown_from=None, streak=0)
        return transition(new, Kind.LIMITED, now, spent)
    return _rearm(world, state, settings, now)


def _rearm(world: World, state: State, settings: Settings, now: datetime) -> Decision:
    """On-demand after a failover: valve, cooldown, streak, then back to spot."""
    limits = settings.watchdog
    if len(recent := state.recent_failovers(settings, now)) >= settings.valve_failovers:
        new = replace(state, mode=Mode.PINNED, since=now, streak=0)
        return transition(new, Kind.GAVE_UP, now, f"{len(recent)} failovers in {limits.valve_window_seconds // 3600} h")
    if settings.policy == "bridge":
        if state.scored_at and _just_scored(state, settings, now):
            return Decision(Action.REFUSED, f"{_seconds(now - state.scored_at)} s since the last reading of the market")
        return bridge.back(world, state, settings, _busy_for_rearm(world), now)
    if state.cooldown_from and _cooling(state, settings, now):
        cause = "failover" if state.cooldown_from in state.failovers else "the re-arm fell back"
        elapsed = _seconds(now - state.cooldown_from)
        return Decision(Action.REFUSED, f"{elapsed} s since {cause}, cooldown {limits.cooldown_seconds} s")
    if state.scored_at and _just_scored(state, settings, now):
        return Decision(
            Action.REFUSED,
            f"{_seconds(now - state.scored_at)} s since the last score, streak {state.streak} of {limits.rearm_streak}",
        )
    if world.unread:
        return Decision(Action.REFUSED, world.unread)
    zone = max(world.scores, key=lambda zone: world.scores[zone], default="no zone")
    score = world.scores.get(zone, 0)
    streak = min(state.streak + 1, limits.rearm_streak) if score >= limits.rearm_score else 0
    new = replace(state, streak=streak, scored_at=now)
    numbers = f"score {score} in {zone} ({limits.rearm_score} needed), streak {streak} of {limits.rearm_streak}"
    busy = _busy_for_rearm(world)
    if streak < limits.rearm_streak or busy:
        return Decision(Action.REFUSED, "; ".join(filter(None, [numbers, busy])), state=new)
    return transition(replace(new, streak=0, rearm_from=now, since=now), Kind.REARM, now, numbers)


def _advance(world: World, state: State, settings: Settings, now: datetime) -> Decision | None:
    """The next step of the re-arm phase; None if there is none under way."""
    if state.rearm_from is None:
        return None
    limits, elapsed = settings.watchdog, _seconds(now - state.rearm_from)
    known = replace(state, refresh_id=state.refresh_id or _forgotten_roll(world, state.rearm_from))
    spot, on_demand = world.alive_by_purchase
    old = on_demand[settings.capacity.on_demand_base :]
    serving = [box.id for box in spot if box.id in world.healthy and box.lifecycle == "InService"]
    launching = len(spot) > len(serving)
    if serving and not old:
        new = replace(known, mode=Mode.ARMED, since=now, rearm_from=None, cooldown_from=None)
        return transition(new, Kind.REARMED, now, f"spot box {serving[0]} serves, {elapsed} s after the lever moved")
    failed = [f"instance refresh {r.status}" for r in world.refreshes if r.id == known.refresh_id and r.failed]
    if failed or elapsed >= limits.rearm_timeout_seconds:
        new = replace(known, since=now, rearm_from=None, streak=0, cooldown_from=now)
        why = failed[0] if failed else f"no spot box took over in {elapsed} s, limit {limits.rearm_timeout_seconds} s"
        return transition(new, Kind.FELL_BACK, now, why)
    enough = len(spot) >= world.seen_group.desired - settings.capacity.on_demand_base  # the group replaces unasked
    if old and not (enough or launching or known.refresh_id or _busy(world)):
        return Decision(Action.REFRESH, f"roll {len(old)} on-demand, launch first")
    phase = "old box leaving" if serving else "successor launching" if launching else "flipped"
    line = f"re-arm: {phase}, {elapsed} s of {limits.rearm_timeout_seconds} s"
    return Decision(Action.NOTHING, line, state=known if known != state else None)


def _forgotten_roll(world: World, since: datetime) -> str | None:
    """The refresh that an invocation of this phase started before it failed to write its id."""
    rolls = [r.id for r in world.refreshes if r.started_at >= since and not r.has_desired_configuration]
    return next(iter(rolls), None)


# --- events of the group ----------------------------------------------------------------------------------------


def _launched(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> Decision:
    at = signal.at or now
    new = replace(
        state,
        launched_at=max(state.launched_at or at, at),
        abandoned=tuple((box, when) for box, when in state.abandoned if when > at),
        dry_at=None if state.dry_at and state.dry_at <= at else state.dry_at,
    )
    step = _advance(world, new, settings, now) or recorded(signal)
    return step if step.state or new == state else replace(step, state=new)


def _launch_failed(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> Decision:
    at, group, limit = signal.at or now, world.seen_group, settings.watchdog.boot_loop_launches
    noted = recorded(signal)
    if state.launched_at and at <= state.launched_at:
        return noted
    if signal.abandoned:
        known = {**dict(state.abandoned), signal.box: at}
        new = replace(state, abandoned=tuple(sorted(known.items(), key=lambda item: item[1])[-limit:]))
        if new == state:
            return noted
        if len(new.abandoned) >= limit and "Launch" not in group.suspended:
            return transition(new, Kind.BOOT_LOOP, now, f"{limit} launches running were abandoned")
        return replace(noted, state=new)
    ours = signal.began and (state.since is None or signal.began > state.since)  # event times are cut to seconds
    short = len(world.alive) < group.desired and group.on_demand_percentage == 100 == state.expected_lever
    if ours and short and state.dry_at is None:
        return transition(replace(state, dry_at=at), Kind.DRY, now, signal.detail)
    return noted


# --- operators --------------------------------------------------------------------------------------------------


def _pin(signal: Signal, state: State, now: datetime) -> Decision:
    if state.mode is Mode.PINNED:
        return Decision(Action.NOTHING, "already pinned")
    new = replace(state, mode=Mode.PINNED, since=now, rearm_from=None, streak=0)
    return transition(new, Kind.PINNED, now, _by(signal))


def _arm(signal: Signal, world: World, state: State, now: datetime) -> Decision:
    """Clears what keeps the scan from re-arming; never flips by itself."""
    stopped = "Launch" in world.seen_group.suspended or state.abandoned
    if state.armed:
        if not stopped:
            return Decision(Action.NOTHING, "a re-arm is under way" if state.rearm_from else f"already {state.mode}")
        return transition(replace(state, abandoned=()), Kind.ARMED, now, _by(signal))
    if state.mode is Mode.FAILOVER and not (stopped or state.failovers or state.cooldown_from):
        return Decision(Action.NOTHING, "armed already: the next good scores re-arm")
    new = replace(
        state, mode=Mode.FAILOVER, since=now, failovers=(), cooldown_from=None, streak=0, scored_at=None, abandoned=()
    )
    return transition(new, Kind.ARMED, now, _by(signal))


def _probe(world: World) -> Decision:
    if busy := _busy(world):
        return Decision(Action.REFUSED, f"probe refused: {busy}")
    return Decision(Action.PROBE, f"sent the group its own {world.percentage} % again")


# --- rules used twice -------------------------------------------------------------------------------------------


def wants_scores(state: State, settings: Settings, now: datetime) -> bool:
    """Whether a scan gets as far as the placement score."""
    cools = settings.policy == "alarm" and _cooling(state, settings, now)
    waits = cools or _just_scored(state, settings, now)
    valve = len(state.recent_failovers(settings, now)) >= settings.valve_failovers
    return state.mode is Mode.FAILOVER and not (state.armed or state.unfinished or waits or valve)


def _cooling(state: State, settings: Settings, now: datetime) -> bool:
    return state.cooldown_from is not None and _seconds(now - state.cooldown_from) < settings.watchdog.cooldown_seconds


def _just_scored(state: State, settings: Settings, now: datetime) -> bool:
    """A repeated scan does not make a streak: scores count when they are at least half a scan apart."""
    return state.scored_at is not None and _seconds(now - state.scored_at) < settings.scan_seconds // 2


def _busy(world: World, *, ours: str | None = None) -> str:
    """What else changes the group now, or may: a deploy, or an instance refresh that is not ours."""
    if world.deploying:
        return "a deploy is in progress"
    active = [f"instance refresh {r.id} is {r.status}" for r in world.refreshes if r.active and r.id != ours]
    return world.unread or next(iter(active), "")


def _busy_for_rearm(world: World) -> str:
    return "Launch is suspended; arm resumes it" if "Launch" in world.seen_group.suspended else _busy(world)


def _disagreement(world: World, state: State) -> str:
    return f"parameter {world.lever}, group {world.percentage}: {state.mode} expects {state.expected_lever}"


def _by(signal: Signal) -> str:
    return f"by {signal.who or 'an operator'}: {signal.detail or 'no reason given'}"


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds())
