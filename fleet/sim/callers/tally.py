"""What came of everybody who asked: counts, latencies, tokens, dollars; a request is counted once, when it is over."""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

GPU, CLOUD, CUT, NOBODY, REFUSED = "gpu", "fallback", "cut", "nobody", "refused"
LEFT = "left"  # in a ledger alone: no simulated caller leaves
OUTCOMES = (GPU, CLOUD, CUT, NOBODY, REFUSED, LEFT)
BIN_SECONDS = 300.0  # of the drawing
MICRO = 1_000_000


@dataclass
class Tally:
    """Of one drill. Latencies in seconds since arrival, of those who were answered."""

    start: float = 0.0
    asked: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)  # by the gateway's word for it
    in_budget: int = 0
    continued: int = 0
    decoded: int = 0
    wasted: int = 0
    micro_dollars: int = 0  # of the cloud model
    first: "array[float]" = field(default_factory=lambda: array("f"))
    whole: "array[float]" = field(default_factory=lambda: array("f"))
    by_cloud: "array[int]" = field(default_factory=lambda: array("b"))
    bins: Counter[tuple[int, str]] = field(default_factory=Counter)

    def over(self, outcome: str, at: float) -> None:
        """A request that arrived at that time is over."""
        self.outcomes[outcome] += 1
        self.bins[int((at - self.start) // BIN_SECONDS), outcome] += 1

    def answered(self, outcome: str, at: float, first: float, whole: float, *, in_budget: bool) -> None:
        """One that was answered whole: first token and all of it so long after its arrival."""
        self.over(outcome, at)
        self.first.append(first)
        self.whole.append(whole)
        self.by_cloud.append(outcome == CLOUD)
        self.in_budget += in_budget

    @property
    def answers(self) -> int:
        """Whole ones."""
        return self.outcomes[GPU] + self.outcomes[CLOUD]

    def share(self, outcome: str) -> float:
        """Of all who asked."""
        return self.outcomes[outcome] / self.asked if self.asked else 0.0

    @property
    def cloud_usd(self) -> float:
        """What the cloud model was paid."""
        return self.micro_dollars / MICRO


def merged(tallies: Iterable[Tally]) -> Tally:
    """Those of several seeds as one."""
    whole = Tally()
    for tally in tallies:
        whole.start = tally.start
        for name in ("asked", "in_budget", "continued", "decoded", "wasted", "micro_dollars"):
            setattr(whole, name, getattr(whole, name) + getattr(tally, name))
        for name in ("outcomes", "refusals", "bins"):
            getattr(whole, name).update(getattr(tally, name))
        for name in ("first", "whole", "by_cloud"):
            getattr(whole, name).extend(getattr(tally, name))
    return whole
