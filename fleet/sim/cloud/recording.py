"""What a receipt recorded of each box, for a replay under the policy it was lived: times instead of luck.

Where the record is silent the simulated cloud goes on by its own habits.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from fleet.eventlog.receipts import Happening, Woken
from lambdas.watchdog.signals import Signal, Wake

SHORTEST_SECONDS, PATIENCE_LATE_SECONDS = 0.7, 60  # from the end of a clock's wait to the function
OTHERS_GAVE_UP = ("by the watchdog", "heartbeat")  # in the words of a launch that was abandoned
BOOT_FAILED = "boot failed"
TELLS_OF: dict[str, str] = {  # what the event log calls the thing that an event tells of
    Wake.INTERRUPTION: "notice",
    Wake.REBALANCE: "rebalance",
    Wake.LAUNCHED: "box.in_service",
    Wake.LAUNCH_FAILED: "launch.failed",
    Wake.TERMINATED: "box.ended",
    Wake.BOX_ENDED: "box.ended",
}


def seconds(happening: Happening | Woken) -> float:
    """Epoch seconds; whatever the log tells has a time."""
    assert happening.at is not None  # noqa: S101 - the reader has checked it
    return happening.at.timestamp()


@dataclass
class Recording:
    """Asked by the parts of the simulated cloud; an attempt that was made is not found again."""

    happened: Iterable[Happening]
    wakes: Iterable[Woken]
    _times: dict[tuple[str, str], float] = field(default_factory=dict, init=False)
    _by_box: dict[str, list[Happening]] = field(default_factory=lambda: defaultdict(list), init=False)
    _attempts: list[Happening] = field(default_factory=list, init=False)
    _heard: dict[tuple[str, str, int], list[float]] = field(default_factory=lambda: defaultdict(list), init=False)
    _refused: Counter[int] = field(default_factory=Counter, init=False)
    _patience: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        for item in self.happened:
            if item.event == "box.launched" or (item.event == "launch.failed" and not item.box):
                self._attempts.append(item)
                self._refused[int(seconds(item))] += not item.box
            self._times.setdefault((item.event, item.box), seconds(item))
            self._by_box[item.box].append(item)
        for wake in self.wakes:
            if wake.of is not None:
                self._heard[wake.wake, wake.box, int(wake.of.timestamp())].append(seconds(wake))
            elif wake.wake == "patience":
                self._patience.append(seconds(wake))

    def when(self, event: str, box: str) -> float | None:
        """The recorded time of that event of that box."""
        return self._times.get((event, box))

    def gave_up(self, box: str, *, on_notice: bool) -> float | None:
        """When the box gave its own launch up, on its notice or for its boot; None: it did not, or others did."""
        noticed = ("notice", box) in self._times
        return next(
            (
                seconds(item)
                for item in self._by_box.get(box, ())
                if item.event == "launch.failed"
                and not any(word in item.why for word in OTHERS_GAVE_UP)
                and on_notice == (noticed and BOOT_FAILED not in item.why)
            ),
            None,
        )

    def attempt_after(self, now: float, at: float, latest: float) -> float:
        """When the group tries, where its habits say `at`, if it tried by `latest` in the record."""
        for item in self._attempts:
            if seconds(item) >= now - 1e-6:
                return seconds(item) if seconds(item) <= latest else at
        return at

    def attempt(self, now: float, purchase: str) -> Happening | None:
        """The launch that was made now, or failed; it is told once. None: nothing was tried now."""
        while self._attempts and seconds(self._attempts[0]) < now - 1e-6:
            self._attempts.pop(0)
        while self._attempts and seconds(self._attempts[0]) <= now + 1e-6:
            if (tried := self._attempts.pop(0)).purchase == purchase:
                return tried
        return None  # of another kind, where the lives have parted: never asked for again, or the group would not rest

    def serving_from(self, start: float) -> list[Happening]:
        """Boxes that served when the record begins; they are told once."""
        found = [a for a in self._attempts if seconds(a) <= start and self.when("box.serving", a.box) == seconds(a)]
        self._attempts = [a for a in self._attempts if a not in found]
        return found

    def arrivals(self, signal: Signal) -> list[float] | None:
        """When the watchdog heard of it, once, twice or never; None: the record does not say."""
        if signal.at is None or not self._heard:
            return None
        second, told_of = int(signal.at.timestamp()), TELLS_OF.get(signal.wake)
        heard = self._heard[signal.wake, signal.box, second]
        if signal.wake == Wake.LAUNCH_FAILED and not signal.box:
            known = second in self._refused
            self._refused[second] -= 1
            if self._refused[second] > 0:
                return [heard.pop(0) for _ in heard[:1]]  # launches that failed in one second are told apart by nothing
        else:
            known = told_of is None or self.when(told_of, signal.box) is not None
        told, heard[:] = list(heard), []
        return told if told or known else None

    def patience_over(self, at: float) -> float | None:
        """When the clock that was set for `at` woke the watchdog."""
        return next(
            (heard for heard in self._patience if at + SHORTEST_SECONDS <= heard <= at + PATIENCE_LATE_SECONDS), None
        )
