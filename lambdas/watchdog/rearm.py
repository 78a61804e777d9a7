"""The way back to spot, as pure as `policy`: when a scan begins it, how the phase advances, and how it ends."""

from dataclasses import replace
from datetime import datetime, timedelta

from fleet.config.settings import Settings
from lambdas.watchdog import bridge, failover, failures, shares
from lambdas.watchdog.decision import Action, Decision, seconds, transition
from lambdas.watchdog.signals import Signal
from lambdas.watchdog.state import Kind, Mode, State
from lambdas.watchdog.world import World

UNASKED_SECONDS = 120  # within which a group of several begins to replace a box of the wrong kind, if it ever does
SCAN_JITTER_SECONDS = 60  # by which two scans may follow each other sooner than they should


def begin(world: World, state: State, settings: Settings, now: datetime) -> Decision:
    """A scan on on-demand: what needs no score, then the policy's own reading, then back to spot, or a trial of it."""
    if not shares.above_base(settings):
        new = replace(state, mode=Mode.ARMED, since=now, part=0, cooldown_from=None, streak=0, turns=0)
        why = "every box is of the on-demand base: there is nothing to give back"
        return transition(new, Kind.REARMED, now, why, silent=True)
    if first := _before_scores(state, settings, now):
        return first
    busy = "Launch is suspended: fleetctl resume" if "Launch" in world.seen_group.suspended else world.busy()
    reading = bridge.back if settings.on_events else _streak
    decision = reading(world, state, settings, busy, now)
    if decision.kind is Kind.REARM and not state.blocked:
        return decision
    tried = seconds(now - (state.since or now))
    due = state.reminders and tried >= settings.watchdog.trial_return_seconds  # no trial in the first day
    tries = due and not busy and failover.on_demand_serves(world, settings)
    if not tries and decision.kind is not Kind.REARM:
        return decision
    new = replace(decision.state or state, unfinished=None, rearm_from=None, since=state.since, part=state.part)
    if tries:
        new = replace(failover.gives_back(new, settings, now), trial=True, streak=0)
        return transition(new, Kind.REARM, now, f"a trial: nothing else was tried for {tried} s; {decision.reason}")
    why = f"{decision.reason}; spot was refused ({state.blocked}): only a trial asks again"
    return Decision(Action.REFUSED, why, state=new)


def _streak(world: World, state: State, settings: Settings, busy: str, now: datetime) -> Decision:
    """The alarm policy's: a score that is good enough, on consecutive scans."""
    if world.unread:
        return Decision(Action.REFUSED, world.unread)
    limits = settings.watchdog
    zone = max(world.scores, key=lambda zone: world.scores[zone], default="no zone")
    score = world.scores.get(zone, 0)
    longest = timedelta(seconds=settings.scan_seconds * 3 // 2)  # a scan without a score ends the run
    before = state.streak if state.scored_at and now - state.scored_at <= longest else 0
    streak = min(before + 1, limits.rearm_streak) if score >= limits.rearm_score else 0
    new = replace(state, streak=streak, scored_at=now)
    numbers = f"score {score} in {zone} ({limits.rearm_score} needed), streak {streak} of {limits.rearm_streak}"
    if streak < limits.rearm_streak or busy:
        return Decision(Action.REFUSED, "; ".join(filter(None, [numbers, busy])), state=new)
    return transition(replace(failover.gives_back(new, settings, now), streak=0, trial=False), Kind.REARM, now, numbers)


def wants_scores(state: State, settings: Settings, now: datetime) -> bool:
    """Whether a scan gets as far as the placement score."""
    on_demand = state.mode is Mode.FAILOVER and not (state.armed or state.unfinished)
    return on_demand and _before_scores(state, settings, now) is None


def _before_scores(state: State, settings: Settings, now: datetime) -> Decision | None:
    """The day's limit, valve, cooldown, and that a repeated scan is no second score, in this order."""
    limits = settings.watchdog
    if spent := state.on_demand_spent(settings, now):
        new = replace(state, mode=Mode.ARMED, since=now, part=0, cooldown_from=None, streak=0, turns=0)
        return transition(new, Kind.LIMITED, now, spent)
    if (bought := state.fleets_bought(settings, now)) >= settings.valve_failovers:
        new = replace(state, mode=Mode.PINNED, since=now, part=0, streak=0)
        return transition(new, Kind.GAVE_UP, now, f"{bought:g} failovers in {limits.valve_window_seconds // 3600} h")
    if state.cooldown_from and (elapsed := seconds(now - state.cooldown_from)) < limits.cooldown_seconds:
        cause = "failover" if state.cooldown_from in state.failovers else "the re-arm fell back"
        return Decision(Action.REFUSED, f"{elapsed} s since {cause}, cooldown {limits.cooldown_seconds} s")
    shortest = settings.scan_seconds - SCAN_JITTER_SECONDS
    if state.scored_at and (elapsed := seconds(now - state.scored_at)) < shortest:
        streak = f"score, streak {state.streak} of {limits.rearm_streak}"
        last = "reading of the market" if settings.on_events else streak
        return Decision(Action.REFUSED, f"{elapsed} s since the last {last}")
    return None


def advance(world: World, state: State, settings: Settings, now: datetime) -> Decision | None:
    """The next step of the re-arm phase; None if there is none under way."""
    if state.rearm_from is None:
        return None
    limits, elapsed = settings.watchdog, seconds(now - state.rearm_from)
    known = replace(state, refresh_id=state.refresh_id or _forgotten_roll(world, state.rearm_from))
    spot, on_demand = world.alive_by_purchase
    left = shares.bought(state.expected_lever, settings, world.seen_group.desired)
    old = on_demand[shares.base(settings) + left :]
    serving = [box.id for box in spot if box.id in world.healthy and box.lifecycle == "InService"]
    launching = len(spot) > len(serving)
    if serving and not old and left:
        new = replace(failover.gives_back(known, settings, now), refresh_id=None, trial=False, blocked="")
        return transition(new, Kind.REARM, now, f"{left} more on-demand, {_who(serving, settings)} after {elapsed} s")
    if serving and not old:
        new = replace(known, mode=Mode.ARMED, since=now, rearm_from=None, cooldown_from=None, dry_at=None, refused=())
        new = replace(new, trial=False, blocked="")
        return transition(new, Kind.REARMED, now, f"{_who(serving, settings)}, {elapsed} s after the lever moved")
    failed = [f"instance refresh {r.status}" for r in world.refreshes if r.id == known.refresh_id and r.failed]
    if why := next(iter(failed), expired(world, known, settings, now)):
        return fell_back(world, known, settings, now, why)
    # The group replaces unasked, or does not (aws-behaviours: percentage-replaces).
    enough = len(spot) >= world.seen_group.desired - shares.base(settings) - left
    waits = shares.floor(settings) > 1 and elapsed < UNASKED_SECONDS
    if old and not (enough or launching or waits or known.refresh_id or world.busy()):
        if left:  # a refresh rolls every box there is: all that is on-demand goes with it
            return transition(replace(known, part=0, since=now, rearm_from=now), Kind.REARM, now, "nothing is replaced")
        return Decision(Action.REFRESH, f"roll {len(old)} on-demand, launch first")
    phase = "old box leaving" if serving else "successor launching" if launching else "flipped"
    line = f"re-arm: {phase}, {elapsed} s of {limits.rearm_timeout_seconds} s"
    return Decision(Action.NOTHING, line, state=known if known != state else None)


def _who(serving: list[str], settings: Settings) -> str:
    """In a fleet of several most of them served before this phase: their number says what came of it."""
    return f"spot box {serving[0]} serves" if shares.floor(settings) == 1 else f"spot boxes serving: {len(serving)}"


def expired(world: World, state: State, settings: Settings, now: datetime) -> str:
    """Why the phase has run for too long; empty: it has not, or there is none under way."""
    limit, elapsed = settings.watchdog.rearm_timeout_seconds, seconds(now - (state.rearm_from or now))
    boxes = max(world.group.desired if world.group else 0, shares.floor(settings))
    limit *= boxes if state.refresh_id else 1  # a roll replaces box by box
    return f"no spot box took over in {elapsed} s, limit {limit} s" if elapsed >= limit else ""


def refused(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> Decision | None:
    """The end of a phase whose launch was refused: of a trial, under the bridge policy, or for what time does not mend.

    Under the alarm policy a drought has the whole phase to pass.
    """
    if not (signal.refused and state.rearm_from and signal.began and signal.began >= state.rearm_from):
        return None
    failure = failures.read(signal.detail)
    if not (settings.on_events or state.trial or failure.lasting):
        return None
    why = f"spot launch failed: {signal.detail or 'no reason given'}"
    new = replace(state, blocked=failure.name if failure.lasting else "")
    return fell_back(world, new, settings, now, why, cools=not settings.on_events)


def fell_back(
    world: World, state: State, settings: Settings, now: datetime, why: str, *, cools: bool = True
) -> Decision:
    """Back on on-demand: streak and calm begin anew, and it counts as no failover. A failed trial is no news.

    Boxes that were given back before stay on spot.
    """
    there = len(world.alive_by_purchase[1]) - shares.base(settings)
    boxes = max(shares.bought(state.expected_lever, settings) + 1, min(there, shares.above_base(settings)))
    seen = replace(state.evidence, drought_at=None, calm_seconds=0)
    new = replace(state, since=now, rearm_from=None, trial=False, streak=0, evidence=seen)
    new = replace(new, part=shares.part(boxes, settings))
    if not state.trial:
        new = replace(new, cooldown_from=now if cools else None)
    return transition(new, Kind.FELL_BACK, now, why, silent=state.trial)


def _forgotten_roll(world: World, since: datetime) -> str | None:
    """The refresh that an invocation of this phase started before it failed to write its id."""
    return next((r.id for r in world.refreshes if r.started_at >= since and r.like_ours), None)
