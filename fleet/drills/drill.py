"""Runs one policy through one market or history and gives its event log and what it came to."""

from collections.abc import Callable
from dataclasses import dataclass

from fleet.drills.behaviour import Behaviour
from fleet.drills.cloud import SimulatedCloud
from fleet.drills.history import History
from fleet.drills.market import Market
from fleet.drills.policies import Policy
from fleet.events import Event
from fleet.measure import Measure
from fleet.settings import Artifact, Model, Settings


def default_settings() -> Settings:
    """The fleet of the measured figures: every threshold at its default."""
    artifact = Artifact(key="drill")
    model = Model(name="drill", engine_version="0.0.0", engine=artifact, gguf=artifact, modelfile=artifact)
    return Settings(fleet_name="drill", region="us-east-2", zones=("us-east-2a",), model=model)


@dataclass(frozen=True)
class Result:
    """One drill."""

    market: str
    policy: str
    seed: int
    measure: Measure


def run(
    market: Market | History,
    policy: Policy,
    *,
    settings: Settings | None = None,
    behaviour: Behaviour | None = None,
    seed: int = 0,
    emit: Callable[[Event], None] = lambda event: None,
    prepare: Callable[[SimulatedCloud], None] = lambda cloud: None,
) -> Result:
    """Live through the whole market. `prepare` may set faults, commands and the like before the clock starts."""
    settings = settings or default_settings()
    measure = Measure()

    def both(event: Event) -> None:
        measure.add(event)
        emit(event)

    cloud = _cloud(market, policy, settings, behaviour, seed, both)
    policy.attach(cloud)
    prepare(cloud)
    cloud.run()
    return Result(cloud.market.name, policy.name, seed, measure)


def _cloud(
    market: Market | History,
    policy: Policy,
    settings: Settings,
    behaviour: Behaviour | None,
    seed: int,
    emit: Callable[[Event], None],
) -> SimulatedCloud:
    if isinstance(market, Market):
        lever = policy.lever or 0
        return SimulatedCloud(market, settings=settings, behaviour=behaviour, seed=seed, emit=emit, lever=lever)
    lever = market.lever if policy.lever is None else policy.lever
    return SimulatedCloud(
        market.market,
        settings=settings,
        behaviour=behaviour or market.behaviour,
        seed=seed,
        emit=emit,
        lever=lever,
        mode=market.mode,
        serving="on-demand" if lever else "spot",
        scans_from=market.scans_from,
    )
