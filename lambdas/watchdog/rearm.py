"""The way back to spot, as pure as `policy`: when a scan begins it, how the phase advances, and how it ends."""

from dataclasses import replace
from datetime import datetime, timedelta

from fleet.settings import Settings
from lambdas.watchdog import bridge
from lambdas.watchdog.decision import Action, Decision, seconds, transition
from lambdas.watchdog.state import Kind, Mode, State
from lambdas.watchdog.world import World

SCAN_JITTER_SECONDS = 60  # by which two scans may follow each other sooner than they should


def begin(world: World, state: State, settings: Settings, now: datetime) -> Decision:
    """A scan on on-demand: what needs no score, then the streak, then back to spot."""
    if first := _before_scores(state, settings, now):
        return first
    busy = "Launch is suspended: fleetctl resume" if "Launch" in world.seen_group.suspended else world.busy()
    if settings.policy == "bridge":
        return bridge.back(world, state, settings, busy, now)
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
    return transition(replace(new, streak=0, rearm_from=now, since=now), Kind.REARM, now, numbers)


def wants_scores(state: State, settings: Settings, now: datetime) -> bool:
    """Whether a scan gets as far as the placement score."""
    on_demand = state.mode is Mode.FAILOVER and not (state.armed or state.unfinished)
    return on_demand and _before_scores(state, settings, now) is None


def _before_scores(state: State, settings: Settings, now: datetime) -> Decision | None:
    """The day's limit, valve, cooldown, and that a repeated scan is no second score, in this order."""
    limits = settings.watchdog
    if spent := state.on_demand_spent(settings, now):
        new = replace(state, mode=Mode.ARMED, since=now, cooldown_from=None, streak=0)
        return transition(new, Kind.LIMITED, now, spent)
    if len(recent := state.recent_failovers(settings, now)) >= settings.valve_failovers:
        new = replace(state, mode=Mode.PINNED, since=now, streak=0)
        return transition(new, Kind.GAVE_UP, now, f"{len(recent)} failovers in {limits.valve_window_seconds // 3600} h")
    on_alarm = settings.policy == "alarm"
    if on_alarm and state.cooldown_from and (elapsed := seconds(now - state.cooldown_from)) < limits.cooldown_seconds:
        cause = "failover" if state.cooldown_from in state.failovers else "the re-arm fell back"
        return Decision(Action.REFUSED, f"{elapsed} s since {cause}, cooldown {limits.cooldown_seconds} s")
    shortest = settings.scan_seconds - SCAN_JITTER_SECONDS
    if state.scored_at and (elapsed := seconds(now - state.scored_at)) < shortest:
        last = f"score, streak {state.streak} of {limits.rearm_streak}" if on_alarm else "reading of the market"
        return Decision(Action.REFUSED, f"{elapsed} s since the last {last}")
    return None


def advance(world: World, state: State, settings: Settings, now: datetime) -> Decision | None:
    """The next step of the re-arm phase; None if there is none under way."""
    if state.rearm_from is None:
        return None
    limits, elapsed = settings.watchdog, seconds(now - state.rearm_from)
    known = replace(state, refresh_id=state.refresh_id or _forgotten_roll(world, state.rearm_from))
    spot, on_demand = world.alive_by_purchase
    old = on_demand[settings.capacity.on_demand_base :]
    serving = [box.id for box in spot if box.id in world.healthy and box.lifecycle == "InService"]
    launching = len(spot) > len(serving)
    if serving and not old:
        new = replace(known, mode=Mode.ARMED, since=now, rearm_from=None, cooldown_from=None, dry_at=None)
        return transition(new, Kind.REARMED, now, f"spot box {serving[0]} serves, {elapsed} s after the lever moved")
    failed = [f"instance refresh {r.status}" for r in world.refreshes if r.id == known.refresh_id and r.failed]
    if why := next(iter(failed), expired(known, settings, now)):
        return fell_back(known, now, why)
    enough = len(spot) >= world.seen_group.desired - settings.capacity.on_demand_base  # the group replaces unasked
    if old and not (enough or launching or known.refresh_id or world.busy()):
        return Decision(Action.REFRESH, f"roll {len(old)} on-demand, launch first")
    phase = "old box leaving" if serving else "successor launching" if launching else "flipped"
    line = f"re-arm: {phase}, {elapsed} s of {limits.rearm_timeout_seconds} s"
    return Decision(Action.NOTHING, line, state=known if known != state else None)


def expired(state: State, settings: Settings, now: datetime) -> str:
    """Why the phase has run for too long; empty: it has not, or there is none under way."""
    limit, elapsed = settings.watchdog.rearm_timeout_seconds, seconds(now - (state.rearm_from or now))
    return f"no spot box took over in {elapsed} s, limit {limit} s" if elapsed >= limit else ""


def fell_back(state: State, now: datetime, why: str) -> Decision:
    """Back on on-demand: streak and cooldown begin anew, and it counts as no failover."""
    new = replace(state, since=now, rearm_from=None, streak=0, cooldown_from=now)
    return transition(new, Kind.FELL_BACK, now, why)


def _forgotten_roll(world: World, since: datetime) -> str | None:
    """The refresh that an invocation of this phase started before it failed to write its id."""
    return next((r.id for r in world.refreshes if r.started_at >= since and r.like_ours), None)
