"""The stage that costs money: a live account. Time is waited for, darkness is targets deregistered, rolls are real."""

import time
from collections.abc import Callable
from functools import partial

from fleet.account.access import Aws
from fleet.config.settings import Settings
from fleet.core import names
from fleet.gameday.stage import POLL_SECONDS, until
from fleet.ops import fleet_view

TICK_SECONDS = 60.0
# While these are suspended no group takes a deregistered target for a sick box, and replaces it with one that serves.
JUDGES = ["HealthCheck", "ReplaceUnhealthy"]


class LiveStage:
    """The fleet of the settings, in the account of the credentials."""

    rolled_by = "the group's own refresh"

    def __init__(self, settings: Settings, aws: Aws, endpoint: str, *, narrate: Callable[[str], None]) -> None:
        self.settings, self.aws, self.endpoint = settings, aws, endpoint
        self._narrate = narrate
        self._fleet = settings.fleet_name
        self._removed: list[str] = []

    def let_pass(self, seconds: float, why: str) -> None:
        """Wait, and say for how long."""
        self._narrate(f"  waiting {seconds / 60:.0f} min: {why}")
        left = seconds
        while left > 0:
            time.sleep(min(left, TICK_SECONDS))
            left -= TICK_SECONDS

    def go_dark(self, boxes: tuple[str, ...]) -> None:
        """Deregister their targets: boxes run on, the balancer routes to none, and the group takes none for sick."""
        self._judge("SuspendProcesses")
        self._removed = [box for box in self._health() if box in boxes]
        self._move("DeregisterTargets")
        until("no target is healthy", self._dark, 600)

    def lights_on(self) -> None:
        """Register again whatever still runs; a terminated box stays out. Twice is once."""
        self._judge("ResumeProcesses")
        if self._removed:
            running = {box for box, _ in self._members()}
            self._removed = [box for box in self._removed if box in running]
        if self._removed:
            self._move("RegisterTargets")
        self._removed = []

    def light_alarm(self) -> None:
        """CloudWatch itself sets it back at its next evaluation; the event is out by then."""
        self._set_alarm("ALARM")

    def calm_alarm(self) -> None:
        """OK, until CloudWatch evaluates again."""
        self._set_alarm("OK")

    def finish_roll(self, old: tuple[str, ...], left: int = 0) -> None:
        """Wait until no more than `left` of `old` are there and every box that should serve does."""
        limit = self.settings.watchdog.rearm_timeout_seconds
        until("the successors serve", partial(self._rolled, old, left), limit)

    def settled(self) -> None:
        """EventBridge delivers within seconds, the function decides within seconds."""
        time.sleep(POLL_SECONDS)

    # --- reads -------------------------------------------------------------------------------------------------

    def _members(self) -> list[tuple[str, str]]:
        boxes = fleet_view.described(self.aws, self._fleet)["Instances"]
        return [(box["InstanceId"], box["LifecycleState"]) for box in boxes]

    def _health(self) -> dict[str, str]:
        return fleet_view.target_health(self.aws, self._fleet)

    def _dark(self) -> bool:
        health = self._health()
        return all(health.get(box) != "healthy" for box in self._removed)

    def _rolled(self, old: tuple[str, ...], left: int) -> bool:
        members = dict(self._members())
        health = self._health()
        fresh = [
            box
            for box, state in members.items()
            if box not in old and state == "InService" and health.get(box) == "healthy"
        ]
        stay = len(set(old) & members.keys())
        return stay <= left and stay + len(fresh) >= self.settings.capacity.min

    # --- writes ------------------------------------------------------------------------------------------------

    def _judge(self, operation: str) -> None:
        self.aws.call("autoscaling", operation, AutoScalingGroupName=names.group(self._fleet), ScalingProcesses=JUDGES)

    def _move(self, operation: str) -> None:
        targets = [{"Id": box} for box in self._removed]
        self.aws.call(
            "elbv2", operation, TargetGroupArn=fleet_view.target_group(self.aws, self._fleet), Targets=targets
        )

    def _set_alarm(self, state: str) -> None:
        self.aws.call(
            "cloudwatch",
            "SetAlarmState",
            AlarmName=names.no_healthy_target_alarm(self._fleet),
            StateValue=state,
            StateReason="game day",
        )
