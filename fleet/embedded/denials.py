"""Calls that a role's own policies deny it. Only those on stored parameters: a list of names is denied as a whole.

Every other call is answered whoever makes it; `tests.permissions` compares the request log with the policies instead.
"""

import json
from typing import Any

from moto.iam.models import iam_backends

from fleet.embedded import ACCOUNT, credentials, policies
from fleet.embedded.calls import Call
from fleet.embedded.missing import ApiError


def denied(call: Call) -> ApiError | None:
    """The error where a role may not read or write one of the parameters that it names."""
    if call.service != "ssm" or "Parameter" not in call.operation:
        return None
    role = credentials.principal(call)
    if role not in {known.name for known in iam_backends[ACCOUNT]["aws"].roles.values()}:
        return None  # an operator, or CloudFormation itself
    action, statements = f"ssm:{call.operation}", role_statements(role)
    for name in call.parameters.get("Names") or [call.parameters.get("Name", "*")]:
        arn = _arn(name, call.region)
        if not policies.allowed(statements, action, arn, {}):
            return ApiError(
                "AccessDeniedException",
                f"User: arn:aws:sts::{ACCOUNT}:assumed-role/{role}/embedded is not authorized to perform: {action} "
                f"on resource: {arn} because no identity-based policy allows the {action} action",
            )
    return None


def _arn(name: str, region: str) -> str:
    owner = "" if name.startswith("/aws/") else ACCOUNT  # AWS's own parameters are of no account
    return f"arn:aws:ssm:{region}:{owner}:parameter/{name.lstrip('/')}"


def role_statements(role_name: str) -> list[dict[str, Any]]:
    """Every statement of a role: inline, and of the policies attached to it."""
    role = iam_backends[ACCOUNT]["aws"].get_role(role_name)
    attached = [_default_document(policy) for policy in role.managed_policies.values()]
    texts = [*role.policies.values(), *attached]
    documents = [json.loads(text) if isinstance(text, str) else text for text in texts]
    return [s for document in documents for s in _list(document["Statement"])]


def _default_document(policy: Any) -> str:
    return str(next(version.document for version in policy.versions if version.is_default))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
