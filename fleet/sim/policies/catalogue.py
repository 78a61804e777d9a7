"""Who decides in a drill: every policy to compare, a function of its `Drill`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from fleet.config.settings import Settings
from fleet.core.errors import UserError
from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from fleet.sim.cloud.simulation import SimulatedBox
from fleet.sim.drills.drill import Drill, Policy
from fleet.sim.policies.clairvoyant import clairvoyant
from fleet.sim.policies.timer import fixed_timer
from lambdas.watchdog.handler import run as run_watchdog
from lambdas.watchdog.state import Mode, State

RETRY_SECONDS = 60  # of the fallback, when there is no on-demand box either


def unwatched(drill: Drill, lever: int) -> None:
    """A group that nobody watches: all on-demand (100), the price of peace, or all spot (0), which retries for ever."""
    drill.cloud(lever=lever).run()


def watchdog(drill: Drill) -> None:
    """The project's own watchdog: every event, scan and command is one invocation of its handler's five steps."""
    cloud, settings = drill.cloud(lever=None), drill.settings
    lever = cloud.autoscaling.percentage
    part = lever if 0 < lever < 100 else 0
    state = State(Mode(cloud.mode_at_start), failovers=drill.failovers, part=part)
    cloud.put_state(replace(state, rearm_from=cloud.clock.utc() if drill.rearming else None).dumps())
    cloud.watch(lambda payload, now: run_watchdog(payload, cloud=cloud, settings=settings, now=now))
    cloud.run()


def dynamic_fallback(drill: Drill) -> None:
    """Per replica: an on-demand box runs whenever no spot box serves, and ends when one does.

    It acts on the balancer's verdict at once: no alarm, no scan.
    """
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


def without_valve(settings: Settings) -> Settings:
    """The same fleet with the valve off, so that no policy looks good by pinning."""
    watchdog = replace(settings.watchdog, valve_failovers=10**9)
    return replace(settings, watchdog=watchdog, bridge=replace(settings.bridge, valve_failovers=10**9))


@dataclass(frozen=True)
class Named:
    """A policy of the registry: its label on every page, and the settings that it runs with."""

    name: str
    policy: Policy
    adjust: Callable[[Settings], Settings] = lambda settings: settings

    def __call__(self, drill: Drill) -> None:
        """The policy, under its own settings."""
        self.policy(replace(drill, settings=self.adjust(drill.settings)))


TIMER_MINUTES = (0, 10, 30, 60, 120, 240, 480, 1440)
POLICIES: dict[str, Named] = {
    "on-demand": Named("on-demand only", partial(unwatched, lever=100)),
    "spot-only": Named("spot, no watchdog", partial(unwatched, lever=0)),
    "alarm": Named("alarm watchdog", watchdog, partial(replace, policy="alarm")),
    "bridge": Named("bridge watchdog", watchdog, partial(replace, policy="bridge")),
    "fallback": Named("dynamic fallback", dynamic_fallback),
    "clairvoyant": Named("clairvoyant bound", clairvoyant),
}
COMPARED = tuple(POLICIES)  # unless some are named
POLICIES |= {
    f"timer-{minutes}": Named(f"fixed timer, {minutes} min", partial(fixed_timer, return_seconds=minutes * 60.0))
    for minutes in TIMER_MINUTES
}
AS_SET = "watchdog"  # whichever of the two the settings name


def known() -> str:
    """The names that an operator may give."""
    return ", ".join([*COMPARED, AS_SET, *(name for name in POLICIES if name not in COMPARED)])


def resolved(name: str, settings: Settings) -> str:
    """The name in the registry; raises UserError."""
    name = settings.policy if name == AS_SET else name
    if name not in POLICIES:
        raise UserError(f"policy {name!r} is unknown; there are {known()}")
    return name
