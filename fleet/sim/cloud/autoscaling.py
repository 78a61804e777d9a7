"""The simulated Auto Scaling group: what it launches, what it ends, and in which order, as measured on a live one."""

import math
from typing import Any

from fleet.config.settings import Settings
from fleet.core import names
from fleet.sim.cloud import payloads
from fleet.sim.cloud.ec2 import Ec2
from fleet.sim.cloud.launch_retries import LaunchRetries
from fleet.sim.cloud.refresh import Refreshes
from fleet.sim.cloud.simulated_balancer import Balancer
from fleet.sim.cloud.simulation import SimulatedBox, Simulation, draw
from fleet.sim.cloud.virtual_clock import utc
from fleet.sim.markets.market import Purchase
from lambdas.watchdog.cloud import Box, BusyError, GoneError, Group, RefreshActiveError
from lambdas.watchdog.world import HELD

BY_USER, BY_AWS = "User suspended", "Administratively suspended: launches have failed for over a day"


class AutoScalingGroup:
    """Keeps `desired` boxes counted; replaces launch-first what is at risk, unhealthy, of the wrong kind, or old."""

    def __init__(self, world: Simulation, ec2: Ec2, balancer: Balancer, settings: Settings, percentage: int) -> None:
        scored = world.behaviour.scores.zones
        self._zones = tuple(sorted({*(pool.zone for pool in ec2.pools.values()), *scored}))
        self._world, self._ec2, self._balancer, self._settings = world, ec2, balancer, settings
        self._lags, self._polls = world.stream("group"), world.stream("notices during a boot")
        self.created_at = world.clock.now
        self.desired = settings.capacity.min
        self.percentage = percentage
        self.suspended = {"AZRebalance": BY_USER}  # process to reason
        self.boxes: dict[str, SimulatedBox] = {}
        self.refreshes = Refreshes(world, self.boxes, self._publish, self._refresh_ended)
        self._leaving: dict[str, Box] = {}  # listed after their launch was abandoned (aws-behaviours: abandoned-listed)
        self._wrong_kind: set[str] = set()
        self._retries = LaunchRetries(world, self._launch_missing)
        self._failing_since: float | None = None
        self.policy = payloads.mixed_instances_policy(settings, percentage)
        world.log("lever", percentage=percentage)

    # --- what the watchdog sees and does -----------------------------------------------------------------------

    def describe(self) -> Group:
        boxes = {**self._leaving, **{box.id: _seen(box) for box in self.boxes.values()}}
        return Group(
            utc(self.created_at),
            self.desired,
            self.percentage,
            tuple(boxes.values()),
            self._zones,
            dict(self.suspended),
            self.policy,
        )

    def flip(self, policy: dict[str, Any]) -> None:
        """UpdateAutoScalingGroup with this mixed-instances policy. The group tries again at once."""
        if (refresh := self.refreshes.active) and refresh.has_desired_configuration:
            raise RefreshActiveError("An active instance refresh with a desired configuration exists")
        percentage = policy["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"]
        self.policy = policy
        if percentage != self.percentage:
            self.percentage = percentage
            self._world.log("lever", percentage=percentage)
        self._mark_wrong_kind()
        self._retries.begin(draw(self._lags, self._world.behaviour.flip_attempt))  # aws-behaviours: flip-tries-at-once

    def suspend(self, process: str, reason: str = BY_USER) -> None:
        self.suspended[process] = reason

    def resume(self, process: str) -> None:
        self.suspended.pop(process, None)
        if process == "Launch":
            self._retries.begin(draw(self._lags, self._world.behaviour.first_attempt))

    def abandon(self, box_id: str) -> None:
        """CompleteLifecycleAction ABANDON on the launch hook."""
        box = self.boxes.get(box_id)
        if box is None or box.lifecycle != HELD:
            raise GoneError(f"CompleteLifecycleAction: no active Lifecycle Action of {box_id}")
        self._give_hook_back(box, "launch abandoned: by the watchdog", "ended by the watchdog")

    def end_member(self, box: SimulatedBox) -> None:
        """TerminateInstanceInAutoScalingGroup without decrement."""
        if box.lifecycle == HELD and not self._world.behaviour.terminates_held:
            raise BusyError(f"TerminateInstanceInAutoScalingGroup: {box.id} is in {HELD}")
        self._terminate(box, "ended by the watchdog")
        self._retries.begin(draw(self._lags, self._world.behaviour.first_attempt))

    def start_refresh(self, *, has_desired_configuration: bool = False) -> str:
        """Launch-first, box by box: a roll of every box there is now, matching or not. A deploy's doubles the group."""
        refresh = self.refreshes.start(has_desired_configuration=has_desired_configuration)
        self._retries.begin(draw(self._lags, self._world.behaviour.first_attempt))
        self._settle()
        return refresh

    # --- what happens to it ------------------------------------------------------------------------------------

    def adopt(self, box: SimulatedBox) -> None:
        """A box that serves from before the drill began."""
        self.boxes[box.id] = box
        box.lifecycle, box.in_service_at = "InService", -math.inf

    def begin(self) -> None:
        self._retries.begin(draw(self._lags, self._world.behaviour.first_attempt))

    def at_risk(self, box: SimulatedBox) -> None:
        """A notice or a recommendation: with capacity rebalancing the successor need not wait for the end."""
        if box.id in self.boxes and self._world.behaviour.capacity_rebalancing:
            self._retries.once_more(draw(self._lags, self._world.behaviour.rebalance_attempt))
        if box.noticed_at is not None and not math.isinf(box.registered_at):
            heard = max(self._world.clock.now, box.registered_at) + draw(self._polls, self._world.behaviour.agent_poll)
            recording = self._world.recording
            gives_up = heard if recording is None else recording.gave_up(box.id, on_notice=True)
            if gives_up is not None:
                self._world.clock.at(gives_up, self._gives_up_boot, box)

    def box_changed(self, box: SimulatedBox) -> None:
        """The balancer's verdict on a member: the launch hook is completed once it is healthy."""
        if box.healthy and box.lifecycle == HELD and self._world.recorded("launch.failed", box.id) is None:
            completed = self._world.clock.now + draw(self._lags, self._world.behaviour.hook_poll)
            self._world.clock.at(self._world.recorded("box.in_service", box.id) or completed, self._into_service, box)

    def box_gone(self, box: SimulatedBox) -> None:
        """EC2 has ended it. While its launch hook holds a box nobody looks, and it keeps its place."""
        # aws-behaviours: held-dead-keeps-place
        if box.lifecycle == HELD and not self._world.behaviour.judges_held:
            return
        box.lifecycle = "Terminated"
        if self.boxes.pop(box.id, None) is None:
            return
        self._wrong_kind.discard(box.id)
        self._publish("EC2 Instance Terminate Successful", EC2InstanceId=box.id)
        self._retries.once_more(draw(self._lags, self._world.behaviour.first_attempt))
        self._settle()

    def boot_failed(self, box: SimulatedBox) -> None:
        """The box abandons its own launch."""
        if box.lifecycle in ("Pending", HELD):
            self._give_hook_back(box, "launch abandoned: boot failed", "boot failed")
        else:
            self._ec2.end(box, "boot failed")

    def _gives_up_boot(self, box: SimulatedBox) -> None:
        """A box that hears its notice while it boots hands the launch hook back; the group ends it at once."""
        if box.lifecycle == HELD and box.ended_at is None:
            box.state_reason = "Client.UserInitiatedShutdown"  # the group's call, whatever the box had heard
            self._give_hook_back(box, "launch abandoned: notice", "reclaim")

    def cancelled(self, box: SimulatedBox) -> None:
        """An instance that ends with a client error before it runs for long: its launch is cancelled, not abandoned."""
        if box.lifecycle in ("Pending", HELD):
            self._give_hook_back(box, payloads.CANCELLED + box.state_reason, "client error")

    def _give_hook_back(self, box: SimulatedBox, told: str, why: str) -> None:
        """The launch is abandoned: the group ends the box, or learns that it has ended."""
        self._launch_unsuccessful(box.purchase, box.pool.label, told, box.launched_at, box.id)
        box.lifecycle = "Terminating"
        self._leaving[box.id] = _seen(box)
        self._world.clock.after(self._world.behaviour.abandoned_listed, self._leaving.pop, box.id)
        self._end(box, why)

    def _end(self, box: SimulatedBox, why: str) -> None:
        if box.ended_at is None:
            self._ec2.end(box, why)
        else:
            self.box_gone(box)

    def wedged(self, box: SimulatedBox) -> None:
        """The balancer finds a member unhealthy; the group acts once its own grace is over."""
        if box.in_service_at is not None:
            due = box.in_service_at + self._world.behaviour.health_grace_seconds
            self._world.clock.at(due, self._retries.begin, 0.0)

    # --- launching ---------------------------------------------------------------------------------------------

    def _replacing(self, box: SimulatedBox) -> bool:
        if box.at_risk and self._world.behaviour.capacity_rebalancing and box.lifecycle == "InService":
            return True
        if (refresh := self.refreshes.active) and box.id in refresh.old:
            return True
        if box.unhealthy and box.in_service_at is not None:
            return self._world.clock.now >= box.in_service_at + self._world.behaviour.health_grace_seconds
        return box.id in self._wrong_kind

    def _missing(self) -> int:
        """Boxes to launch now: to desired, and a successor for each that is to be replaced, within the limits."""
        counted = [box for box in self.boxes.values() if box.counted]
        wanted = self.desired + sum(map(self._replacing, counted))
        most = self._settings.capacity.max
        limit = most + max(1, most // 10)  # rebalancing may pass max by 10 %, by at least one
        if refresh := self.refreshes.active:
            limit = max(limit, self.desired + (self.desired if refresh.has_desired_configuration else 1))
        return min(wanted, limit) - len(counted)

    def _launch_missing(self) -> bool | None:
        """One launch, and whether it got its box; None: there is nothing to launch."""
        if "Launch" in self.suspended or self._missing() <= 0:
            return None
        return self._launch()

    def _next_purchase(self) -> Purchase:
        staying = [box for box in self.boxes.values() if box.counted and not self._replacing(box)]
        on_demand = sum(box.purchase == "on-demand" for box in staying)
        return "on-demand" if on_demand < self._on_demand_wanted() else "spot"  # aws-behaviours: on-demand-first

    def _on_demand_wanted(self) -> int:
        base = min(self._settings.capacity.on_demand_base, self.desired)
        return base + math.ceil((self.desired - base) * self.percentage / 100)  # aws-behaviours: percentage-rounds-up

    def _launch(self) -> bool:
        behaviour, clock = self._world.behaviour, self._world.clock
        purchase = self._next_purchase()
        box = self._ec2.launch(purchase)
        if isinstance(box, str):
            self._launch_unsuccessful(purchase, None, box, clock.now)
            limit = behaviour.suspended_after_failing_seconds
            self._failing_since = clock.now if self._failing_since is None else self._failing_since
            if limit is not None and clock.now - self._failing_since >= limit:
                self.suspend("Launch", BY_AWS)
            return False
        self._failing_since = None
        self.boxes[box.id] = box
        clock.after(draw(self._lags, behaviour.running_after), self._runs, box)
        return True

    def _launch_unsuccessful(
        self, purchase: Purchase, pool: str | None, why: str, began_at: float, box_id: str = ""
    ) -> None:
        which = {"box": box_id} if box_id else {}
        self._world.log("launch.failed", purchase=purchase, pool=pool, why=why, **which)
        self._publish(
            "EC2 Instance Launch Unsuccessful",
            StatusCode="Failed",
            StatusMessage=why if box_id else payloads.refusal(purchase, why),
            StartTime=f"{utc(began_at):%Y-%m-%dT%H:%M:%SZ}",
            EC2InstanceId=box_id,
        )

    def _runs(self, box: SimulatedBox) -> None:
        if box.lifecycle != "Pending":
            return
        behaviour = self._world.behaviour
        if behaviour.launch_hook:
            box.lifecycle = HELD
            self._publish(
                "EC2 Instance-launch Lifecycle Action",
                EC2InstanceId=box.id,
                LifecycleHookName=names.LAUNCH_HOOK,
                LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
            )
            self._world.clock.after(self._settings.boot.hook_heartbeat_seconds, self._hook_expires, box)
        else:
            box.lifecycle = HELD
            self._into_service(box)

    def _hook_expires(self, box: SimulatedBox) -> None:
        if box.lifecycle == HELD:
            self._give_hook_back(box, "launch abandoned: heartbeat timeout", "launch hook expired")

    def _into_service(self, box: SimulatedBox) -> None:
        if box.lifecycle != HELD or box.ended_at is not None:
            return
        clock = self._world.clock
        box.lifecycle, box.in_service_at = "InService", clock.now
        self._world.log("box.in_service", box=box.id)
        self._publish("EC2 Instance Launch Successful", StatusCode="InProgress", EC2InstanceId=box.id)
        clock.after(self._world.behaviour.warmup_seconds, self._settle)

    # --- ending ------------------------------------------------------------------------------------------------

    def _mark_wrong_kind(self) -> None:
        self._wrong_kind.clear()
        if not self._world.behaviour.replaces_wrong_kind:
            return
        staying = [box for box in self.boxes.values() if box.lifecycle == "InService" and not self._replacing(box)]
        wanted: dict[Purchase, int] = {"on-demand": self._on_demand_wanted()}
        wanted["spot"] = self.desired - wanted["on-demand"]
        for purchase, count in wanted.items():
            have = [box.id for box in staying if box.purchase == purchase]
            self._wrong_kind.update(have[: max(0, len(have) - count)])

    def _settle(self) -> None:
        """End what has a successor in service and warmed up; then see whether the refresh is done."""
        clock, warmup = self._world.clock, self._world.behaviour.warmup_seconds
        living = [box for box in self.boxes.values() if box.lifecycle == "InService" and box.noticed_at is None]
        old = [box for box in living if self._replacing(box)]
        new = [box for box in living if not self._replacing(box)]
        warm = [box for box in new if box.in_service_at is not None and box.in_service_at + warmup <= clock.now + 1e-6]
        excess = len(old) + len(warm) - self.desired
        if excess > 0:
            on_demand_is_wrong = self._on_demand_wanted() == 0
            warm.sort(key=lambda box: (box.purchase == "on-demand") != on_demand_is_wrong)
            for box in [*old, *warm][:excess]:
                self._terminate(box, "replaced")
        if self._retries.rests and self._missing() > 0:
            self._retries.schedule(draw(self._lags, self._world.behaviour.first_attempt))
        self.refreshes.judge(self.desired)

    def _refresh_ended(self) -> None:
        self._mark_wrong_kind()
        self._settle()

    def _terminate(self, box: SimulatedBox, why: str) -> None:
        if not box.counted:
            return
        held = box.lifecycle != "InService"
        box.lifecycle = "Terminating:Wait"
        self._balancer.unserve(box, why)
        self._world.clock.after(0.0 if held else self.termination_seconds, self._end, box, why)

    @property
    def termination_seconds(self) -> float:
        """From the group's decision to the end of billing: the deregistration delay, then the box's own last words."""
        return self._settings.drain.deregistration_delay_seconds + self._world.behaviour.last_words_seconds

    def _publish(self, detail_type: str, **detail: Any) -> None:
        self._world.publish(detail_type, payloads.group, names.group(self._settings.fleet_name), **detail)


def _seen(box: SimulatedBox) -> Box:
    return Box(box.id, box.lifecycle, box.pool.zone, box.pool.instance_type)
