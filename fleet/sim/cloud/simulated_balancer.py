"""The simulated balancer and its alarm: who is routed to, and what the alarm tells of it when."""

import math
from collections import deque
from collections.abc import Callable

from fleet.config.settings import Settings
from fleet.core import names
from fleet.sim.cloud import payloads
from fleet.sim.cloud.behaviour import AlarmModel
from fleet.sim.cloud.simulation import SimulatedBox, Simulation, draw
from lambdas.watchdog.cloud import Alarm

STRETCHES = 2000  # of health: a day of them a minute each


class Balancer:
    """Targets: registered during the boot, healthy once the gate is open and the probes have passed."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._lags = world.stream("balancer")
        self.healthy = 0
        self.on_change: Callable[[SimulatedBox], None]

    def boots(self, box: SimulatedBox, registers_at: float, opens_at: float) -> None:
        behaviour = self._world.behaviour
        checks_from = registers_at + draw(self._lags, behaviour.registration)
        self._world.clock.at(max(checks_from, opens_at) + draw(self._lags, behaviour.probes), self.serve, box)

    def serve(self, box: SimulatedBox) -> None:
        if box.ended_at is not None or box.noticed_at is not None or box.draining or box.unhealthy or box.healthy:
            return
        box.healthy = True
        self.healthy += 1
        self._world.log("box.serving", box=box.id)
        self.on_change(box)

    def unserve(self, box: SimulatedBox, why: str) -> None:
        """Deregistered, or its checks fail."""
        box.draining = True
        if box.healthy:
            box.healthy = False
            self.healthy -= 1
            self._world.log("box.unserving", box=box.id, why=why)
            self.on_change(box)

    def state(self, box: SimulatedBox, now: float) -> str | None:
        """As DescribeTargetHealth says; None: not registered."""
        if box.healthy:
            return "healthy"
        if box.draining:
            return "draining"
        if now < box.registered_at:
            return None
        return "unhealthy" if box.unhealthy else "initial"


class NoHealthyTargetAlarm:
    """Fewer healthy targets than should serve, through the metric's whole periods and its lag."""

    def __init__(self, world: Simulation, settings: Settings, *, healthy: int) -> None:
        self._world = world
        self._name = names.no_healthy_target_alarm(settings.fleet_name)
        self._floor = settings.capacity.min  # what should serve
        self._window_seconds = settings.watchdog.alarm_minutes * 60.0
        self._lags = world.stream("alarm")
        whole = healthy >= self._floor
        self.live = Alarm("OK" if whole else "INSUFFICIENT_DATA", world.clock.utc())
        self._number = 0  # of the stretch with or without enough of them
        self._down_since: float | None = None if whole else world.clock.now
        self._up_since = -math.inf  # what was before the start was served
        self._counts: deque[tuple[float, int]] = deque(
            [(-math.inf, self._floor)], maxlen=STRETCHES
        )  # healthy from then on
        self._counts.append((world.clock.now, healthy))
        self._lag = 0.0
        self.registered: Callable[[], bool] = lambda: True
        world.log("alarm", state=self.live.state)
        model = world.behaviour.alarm
        for at, state in model.recorded or ():
            if at is not None:
                world.clock.at(at, self._replay, state)
        self._tells_recovery = model.recorded is None or any(at is None and s == "OK" for at, s in model.recorded)
        if not whole:
            self._goes_down()

    def dark_minutes(self, start: float, end: float) -> int:
        """Whole minutes, each times the share that was missing: the metric of a minute is the most that it saw."""
        first, after, served, shared = int(start // 60), int(end // 60), 0, dict[int, int]()
        until = end
        for since, healthy in reversed(self._counts):
            if until <= start:
                break
            most = min(healthy, self._floor)
            begins, ends = int(max(since, start) // 60), int(min(until, end) // 60)
            served += max(ends - begins - 1, 0) * most  # minutes that saw nothing else
            for minute in (begins, ends):
                shared[minute] = max(shared.get(minute, 0), most)
            until = since
        served += sum(most for minute, most in shared.items() if first <= minute < after)
        return int(after - first - served / self._floor)

    def follow(self, healthy: int) -> None:
        """The number of healthy targets has changed."""
        self._counts.append((self._world.clock.now, healthy))
        if healthy < self._floor and self._down_since is None:
            self._goes_down()
        elif healthy >= self._floor and self._down_since is not None:
            self._comes_back()

    def _goes_down(self) -> None:
        model, now = self._world.behaviour.alarm, self._world.clock.now
        self._down_since = now
        self._number += 1
        self._lag = draw(self._lags, model.lag)
        if model.recorded is None:
            self._world.clock.at(self._window_end(now) + self._lag, self._fire, self._number)

    def _window_end(self, down_since: float) -> float:
        """When the last of the needed whole periods without enough healthy targets has passed."""
        period = self._world.behaviour.alarm.period_seconds
        return math.ceil(down_since / period) * period + self._window_seconds

    def _fire(self, number: int) -> None:
        if number != self._number:
            return
        if self._world.behaviour.alarm.missing_breaches or self.registered():
            self._become("ALARM")
        else:
            self._become("INSUFFICIENT_DATA")

    def _comes_back(self) -> None:
        model, now = self._world.behaviour.alarm, self._world.clock.now
        down_since, self._down_since, self._up_since = self._down_since, None, now
        assert down_since is not None  # noqa: S101 - told by follow()
        if now < self._window_end(down_since):
            self._number += 1  # the window never filled: what was scheduled tells nothing
        if not self._tells_recovery:
            return
        told = math.ceil(now / model.period_seconds) * model.period_seconds + self._lag
        self._world.clock.at(told, self._become, "OK")

    def _replay(self, state: str) -> None:
        """A recorded transition, if what it tells of has happened here too: an alarm is up to one lag behind."""
        down = self._down_since is not None
        lately = self._world.clock.now - self._up_since <= AlarmModel().lag[1] + AlarmModel().period_seconds
        if lately or down == (state == "ALARM"):
            self._become(state)

    def _become(self, state: str) -> None:
        if state == self.live.state:
            return
        previous, self.live = self.live.state, Alarm(state, self._world.clock.utc())
        self._world.log("alarm", state=state)
        self._world.publish("CloudWatch Alarm State Change", payloads.alarm, self._name, state, previous)
