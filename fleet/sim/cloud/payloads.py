"""What AWS gives in a shape of its own: EventBridge payloads, built when something happens, and the group's policy."""

from typing import Any

from fleet.config.settings import Settings
from fleet.core import names
from fleet.sim.cloud.virtual_clock import utc

ACCOUNT = "123456789012"
# The code stands last, as AWS puts it (aws-behaviours: cancelled-told).
CANCELLED = "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: "
Payload = dict[str, Any]


def _envelope(
    number: int, at: float, region: str, source: str, detail_type: str, resource: str, detail: Payload
) -> Payload:
    return {
        "version": "0",
        "id": f"00000000-0000-4000-8000-{number:012x}",
        "detail-type": detail_type,
        "source": source,
        "account": ACCOUNT,
        "time": utc(at).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": [resource],
        "detail": detail,
    }


def alarm(number: int, at: float, region: str, detail_type: str, name: str, state: str, previous: str) -> Payload:
    stamp = utc(at).strftime("%Y-%m-%dT%H:%M:%S.000+0000")
    arn = f"arn:aws:cloudwatch:{region}:{ACCOUNT}:alarm:{name}"
    detail = {
        "alarmName": name,
        "state": {"value": state, "reason": "Threshold Crossed", "timestamp": stamp},
        "previousState": {"value": previous, "timestamp": stamp},
        "configuration": {},
    }
    return _envelope(number, at, region, "aws.cloudwatch", detail_type, arn, detail)


def ec2(number: int, at: float, region: str, detail_type: str, box: str, **extra: str) -> Payload:
    arn = f"arn:aws:ec2:{region}:{ACCOUNT}:instance/{box}"
    return _envelope(number, at, region, "aws.ec2", detail_type, arn, {"instance-id": box, **extra})


def group(number: int, at: float, region: str, detail_type: str, name: str, **detail: Any) -> Payload:
    arn = f"arn:aws:autoscaling:{region}:{ACCOUNT}:autoScalingGroup:0:autoScalingGroupName/{name}"
    return _envelope(number, at, region, "aws.autoscaling", detail_type, arn, {"AutoScalingGroupName": name, **detail})


def refusal(purchase: str, code: str) -> str:
    """The status message of a launch that got no box."""
    return f"Could not launch {purchase.title()} Instances. {code} - Launching EC2 instance failed."


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
