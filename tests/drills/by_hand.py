"""Small markets and exact behaviours, so that a drill's outcome can be worked out by hand."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from click.testing import CliRunner, Result

from fleet.cli.fleetctl import main
from fleet.config.settings import Settings
from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import AlarmModel, Behaviour, Boots, Events
from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from fleet.sim.drills import drill
from fleet.sim.drills.replay import History
from fleet.sim.markets.market import PLENTY, Market, MarketPool, Step, pool
from fleet.sim.policies.catalogue import watchdog
from lambdas.watchdog.handler import run

HOUR = 3600.0
START = 1_785_000_000.0 // 60 * 60  # a whole minute
BOOT_SECONDS = 30 + 267 + 20  # launch to kernel, kernel to gate, probes


def call(*arguments: object) -> Result:
    """`fleetctl`, as an operator types it."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def market(
    *steps: tuple[float, int],
    hours: float = 24,
    pools: Iterable[MarketPool] = (pool("g6.xlarge"),),
    spares: bool = False,
) -> Market:
    """Steps (seconds from the start, supply), alike in all pools; plenty from the start on."""
    pools = tuple(pools)
    all_steps = [Step(START, p.label, PLENTY) for p in pools]
    all_steps += [Step(START + at, p.label, supply, spares) for at, supply in steps for p in pools]
    read: Callable[[], Iterable[Step]] = lambda: iter(all_steps)  # noqa: E731
    return Market("by hand", pools, START, START + hours * HOUR, read)


def exact(**changes: object) -> Behaviour:
    """Every lag exact."""
    values: dict[str, object] = {
        "boots": Boots(launch_to_kernel=(30, 30, 30), kernel_to_serving=(267, 267, 267)),
        "alarm": AlarmModel(lag=(300, 300)),
        "events": Events(delay=(1, 1)),
        "first_attempt": (2, 2),
        "flip_attempt": (7, 7),
        "rebalance_attempt": (15, 15),
        "agent_poll": (5, 5),
        "hook_poll": (5, 5),
        "recommendation_ahead_share": 0,
        "recommendation_with_notice_share": 0,
        "register_after_kernel": (35, 35),
        "registration": (150, 150),
        "probes": (20, 20),
    }
    return Behaviour(**{**values, **changes})


def with_steps(base: Market, steps: Iterable[Step]) -> Market:
    """The same market with some more steps, put in where they belong in time."""
    more = sorted([*base.steps(), *steps], key=lambda step: step.at)
    return replace(base, read=lambda: iter(more))


def build(
    settings: Settings, scene: Market, behaviour: Behaviour | None = None, *, watched: bool = False, **start: Any
) -> tuple[SimulatedCloud, list[Event]]:
    """A cloud that has not begun, and its log; watched, it wakes the watchdog's own handler."""
    log: list[Event] = []
    cloud = SimulatedCloud(scene, settings=settings, behaviour=behaviour or exact(), emit=log.append, **start)
    if watched:
        cloud.watch(lambda payload, now: run(payload, cloud=cloud, settings=settings, now=now))
    return cloud, log


def lived(scene: Market | History, policy: drill.Policy = watchdog, **drawn: Any) -> tuple[list[Event], drill.Result]:
    """A drill of the watchdog, or of another policy: its log and what it came to."""
    log: list[Event] = []
    return log, drill.run(drill.Drill(scene, emit=log.append, **drawn), policy)


def told(log: list[Event], kind: str, **fields: Any) -> list[float]:
    """Seconds from the start of the events of this kind with these fields."""
    return [
        event.at.timestamp() - START
        for event in log
        if event.kind == kind and all(event.fields.get(key) == value for key, value in fields.items())
    ]


def dark_seconds(log: list[Event]) -> float:
    """From the last moment a box served to the next one, where no other served in between."""
    serving, dark, since = 0, 0.0, None
    for event in log:
        if event.kind == "box.serving":
            dark += event.at.timestamp() - since if serving == 0 and since is not None else 0.0
            serving += 1
        elif event.kind == "box.unserving":
            serving -= 1
            since = event.at.timestamp() if serving == 0 else since
    return dark
