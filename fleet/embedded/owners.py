"""What IAM knows of an instance that a call names and the call itself does not say: its group, its tags."""

from typing import Any

from moto.autoscaling.models import autoscaling_backends
from moto.ec2.models import ec2_backends

from fleet.embedded import ACCOUNT
from fleet.embedded.calls import Call


def facts(call: Call) -> dict[str, Any]:
    """More of the log line's `resources`; nothing for most calls."""
    match call.service, call.operation:
        case "autoscaling", "TerminateInstanceInAutoScalingGroup":
            box = call.parameters.get("InstanceId")
            for group in list(autoscaling_backends[ACCOUNT][call.region].autoscaling_groups.values()):
                if box in {state.instance.id for state in list(group.instance_states)}:
                    return {"AutoScalingGroupName": group.name}
        case "ec2", "CreateTags":
            boxes = call.parameters.get("Resources", [])
            found = ec2_backends[ACCOUNT][call.region].describe_tags({"resource-id": boxes})
            return {
                "Resources": boxes,
                "TagKeys": [tag["Key"] for tag in call.parameters.get("Tags", [])],
                "ResourceTags": {tag["key"]: tag["value"] for tag in found},
            }
    return {}
