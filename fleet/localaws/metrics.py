"""The balancer's own metric: how many targets answered, minute by minute, as far as this AWS knows it.

moto has no datapoints that nobody put. Here a box counts from its launch to its end, less the time for which a test has
set its target to anything but healthy; while no target is there, the metric has no datapoints (aws-behaviours:
metric-lag), and no lag is modelled.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from moto.cloudwatch import models as cloudwatch
from moto.core.utils import utcnow
from moto.ec2.models.instances import Instance
from moto.elbv2 import models as elbv2

from fleet.localaws import load_balancer
from fleet.localaws.patching import extend

METRIC = ("AWS/NetworkELB", "HealthyHostCount")
MINUTE = timedelta(minutes=1)
_ended: dict[str, datetime] = {}


@extend(Instance, "terminate")
def terminate(original: Any, instance: Instance) -> Any:
    """The time of an instance's end."""
    _ended.setdefault(instance.id, utcnow())
    return original(instance)


@extend(cloudwatch.CloudWatchBackend, "get_metric_statistics")
def get_metric_statistics(
    original: Any,
    backend: Any,
    namespace: str,
    metric_name: str,
    start_time: datetime,
    end_time: datetime,
    period: int,
    stats: list[str],
    dimensions: list[dict[str, str]],
    unit: str | None = None,
) -> Any:
    """Datapoints of each period in which there was a target; every other metric is moto's."""
    start, end = (at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at for at in (start_time, end_time))
    if (namespace, metric_name) != METRIC:
        return original(backend, namespace, metric_name, start, end, period, stats, dimensions, unit)
    name = next((each["Value"] for each in dimensions if each["Name"] == "TargetGroup"), "")
    balancers = elbv2.elbv2_backends[backend.account_id][backend.region_name]
    boxes = [
        box
        for arn, group in balancers.target_groups.items()
        if name and arn.endswith(f":{name}")
        for box in balancers.ec2_backend.all_instances()
        if box.id in {*group.targets, *group.deregistered_targets, *group.terminated_targets}
    ]
    found: list[cloudwatch.Statistics] = []
    minute = start.replace(second=0, microsecond=0)
    while minute < end:
        there = [box for box in boxes if box.launch_time <= minute < _ended.get(box.id, utcnow())]
        if there:
            count = sum(load_balancer.healthy_at(box.id, minute) for box in there)
            if not found or minute - found[-1].timestamp >= timedelta(seconds=period):
                found.append(cloudwatch.Statistics(stats, minute, "Count"))
            datum = cloudwatch.MetricDatum(namespace, metric_name, count, dimensions, minute, "Count")
            found[-1].metric_data.append(datum)
        minute += MINUTE
    return found
