"""The breaker of the GPU: open while no fresh connection is taken, so that nobody waits for what cannot come. Pure.

Only connections count: an error that a box answers with says that there is a box, an answer by the cloud says nothing.
"""

from dataclasses import dataclass, replace
from typing import Self

RETURNS_SECONDS = 300.0  # until outages were seen here: launch to serving, as measured (4 min 19 s to 5 min 30 s)
BLIP_SECONDS = 30.0  # what was dark for less says nothing of a boot
PROBE_SECONDS = 0.5  # half-open: one connect so often, so that it closes within a second of the box serving


@dataclass(frozen=True)
class Breaker:
    """`opened_at` on the loop's clock; None: closed."""

    opened_at: float | None = None
    probed_at: float = 0.0
    lasts: float = RETURNS_SECONDS  # an outage, as learned; the last one weighs half

    @property
    def closed(self) -> bool:
        """Whether the GPU is asked."""
        return self.opened_at is None

    def refused(self, now: float) -> Self:
        """Every fresh connection of one request was refused."""
        return self if self.opened_at is not None else replace(self, opened_at=now, probed_at=now)

    def taken(self, now: float) -> Self:
        """A connection was taken, by whatever asked."""
        dark = 0.0 if self.opened_at is None else now - self.opened_at
        return type(self)(lasts=(self.lasts + dark) / 2 if dark > BLIP_SECONDS else self.lasts)

    def back_in(self, now: float) -> float | None:
        """Seconds until a box should serve again, by what outages have lasted; None: one does, or is overdue."""
        due = None if self.opened_at is None else self.opened_at + self.lasts - now
        return due if due and due > 0 else None

    def due(self, now: float) -> bool:
        """Whether it is time to try a connection."""
        return self.opened_at is not None and now - self.probed_at >= PROBE_SECONDS

    def probed(self, now: float) -> Self:
        """A connection is being tried."""
        return replace(self, probed_at=now)
