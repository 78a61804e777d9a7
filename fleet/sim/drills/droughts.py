"""What the droughts of one event log came to: when patience ran out, when the lever moved, what the market did.

A drought begins with the first spot launch that fails while boxes are missing and none is on its way for them, or with
the notice that leaves them missing while no pool sells. It ends when a spot launch succeeds (the market has answered)
or when the lever goes towards on-demand (a failover): within patience, only where no pool sells.
"""

from dataclasses import dataclass, field

from fleet.config.settings import Bridge
from fleet.eventlog.events import Event


@dataclass
class Droughts:
    """Feed it the events of a log in order. Times are epoch seconds."""

    patience_seconds: float = Bridge().patience_seconds
    late_seconds: list[float] = field(default_factory=list)  # each failover: how long after patience ran out, or before
    early: int = 0  # failovers within patience while a pool sold, or with a successor on its way
    answered: int = 0  # droughts that the market ended within patience
    missed: int = 0  # droughts that outlasted patience by a minute and more without a failover
    bridges: int = 0  # the lever went towards on-demand while all served
    _desired: int = 1
    _percentage: int | None = None
    _since: float | None = None
    _serving: set[str] = field(default_factory=set)
    _coming: set[str] = field(default_factory=set)
    _selling: set[str] = field(default_factory=set)
    _lost: float | None = None  # the last notice

    def add(self, event: Event) -> None:
        if event.kind == "decision":
            return  # most events are
        fields, at = event.fields, event.at.timestamp()
        match event.kind:
            case "start":
                self._desired = fields["desired"]
            case "box.launched":
                self._coming.add(fields["box"])
                if fields["purchase"] == "spot" and self._since is not None:
                    lasted, self._since = at - self._since, None
                    self.answered += lasted <= self.patience_seconds
                    self.missed += lasted > self.patience_seconds + 60
            case "box.serving":
                self._serving.add(fields["box"])
                self._coming.discard(fields["box"])
            case "market" if fields.get("purchase") is None:
                (self._selling.add if fields["sells"] else self._selling.discard)(fields["pool"])
            case "notice" | "box.unserving" | "box.ended":
                self._serving.discard(fields["box"])
                self._coming.discard(fields["box"])
                if event.kind == "notice":
                    self._lost = at
            case "launch.failed":
                short = len(self._serving | self._coming) < self._desired
                if fields["purchase"] == "spot" and short and self._percentage is not None and self._percentage < 100:
                    self._since = at if self._since is None else self._since
            case "lever":
                self._moved(fields["percentage"], at)

    def _moved(self, percentage: int, at: float) -> None:
        previous, self._percentage = self._percentage, percentage
        if previous is None or percentage <= previous:
            return
        if self._since is None and len(self._serving | self._coming) < self._desired and not self._selling:
            self._since = self._lost
        if self._since is not None:
            late = at - self._since - self.patience_seconds
            self.late_seconds.append(late)
            self.early += late < 0 and bool(self._selling)
            self._since = None
        elif len(self._serving) >= self._desired:
            self.bridges += 1
        else:
            self.early += 1
