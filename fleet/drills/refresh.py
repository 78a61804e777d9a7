"""One instance refresh of the simulated group, and the mixed-instances policy that a flip sends back."""

from collections.abc import Container
from typing import Any

from fleet import names
from fleet.drills.clock import utc
from fleet.settings import Settings
from lambdas.watchdog.cloud import Refresh


class InstanceRefresh:
    """A launch-first roll of the boxes that were there when it began. Times are epoch seconds."""

    def __init__(self, number: int, started_at: float, old: set[str], *, has_desired_configuration: bool) -> None:
        self.id, self.started_at, self.old = f"refresh-{number}", started_at, old
        self.has_desired_configuration = has_desired_configuration
        self.status = "InProgress"

    @property
    def active(self) -> bool:
        return self.status in ("InProgress", "Cancelling")

    def left(self, members: Container[str]) -> int:
        """Old boxes that are still there."""
        return sum(box in members for box in self.old)

    def progress(self, members: Container[str]) -> int:
        """Percent of the old boxes that are gone."""
        return 100 - 100 * self.left(members) // len(self.old) if self.old else 100

    def seen(self) -> Refresh:
        """As DescribeInstanceRefreshes shows it."""
        return Refresh(self.id, self.status, utc(self.started_at), like_ours=not self.has_desired_configuration)


def mixed_instances_policy(settings: Settings, percentage: int) -> dict[str, Any]:
    """As DescribeAutoScalingGroups shows the group that the stacks deploy."""
    return {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {
                "LaunchTemplateId": "lt-00000000000000001",
                "LaunchTemplateName": names.group(settings.fleet_name),
                "Version": "1",
            },
            "Overrides": [{"InstanceType": instance_type} for instance_type in settings.pools],
        },
        "InstancesDistribution": {
            "OnDemandAllocationStrategy": "prioritized",
            "OnDemandBaseCapacity": settings.capacity.on_demand_base,
            "OnDemandPercentageAboveBaseCapacity": percentage,
            "SpotAllocationStrategy": "price-capacity-optimized",
        },
    }
