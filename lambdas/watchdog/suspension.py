"""Processes of the group that AWS, or somebody else, has suspended: what a scan does about it. Pure.

AWS suspends a group administratively whose launches have failed for over a day, and says so in the process's reason.
Such a process is resumed, each time after a longer wait; anybody else's suspension is mailed once and left alone.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from lambdas.watchdog.cloud import Group
from lambdas.watchdog.decision import Decision, transition
from lambdas.watchdog.state import Kind, State

OURS = frozenset({"AZRebalance"})  # every scan keeps it suspended
BY_AWS = "administrat"  # aws-behaviours: suspended-by-aws
# From when it is seen, the first time first; the last repeats: a market that sells again must not wait for us longer.
WAIT_MINUTES = (0, 30, 60, 120, 240)


def by_aws(group: Group) -> tuple[str, ...]:
    """Processes that AWS suspended."""
    return tuple(process for process, reason in group.suspended.items() if BY_AWS in reason.lower())


def by_others(group: Group) -> tuple[str, ...]:
    """Processes that an operator, a script or a boot loop's end suspended."""
    known = OURS.union(by_aws(group))
    return tuple(process for process in group.suspended if process not in known)


def words(group: Group) -> str:
    """What is suspended that should not be, and why; empty: nothing."""
    found = [*by_aws(group), *by_others(group)]
    return "; ".join(f"{process} is suspended: {group.suspended[process] or 'no reason told'}" for process in found)


def seen(group: Group, state: State, now: datetime) -> State:
    """The state with when the suspension of AWS was first seen; without one that is over."""
    of_aws = by_aws(group)
    if of_aws and not state.suspended_at:
        return replace(state, suspended_at=now)
    if state.suspended_at and not (of_aws or by_others(group)):
        return replace(state, suspended_at=None)
    return state


def step(group: Group, state: State, now: datetime) -> Decision | None:
    """What is due about it; `state` is as `seen` leaves it."""
    if by_aws(group):
        wait = timedelta(minutes=WAIT_MINUTES[min(state.resumed, len(WAIT_MINUTES) - 1)])
        if state.suspended_at and now < state.suspended_at + wait:
            return None
        new = replace(state, suspended_at=None, resumed=state.resumed + 1)
        return transition(new, Kind.UNSUSPENDED, now, words(group))
    if by_others(group) and state.suspended_at is None:
        return transition(replace(state, suspended_at=now), Kind.SUSPENDED, now, words(group))
    return None
