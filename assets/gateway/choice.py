"""Which of several boxes is asked first: the one whose line is the shortest by what its lane told. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LaneWait:
    """What a lane says of itself."""

    wait_seconds: float  # of who comes now
    answer_seconds: float  # what one more adds


def order(
    told: Mapping[str, LaneWait], sent: Mapping[str, int], turns: Mapping[str, int], tried: Collection[str]
) -> list[str]:
    """Whom to ask first, then next. Pure: `sent` since it told, `turns` when each was asked last, `tried` in vain."""

    def rank(box: str) -> tuple[bool, float, int]:
        each = told[box]
        return box in tried, each.wait_seconds + sent.get(box, 0) * each.answer_seconds, turns.get(box, 0)

    return sorted(told, key=rank)
