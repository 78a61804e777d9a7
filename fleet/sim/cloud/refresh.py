"""Instance refreshes of the simulated group, one at a time: what they roll, how far they are, how they end."""

from collections.abc import Callable, Mapping

from fleet.sim.cloud.simulation import SimulatedBox, Simulation
from fleet.sim.cloud.virtual_clock import utc
from lambdas.watchdog.cloud import BusyError, GoneError, Refresh


class InstanceRefresh:
    """A launch-first roll of the boxes that were there when it began. Times are epoch seconds."""

    def __init__(self, number: int, started_at: float, old: set[str], *, has_desired_configuration: bool) -> None:
        self.id, self.started_at, self.old = f"refresh-{number}", started_at, old
        self.has_desired_configuration = has_desired_configuration
        self.status = "InProgress"

    @property
    def active(self) -> bool:
        return self.status in ("InProgress", "Cancelling")

    def seen(self) -> Refresh:
        """As DescribeInstanceRefreshes shows it."""
        return Refresh(self.id, self.status, utc(self.started_at), like_ours=not self.has_desired_configuration)


class Refreshes:
    """Those of one group. `boxes` are its members as they come and go; `on_end` is called when a refresh has ended."""

    def __init__(
        self,
        world: Simulation,
        boxes: Mapping[str, SimulatedBox],
        publish: Callable[..., None],
        on_end: Callable[[], None],
    ) -> None:
        self._world, self._boxes, self._publish, self._on_end = world, boxes, publish, on_end
        self._started = 0
        self.last: InstanceRefresh | None = None

    @property
    def active(self) -> InstanceRefresh | None:
        return self.last if self.last is not None and self.last.active else None

    def seen(self) -> tuple[Refresh, ...]:
        """Newest first; the group remembers one."""
        return () if self.last is None else (self.last.seen(),)

    def start(self, *, has_desired_configuration: bool) -> str:
        """Roll every box there is now, matching or not; raises BusyError while one does."""
        if self.active:
            raise BusyError("StartInstanceRefresh: InstanceRefreshInProgress")
        self._started += 1
        old = {box.id for box in self._boxes.values() if box.counted}
        self.last = InstanceRefresh(
            self._started, self._world.clock.now, old, has_desired_configuration=has_desired_configuration
        )
        self._publish("EC2 Auto Scaling Instance Refresh Started", InstanceRefreshId=self.last.id)
        self._watch(self.last, len(old))
        return self.last.id

    def cancel(self) -> None:
        """It ends a moment later; raises GoneError if there is none."""
        refresh = self.active
        if refresh is None:
            raise GoneError("CancelInstanceRefresh: no active refresh")
        refresh.status = "Cancelling"
        self._world.clock.after(self._world.behaviour.cancel_seconds, self._end, refresh, "Cancelled")

    def judge(self, desired: int) -> None:
        """Done once no old box counts and enough others are in service."""
        refresh = self.last
        if refresh is None or refresh.status != "InProgress":
            return
        left = any(box.counted for box in self._boxes.values() if box.id in refresh.old)
        serving = sum(box.lifecycle == "InService" for box in self._boxes.values())
        if not left and serving >= desired:
            self._end(refresh, "Successful")

    def _watch(self, refresh: InstanceRefresh, left_before: int) -> None:
        """No progress for an hour fails it."""
        if self.last is not refresh or refresh.status != "InProgress":
            return
        left = len(refresh.old & self._boxes.keys())
        if left == left_before and self._world.clock.now > refresh.started_at:
            self._end(refresh, "Failed")
        else:
            self._world.clock.after(self._world.behaviour.refresh_timeout_seconds, self._watch, refresh, left)

    def _end(self, refresh: InstanceRefresh, status: str) -> None:
        if not refresh.active:
            return
        refresh.status = status
        word = {"Successful": "Succeeded"}.get(status, status)
        self._publish(f"EC2 Auto Scaling Instance Refresh {word}", InstanceRefreshId=refresh.id)
        self._on_end()
