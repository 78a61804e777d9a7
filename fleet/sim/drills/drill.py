"""One drill: a market or a history, lived through by one policy under one behaviour and seed; its log, its measure."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fleet.config.section import renamed
from fleet.config.settings import Artifact, Model, Settings
from fleet.eventlog.events import Event
from fleet.eventlog.measure import Measure
from fleet.sim.cloud.behaviour import Behaviour
from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from fleet.sim.cloud.simulation import Emit
from fleet.sim.cloud.virtual_clock import utc
from fleet.sim.drills.droughts import Droughts
from fleet.sim.drills.replay import History
from fleet.sim.markets.market import Market

if TYPE_CHECKING:
    from fleet.sim.callers.tally import Tally


def default_settings() -> Settings:
    """The fleet of the measured figures: every threshold at its default."""
    model = Model(
        name="drill",
        engine_version="0.11.4",
        engine=Artifact(key="engine-0.11.4.tgz"),
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
    prepare: Callable[[SimulatedCloud], None] = lambda cloud: None  # commands, before the clock starts

    @property
    def market(self) -> Market:
        return self.scene if isinstance(self.scene, Market) else self.scene.market

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the scene does not say and the drill took for granted."""
        if isinstance(self.scene, Market):
            notes = (*self.scene.notes, *behaviour_assumed(self.physics))
        else:
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
            "policy": (self.settings.policy, history.fleet.policy),
            "alarm_minutes": (self.settings.watchdog.alarm_minutes, history.alarm_minutes),
            "desired": (self.settings.capacity.min, history.fleet.desired),
            "boots": (f"{self.physics.boots.factor:g}", "1"),
        }
        found = [f"{name} {value} ({recorded})" for name, (value, recorded) in now.items() if value != recorded]
        for section, recorded in (("watchdog", history.fleet.thresholds), ("bridge", history.fleet.bridge)):
            mine = asdict(getattr(self.settings, section))
            found += [
                f"{section}.{key} {mine.get(key)} ({value})"
                for key, value in renamed(section, recorded).items()
                if key != "alarm_minutes" and mine.get(key) != value
            ]
        return found

    @property
    def failovers(self) -> tuple[datetime, ...]:
        """Those in the 24 hours before the start, for the watchdog's memory."""
        count = 0 if isinstance(self.scene, Market) else self.scene.fleet.failovers_in_last_24h_at_start
        return tuple(utc(self.market.start - 86400 * (i + 1) / (count + 1)) for i in reversed(range(count)))

    @property
    def rearming(self) -> bool:
        """Whether it begins in the middle of a re-arm."""
        return not isinstance(self.scene, Market) and self.scene.fleet.rearming_at_start

    @property
    def physics(self) -> Behaviour:
        if self.behaviour is not None:
            return self.behaviour
        return Behaviour() if isinstance(self.scene, Market) else self.scene.behaviour

    def cloud(self, *, lever: int | None) -> SimulatedCloud:
        """The simulated cloud at the start. `lever` is the policy's; None: the history's own, else all spot."""
        behaviour, start = self.physics, dict[str, Any]()
        if isinstance(self.scene, History):
            recording = self.scene.recording
            if lever is not None or self._changed(self.scene):  # the recorded policy starts with the recorded lever
                behaviour = replace(behaviour, alarm=replace(behaviour.alarm, recorded=None))
                recording = None
            lever = self.scene.fleet.lever_at_start if lever is None else lever
            start = {
                "mode": self.scene.fleet.mode_at_start,
                "serving": "on-demand" if lever else "spot",
                "scans_from": self.scene.scans_from,
                "recording": recording and replace(recording),
            }
        cloud = SimulatedCloud(
            self.market,
            settings=self.settings,
            behaviour=behaviour,
            seed=self.seed,
            emit=self.emit,
            lever=lever or 0,
            **start,
        )
        self.prepare(cloud)
        return cloud


def behaviour_assumed(physics: Behaviour | None = None) -> tuple[str, ...]:
    """What every comparison on a market hangs on, in sentences without their stop."""
    physics = physics or Behaviour()
    boots, lag = physics.boots, physics.alarm.lag
    shortest, longest = (boots.launch_to_kernel[i] + boots.kernel_to_serving[i] * boots.factor for i in (0, 1))
    ahead, share = physics.recommendation_ahead, physics.recommendation_ahead_share
    early = f"{share * 100:.0f} % of the losses are announced {ahead[0]:.0f} to {ahead[1]:.0f} s ahead"
    return (
        f"Boots take {shortest:.0f} to {longest:.0f} s from launch to the open gate, as measured"
        + ("" if boots.factor == 1 else f", times {boots.factor:g}"),
        f"{early} (assumed, not measured)" if share else "No loss is announced ahead of its notice",
        f"The alarm is told {lag[0]:.0f} to {lag[1]:.0f} s late",
        f"{physics.scores.wrong_share * 100:.0f} % of the answers of the placement score are wrong",
    )


# One way to run the fleet: lives through all of the drill; what happens goes to its `emit`, from `start` to `end`.
Policy = Callable[[Drill], None]


@dataclass(frozen=True)
class Result:
    """What one policy made of one drill. `log` is there where it was asked for."""

    measure: Measure
    log: tuple[Event, ...] = ()
    droughts: Droughts = field(default_factory=Droughts)
    callers: "Tally | None" = None  # what came of them, where any were


def run(drill: Drill, policy: Policy) -> Result:
    """Live through the drill under this policy."""
    measure, droughts = Measure(), Droughts(drill.settings.bridge.patience_seconds)

    def all_three(event: Event) -> None:
        measure.add(event)
        droughts.add(event)
        drill.emit(event)

    policy(replace(drill, emit=all_three))
    return Result(measure, droughts=droughts)
