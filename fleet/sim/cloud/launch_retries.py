"""When the simulated group tries to launch: at once after a change, then again after measured gaps that grow."""

import math
from collections.abc import Callable

from fleet.sim.cloud.simulation import Simulation

RECORDED_LATE_SECONDS = 30  # a recorded attempt may be so much later than this group's habits put it


class LaunchRetries:
    """`launch` makes one launch: whether it got its box, or None where there is nothing to launch."""

    def __init__(self, world: Simulation, launch: Callable[[], bool | None]) -> None:
        self._world, self._launch = world, launch
        self._next = 0
        self._at = math.inf

    @property
    def rests(self) -> bool:
        """No attempt is due."""
        return self._at == math.inf

    def begin(self, delay: float) -> None:
        """What is asked for has changed: the backoff begins anew."""
        self._next = 0
        self.schedule(delay)

    def once_more(self, delay: float) -> None:
        """More is missing than before: one attempt beside the backoff, which goes on where it stands."""
        if self.rests:
            self.begin(delay)
        elif (at := self._due(delay)) < self._at:
            self._world.clock.at(at, self._launch_all)

    def schedule(self, delay: float, *, latest: float = 0.0) -> None:
        """Try that many seconds from now, if not before; in a replay as recorded, if that was by `latest`, too."""
        at = self._due(delay, latest)
        if at < self._at:
            self._at = at
            self._world.clock.at(at, self._attempt)

    def _due(self, delay: float, latest: float = 0.0) -> float:
        now, recording = self._world.clock.now, self._world.recording
        if recording is None:
            return now + delay
        return recording.attempt_after(now, now + delay, now + max(delay, latest) + RECORDED_LATE_SECONDS)

    def _attempt(self) -> None:
        if self._world.clock.now < self._at:
            return
        self._at = math.inf
        if self._launch_all():
            gaps = self._world.behaviour.launch_retry_gaps  # aws-behaviours: retry-gaps
            self.schedule(gaps[min(self._next, len(gaps) - 1)], latest=gaps[-1])
            self._next += 1

    def _launch_all(self) -> bool:
        """Launch until nothing is missing; whether a launch failed instead."""
        while (launched := self._launch()) is not None:
            if not launched:
                return True
            self._next = 0
        return False
