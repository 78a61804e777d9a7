"""One request on its way through the simulated gateway."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.sim.callers.traffic import Asked
from gateway.admission import Ask
from gateway.fallback import Failure
from lane.order import Entry

if TYPE_CHECKING:
    from fleet.sim.callers.queueing_box import QueueingBox


@dataclass(slots=True, eq=False)
class Request:
    """Times on the simulated clock, seconds."""

    asked: Asked
    ask: Ask
    budget: float  # by when the GPU must have begun or ended, since its arrival
    failures: list[Failure] = field(default_factory=list)
    box: QueueingBox | None = None
    entry: Entry | None = None
    attempts: int = 0
    reserved: int = 0  # micro-dollars of the day
    paid: int = 0  # of these, what the cloud has used, in vain too
    first_token_at: float | None = None
    cut_at: int | None = None  # tokens delivered, of a stream that broke

    @property
    def arrived(self) -> float:
        """When."""
        return self.asked.at

    @property
    def tokens(self) -> int:
        """That its answer has, its limit kept to."""
        return min(self.asked.tokens, self.ask.max_tokens)
