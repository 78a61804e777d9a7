"""What IAM judges a call by and the call's names do not say: an instance's group and tags, a transaction's steps."""

from typing import Any

from moto.ec2.models import ec2_backends

from fleet.localaws import ACCOUNT
from fleet.localaws.auto_scaling import activities
from fleet.localaws.calls import Call


def facts(call: Call) -> dict[str, Any]:
    """More of the log line's `resources`; nothing for most calls."""
    match call.service, call.operation:
        case "autoscaling", "TerminateInstanceInAutoScalingGroup":
            box = str(call.parameters.get("InstanceId"))
            # The one that launched it, since a box repeats the call after it has left its group.
            for group, launches in list(activities.items()):
                if any(launch["Description"].endswith(f" {box}") for launch in list(launches)):
                    return {"AutoScalingGroupName": group}
        case "dynamodb", "TransactWriteItems":  # granted as what it does to each item
            steps = [(kind, item) for step in call.parameters.get("TransactItems", []) for kind, item in step.items()]
            return {
                "TableName": steps[0][1]["TableName"],
                "TransactItems": sorted({f"{kind}Item" for kind, _ in steps}),
            }
        case "ec2", "CreateTags":
            boxes = call.parameters.get("Resources", [])
            found = ec2_backends[ACCOUNT][call.region].describe_tags({"resource-id": boxes})
            return {
                "Resources": boxes,
                "TagKeys": [tag["Key"] for tag in call.parameters.get("Tags", [])],
                "ResourceTags": {tag["key"]: tag["value"] for tag in found},
            }
    return {}
