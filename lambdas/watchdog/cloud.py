"""The narrow interface through which the watchdog sees and moves AWS, and the frozen shapes that travel inside.

`aws.py` implements it with boto3, `fleet.drills.cloud` with a simulated market. Every method is one API call (or one
paginated read); each may raise `CloudError` or one of its kinds, which is all that the rest of the watchdog knows of
failures.

    CloudError                  any call that failed; message names the call
      ThrottledError            try again at the next event
      DeniedError               the role lacks a grant: the one that pages
      GoneError                 the thing asked about does not exist
      BusyError                 ScalingActivityInProgress, ResourceContention
      RefreshActiveError        a refresh with a desired configuration stands in the way
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol


class CloudError(Exception):
    """A call that failed."""


class ThrottledError(CloudError):
    """The service asked for patience."""


class DeniedError(CloudError):
    """The caller lacks a permission."""


class GoneError(CloudError):
    """What the call names does not exist."""


class BusyError(CloudError):
    """A scaling activity is in progress."""


class RefreshActiveError(CloudError):
    """An active instance refresh with a desired configuration blocks the update."""


@dataclass(frozen=True)
class Alarm:
    """The alarm's live state. `since` is when it entered it."""

    state: str  # OK, ALARM, INSUFFICIENT_DATA
    since: datetime


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
    boot: str | None  # the box's own tag: names.BOOT_WARM, names.BOOT_COLD or not yet known


@dataclass(frozen=True)
class Group:
    """The Auto Scaling group."""

    created_at: datetime
    desired: int
    min: int
    max: int
    on_demand_percentage: int
    boxes: tuple[Box, ...]
    suspended: frozenset[str]
    policy: dict[str, Any]  # the raw mixed-instances policy: sent back whole on a flip


@dataclass(frozen=True)
class Refresh:
    """The newest instance refresh."""

    id: str
    status: str  # Pending, InProgress, Successful, Failed, Cancelling, Cancelled, ...
    started_at: datetime
    has_desired_configuration: bool


class Cloud(Protocol):
    """What the watchdog needs of AWS; nothing more is granted to its role."""

    def parameters(self) -> tuple[str | None, str | None]:
        """State and lever, in one call; None where absent."""

    def put_state(self, text: str) -> None: ...
    def put_lever(self, percentage: int) -> None: ...

    def alarm(self) -> Alarm | None:
        """None: the alarm does not exist."""

    def group(self) -> Group: ...
    def instances(self, ids: tuple[str, ...]) -> dict[str, Instance]: ...

    def target_health(self) -> dict[str, str]:
        """Instance id to healthy, initial, unhealthy, draining, unused, unavailable."""

    def stack_in_progress(self) -> bool:
        """Whether a deploy of the group's stack is under way."""

    def refreshes(self) -> tuple[Refresh, ...]:
        """Newest first, the recent ones."""

    def scores(self) -> dict[str, int]:
        """Spot placement score per zone of the group."""

    def flip(self, group: Group, percentage: int) -> None:
        """UpdateAutoScalingGroup with the whole distribution, launch template version untouched."""

    def suspend(self, process: str) -> None: ...
    def resume(self, process: str) -> None: ...
    def start_refresh(self) -> str: ...
    def cancel_refresh(self) -> None: ...

    def end_box(self, box_id: str) -> None:
        """TerminateInstanceInAutoScalingGroup without decrement: the group replaces it."""

    def mail(self, subject: str, body: str) -> None: ...
