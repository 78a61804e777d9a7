"""EventBridge and the asynchronous invocation: payloads arrive late, twice or never, and failures repeat."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from fleet.sim.cloud.payloads import Payload
from fleet.sim.cloud.simulation import Simulation, draw
from lambdas.watchdog.cloud import CloudError
from lambdas.watchdog.signals import BOX_EVENTS, GROUP_EVENTS, STATE_EVENT, parse

Record = dict[str, Any]
RULES = {"CloudWatch Alarm State Change", *GROUP_EVENTS, *BOX_EVENTS, STATE_EVENT}
Handle = Callable[[Payload, datetime], Record | None]


class Bus:
    """Numbers payloads, draws their fate, invokes the one handler and keeps what it decided in the log."""

    def __init__(self, world: Simulation, fleet: str, region: str) -> None:
        self._world, self._fleet, self._region = world, fleet, region
        self._fates = {True: world.stream("bus of ends"), False: world.stream("bus")}
        self._numbers = 0
        self.handle: Handle | None = None
        self.decided, self.undisturbed = "", False  # the last action; nothing has happened since a scan set this

    def publish(self, detail_type: str, build: Callable[..., Payload], *what: str, **detail: Any) -> None:
        """An event has happened: deliver it as best effort does. Its payload is built only if a rule matches it."""
        self.undisturbed = False
        if self.handle is None or detail_type not in RULES:
            return
        events, clock = self._world.behaviour.events, self._world.clock
        self._numbers += 1
        fate = self._fates[detail_type == STATE_EVENT]  # one event more must not change the luck of all others
        lost, doubled, late = fate.random(), fate.random(), fate.random()
        delay, again = draw(fate, events.delay), draw(fate, events.doubled_after)
        if lost < events.lost_share:
            return
        if late < events.late_share:
            delay += draw(fate, events.late_by)
        payload = build(self._numbers, clock.now, self._region, detail_type, *what, **detail)
        recording = self._world.recording
        if recording and (heard := recording.arrivals(parse(payload, self._fleet))) is not None:
            for at in heard:
                clock.at(at, self.invoke, payload, clock.now)
            return
        clock.after(delay, self.invoke, payload, clock.now)
        if doubled < events.doubled_share:
            clock.after(delay + again, self.invoke, payload, clock.now)

    def invoke(self, payload: Payload, happened_at: float, attempt: int = 0) -> None:
        """One invocation. A failed one is tried again as Lambda does, until it is too old."""
        if self.handle is None:
            return
        events, clock = self._world.behaviour.events, self._world.clock
        self.undisturbed = False
        try:
            record = self.handle(payload, clock.utc())
        except CloudError as error:
            self._world.log("decision", signal=str(payload.get("detail-type", "")), action="failed", reason=str(error))
            again = events.retries_after[attempt] if attempt < len(events.retries_after) else None
            if again is not None and clock.now + again - happened_at <= events.max_age_seconds:
                clock.after(again, self.invoke, payload, happened_at, attempt + 1)
            return
        if record is not None:
            self.decided = record.get("action", "")
            self._world.log("decision", **record)
