"""Step 2, observe: reads of AWS what this signal in this state needs, each thing at most once, nothing more."""

from datetime import datetime, timedelta
from enum import Flag, auto
from typing import assert_never

from fleet.config.settings import Settings
from lambdas.watchdog import policy, rearm
from lambdas.watchdog.cloud import Cloud, CloudError
from lambdas.watchdog.signals import Signal, Wake
from lambdas.watchdog.state import Mode, State, loads
from lambdas.watchdog.world import HELD, World

MARKET_EVENTS = {Wake.LAUNCH_FAILED, Wake.INTERRUPTION, Wake.REBALANCE, Wake.TERMINATED, Wake.PATIENCE}
CHURN = {Wake.SCAN, Wake.TERMINATED}  # a box has gone: nothing may serve now
METRIC_LAG = timedelta(minutes=10)  # 9 min at most from what happened to the alarm (aws-behaviours: metric-lag)
# A lit alarm sends no second event: past the skip cap, whatever wakes the watchdog has it judged again.
JUDGES = MARKET_EVENTS | {Wake.LAUNCHED, Wake.REFRESH_ENDED, Wake.BOX_ENDED}
OF_A_BOX = {Wake.INTERRUPTION, Wake.REBALANCE, Wake.BOX_ENDED}


class Need(Flag):
    """What a decision looks at, beyond the two parameters."""

    NOTHING = 0
    ALARM = auto()
    GROUP = auto()
    BOXES = auto()  # instances and target health
    TARGETS = auto()  # target health alone
    HELD = auto()  # the same of those that their launch hook holds, if there are any
    DEPLOY = auto()
    REFRESHES = auto()
    GUARDS = ALARM | GROUP | BOXES | DEPLOY
    SCANNED = GUARDS | REFRESHES


def observe(signal: Signal, cloud: Cloud, settings: Settings, now: datetime) -> tuple[State | None, World]:
    """State and world. Raises StateError if the state cannot be trusted, CloudError if a read fails."""
    if signal.wake is Wake.IGNORED:
        return None, World()
    text, lever = cloud.parameters()
    state, world = _known(text, signal), World(lever=lever)
    needs = _needs(signal, state)
    if state.mode is Mode.FAILOVER and signal.wake is Wake.LAUNCH_FAILED and settings.capacity.min > 1:
        needs |= Need.BOXES  # which kind is short
    if signal.wake in OF_A_BOX or (signal.wake is Wake.LAUNCH_FAILED and signal.box):
        world.instances = cloud.instances((signal.box,))  # aws-behaviours: ended-described
        known = world.instances.get(signal.box)
        if signal.wake in OF_A_BOX and not (known and known.ours) and not state.unfinished:
            return None, World()  # somebody else's: these events name no group
    if signal.wake in MARKET_EVENTS and settings.on_events and state.exposed:
        needs |= Need.GROUP | Need.BOXES | Need.DEPLOY
    if signal.wake in JUDGES and state.exposed:
        needs |= Need.GUARDS if signal.wake in CHURN else Need.ALARM
    if Need.ALARM in needs:
        world.alarm = cloud.alarm()
        if signal.wake is Wake.ALARM_LIT and not world.lit and not state.unfinished:
            return state, world
        if world.capped(settings, now):
            needs |= Need.GUARDS
    if Need.GROUP in needs:
        world.group = cloud.group()
    ids = tuple(box.id for box in world.alive if Need.BOXES in needs or (Need.HELD in needs and box.lifecycle == HELD))
    if new := tuple(box for box in ids if box not in world.instances):
        world.instances = {**world.instances, **cloud.instances(new)}
    if ids or needs & (Need.BOXES | Need.TARGETS):
        world.health = cloud.target_health()
    if Need.DEPLOY in needs:
        _look_for_deploy(world, cloud)
    if state.mode is Mode.ARMED and Need.GUARDS in needs and signal.wake in CHURN and not world.lit:
        _look_for_churn(world, state, cloud, settings, now)
    if Need.GUARDS in needs and policy.due_failover(world, state, settings, now):
        return state, world  # it looks at nothing further
    _look_further(signal, world, state, needs, cloud, settings, now)
    return state, world


def _look_for_deploy(world: World, cloud: Cloud) -> None:
    """Where that cannot be read there may be one, for which a failover waits no longer than the skip cap."""
    try:
        world.deploying = cloud.stack_in_progress()
    except CloudError as error:
        world.deploying, world.unread = True, _words(error)


def _look_for_churn(world: World, state: State, cloud: Cloud, settings: Settings, now: datetime) -> None:
    """How much was missing of late, as far as the metric tells it by now and since the lever last moved."""
    window = timedelta(seconds=settings.watchdog.served_window_seconds)
    start = max(now - window, state.since or world.seen_group.created_at)
    end = now - METRIC_LAG
    if world.alarm is None or not settings.watchdog.served_percent or start >= end:
        return
    try:
        world.dark_seconds = 60 * cloud.dark_minutes(start, end)
    except CloudError as error:
        world.unread = _words(error)


def _words(error: CloudError) -> str:
    return str(error) or type(error).__name__


def _wants_scores(signal: Signal, state: State, settings: Settings, now: datetime) -> bool:
    if signal.wake is Wake.PATIENCE:
        return state.exposed and state.evidence.warned_at is not None
    if signal.wake is Wake.LAUNCH_FAILED:
        return settings.on_events and state.exposed and signal.refused
    return signal.wake is Wake.SCAN and rearm.wants_scores(state, settings, now)


def _known(text: str | None, signal: Signal) -> State:
    """The state. Where there is none, an operator's pin or arm begins a new one, and nothing else does."""
    if text is None and signal.wake in {Wake.PIN, Wake.ARM}:
        return State(Mode.FAILOVER if signal.wake is Wake.PIN else Mode.PINNED)
    return loads(text)


def _look_further(
    signal: Signal, world: World, state: State, needs: Need, cloud: Cloud, settings: Settings, now: datetime
) -> None:
    """What only repairs and re-arms look at: a failure here must not hold a failover back, it is raised afterwards."""
    try:
        if Need.REFRESHES in needs:
            world.refreshes = cloud.refreshes()
        if _wants_scores(signal, state, settings, now):
            zones = cloud.zone_ids()
            ours = {zones[name] for name in world.seen_group.zones if name in zones}
            world.scores = {zone: score for zone, score in cloud.scores().items() if zone in ours}
    except CloudError as error:
        world.unread = _words(error)


def _needs(signal: Signal, state: State) -> Need:
    match signal.wake:
        case _ if state.unfinished:
            return Need.GUARDS
        case Wake.ALARM_LIT:
            return Need.GUARDS if state.exposed else Need.NOTHING
        case Wake.SCAN:
            return Need.GROUP | Need.HELD | Need.TARGETS if state.mode is Mode.PINNED else Need.SCANNED
        case Wake.ALARM_OK | Wake.LAUNCHED | Wake.TERMINATED | Wake.REFRESH_ENDED:
            if state.rearm_from:
                return Need.GROUP | Need.BOXES | Need.DEPLOY | Need.REFRESHES
            return _turning(state)
        case Wake.LAUNCH_FAILED if state.mode is Mode.FAILOVER:
            return Need.GROUP | Need.DEPLOY | _turning(state)
        case Wake.INTERRUPTION:
            return Need.GROUP | Need.HELD
        case Wake.LAUNCH_FAILED | Wake.REBALANCE | Wake.BOX_ENDED | Wake.RESUME:
            return Need.GROUP
        case Wake.PIN | Wake.ARM:
            return Need.GROUP | Need.BOXES | Need.DEPLOY
        case Wake.PROBE:
            return Need.GROUP | Need.DEPLOY | Need.REFRESHES
        case Wake.PATIENCE:
            return _turning(state)
        case Wake.IGNORED:
            return Need.NOTHING
        case _:
            assert_never(signal.wake)


def _turning(state: State) -> Need:
    """What the turns of a dark fleet look at."""
    dark = state.mode is Mode.FAILOVER and (state.turns or state.evidence.drought_at)
    return Need.GROUP | Need.BOXES | Need.DEPLOY if dark else Need.NOTHING
