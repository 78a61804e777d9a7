"""One drill: a market or a history, lived through by one policy under one behaviour and seed; its log, its measure."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from fleet.drills.behaviour import Behaviour
from fleet.drills.clock import utc
from fleet.drills.cloud import SimulatedCloud
from fleet.drills.history import History
from fleet.drills.market import Market
from fleet.drills.world import Emit
from fleet.events import Event
from fleet.measure import Measure
from fleet.settings import Artifact, Model, Settings


def default_settings() -> Settings:
    """The fleet of the measured figures: every threshold at its default."""
    model = Model(
        name="drill",
        engine_version="0.0.0",
        engine=Artifact(key="engine-0.0.0.tgz"),
        gguf=Artifact(key="model.gguf"),
        modelfile=Artifact(key="Modelfile"),
    )
    return Settings(fleet_name="drill", region="us-east-2", zones=("us-east-2a", "us-east-2b"), model=model)


@dataclass(frozen=True)
class Drill:
    """What every policy is given alike."""

    scene: Market | History
    settings: Settings = field(default_factory=default_settings)
    behaviour: Behaviour | None = None  # None: the history's, or the measured one
    seed: int = 0
    emit: Emit = lambda event: None
    prepare: Callable[[SimulatedCloud], None] = lambda cloud: None  # faults, commands, before the clock starts

    @property
    def market(self) -> Market:
        return self.scene if isinstance(self.scene, Market) else self.scene.market

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the scene does not say and the drill took for granted."""
        notes: tuple[str, ...] = ()
        if isinstance(self.scene, History):
            notes = self.scene.assumptions
            if changed := self._changed(self.scene):
                lag = self.physics.alarm.lag[1]
                said = f"{' and '.join(changed)} not as recorded"
                notes += (f"{said}: the alarm is not replayed but told {lag:.0f} s late",)
        if {self.physics.spot_vcpu_quota, self.physics.on_demand_vcpu_quota} != {None}:
            notes += ("the clairvoyant bound knows no vCPU quotas; every other policy is held to them",)
        return notes

    def _changed(self, history: History) -> list[str]:
        """What is not as it was when the alarm was recorded, so that it would have been told at other times."""
        now: dict[str, tuple[object, object]] = {
            "policy": (self.settings.policy, "alarm"),
            "alarm_minutes": (self.settings.watchdog.alarm_minutes, history.alarm_minutes),
            "desired": (self.settings.capacity.min, history.desired),
            "boots": (f"{self.physics.boots.factor:g}", "1"),
        }
        return [f"{name} {value} ({recorded})" for name, (value, recorded) in now.items() if value != recorded]

    @property
    def failovers(self) -> tuple[datetime, ...]:
        """Those in the 24 hours before the start, for the watchdog's memory."""
        count = 0 if isinstance(self.scene, Market) else self.scene.failovers
        return tuple(utc(self.market.start - 86400 * (i + 1) / (count + 1)) for i in reversed(range(count)))

    @property
    def physics(self) -> Behaviour:
        if self.behaviour is not None:
            return self.behaviour
        return Behaviour() if isinstance(self.scene, Market) else self.scene.behaviour

    def cloud(self, *, lever: int | None) -> SimulatedCloud:
        """The simulated cloud at the start. `lever` is the policy's; None: the history's own, else all spot."""
        if isinstance(self.scene, Market):
            cloud = SimulatedCloud(
                self.scene,
                settings=self.settings,
                behaviour=self.physics,
                seed=self.seed,
                emit=self.emit,
                lever=lever or 0,
            )
        else:
            behaviour = self.physics
            if lever is not None or self._changed(self.scene):  # the recorded policy starts with the recorded lever
                behaviour = replace(behaviour, alarm=replace(behaviour.alarm, recorded=None))
            lever = self.scene.lever if lever is None else lever
            cloud = SimulatedCloud(
                self.scene.market,
                settings=self.settings,
                behaviour=behaviour,
                seed=self.seed,
                emit=self.emit,
                lever=lever,
                mode=self.scene.mode,
                serving="on-demand" if lever else "spot",
                scans_from=self.scene.scans_from,
            )
        self.prepare(cloud)
        return cloud


class Policy(Protocol):
    """One way to run the fleet."""

    @property
    def name(self) -> str: ...

    def live(self, drill: Drill) -> None:
        """Live through all of it; what happens goes to `drill.emit`, from `start` to `end`."""


@dataclass(frozen=True)
class Result:
    """What one policy made of one drill. `log` is there where it was asked for."""

    market: str
    policy: str
    seed: int
    measure: Measure
    log: tuple[Event, ...] = ()


def run(drill: Drill, policy: Policy) -> Result:
    """Live through the drill under this policy."""
    measure = Measure()

    def both(event: Event) -> None:
        measure.add(event)
        drill.emit(event)

    policy.live(replace(drill, emit=both))
    return Result(drill.market.name, policy.name, drill.seed, measure)
