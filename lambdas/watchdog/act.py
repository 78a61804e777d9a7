"""Step 4, act: the only place that changes AWS. State first, then lever parameter, group, mail, finished state.

Every step looks at the world first and does nothing where the work is done, so whoever comes next can repeat it all.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from fleet.config.settings import Settings
from lambdas.watchdog import mail, shares, suspension
from lambdas.watchdog.cloud import Cloud, CloudError, GoneError, RefreshActiveError
from lambdas.watchdog.decision import Action, Decision
from lambdas.watchdog.state import MOVES_LEVERS, RESUMES_LAUNCH, Kind, State
from lambdas.watchdog.world import World


def act(
    decision: Decision, state: State | None, world: World, cloud: Cloud, settings: Settings, now: datetime
) -> State | None:
    """Carry out one decision; the state as it then stands. Raises CloudError, for a problem decided on as well."""
    if decision.state and decision.state != state:
        cloud.put_state(decision.state.dumps())
    state = decision.state or state
    if state and state.unfinished and not decision.leaves_state:
        state = _carry_out(state, state.unfinished.kind, world, cloud, settings, now)
    if state and decision.action is Action.REFRESH:
        state = replace(state, refresh_id=cloud.start_refresh())
        cloud.put_state(state.dumps())
    if decision.action is Action.PROBE:
        cloud.flip(world.seen_group, world.seen_group.on_demand_percentage, send_template=True)
    for box in decision.end_boxes:
        _end_held(cloud, box)
    if decision.deregister:
        cloud.deregister(decision.deregister)
    if decision.suspend_rebalance:
        cloud.suspend("AZRebalance")
    if decision.wake_at:
        cloud.wake(decision.wake_at)
    if state and not decision.leaves_state:
        state = _settle(state, cloud, settings, send_mail=not decision.leads_on)
    if decision.problem:
        raise CloudError(decision.problem)
    return state


def _settle(state: State, cloud: Cloud, settings: Settings, *, send_mail: bool) -> State:
    """The mails owed, then the finished state. A mail that fails is still owed, and its error is raised."""
    settled = replace(state, unfinished=None) if state.unfinished else state
    try:
        while send_mail and settled.owed:
            cloud.mail(*mail.compose(settled.owed[0], settings))
            settled = replace(settled, owed=settled.owed[1:])
    finally:
        if settled is not state:
            cloud.put_state(settled.dumps())
    return settled


def _carry_out(state: State, kind: Kind, world: World, cloud: Cloud, settings: Settings, now: datetime) -> State:
    group, expected = world.seen_group, state.expected_lever
    if kind in MOVES_LEVERS:
        if world.lever != str(expected):
            cloud.put_lever(expected)
        if group.on_demand_percentage != expected:
            _flip(state, kind, world, cloud, settings, now)
        if _roll_to_end(state, cloud):
            _unless_gone(cloud.cancel_refresh)
        if not state.rearm_from:
            state = replace(state, refresh_id=None)
    if kind is Kind.LIMITED:  # launch-first would keep it, and pay for it, until spot sells
        for surplus in world.alive_by_purchase[1][shares.base(settings) :]:
            _unless_gone(cloud.end_box, surplus.id)
    if kind is Kind.BOOT_LOOP and "Launch" not in group.suspended:
        cloud.suspend("Launch")
    for process in suspension.by_aws(group) if kind is Kind.UNSUSPENDED else ():
        cloud.resume(process)
    if kind in RESUMES_LAUNCH and "Launch" in group.suspended:
        cloud.resume("Launch")
    return state


def _flip(state: State, kind: Kind, world: World, cloud: Cloud, settings: Settings, now: datetime) -> None:
    """A refresh in the way is cancelled if it is our own, or if it is stuck (it retries for an hour) in an outage."""
    group, send_template = world.seen_group, not world.deploying
    # aws-behaviours: flip-tries-at-once, refresh-without-configuration
    try:
        cloud.flip(group, state.expected_lever, send_template=send_template)
    except RefreshActiveError:
        due = kind in {Kind.FAILOVER, Kind.REPAIRED} and world.capped(settings, now)
        due = due and shares.missing(world.healthy, settings) > 0
        if not due and not _roll_to_end(state, cloud):
            raise
        _unless_gone(cloud.cancel_refresh)
        cloud.flip(group, state.expected_lever, send_template=send_template)


def _roll_to_end(state: State, cloud: Cloud) -> bool:
    """Whether a roll of ours outlived its re-arm."""
    over = state.refresh_id is not None and state.rearm_from is None
    return over and any(refresh.active and refresh.id == state.refresh_id for refresh in cloud.refreshes())


def _end_held(cloud: Cloud, box: str) -> None:
    """By its launch hook; ending a box in Pending:Wait by name is documented nowhere, so only where no hook answers."""
    # aws-behaviours: held-abandoned, held-ended-by-name
    try:
        cloud.abandon(box)
    except GoneError:
        if World(group=cloud.group()).holds(box):
            _unless_gone(cloud.end_box, box)


def _unless_gone(call: Callable[..., None], *args: str) -> None:
    try:
        call(*args)
    except GoneError:
        return  # somebody ended it first
