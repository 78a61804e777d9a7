"""A rival by fixed timer: out on the first launch that fails for capacity, back after a fixed time of supply."""

from datetime import datetime
from typing import Any

from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from fleet.sim.drills.drill import Drill

LOOK_SECONDS = 60


def fixed_timer(drill: Drill, return_seconds: float) -> None:
    """Events come as they come to the watchdog, but supply is seen as it is, minute by minute: no score, no error.

    To be held against, not to be run.
    """
    cloud = drill.cloud(lever=0)
    turner = _Turner(cloud, return_seconds)
    cloud.watch(turner.hear)
    cloud.clock.after(0, turner.look)
    cloud.run()


class _Turner:
    def __init__(self, cloud: SimulatedCloud, return_seconds: float) -> None:
        self._cloud, self._return_seconds = cloud, return_seconds
        self._supply_since: float | None = None

    def hear(self, payload: dict[str, Any], now: datetime) -> None:
        failed = payload.get("detail-type") == "EC2 Instance Launch Unsuccessful"
        if failed and self._cloud.autoscaling.percentage == 0:
            self._move(100)

    def look(self) -> None:
        cloud, now = self._cloud, self._cloud.clock.now
        if not cloud.ec2.sells("spot"):
            self._supply_since = None
        elif self._supply_since is None:
            self._supply_since = now
        calm = self._supply_since is not None and now - self._supply_since >= self._return_seconds
        if calm and cloud.autoscaling.percentage == 100 and self._may_return():
            self._move(0)
        cloud.clock.after(LOOK_SECONDS, self.look)

    def _may_return(self) -> bool:
        """Whether the on-demand box serves, or the lever moved while a spot box was held and bought nothing.

        In service: a group that is flipped while its box is held finds no box of the wrong kind to replace.
        """
        boxes = self._cloud.autoscaling.boxes.values()
        bought = [box for box in boxes if box.purchase == "on-demand"]
        return any(box.healthy and box.lifecycle == "InService" and not box.at_risk for box in bought or boxes)

    def _move(self, percentage: int) -> None:
        self._cloud.flip(self._cloud.group(), percentage, send_template=True)
