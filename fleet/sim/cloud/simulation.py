"""What every part of the simulated cloud shares: the clock, the seeded streams, the log and the event bus."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Behaviour, Range
from fleet.sim.cloud.recording import Recording
from fleet.sim.cloud.virtual_clock import Clock
from fleet.sim.markets.market import MarketPool, Purchase

Emit = Callable[[Event], None]


@dataclass(eq=False, slots=True)
class SimulatedBox:
    """One instance, from launch to gone. Times are epoch seconds; a time in the future is what will come."""

    id: str
    purchase: Purchase
    pool: MarketPool
    launched_at: float
    lifecycle: str = "Pending"
    registered_at: float = float("inf")
    warm: bool = True
    failed: bool = False  # it gave up its boot, and says so
    state_reason: str = ""  # EC2's, once it has ended
    healthy: bool = False
    draining: bool = False
    unhealthy: bool = False
    at_risk: bool = False  # noticed or recommended for rebalancing
    noticed_at: float | None = None
    in_service_at: float | None = None
    ended_at: float | None = None

    @property
    def counted(self) -> bool:
        """Whether the group counts it towards desired."""
        return self.lifecycle in ("Pending", "Pending:Wait", "InService")


class Simulation:
    """Clock, streams, log. One per drill."""

    def __init__(
        self, *, start: float, behaviour: Behaviour, seed: int, emit: Emit, recording: Recording | None = None
    ) -> None:
        self.recording = recording
        self.clock = Clock(start)
        self.behaviour = behaviour
        self.publish: Callable[..., None]  # the bus's
        self._seed = seed
        self._emit = emit

    def stream(self, name: str) -> Random:
        """A random stream of its own, so that a draw in one part moves nothing in another."""
        return Random(f"{self._seed}/{name}")  # noqa: S311 - a simulation, no secret

    def recorded(self, event: str, box: str) -> float | None:
        """When that happened to that box in the life that is replayed; None: drawn, or not recorded."""
        return None if self.recording is None else self.recording.when(event, box)

    def log(self, kind: str, **fields: Any) -> None:
        self._emit(Event(self.clock.utc(), kind, fields))


def draw(stream: Random, span: Range) -> float:
    low, high = span
    return low if low == high else stream.uniform(low, high)
