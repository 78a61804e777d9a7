"""The listener: fed a drill's (or a real fleet's) events in order, it lets the callers live beside them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from fleet.config.cards import card_of
from fleet.config.gateway_settings import Fallback, Gateway
from fleet.config.settings import Settings
from fleet.core import names
from fleet.eventlog.events import Event
from fleet.sim.callers.front import CloudModel, Front
from fleet.sim.callers.queueing_box import QueueingBox
from fleet.sim.callers.tally import Tally
from fleet.sim.callers.traffic import Asked, Traffic
from fleet.sim.cloud.virtual_clock import Clock

LEFT_SECONDS = 1800.0  # after the log's end, for who is still there
NAMED_SECONDS = 120.0  # so long the balancer may still name a box that left at its notice
ASSUMED = Gateway(fallback=Fallback(url="https://assumed", model="assumed"))
DEAD = frozenset({"wedge"})  # its engine answers nobody any more


@dataclass(frozen=True)
class Plan:
    """Who asks, and what is before them, as a value that travels to a worker."""

    traffic: Traffic = field(default_factory=Traffic)
    recorded: tuple[Asked, ...] | None = None  # instead of what would be drawn
    ledger: Tally | None = None  # what came of those, by the gateway's own word
    lane: bool = True  # False: boxes whose engine keeps the line
    cloud: CloudModel | None = field(default_factory=CloudModel)  # None: there is no fallback

    def requests(self, start: float, seed: int) -> Iterator[Asked]:
        """From `start` on."""
        if self.recorded is not None:
            return iter(self.recorded)
        return self.traffic.drawn(start, seed)

    def live(self, settings: Settings, seed: int) -> "Callers":
        """Who lives through a log."""
        return Callers(self, settings, seed)

    def gateway(self, settings: Settings) -> Gateway:
        """The settings' own; where there is none, one at its defaults with a fallback."""
        gateway = settings.gateway or ASSUMED
        return gateway if self.cloud else replace(gateway, fallback=replace(gateway.fallback, url=""))


class Callers:
    """Feed it events, as `fleet.eventlog.measure.Measure`; `tally` is what came of it once the log has ended."""

    def __init__(self, plan: Plan, settings: Settings, seed: int = 0) -> None:
        self._plan, self._settings, self._seed = plan, settings, seed
        self.tally = Tally()
        self._clock = Clock(0.0)
        self._boxes: dict[str, QueueingBox] = {}
        self._noticed: dict[str, float] = {}
        self._types: dict[str, str] = {}
        self._front: Front
        self._requests: Iterator[Asked] = iter(())
        self._next: Asked | None = None

    def add(self, event: Event) -> None:
        """Live up to it, then let it happen."""
        at, fields = event.at.timestamp(), event.fields
        box_id = fields.get("box", "")
        match event.kind:
            case "start":
                self._begin(at)
            case "box.launched":
                self._types[box_id] = str(fields["pool"]).partition("@")[0]
            case "box.serving":
                self._live_until(at)
                self._serves(box_id)
            case "notice":
                self._noticed[box_id] = at
            case "box.unserving":
                self._live_until(at)
                self._leaves(box_id, str(fields.get("why", "")))
            case "box.ended":
                self._live_until(at)
                self._ends(box_id)
            case "end":
                self._live_until(at)
                self._next = None
                self._clock.run(at + LEFT_SECONDS)

    def _begin(self, at: float) -> None:
        self._clock = Clock(at)
        self.tally.start = at
        draw = Random(f"{self._seed}/gateway")  # noqa: S311  a simulation, no secret
        gateway = self._plan.gateway(self._settings)
        self._front = Front(self._clock, gateway, self._plan.cloud or CloudModel(), self.tally, draw)
        self._requests = self._plan.requests(at, self._seed)
        self._next = next(self._requests, None)
        while self._next is not None and self._next.at < at:  # of a recording that begins before the log
            self._next = next(self._requests, None)

    def _live_until(self, at: float) -> None:
        clock, arrive = self._clock, self._front.arrive
        while self._next is not None and self._next.at <= at:
            asked, self._next = self._next, next(self._requests, None)
            clock.run(max(asked.at, clock.now))
            arrive(asked)
        clock.run(max(at, clock.now))

    def _serves(self, box_id: str) -> None:
        card = card_of(self._types.get(box_id, ""))
        box = self._boxes[box_id] = QueueingBox(box_id, card, self._clock, self._front, lane=self._plan.lane)
        self._front.serves(box)

    def _leaves(self, box_id: str, why: str) -> None:
        box = self._boxes.get(box_id)
        if box is None:
            return
        drain = self._settings.drain
        if why in DEAD:
            self._ends(box_id)
        elif box_id in self._noticed:  # its gate is shut at once; the balancer learns of it later
            box.shut = True
            ends = self._noticed[box_id] + names.NOTICE_SECONDS - drain.safety_margin_seconds
            box.leave(max(0.0, min(ends - self._clock.now, drain.budget_seconds)))
            self._clock.after(NAMED_SECONDS, self._forget, box)
        else:  # planned: the balancer lets go first
            self._forget(box)
            box.leave(drain.planned_seconds)

    def _ends(self, box_id: str) -> None:
        self._types.pop(box_id, None)
        self._noticed.pop(box_id, None)
        box = self._boxes.pop(box_id, None)
        if box is not None:
            self._forget(box)
            box.die()

    def _forget(self, box: QueueingBox) -> None:
        if box in self._front.named:
            self._front.named.remove(box)
