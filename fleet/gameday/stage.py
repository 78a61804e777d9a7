"""Where a game day is played. What differs between the embedded AWS and a live account stands behind `Stage`."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from fleet.account.access import Aws
from fleet.config.settings import Settings

POLL_SECONDS = 15.0


class StageError(Exception):
    """The stage could not do its part: the day ends here, with what was seen so far."""


class Stage(Protocol):
    """Time, darkness and rolls. Everything else is the same API on both stages."""

    settings: Settings
    aws: Aws
    endpoint: str
    rolled_by: str  # who brings an instance refresh to its end; told in the line of every step that waits for one

    def let_pass(self, seconds: float, why: str) -> None:
        """The watchdog's next decision sees the world this much later."""

    def go_dark(self, boxes: tuple[str, ...]) -> None:
        """The targets of these boxes are not healthy, though the boxes run."""

    def lights_on(self) -> None:
        """Targets are what they are again."""

    def light_alarm(self) -> None:
        """The alarm's state is set to ALARM, as a real one would be: EventBridge wakes the watchdog."""

    def calm_alarm(self) -> None:
        """The alarm is OK."""

    def finish_roll(self, old: tuple[str, ...], left: int = 0) -> None:
        """Return once all but `left` of `old` are replaced, launch-first; raises StageError where they are not."""

    def settled(self) -> None:
        """Return once nothing that was set off is still running."""


def until(what: str, happened: Callable[[], Any], seconds: float) -> Any:
    """Poll until it happened; StageError after `seconds`."""
    waited = 0.0
    while not (found := happened()):
        if waited >= seconds:
            raise StageError(f"{what}: not within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
        waited += POLL_SECONDS
    return found
