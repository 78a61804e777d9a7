"""What a failover buys and a return gives back, as pure as `policy`.

A failover buys the boxes above the base that neither serve on spot nor come; a return gives back one after the other.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from fleet.config.settings import Settings
from lambdas.watchdog import shares
from lambdas.watchdog.state import Mode, State
from lambdas.watchdog.world import World


def boxes(world: World, stays: Collection[str], settings: Settings) -> int:
    """How many boxes above the base are then on-demand: all but those of `stays` that are on spot."""
    return max(shares.above_base(settings) - len(world.spot_among(stays)), 0)


def buys(state: State, boxes: int, settings: Settings, now: datetime, *, weight: int = 1) -> State:
    """The state on on-demand with so many boxes above the base, counted by the valve as what of the fleet is new.

    A fleet that has failed over with a part of it buys more within that failover.
    """
    new_boxes = boxes - shares.bought(state.expected_lever, settings)
    percent = shares.WHOLE * new_boxes // shares.above_base(settings)
    within = state.mode is Mode.FAILOVER and state.rearm_from is None
    counted = state.widened(percent) if within else state.failed_over(percent, settings, now, weight=weight)
    return replace(counted, mode=Mode.FAILOVER, since=now, part=shares.part(boxes, settings))


def gives_back(state: State, settings: Settings, now: datetime) -> State:
    """The state at the beginning of a phase that gives the next boxes back to spot."""
    boxes = shares.bought(state.expected_lever, settings) - shares.step(settings)
    return replace(state, rearm_from=now, since=now, part=shares.part(boxes, settings))


def on_demand_serves(world: World, settings: Settings) -> bool:
    """Whether on-demand has sold a box beyond the base, and it answers."""
    serving = [box.id for box in world.alive_by_purchase[1] if box.id in world.healthy]
    return len(serving) > shares.base(settings)


def words(world: World, settings: Settings) -> str:
    """What is missing, for a reason."""
    floor = shares.floor(settings)
    if floor == 1:
        return "no healthy target"
    return f"{shares.missing(world.healthy, settings)} of {floor} boxes missing"
