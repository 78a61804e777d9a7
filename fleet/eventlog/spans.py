"""An event log as what can be drawn: spans and marks, read once, in order of time."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fleet.core.untrusted import plain
from fleet.eventlog.events import Event

QUIET_ACTIONS = {None, "nothing", "ignored", "recorded", "waiting"}  # a clock that was set decides nothing yet


@dataclass
class Life:
    """One box. Times are epoch seconds; None: not (yet)."""

    box: str
    purchase: str
    pool: str
    launched: float
    served: list[tuple[float, float | None]] = field(default_factory=list)
    noticed: float | None = None
    ended: float | None = None


@dataclass(frozen=True)
class Span:
    """A value that held from `start` to `end`."""

    start: float
    end: float
    value: str


@dataclass(frozen=True)
class Mark:
    """Something at a moment."""

    at: float
    kind: str
    text: str
    detail: str = ""


@dataclass
class Spans:
    """What a log tells."""

    desired: int = 1
    start: float = 0.0
    end: float = 0.0
    lives: dict[str, Life] = field(default_factory=dict)
    strips: dict[str, list[Span]] = field(default_factory=dict)  # serving, alarm, mode, lever
    markets: dict[tuple[str, str], list[Span]] = field(default_factory=dict)  # by pool and purchase
    marks: list[Mark] = field(default_factory=list)  # mails, failed launches
    decisions: list[Event] = field(default_factory=list)
    stages: list[Event] = field(default_factory=list)  # of boots

    def lanes(self) -> list[tuple[str, str]]:
        """(pool, purchase) pairs that had a box or refused one, spot first, in order of pools."""
        pairs = {(life.pool, life.purchase) for life in self.lives.values()}
        pairs |= {(pool, purchase) for pool, purchase in self.markets if self.refusals(pool, purchase)}
        return sorted(pairs, key=lambda pair: (pair[1] != "spot", pair[0]))

    def refusals(self, pool: str, purchase: str) -> list[Span]:
        """When a launch there would have failed."""
        return [span for span in self.markets.get((pool, purchase), ()) if span.value == "refuses"]

    def acts(self) -> list[Mark]:
        """Decisions that changed something or declined to, in a few words."""
        acts = [
            (event.at.timestamp(), event.fields["action"], event.fields.get("reason", ""))
            for event in self.decisions
            if event.fields.get("action") not in {*QUIET_ACTIONS, "refused"}
        ]
        return [Mark(at, "act", words(action, reason), action) for at, action, reason in acts]

    def degraded(self) -> list[Span]:
        """Windows with less than desired serving; `value` is the number that served, at its worst."""
        windows: list[Span] = []
        for span in self.strips.get("serving", ()):
            if int(span.value) >= self.desired:
                continue
            if windows and windows[-1].end == span.start:
                worst = min(int(windows[-1].value), int(span.value))
                windows[-1] = Span(windows[-1].start, span.end, str(worst))
            else:
                windows.append(span)
        return windows


def read(events: Iterable[Event]) -> Spans:
    """The spans of one log, every text in it printable. One without `start` or `end` is bounded by its own events."""
    found, open_strips, serving = Spans(), dict[str, tuple[float, str]](), set[str]()
    at, first = 0.0, True

    def strip(name: str, value: str) -> None:
        if name in open_strips:
            since, before = open_strips[name]
            if before == value:
                return
            if at > since:
                found.strips.setdefault(name, []).append(Span(since, at, before))
        open_strips[name] = (at, value)

    for told in events:
        event = replace(told, fields=plain(told.fields))
        at, fields = event.at.timestamp(), event.fields
        if first:
            found.start, first = at, False
            strip("serving", "0")
        match event.kind:
            case "start":
                found.desired = fields["desired"]
            case "box.launched":
                found.lives[fields["box"]] = Life(fields["box"], fields["purchase"], fields["pool"], at)
            case "box.serving":
                found.lives[fields["box"]].served.append((at, None))
                serving.add(fields["box"])
                strip("serving", str(len(serving)))
            case "box.unserving":
                life = found.lives[fields["box"]]
                if life.served and life.served[-1][1] is None:
                    life.served[-1] = (life.served[-1][0], at)
                serving.discard(fields["box"])
                strip("serving", str(len(serving)))
            case "box.ended":
                life = found.lives[fields["box"]]
                life.ended = at
                if fields["box"] in serving:
                    life.served[-1] = (life.served[-1][0], at)
                    serving.discard(fields["box"])
                    strip("serving", str(len(serving)))
            case "notice":
                found.lives[fields["box"]].noticed = at
            case "launch.failed":
                found.marks.append(Mark(at, "launch.failed", fields.get("why", "")))
            case "mail":
                found.marks.append(Mark(at, "mail", fields["subject"], fields.get("body", "")))
            case "decision":
                found.decisions.append(event)
            case "boot.stage":
                found.stages.append(event)
            case "market":
                purchase = fields.get("purchase", "spot")
                strip(f"market:{purchase}:{fields['pool']}", "sells" if fields["sells"] else "refuses")
            case "alarm":
                strip("alarm", fields["state"])
            case "mode":
                strip("mode", fields["mode"])
            case "lever":
                strip("lever", str(fields["percentage"]))
    found.end = at
    for name in list(open_strips):
        strip(name, "")
        if name.startswith("market:"):
            _, purchase, pool = name.split(":", 2)
            found.markets[pool, purchase] = found.strips.pop(name, [])
    return found


def words(action: str, reason: str) -> str:
    """A decision in a few words, none of them twice."""
    return reason if reason.startswith(action) or action in ("skipped", "nothing") else f"{action}: {reason}"
