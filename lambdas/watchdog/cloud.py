"""The narrow interface through which the watchdog sees and moves AWS, and the frozen shapes that travel inside.

`aws.py` implements it with boto3, `simulated_cloud` with a simulated market. Every method is one API call (or one
paginated read); each may raise `CloudError` or one of its kinds, which is all that the rest of the watchdog knows of
failures.

    CloudError                  any call that failed; message names the call
      ThrottledError            try again at the next event
      DeniedError               the role lacks a grant: the one that pages
      GoneError                 the thing asked about does not exist
      BusyError                 ScalingActivityInProgress, ResourceContention
      ExistsError               what was asked for is there already
      RefreshActiveError        an instance refresh stands in the way
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol


class CloudError(Exception):
    """A call that failed."""


class ThrottledError(CloudError):
    """The service asked for patience."""


class DeniedError(CloudError):
    """The caller lacks a permission."""


class GoneError(CloudError):
    """What the call names does not exist."""


class ExistsError(CloudError):
    """What the call would make exists."""


class BusyError(CloudError):
    """A scaling activity is in progress."""


class RefreshActiveError(CloudError):
    """An active instance refresh blocks the update, or a second refresh."""


@dataclass(frozen=True)
class Alarm:
    """The alarm's live state. `since` is when it entered it."""

    state: str  # OK, ALARM, INSUFFICIENT_DATA
    since: datetime

    @cached_property
    def summary(self) -> dict[str, str]:
        """For the decision record."""
        return {"state": self.state, "since": self.since.isoformat()}


@dataclass(frozen=True)
class Box:
    """A member of the group."""

    id: str
    lifecycle: str  # Pending, Pending:Wait, InService, Terminating:Wait, ...
    zone: str
    instance_type: str


@dataclass(frozen=True)
class Instance:
    """What EC2 knows of a box and the group does not."""

    launched_at: datetime
    spot: bool
    boot: str | None  # the box's own tag: names.BOOT_WARM, BOOT_COLD, BOOT_FAILED or not yet known
    state: str = "running"  # EC2's own word
    ours: bool = True  # its tag names this fleet
    reason: str = ""  # code of EC2's state reason, once it ends

    @property
    def ended(self) -> bool:
        """Whether it is over, or about to be: a group that has not seen it serve counts it all the same."""
        return self.state in {"shutting-down", "terminated", "stopping", "stopped"}


@dataclass(frozen=True)
class Group:
    """The Auto Scaling group."""

    created_at: datetime
    desired: int
    on_demand_percentage: int
    boxes: tuple[Box, ...]
    zones: tuple[str, ...]  # names
    suspended: dict[str, str]  # process to AWS's reason
    policy: dict[str, Any]  # the raw mixed-instances policy: sent back whole on a flip


@dataclass(frozen=True)
class Refresh:
    """The newest instance refresh."""

    id: str
    status: str  # Pending, InProgress, Successful, Failed, Cancelling, Cancelled, ...
    started_at: datetime
    like_ours: bool  # begun with the preferences of `start_refresh`, which no deploy's has: those skip what matches

    @property
    def active(self) -> bool:
        """Whether it still replaces boxes, or may."""
        return self.status in {"Pending", "InProgress", "Cancelling", "RollbackInProgress", "Baking"}

    @property
    def failed(self) -> bool:
        """Whether it ended without having replaced what it should."""
        return self.status in {"Failed", "Cancelled", "RollbackFailed", "RollbackSuccessful"}


class Cloud(Protocol):
    """What the watchdog needs of AWS; nothing more is granted to its role."""

    def parameters(self) -> tuple[str | None, str | None]:
        """State and lever, in one call; None where absent."""

    def put_state(self, text: str) -> None: ...
    def put_lever(self, percentage: int) -> None: ...

    def alarm(self) -> Alarm | None:
        """None: the alarm does not exist."""

    def dark_minutes(self, start: datetime, end: datetime) -> int:
        """Minutes between the two, each times the missing share, by the alarm's metric: `alarm` was asked before."""

    def group(self) -> Group: ...
    def instances(self, ids: tuple[str, ...]) -> dict[str, Instance]: ...

    def target_health(self) -> dict[str, str]:
        """Instance id to healthy, initial, unhealthy, draining, unused, unavailable."""

    def deregister(self, targets: tuple[str, ...]) -> None:
        """Take these from the balancer, on whatever port."""

    def stack_in_progress(self) -> bool:
        """Whether a deploy of the group's stack is under way."""

    def refreshes(self) -> tuple[Refresh, ...]:
        """Newest first, the recent ones."""

    def zone_ids(self) -> dict[str, str]:
        """Zone name to zone id (us-east-2a to use2-az1): scores name zones by id, groups by name."""

    def scores(self) -> dict[str, int]:
        """Spot placement score, 1 to 10, per zone id of the region; zones without an answer are absent."""

    def flip(self, group: Group, percentage: int, *, send_template: bool) -> None:
        """UpdateAutoScalingGroup with the whole distribution.

        `send_template=False` leaves launch template and overrides out of the call (an update may), so that no
        version is sent back while a deploy is changing it.
        """

    def suspend(self, process: str) -> None: ...
    def resume(self, process: str) -> None: ...

    def start_refresh(self) -> str:
        """StartInstanceRefresh, launch-first and box by box, matching boxes not skipped; the refresh's id."""

    def cancel_refresh(self) -> None:
        """Cancel the active refresh; GoneError if there is none."""

    def abandon(self, box_id: str) -> None:
        """CompleteLifecycleAction: give the launch hook of a held box back, so that the group ends and replaces it.

        GoneError if no hook holds it any more.
        """

    def end_box(self, box_id: str) -> None:
        """TerminateInstanceInAutoScalingGroup without decrement: the group replaces it. GoneError if it is gone."""

    def wake(self, at: datetime) -> None:
        """Have the watchdog woken with the patience command at that time; asked twice for one time, it is once."""

    def mail(self, subject: str, body: str) -> None: ...
