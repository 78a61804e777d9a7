"""The arithmetic of shares, pure: what should serve, what of it is missing, and which lever buys that many boxes.

`capacity.min` boxes should serve, the first `on_demand_base` of them on-demand for good. The lever divides those above.
"""

from collections.abc import Collection

from fleet.config.settings import Settings

WHOLE = 100
RETURN_STEPS = 5  # of 8 minutes each; one by one, twenty boxes took two and a half hours at on-demand's price


def floor(settings: Settings) -> int:
    """How many boxes should serve."""
    return settings.capacity.min


def above_base(settings: Settings) -> int:
    """How many of them the lever divides: none, in a fleet whose base is all of it."""
    return floor(settings) - base(settings)


def one_more_percent(settings: Settings) -> int:
    """MaxHealthyPercentage of a roll that replaces box by box."""
    return WHOLE + -(-WHOLE // floor(settings))


def missing(serving: Collection[str], settings: Settings) -> int:
    """How many boxes do not serve that should."""
    return max(floor(settings) - len(serving), 0)


def lever(boxes: int, settings: Settings) -> int:
    """The percentage with which a group that rounds up has so many boxes above its base on-demand.

    The whole percent below the exact share: AWS rounds up, and at 20 boxes a percent is a fifth of one.
    """
    # aws-behaviours: percentage-rounds-up
    return WHOLE * boxes // max(above_base(settings), 1)


def step(settings: Settings) -> int:
    """How many boxes a return gives back at once: one, a fifth of many, no more than may launch ahead."""
    capacity = settings.capacity
    return max(min(above_base(settings) // RETURN_STEPS, capacity.max - capacity.min), 1)


def part(boxes: int, settings: Settings) -> int:
    """The same as `State.part` holds it: nothing where all spot or all on-demand say it."""
    return lever(boxes, settings) if 0 < boxes < above_base(settings) else 0


def base(settings: Settings) -> int:
    """How many boxes are on-demand wherever the lever stands."""
    return settings.capacity.on_demand_base


def bought(percentage: int, settings: Settings, boxes: int = 0) -> int:
    """How many boxes above the base that percentage has on-demand, of what should serve, or of a grown group's."""
    above = max(boxes - base(settings), above_base(settings))
    return -(-above * percentage // WHOLE)
