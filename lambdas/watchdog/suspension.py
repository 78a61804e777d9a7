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
    return tuple([process for process, reason in group.suspended.items() if _by_aws(reason)])


def by_others(group: Group) -> tuple[str, ...]:
    """Processes that an operator, a script or a boot loop's end suspended."""
    told = group.suspended.items()
    return tuple([process for process, reason in told if process not in OURS and not _by_aws(reason)])


def words(group: Group) -> str:
    """What is suspended that should not be, and why; empty: nothing."""
    found = [*by_aws(group), *by_others(group)]
    return "; ".join(f"{process} is suspended: {group.suspended[process] or 'no reason told'}" for process in found)


def step(group: Group, state: State, now: datetime) -> tuple[State, Decision | None]:
    """The state with when a suspension of AWS was first seen, without one that is over; and what is due about it."""
    if by_aws(group):
        wait = timedelta(minutes=WAIT_MINUTES[min(state.resumed, len(WAIT_MINUTES) - 1)])
        if now < (state.suspended_at or now) + wait:
            return state if state.suspended_at else replace(state, suspended_at=now), None
        new = replace(state, suspended_at=None, resumed=state.resumed + 1)
        return state, transition(new, Kind.UNSUSPENDED, now, words(group))
    if not by_others(group):
        return replace(state, suspended_at=None) if state.suspended_at else state, None
    if state.suspended_at is None:
        return state, transition(replace(state, suspended_at=now), Kind.SUSPENDED, now, words(group))
    return state, None


def _by_aws(reason: str) -> bool:
    return BY_AWS in reason.lower()
