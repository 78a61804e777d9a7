"""Policies from templates: managed ones attached and deleted, inline ones kept as JSON."""

import json
from typing import Any

from moto.iam.models import ManagedPolicy, Role, iam_backends

from fleet.localaws.loopback import client
from fleet.localaws.patching import extend


@extend(Role, "create_from_cloudformation_json")
def create(original: Any, cls: Any, name: str, template: Any, account: str, region: str, **kwargs: Any) -> Any:
    """A role with its managed policies attached, and inline ones that GetRolePolicy answers as IAM does."""
    role = original(cls, name, template, account, region, **kwargs)
    iam = iam_backends[account]["aws"]
    for arn in template["Properties"].get("ManagedPolicyArns", []):
        if not arn.startswith("arn:aws:iam::aws:"):  # AWS's own, which the bootstrap's roles name, are not in moto
            iam.attach_role_policy(arn, role.name)
    for policy, document in role.policies.items():
        role.policies[policy] = document if isinstance(document, str) else json.dumps(document)
    return role


@extend(Role, "delete_from_cloudformation_json")
def delete_role(original: Any, cls: Any, resource_name: str, template: Any, account_id: str, region_name: str) -> None:
    """CloudFormation detaches a role's policies before it deletes the role."""
    iam = iam_backends[account_id]["aws"]
    for arn in list(iam.get_role(resource_name).managed_policies):
        iam.detach_role_policy(arn, resource_name)
    original(cls, resource_name, template, account_id, region_name)


def _delete(policy: Any, account: str, region: str) -> None:
    client("iam", region).delete_policy(PolicyArn=policy.arn)


ManagedPolicy.delete = _delete  # type: ignore[attr-defined]
