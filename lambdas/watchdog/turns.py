"""Turns of a fleet whose missing share is refused, as pure as `policy`: whichever kind sells is right.

A failover that bought nothing begins them. The lever then turns from one kind to the other for what is missing, each
tried for longer than the one before, until all of it serves. Such a turn says nothing of the spot market: neither
cooldown nor valve counts it, nor the failover that it takes back, and only the refusals are mailed. A pinned fleet is
left alone.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from fleet.config.settings import Settings
from lambdas.watchdog import shares
from lambdas.watchdog.decision import Action, Decision, seconds, transition
from lambdas.watchdog.signals import Signal, Wake
from lambdas.watchdog.state import Kind, Mode, State
from lambdas.watchdog.world import World, boot_budget_seconds

LOOKS = {Wake.SCAN, Wake.PATIENCE, Wake.LAUNCHED, Wake.LAUNCH_FAILED, Wake.TERMINATED}
FIRST_SECONDS = 130  # a kind is tried: one reclaim of 22 July 2026 was answered by the market after two minutes
LONGEST_SECONDS = 900  # one kind is tried: the group's own gaps have grown to ten minutes by then


def learn(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> State:
    """The state with since when boxes have been missing, none on its way, and what the lever asks for refused.

    A refusal says so, and a scan sees it where the event was lost: a group that sells launches seconds after a flip.
    """
    if state.mode is not Mode.FAILOVER or state.rearm_from or world.group is None or lacks_spot(world, state, settings):
        return state
    seen = state.evidence
    if not _short(world, state, settings) or world.percentage != state.expected_lever:
        seen = replace(seen, drought_at=None) if seen.drought_at else seen
    elif seen.drought_at is None and signal.refused and signal.began and after(state, signal.began):
        seen = replace(seen, drought_at=signal.began)
    elif seen.drought_at is None and signal.wake is Wake.SCAN and _settled(state, now):
        seen = replace(seen, drought_at=now)
    return state if seen is state.evidence else replace(state, evidence=seen)


def step(signal: Signal, world: World, state: State, settings: Settings, now: datetime) -> Decision | None:
    """The next turn, the wait for it, or the end of the turns; None: the fleet is not dark for want of supply."""
    if signal.wake not in LOOKS or state.mode is not Mode.FAILOVER or state.rearm_from or world.group is None:
        return None
    if state.turns and (found := _found(world, state, settings, now)):
        return found
    if lacks_spot(world, state, settings):
        return None
    tried = _tried(world, state, settings)
    if tried is None or "Launch" in world.group.suspended:
        return None
    since, wait, what = tried
    wanted, other = ("spot", "on-demand") if state.turns % 2 else ("on-demand", "spot")
    elapsed = seconds(now - since)
    dark = "nothing serves" if not world.healthy else f"{shares.missing(world.healthy, settings)} boxes are missing"
    numbers = f"{dark} and {wanted} {what} for {elapsed} s, {other} is tried after {wait} s"
    if elapsed < wait:
        due = since + timedelta(seconds=wait) if settings.on_events else None
        return Decision(Action.WAITING, numbers, state=state, wake_at=due)
    if world.deploying and not world.capped(settings, now):
        return Decision(Action.SKIPPED, f"no turn: a deploy is in progress; {numbers}", state=state)
    if other == "on-demand" and (spent := state.on_demand_spent(settings, now)):
        return Decision(Action.SKIPPED, f"no turn: {spent}; {numbers}", state=state)
    new = replace(state, since=now, turns=state.turns + 1, evidence=replace(state.evidence, drought_at=None))
    spot, on_demand = world.alive_by_purchase
    bought = max(len(on_demand) - shares.base(settings), 0)
    asked = bought if other == "spot" else max(shares.above_base(settings) - len(spot), 1)
    new = replace(new, part=shares.part(asked, settings))
    if state.turns == 0 and not bought:
        new = replace(new, failovers=tuple(at for at in new.failovers if at != state.since), cooldown_from=None)
    return transition(new, Kind.TURNED, now, numbers)


def _tried(world: World, state: State, settings: Settings) -> tuple[datetime, int, str] | None:
    """Since when the kind that the lever asks for has been tried, for how long it is, and how it fares."""
    wait = min(FIRST_SECONDS << state.turns, LONGEST_SECONDS)
    if state.evidence.drought_at:
        return state.evidence.drought_at, wait, "has been refused"
    if state.turns and state.since and world.alive:
        boots = [boot_budget_seconds(box, settings) for box in world.instances.values()]
        return state.since, wait + max([settings.boot.warm_budget_seconds, *boots]), "has come to nothing"
    return None


def _found(world: World, state: State, settings: Settings, now: datetime) -> Decision | None:
    """All that should serves: the kind that was asked for is the right one."""
    if shares.missing(world.healthy, settings):
        return None
    spot, on_demand = ([box.id for box in boxes if box.id in world.healthy] for boxes in world.alive_by_purchase)
    new = replace(state, turns=0, since=now)
    if spot and state.expected_lever == 0:
        why = f"spot box {spot[0]} serves, on-demand was refused"
        return transition(replace(new, mode=Mode.ARMED, dry_at=None, refused=()), Kind.REARMED, now, why)
    if on_demand and state.expected_lever == 0:
        return transition(new, Kind.TURNED, now, f"on-demand box {on_demand[0]} serves")
    if on_demand or spot:
        return Decision(Action.RECORDED, f"{(on_demand or spot)[0]} serves", state=new)
    return None


def after(state: State, began: datetime) -> bool:
    """A launch from before the flip was of the other kind; event times are cut to seconds."""
    return state.since is None or began > state.since


def _settled(state: State, now: datetime) -> bool:
    return state.since is None or seconds(now - state.since) >= FIRST_SECONDS


def lacks_spot(world: World, state: State, settings: Settings) -> bool:
    """Whether on-demand has sold the part that was asked of it, so that what may be missing is spot's."""
    if not state.exposed or state.turns:
        return False
    on_demand = len(world.alive_by_purchase[1]) - shares.base(settings)
    return on_demand >= shares.bought(state.part, settings)


def _short(world: World, state: State, settings: Settings) -> bool:
    """Whether boxes are missing that are not on their way either."""
    return shares.missing([box.id for box in world.alive if box.id not in state.evidence.noticed], settings) > 0
