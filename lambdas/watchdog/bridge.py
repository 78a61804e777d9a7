"""The bridge policy, beside the specified one and as pure: on-demand runs as long as it is needed, no longer.

Out: in a drought, at once where no zone sells, else once patience has run out; and ahead of a loss when AWS warns of
one while spot can be bought back.
Back: when spot has sold for longer than the bar.
The alarm path of `policy` stays underneath: it still acts if every event that this one lives on is lost.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from fleet.config.settings import Settings
from lambdas.watchdog import failover, shares, turns
from lambdas.watchdog.decision import Action, Decision, transition
from lambdas.watchdog.signals import Signal, Wake
from lambdas.watchdog.state import Evidence, Kind, Mode, State
from lambdas.watchdog.world import World, boot_budget_seconds

TELLS_OF_DROUGHT = {Wake.LAUNCH_FAILED, Wake.INTERRUPTION, Wake.TERMINATED, Wake.PATIENCE, Wake.SCAN}
CUT_OFF = timedelta(seconds=1)  # an event's time has no fraction: patience must not run out early for that


def learn(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> State:
    """The state with what this signal and this look at the world say of the market."""
    seen = state.evidence
    match signal.wake:
        case Wake.INTERRUPTION if signal.box not in seen.noticed:
            idle = 0 if signal.box in seen.warned else seen.false_warnings
            state = state.with_notice(signal.box, {box.id for box in world.group.boxes} if world.group else ())
            seen = replace(state.evidence, false_warnings=idle)
        case Wake.REBALANCE:
            together = seen.warned if seen.warned_at else ()
            warned = (*(box for box in together if box != signal.box), signal.box)[-shares.floor(settings) :]
            seen = replace(seen, warned=warned, warned_at=now)
    there = serving(world, seen)
    short = shares.missing(there, settings) > 0
    if short:
        there |= world.coming(seen.noticed, settings, now)
    if state.exposed and not state.armed and not turns.lacks_spot(world, state, settings):
        pass  # on-demand is what is refused: `turns` remembers that
    elif not shares.missing(there, settings):
        seen = replace(seen, drought_at=None) if seen.drought_at else seen
    elif signal.refused and state.exposed and seen.drought_at is None and not _told_again(signal, state):
        began = signal.began or now
        late = now - began > timedelta(seconds=settings.bridge.stale_event_seconds)
        seen = replace(seen, drought_at=now if late else began + CUT_OFF)
    dark = state.exposed and short
    if signal.wake in TELLS_OF_DROUGHT and dark is not bool(seen.dark_at):
        seen = replace(seen, dark_at=now if dark else None)
    return state if seen is state.evidence else replace(state, evidence=seen)


def react(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> Decision | None:
    """What this signal calls for, beyond the alarm path; `state` has learned it already. None: nothing."""
    if not state.exposed or state.turns:
        return None
    if signal.wake in TELLS_OF_DROUGHT and state.evidence.drought_at:
        return _drought(state.evidence.drought_at, world, state, settings, now)
    if signal.wake in TELLS_OF_DROUGHT and (boots := _boots_that_come_to_nothing(world, state, settings, now)):
        return _leave(boots, serving(world, state.evidence), world, state, settings, now)
    if state.evidence.warned_at and not state.rearm_from and settings.bridge.on_warning:
        return _warned(state.evidence.warned_at, signal, world, state, settings, now)
    return None


def _drought(since: datetime, world: World, state: State, settings: Settings, now: datetime) -> Decision:
    """Boxes are missing, none is on its way for them, and launches have failed since then."""
    dry = world.scores and not selling(world, settings)  # then no retry of the group's will be served
    patience = 0 if dry else settings.bridge.patience_seconds
    elapsed = int((now - since).total_seconds())
    stays = serving(world, state.evidence) | world.coming(state.evidence.noticed, settings, now)
    floor = shares.floor(settings)
    few = "no box serves or is on its way" if floor == 1 else f"{len(stays)} of {floor} boxes serve or are on their way"
    numbers = f"{few}, launches have failed for {elapsed} s, patience {patience} s"
    numbers += ", spot sells in no zone" if dry else ""
    if patience and elapsed < patience:
        return Decision(Action.WAITING, numbers, state=state, wake_at=since + timedelta(seconds=patience))
    return _leave(numbers, stays, world, state, settings, now)


def _boots_that_come_to_nothing(world: World, state: State, settings: Settings, now: datetime) -> str:
    """Boxes come, one after the other, and some are missing for longer than a boot and patience; empty: not so."""
    if state.evidence.dark_at is None or not world.alive:
        return ""
    boots = [boot_budget_seconds(world.instances[box.id], settings) for box in world.alive if box.id in world.instances]
    first = settings.boot.cold_budget_seconds if state.launched_at is None else settings.boot.warm_budget_seconds
    limit = max([first, *boots]) + settings.bridge.patience_seconds
    elapsed = int((now - state.evidence.dark_at).total_seconds())
    few = "nothing has served" if shares.floor(settings) == 1 else "boxes have been missing"
    return f"{few} for {elapsed} s though boxes came, limit {limit} s" if elapsed >= limit else ""


def _leave(numbers: str, stays: set[str], world: World, state: State, settings: Settings, now: datetime) -> Decision:
    """On on-demand with what is missing beside `stays`, unless something holds that back."""
    boxes = failover.boxes(world, stays, settings)
    if boxes <= shares.bought(state.expected_lever, settings):
        return Decision(
            Action.SKIPPED, f"failover skipped: what is missing is on-demand as it is; {numbers}", state=state
        )
    if world.deploying:
        return Decision(Action.SKIPPED, f"failover skipped: a deploy is in progress; {numbers}", state=state)
    if spent := state.on_demand_spent(settings, now):
        return Decision(Action.SKIPPED, f"failover skipped: {spent}; {numbers}", state=state)
    return _out(failover.buys(state, boxes, settings, now), state, Kind.FAILOVER, 0, now, numbers)


def _warned(
    at: datetime, signal: Signal, world: World, state: State, settings: Settings, now: datetime
) -> Decision | None:
    """A box that may go is given up for an on-demand one only if it is needed, and could be bought back."""
    seen, limits, box = replace(state.evidence, warned_at=None), settings.bridge, state.evidence.warned[-1]
    settled_at = at + timedelta(seconds=limits.warning_settles_seconds)
    if signal.wake is Wake.REBALANCE:
        return Decision(Action.WAITING, f"{box} may go", state=state, wake_at=settled_at)
    if signal.wake is not Wake.PATIENCE or now < settled_at:
        return None
    state, sells = replace(state, evidence=seen), selling(world, settings)
    going = serving(world, seen) & set(seen.warned) & world.instances.keys()
    rest = serving(world, seen) - going
    coming = world.coming(seen.noticed, settings, now)
    boxes = failover.boxes(world, rest | coming, settings)
    if not going or not shares.missing(rest, settings):
        why = "it is not the only box that serves" if shares.floor(settings) == 1 else "enough others serve"
    elif not shares.missing(rest | coming, settings) or boxes <= shares.bought(state.expected_lever, settings):
        why = "its successor is on its way, so the group would not launch another"
    elif seen.false_warnings >= limits.false_warnings:
        why = f"the last {seen.false_warnings} warnings came to nothing"
    elif not sells:
        why = "spot sells nothing now, so the box could not be bought back"
    elif world.deploying:
        why = "a deploy is in progress"
    elif spent := state.on_demand_spent(settings, now):
        why = spent
    else:
        names = ", ".join(sorted(going))
        lived = int(max((now - world.instances[box].launched_at).total_seconds() for box in going))
        warned = replace(state, evidence=replace(seen, false_warnings=seen.false_warnings + 1, selling=sells))
        reason = f"AWS warned that {names} may go; it was launched {lived} s ago"
        bridged = replace(warned, mode=Mode.FAILOVER, since=now, part=shares.part(boxes, settings))
        calm = min(max(seen.calm_seconds, lived), limits.return_after_seconds)
        return _out(bridged, state, Kind.BRIDGED, calm, now, reason)
    return Decision(Action.REFUSED, f"the warning of {box} is left to the group: {why}", state=state)


def _out(after: State, before: State, kind: Kind, calm_seconds: int, now: datetime, why: str) -> Decision:
    """Off spot, as far as `after` says."""
    during = ", during a re-arm" if before.rearm_from else ""
    dark_at = now if after.evidence.dark_at else None
    seen = replace(after.evidence, drought_at=None, dark_at=dark_at, calm_seconds=calm_seconds)
    new = replace(after, rearm_from=None, cooldown_from=None, streak=0, evidence=seen)
    return transition(new, kind, now, why + during)


def back(world: World, state: State, settings: Settings, busy: str, now: datetime) -> Decision:
    """A scan on on-demand: one more reading of the market, and back to spot once it has been calm for the bar."""
    if world.unread:
        return Decision(Action.REFUSED, world.unread)
    seen, sells = state.evidence, selling(world, settings)
    interval = now - max(filter(None, [state.scored_at, state.since]), default=now)
    calm = seen.calm_seconds if sells or seen.selling else 0  # one reading without supply may be an error of the score
    calm += int(min(interval.total_seconds(), settings.scan_seconds)) if sells else 0
    needed = settings.bridge.return_after_seconds
    calm = min(calm, needed)
    new = replace(state, scored_at=now, evidence=replace(seen, calm_seconds=calm, selling=sells))
    numbers = f"spot calm for {calm} s, bar {needed} s, sells in {', '.join(sells) or 'no zone'}"
    busy = busy or ("" if failover.on_demand_serves(world, settings) else "no on-demand box serves yet")
    if calm < needed or not sells or busy:
        return Decision(Action.REFUSED, "; ".join(filter(None, [numbers, busy])), state=new)
    return transition(replace(failover.gives_back(new, settings, now), trial=False), Kind.REARM, now, numbers)


def serving(world: World, seen: Evidence) -> set[str]:
    """Targets that answer and have no notice: a noticed box shuts its gate within seconds."""
    return set(world.healthy) - set(seen.noticed)


def selling(world: World, settings: Settings) -> tuple[str, ...]:
    """Zone ids whose placement score says that a launch would do."""
    return tuple(sorted(zone for zone, score in world.scores.items() if score >= settings.watchdog.rearm_score))


def _told_again(signal: Signal, state: State) -> bool:
    """A launch that failed before the lever moved says nothing of what is asked for now."""
    return state.mode is Mode.FAILOVER and signal.began is not None and not turns.after(state, signal.began)
