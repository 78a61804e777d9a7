"""Policies from templates: inline ones kept as JSON (moto keeps Python's own notation), managed ones deleted."""

import json
from typing import Any

from moto.iam.models import ManagedPolicy, Role

from fleet.embedded.loopback import client
from fleet.embedded.patching import extend


@extend(Role, "create_from_cloudformation_json")
def create(original: Any, cls: Any, name: str, template: Any, account: str, region: str, **kwargs: Any) -> Any:
    """A role whose inline policies GetRolePolicy answers as IAM does."""
    role = original(cls, name, template, account, region, **kwargs)
    for policy, document in role.policies.items():
        role.policies[policy] = document if isinstance(document, str) else json.dumps(document)
    return role


def _delete(policy: Any, account: str, region: str) -> None:
    client("iam", region).delete_policy(PolicyArn=policy.arn)


ManagedPolicy.delete = _delete  # type: ignore[attr-defined]
