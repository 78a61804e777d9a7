"""What a fleet came to: degraded minutes, windows, cost; read from the event log alone, as it is written."""

from collections import Counter
from dataclasses import dataclass, field

from fleet.eventlog.events import Event


@dataclass(frozen=True)
class Window:
    """One degraded window."""

    start: float
    seconds: float


@dataclass
class Measure:
    """Feed it events in order; it holds one log's sums and its windows, not its events."""

    desired: int = 0
    start: float = 0.0
    end: float = 0.0
    degraded_seconds: float = 0.0
    dark_seconds: float = 0.0  # without any box
    serving_seconds: Counter[int] = field(default_factory=Counter)  # by how many of desired served
    pinned_seconds: float = 0.0
    usd: dict[str, float] = field(default_factory=lambda: {"spot": 0.0, "on-demand": 0.0})
    box_seconds: dict[str, float] = field(default_factory=lambda: {"spot": 0.0, "on-demand": 0.0})
    windows: list[Window] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _serving: set[str] = field(default_factory=set)
    _living: dict[str, tuple[float, str, float]] = field(default_factory=dict)
    _at: float = 0.0
    _window: float | None = None  # since when fewer serve than desired
    _pinned_since: float | None = None

    def add(self, event: Event) -> None:
        self.counts[event.kind] += 1
        fields = event.fields
        match event.kind:
            case "start":
                self.start = self._at = event.at.timestamp()
                self.desired = fields["desired"]
                self._window = self._at
            case "end":
                self.end = event.at.timestamp()
                self._pass(self.end)
                self._close()
                self._mode("", self.end)
                for at, purchase, usd in self._living.values():
                    self._bill(at, purchase, usd)
            case "box.launched":
                self._living[fields["box"]] = (event.at.timestamp(), fields["purchase"], fields["usd_per_hour"])
            case "box.ended":
                self.end = event.at.timestamp()
                self._bill(*self._living.pop(fields["box"]))
            case "box.serving":
                self._pass(event.at.timestamp())
                self._serving.add(fields["box"])
                if len(self._serving) >= self.desired:
                    self._close()
            case "box.unserving":
                self._pass(event.at.timestamp())
                self._serving.discard(fields["box"])
                if len(self._serving) < self.desired and self._window is None:
                    self._window = self._at
            case "decision":
                self.counts[f"action {fields.get('action')}"] += 1
            case "mode":
                self.counts[f"mode {fields['mode']}"] += 1
                self._mode(fields["mode"], event.at.timestamp())

    def _mode(self, mode: str, now: float) -> None:
        if self._pinned_since is not None:
            self.pinned_seconds += now - self._pinned_since
        self._pinned_since = now if mode == "on-demand-pinned" else None

    def _pass(self, now: float) -> None:
        serving = min(self.desired, len(self._serving))
        self.serving_seconds[serving] += now - self._at  # type: ignore[assignment]  # a Counter that adds seconds
        missing = (self.desired - serving) / self.desired if self.desired else 0.0
        self.degraded_seconds += (now - self._at) * missing
        self.dark_seconds += 0.0 if self._serving else now - self._at
        self._at = now

    def _close(self) -> None:
        if self._window is not None and self._at > self._window:
            self.windows.append(Window(self._window, self._at - self._window))
        self._window = None

    def _bill(self, launched_at: float, purchase: str, usd_per_hour: float) -> None:
        seconds = self.end - launched_at
        self.box_seconds[purchase] += seconds
        self.usd[purchase] += usd_per_hour * seconds / 3600

    @property
    def degraded_minutes(self) -> float:
        return self.degraded_seconds / 60

    @property
    def box_minutes(self) -> float:
        """Minutes for which a box was missing, summed over boxes."""
        return self.degraded_minutes * self.desired

    @property
    def dark_minutes(self) -> float:
        """Minutes without any box."""
        return self.dark_seconds / 60

    @property
    def cost_usd(self) -> float:
        return sum(self.usd.values())
