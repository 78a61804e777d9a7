"""Calls that a role's own policies deny it: on stored parameters, a list of names as a whole, and a group's update.

Every other call is answered whoever makes it; `tests.permissions` compares the request log with the policies instead.
"""

import json
from typing import Any

from moto.autoscaling.models import autoscaling_backends
from moto.iam.models import iam_backends

from fleet.localaws import ACCOUNT, credentials, iam_policies
from fleet.localaws.calls import Call
from fleet.localaws.missing import ApiError

DEFAULT_TYPE = "m1.small"  # of RunInstances (aws-behaviours: bare-template-type)


def denied(call: Call) -> ApiError | None:
    """The error where a role may not do what it asks, or what AWS tries in its name; None where it may."""
    asks = _tried(call)
    if not asks:
        return None
    role = credentials.principal(call)
    if role not in {known.name for known in iam_backends[ACCOUNT]["aws"].roles.values()}:
        return None  # an operator, or CloudFormation itself
    statements = role_statements(role)
    for action, arn, context in asks:
        if not iam_policies.allowed(statements, action, arn, context):
            return ApiError(
                "AccessDenied" if call.service == "autoscaling" else "AccessDeniedException",
                f"User: arn:aws:sts::{ACCOUNT}:assumed-role/{role}/embedded is not authorized to perform: {action} "
                f"on resource: {arn} because no identity-based policy allows the {action} action",
            )
    return None


def _tried(call: Call) -> list[tuple[str, str, dict[str, list[str]]]]:
    """Action, resource and context of each thing that must be allowed."""
    if call.service == "ssm" and "Parameter" in call.operation:  # aws-behaviours: parameters-all-or-nothing
        names = call.parameters.get("Names") or [call.parameters.get("Name", "*")]
        return [(f"ssm:{call.operation}", _arn(name, call.region), {}) for name in names]
    if (call.service, call.operation) == ("autoscaling", "UpdateAutoScalingGroup"):
        return _launch(call)
    return []


def _launch(call: Call) -> list[tuple[str, str, dict[str, list[str]]]]:
    """A group with a mixed policy is updated by who may launch from its template, here without the overrides."""
    groups = autoscaling_backends[ACCOUNT][call.region].autoscaling_groups
    group = groups.get(call.parameters.get("AutoScalingGroupName", ""))
    if group is None or group.ec2_launch_template is None:
        return []
    template, here = group.ec2_launch_template, f"{call.region}:{ACCOUNT}"
    data = template.get_version(group.launch_template_version).data
    context = {
        "ec2:LaunchTemplate": [f"arn:aws:ec2:{here}:launch-template/{template.id}"],
        "ec2:InstanceType": [data.get("InstanceType", DEFAULT_TYPE)],
    }
    return [("ec2:RunInstances", f"arn:aws:ec2:{here}:instance/*", context)]


def _arn(name: str, region: str) -> str:
    owner = "" if name.startswith("/aws/") else ACCOUNT  # AWS's own parameters are of no account
    return f"arn:aws:ssm:{region}:{owner}:parameter/{name.lstrip('/')}"


def role_statements(role_name: str) -> list[dict[str, Any]]:
    """Every statement of a role: inline, and of the policies attached to it."""
    role = iam_backends[ACCOUNT]["aws"].get_role(role_name)
    attached = [_default_document(policy) for policy in role.managed_policies.values()]
    texts = [*role.policies.values(), *attached]
    documents = [json.loads(text) if isinstance(text, str) else text for text in texts]
    return [s for document in documents for s in iam_policies.listed(document["Statement"])]


def _default_document(policy: Any) -> str:
    return str(next(version.document for version in policy.versions if version.is_default))
