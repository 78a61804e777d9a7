"""Who decides in a drill: every policy to compare, through one interface.

A policy is attached to a cloud before the clock starts: it sets what it needs there and asks to be told of events.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fleet.drills.cloud import SimulatedCloud
from fleet.drills.world import SimulatedBox
from fleet.settings import Settings
from lambdas.watchdog.state import Mode, State


class Policy(Protocol):
    """One way to run the fleet."""

    @property
    def name(self) -> str: ...

    @property
    def lever(self) -> int | None:
        """The on-demand percentage that it starts with; None: what the history says, else all spot."""

    def attach(self, cloud: SimulatedCloud) -> None:
        """Subscribe to what it wants to hear of."""


@dataclass(frozen=True)
class OnDemandOnly:
    """No spot at all: the price of peace."""

    name: str = "on-demand only"
    lever: int = 100

    def attach(self, cloud: SimulatedCloud) -> None:
        """The group alone replaces what breaks."""


@dataclass(frozen=True)
class SpotOnly:
    """An all-spot group that nobody watches."""

    name: str = "spot, no watchdog"
    lever: int = 0

    def attach(self, cloud: SimulatedCloud) -> None:
        """The group retries for ever."""


@dataclass(frozen=True)
class Watchdog:
    """The project's own watchdog, through its own handler."""

    name: str = "alarm watchdog"
    lever: int | None = None

    def attach(self, cloud: SimulatedCloud) -> None:
        from lambdas.watchdog import handler

        settings = cloud.settings
        cloud.put_state(State(Mode(cloud.mode_at_start)).dumps())
        cloud.watch(lambda payload, now: handler.run(payload, cloud=cloud, settings=settings, now=now))


@dataclass
class DynamicFallback:
    """Per replica: an on-demand box runs whenever no spot box serves, and ends when one does."""

    name: str = "dynamic fallback"
    lever: int = 0
    _beside: list[SimulatedBox] = field(default_factory=list)

    def attach(self, cloud: SimulatedCloud) -> None:
        self._beside = []

        def react() -> None:
            self._beside = [box for box in self._beside if box.ended_at is None]
            spot = sum(box.healthy for box in cloud.autoscaling.boxes.values())
            missing = cloud.autoscaling.desired - spot - len(self._beside)
            for _ in range(missing):
                box = cloud.launch_beside("on-demand")
                if isinstance(box, str):
                    cloud.clock.after(60, react)
                    break
                self._beside.append(box)
            for _ in range(-missing):
                if self._beside:
                    cloud.end_beside(self._beside.pop())

        cloud.on_health.append(react)
        cloud.clock.after(0, react)


POLICIES: dict[str, Callable[[], Policy]] = {
    "on-demand": OnDemandOnly,
    "spot-only": SpotOnly,
    "watchdog": Watchdog,
    "fallback": DynamicFallback,
}


def without_valve(settings: Settings) -> Settings:
    """The same fleet with the valve off, so that no policy looks good by pinning."""
    import dataclasses

    return dataclasses.replace(settings, watchdog=dataclasses.replace(settings.watchdog, valve_failovers=10**9))
