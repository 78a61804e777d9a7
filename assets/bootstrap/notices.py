"""What instance metadata says about this box's end: parsed once, pure: odd answers and jumping clocks end here."""

from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Optional

import names
from imds import parsed

INTERRUPTION = "meta-data/spot/instance-action"
REBALANCE = "meta-data/events/recommendations/rebalance"
LIFECYCLE = "meta-data/autoscaling/target-lifecycle-state"
TERMINATED = "Terminated"  # the group wants this box to end: its termination hook is running

SCHEDULED = "meta-data/events/maintenance/scheduled"  # aws-behaviours: scheduled-in-metadata
ENDS_A_BOX = ("instance-stop", "instance-retirement", "instance-reboot", "system-reboot")  # a reboot empties its store

STEP_SECONDS = 1.0  # by which both clocks may differ between two polls
DATE_SECONDS = 5.0  # the header has whole seconds, and an answer may take one


@dataclass(frozen=True)
class Interruption:
    """An interruption notice with what is left of its two minutes."""

    action: str
    seconds_left: float


def interruption(
    text: str, now: datetime, since_clear_seconds: Optional[float], clock_holds: bool
) -> Optional[Interruption]:
    """Parse a notice; None where the text is none.

    Its own time counts, unless the wall clock that it is held against may have jumped (`clock_holds`) or the result
    cannot be. Then at least the rest of the two minutes is left since metadata last said that there is no notice, which
    was `since_clear_seconds` ago by a clock that no step moves. None: it never said so to this program, which began
    amid the notice, maybe late.
    """
    try:
        raw = parsed(text)
        action = str(raw["action"])
    except (ValueError, KeyError, TypeError):
        return None
    least = 0.0 if since_clear_seconds is None else max(0.0, names.NOTICE_SECONDS - since_clear_seconds)
    try:
        left = (datetime.strptime(raw["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc) - now).total_seconds()
    except (ValueError, KeyError, TypeError):
        return Interruption(action, least)
    return Interruption(action, left if clock_holds and 0.0 <= left <= names.NOTICE_SECONDS else least)


def clock_holds(wall: float, offset: float, before: Optional[float], told: Optional[datetime]) -> bool:
    """Whether the wall clock ran on, and is what metadata's own clock told. `offset` is how far it is ahead of the
    monotonic one, which no step moves; `before` what that was at the last poll.
    """
    ran = before is None or abs(offset - before) <= STEP_SECONDS
    return ran and (told is None or abs(wall - told.timestamp()) <= DATE_SECONDS)


def scheduled(text: str, now: datetime, within_seconds: float) -> Optional[str]:
    """The scheduled event that ends this box, or empties it, within this time; None where there is none."""
    try:
        for event in parsed(text):
            due = parsedate_to_datetime(event["NotBefore"])
            soon = (due - now).total_seconds() <= within_seconds
            if soon and event["Code"] in ENDS_A_BOX and event.get("State", "active") == "active":
                return f"{event['Code']} scheduled for {due:%H:%M:%S}"
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None
    return None


def recommended_at(text: str) -> Optional[str]:
    """The time of a rebalance recommendation; None where the text is none."""
    try:
        return str(parsed(text)["noticeTime"])
    except (ValueError, KeyError, TypeError):
        return None
