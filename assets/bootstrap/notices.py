"""What instance metadata says about this box's end: parsed once, pure: odd answers and jumping clocks end here."""

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Optional

INTERRUPTION = "meta-data/spot/instance-action"
REBALANCE = "meta-data/events/recommendations/rebalance"
LIFECYCLE = "meta-data/autoscaling/target-lifecycle-state"
TERMINATED = "Terminated"  # the group wants this box to end: its termination hook is running

NOTICE_SECONDS = 120.0  # AWS: two minutes


@dataclass(frozen=True)
class Interruption:
    """An interruption notice with what is left of its two minutes."""

    action: str
    seconds_left: float


def interruption(text: str, now: datetime, since_clear_seconds: Optional[float]) -> Optional[Interruption]:
    """Parse a notice; None where the text is none.

    `since_clear_seconds` is how long ago, by a clock that no step moves, metadata last said that there is no notice: at
    least the rest of the two minutes is left. The notice's own time counts only where it fits to that, because the
    box's wall clock may have jumped. None: it never said so to this program, which began amid the notice, maybe late.
    """
    try:
        raw = json.loads(text)
        action = str(raw["action"])
    except (ValueError, KeyError, TypeError):
        return None
    least = 0.0 if since_clear_seconds is None else max(0.0, NOTICE_SECONDS - since_clear_seconds)
    try:
        left = (datetime.strptime(raw["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc) - now).total_seconds()
    except (ValueError, KeyError, TypeError):
        return Interruption(action, least)
    return Interruption(action, left if least <= left <= NOTICE_SECONDS else least)


def recommended_at(text: str) -> Optional[str]:
    """The time of a rebalance recommendation; None where the text is none."""
    try:
        return str(json.loads(text)["noticeTime"])
    except (ValueError, KeyError, TypeError):
        return None
