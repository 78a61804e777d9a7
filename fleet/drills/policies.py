"""Who decides in a drill: every policy to compare, through the one interface `drill.Policy`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fleet.drills.clairvoyant import Clairvoyant
from fleet.drills.cloud import SimulatedCloud
from fleet.drills.drill import Drill, Policy
from fleet.drills.world import SimulatedBox
from fleet.errors import UserError
from fleet.settings import Settings
from lambdas.watchdog.handler import run as run_watchdog
from lambdas.watchdog.state import Mode, State

RETRY_SECONDS = 60  # of the fallback, when there is no on-demand box either


@dataclass(frozen=True)
class OnDemandOnly:
    """No spot at all: the price of peace."""

    name: str = "on-demand only"

    def live(self, drill: Drill) -> None:
        """The group alone replaces what breaks."""
        drill.cloud(lever=100).run()


@dataclass(frozen=True)
class SpotOnly:
    """An all-spot group that nobody watches."""

    name: str = "spot, no watchdog"

    def live(self, drill: Drill) -> None:
        """The group retries for ever."""
        drill.cloud(lever=0).run()


@dataclass(frozen=True)
class Watchdog:
    """The project's own watchdog, through its own handler."""

    name: str = "alarm watchdog"

    def live(self, drill: Drill) -> None:
        """Every event, scan and command is one invocation of the five steps."""
        cloud, settings = drill.cloud(lever=None), drill.settings
        cloud.put_state(State(Mode(cloud.mode_at_start), failovers=drill.failovers).dumps())
        cloud.watch(lambda payload, now: run_watchdog(payload, cloud=cloud, settings=settings, now=now))
        cloud.run()


@dataclass(frozen=True)
class DynamicFallback:
    """Per replica: an on-demand box runs whenever no spot box serves, and ends when one does."""

    name: str = "dynamic fallback"

    def live(self, drill: Drill) -> None:
        """It acts on the balancer's verdict at once: no alarm, no scan."""
        cloud = drill.cloud(lever=0)
        react = _Fallback(cloud).react
        cloud.on_health.append(react)
        cloud.clock.after(0, react)
        cloud.run()


class _Fallback:
    def __init__(self, cloud: SimulatedCloud) -> None:
        self._cloud = cloud
        self._beside: list[SimulatedBox] = []
        self._retry_at = 0.0

    def react(self) -> None:
        """One on-demand box beside the group per spot box that does not serve."""
        cloud = self._cloud
        self._beside = [box for box in self._beside if box.ended_at is None]
        serving = sum(box.healthy for box in cloud.autoscaling.boxes.values())
        missing = max(0, cloud.autoscaling.desired - serving)
        while len(self._beside) < missing:
            box = cloud.launch_beside("on-demand")
            if isinstance(box, str):
                if self._retry_at <= cloud.clock.now:
                    self._retry_at = cloud.clock.now + RETRY_SECONDS
                    cloud.clock.at(self._retry_at, self.react)
                return
            self._beside.append(box)
        while len(self._beside) > missing:
            cloud.end_beside(self._beside.pop())


POLICIES: dict[str, Callable[[], Policy]] = {
    "on-demand": OnDemandOnly,
    "spot-only": SpotOnly,
    "watchdog": Watchdog,
    "fallback": DynamicFallback,
    "clairvoyant": Clairvoyant,
}


def named(name: str) -> Policy:
    """A policy by its name on the command line; raises UserError."""
    if name not in POLICIES:
        raise UserError(f"policy {name!r} is unknown; there are {', '.join(POLICIES)}")
    return POLICIES[name]()


def without_valve(settings: Settings) -> Settings:
    """The same fleet with the valve off, so that no policy looks good by pinning."""
    watchdog = replace(settings.watchdog, valve_failovers=10**9)
    return replace(settings, watchdog=watchdog, bridge=replace(settings.bridge, valve_failovers=10**9))
