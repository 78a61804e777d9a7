"""The simulated cloud: the watchdog's own narrow interface to AWS, over a market that lives on a virtual clock.

    cloud = SimulatedCloud(market, settings=settings, seed=1, emit=log.append)
    cloud.watch(lambda payload, now: handler.run(payload, cloud=cloud, settings=settings, now=now))
    cloud.run()

Deterministic: the same market, settings, behaviour and seed give the same log, byte for byte.
"""

from collections.abc import Callable
from datetime import datetime

from fleet.config.settings import Settings
from fleet.core import names
from fleet.sim.cloud.autoscaling import AutoScalingGroup
from fleet.sim.cloud.behaviour import Behaviour
from fleet.sim.cloud.bus import Bus, Handle
from fleet.sim.cloud.ec2 import Ec2, boot_tag
from fleet.sim.cloud.recording import Recording
from fleet.sim.cloud.simulated_balancer import Balancer, NoHealthyTargetAlarm
from fleet.sim.cloud.simulation import Emit, SimulatedBox, Simulation, draw
from fleet.sim.cloud.virtual_clock import utc
from fleet.sim.markets.market import Market, Purchase, zone_id
from lambdas.watchdog.cloud import Alarm, GoneError, Group, Instance, Refresh
from lambdas.watchdog.state import StateError, loads

RECORDED_FOR_SECONDS = 300  # a recorded score holds so long before and after its reading


class SimulatedCloud:
    """Implements `lambdas.watchdog.cloud.Cloud`; the rest moves the virtual clock and what lives on it."""

    def __init__(
        self,
        market: Market,
        *,
        settings: Settings,
        behaviour: Behaviour | None = None,
        seed: int = 0,
        emit: Emit = lambda event: None,
        lever: int = 0,
        state: str | None = None,
        mode: str | None = None,
        serving: Purchase | None = None,
        scans_from: float | None = None,
        recording: Recording | None = None,
    ) -> None:
        """`serving`: boxes of this kind serve from the start, in the market's first pool; None: an empty group.

        `lever` and `state` are the parameters' values at the start; `mode` is for a policy that writes its own state.
        With a `recording`, boxes come and go as in the life that it is of.
        Scans begin at `scans_from` (epoch seconds; None: one interval after the start).
        """
        behaviour = behaviour or Behaviour()
        self.settings, self.market = settings, market
        self.world = world = Simulation(
            start=market.start, behaviour=behaviour, seed=seed, emit=emit, recording=recording
        )
        self.clock = world.clock
        self.deploying_until = 0.0
        self.brisk = False  # True: no scan is made while nothing has happened since one that found nothing to do
        self.on_health: list[Callable[[], None]] = []  # a box begins or ceases to serve, or is gone
        self._bus = Bus(world, settings.fleet_name, settings.region)
        world.publish = self._bus.publish
        self._state, self._lever = state, str(lever)
        self._mode = _mode(state)
        self.mode_at_start = mode or settings.initial_mode
        self._scores = world.stream("scores")
        self._clocks: set[float] = set()
        self._clock_lags = world.stream("clock")
        world.log("start", name=market.name, desired=settings.capacity.min)
        if self._mode is not None:
            world.log("mode", mode=self._mode)

        self.balancer = balancer = Balancer(world)
        self.ec2 = ec2 = Ec2(world, market, balancer)
        self.autoscaling = group = AutoScalingGroup(world, ec2, balancer, settings, lever)
        ec2.on_boot_failed, ec2.on_cancelled = group.boot_failed, group.cancelled
        ec2.on_risk, ec2.on_gone = group.at_risk, self._gone
        balancer.on_change = self._health_changed
        started: list[SimulatedBox] = []
        if recording is not None:
            started = [ec2.adopt(launch) for launch in recording.serving_from(market.start)]
        elif serving is not None:
            started = [ec2.start(serving, market.pools[0]) for _ in range(settings.capacity.min)]
        for box in started:
            box.registered_at, box.healthy = world.clock.now, True
            balancer.healthy += 1
            world.log("box.serving", box=box.id)
            group.adopt(box)
        self._alarm = NoHealthyTargetAlarm(world, settings, healthy=balancer.healthy)
        self._alarm.registered = lambda: any(self.target_health())
        group.begin()
        first_scan = market.start + settings.scan_seconds if scans_from is None else scans_from
        self.clock.at(first_scan, self._scan)

    # --- moving it ---------------------------------------------------------------------------------------------

    def watch(self, handle: Handle) -> None:
        """Every EventBridge payload, scan and command goes to `handle(payload, now)`, which returns its decision."""
        self._bus.handle = handle

    def run(self, until: float | None = None) -> None:
        """Advance to `until` (epoch seconds), or to the market's end, which closes the log."""
        self.clock.run(self.market.end if until is None else until)
        if until is None:
            self.world.log("end", name=self.market.name, desired=self.autoscaling.desired)

    def command(self, command: str, *, at: float | None = None, who: str = "drill", why: str = "drill") -> None:
        """An operator's command: pin, arm, resume, scan, probe."""
        payload = {"command": command, "who": who, "why": why}
        when = self.clock.now if at is None else at
        self.clock.at(when, self._bus.invoke, payload, when)

    def wedge(self, box_id: str) -> None:
        """A box stops answering without ending."""
        box = self.ec2.running[box_id]
        low, high = self.world.behaviour.unhealthy_after
        self.clock.after((low + high) / 2, self._found_unhealthy, box)

    def launch_beside(self, purchase: Purchase) -> SimulatedBox | str:
        """A box outside the group, for policies that hold some of their own; given up when a member would be."""
        box = self.ec2.launch(purchase)
        if isinstance(box, str):
            self.world.log("launch.failed", purchase=purchase, pool=None, why=box)
        else:
            self.clock.after(self.settings.boot.hook_heartbeat_seconds, self._give_up, box)
        return box

    def end_beside(self, box: SimulatedBox) -> None:
        self.balancer.unserve(box, "not needed")
        self.clock.after(self.autoscaling.termination_seconds, self.ec2.end, box, "not needed")

    def _give_up(self, box: SimulatedBox) -> None:
        if box.ended_at is None and not (box.healthy or box.draining):
            self.ec2.end(box, "boot timeout")

    def _scan(self) -> None:
        if not (self.brisk and self._bus.undisturbed):
            self._bus.invoke({"command": "scan"}, self.clock.now)
            quiet = self._mode == "spot-armed" and self.balancer.healthy >= self.autoscaling.desired
            self._bus.undisturbed = quiet and self._bus.decided == "nothing"
        self.clock.after(self.settings.scan_seconds, self._scan)

    def _found_unhealthy(self, box: SimulatedBox) -> None:
        if box.ended_at is None and not box.draining:
            self.balancer.unserve(box, "wedge")
            box.draining, box.unhealthy = False, True
            self.autoscaling.wedged(box)

    def _health_changed(self, box: SimulatedBox) -> None:
        self.autoscaling.box_changed(box)
        self._alarm.follow(self.balancer.healthy)
        self._changed()

    def _gone(self, box: SimulatedBox) -> None:
        self.autoscaling.box_gone(box)
        self._changed()

    def _changed(self) -> None:
        self._bus.undisturbed = False
        for listener in self.on_health:
            listener()

    # --- the watchdog's interface ------------------------------------------------------------------------------

    def parameters(self) -> tuple[str | None, str | None]:
        return self._state, self._lever

    def put_state(self, text: str) -> None:
        self._state = text
        mode = _mode(text)
        if mode is not None and mode != self._mode:
            self._mode = mode
            self.world.log("mode", mode=mode)

    def put_lever(self, percentage: int) -> None:
        self._lever = str(percentage)

    def alarm(self) -> Alarm | None:
        return self._alarm.live

    def dark_minutes(self, start: datetime, end: datetime) -> int:
        return self._alarm.dark_minutes(start.timestamp(), end.timestamp())

    def group(self) -> Group:
        return self.autoscaling.describe()

    def instances(self, ids: tuple[str, ...]) -> dict[str, Instance]:
        now = self.clock.now
        found = {}
        for i in ids:
            if box := self.autoscaling.boxes.get(i) or self.ec2.known(i):
                state = "running" if box.ended_at is None else "terminated"
                spot, boot = box.purchase == "spot", boot_tag(box, now)
                found[i] = Instance(utc(box.launched_at), spot, boot, state, reason=box.state_reason)
        return found

    def target_health(self) -> dict[str, str]:
        now = self.clock.now
        state = self.balancer.state
        return {box.id: seen for box in self.ec2.running.values() if (seen := state(box, now)) is not None}

    def deregister(self, targets: tuple[str, ...]) -> None:
        raise NotImplementedError(f"nothing here registers what is no box: {targets}")

    def stack_in_progress(self) -> bool:
        return self.clock.now < self.deploying_until

    def refreshes(self) -> tuple[Refresh, ...]:
        return self.autoscaling.refreshes.seen()

    def zone_ids(self) -> dict[str, str]:
        scored = self.world.behaviour.scores.zones
        return {zone: zone_id(zone) for zone in self.market.zones} | {zone: zone for zone in scored}

    def scores(self) -> dict[str, int]:
        model, now = self.world.behaviour.scores, self.clock.now
        zones = self.market.zones
        if near := [(abs(at - now), told) for at, told in model.recorded if abs(at - now) <= RECORDED_FOR_SECONDS]:
            _, told = min(near, key=lambda reading: reading[0])
            return told if "" not in told else dict.fromkeys(map(zone_id, zones), told[""])
        answers: dict[str, int] = {}
        selling = self.ec2.zones_selling(model.late_seconds)
        for zone in zones:
            good = (zone in selling) != (self._scores.random() < model.wrong_share)
            answers[zone_id(zone)] = self._scores.randint(*(model.sells if good else model.refuses))
        return answers

    def flip(self, group: Group, percentage: int, *, send_template: bool) -> None:
        distribution = {**group.policy["InstancesDistribution"], "OnDemandPercentageAboveBaseCapacity": percentage}
        template = group.policy if send_template else self.autoscaling.policy
        self.autoscaling.flip({**template, "InstancesDistribution": distribution})

    def suspend(self, process: str) -> None:
        self.autoscaling.suspend(process)

    def resume(self, process: str) -> None:
        self.autoscaling.resume(process)

    def start_refresh(self) -> str:
        return self.autoscaling.start_refresh()

    def cancel_refresh(self) -> None:
        self.autoscaling.refreshes.cancel()

    def abandon(self, box_id: str) -> None:
        self.autoscaling.abandon(box_id)

    def end_box(self, box_id: str) -> None:
        box = self.autoscaling.boxes.get(box_id)
        if box is None:
            raise GoneError(f"TerminateInstanceInAutoScalingGroup: {box_id} is not a member")
        self.autoscaling.end_member(box)

    def wake(self, at: datetime) -> None:
        """A workflow's wait, named by its time; the event that starts the function is not lost, but may be late."""
        when = at.timestamp()
        if when not in self._clocks:
            self._clocks.add(when)
            due = max(when, self.clock.now)
            late = draw(self._clock_lags, self.world.behaviour.events.delay)
            heard = self.world.recording.patience_over(due) if self.world.recording else None
            self.clock.at(heard or due + late, self._bus.invoke, {"command": names.COMMAND_PATIENCE}, when)

    def mail(self, subject: str, body: str) -> None:
        self.world.log("mail", subject=subject, body=body)


def _mode(state: str | None) -> str | None:
    try:
        return loads(state).mode
    except StateError:
        return None
