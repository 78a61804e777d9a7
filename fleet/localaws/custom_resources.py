"""Lambda-backed custom resources, whole: create, update and delete run the function and wait for its answer.

moto starts the function on creation only, does not wait and takes a failure for a success. Here the function's own
response decides: FAILED fails the stack with its reason. The response comes to `/embedded/respond`, which stands for
the presigned S3 address that AWS hands out.
"""

import json
import os
import uuid
from typing import Any

from moto.awslambda.utils import get_backend
from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError
from moto.core.common_models import CloudFormationModel

from fleet.localaws import control
from fleet.localaws.patching import extend

_responses: dict[str, dict[str, Any] | None] = {}  # by request; None: not yet


class CustomResource(CloudFormationModel):
    """One custom resource of a stack."""

    def __init__(self, physical_id: str, properties: dict[str, Any], data: dict[str, Any], identity: dict[str, str]):
        self.physical_resource_id = physical_id
        self.properties = properties
        self.data = data
        self.identity = identity

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        return self.data.get(attribute_name)

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> "CustomResource":
        identity = {
            "StackId": kwargs["StackId"],
            "LogicalResourceId": kwargs["LogicalId"],
            "ResourceType": kwargs["ResourceType"],
        }
        properties = cloudformation_json["Properties"]
        answer = _ask("Create", properties, identity, account_id, region_name)
        return cls(answer.get("PhysicalResourceId", resource_name), properties, answer.get("Data") or {}, identity)

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Any, new_resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> "CustomResource":
        properties = cloudformation_json["Properties"]
        answer = _ask(
            "Update",
            properties,
            {**original_resource.identity, "PhysicalResourceId": original_resource.physical_resource_id},
            account_id,
            region_name,
            OldResourceProperties=original_resource.properties,
        )
        physical_id = answer.get("PhysicalResourceId", original_resource.physical_resource_id)
        return cls(physical_id, properties, answer.get("Data") or {}, original_resource.identity)

    def delete(self, account_id: str, region_name: str) -> None:
        """Ask the function to delete."""
        identity = {**self.identity, "PhysicalResourceId": self.physical_resource_id}
        _ask("Delete", self.properties, identity, account_id, region_name)


def _ask(
    request_type: str, properties: dict[str, Any], identity: dict[str, str], account: str, region: str, **more: Any
) -> dict[str, Any]:
    token = uuid.uuid4().hex
    event = {
        "RequestType": request_type,
        "RequestId": token,
        "ServiceToken": properties["ServiceToken"],
        "ResponseURL": f"http://127.0.0.1:{os.environ['MOTO_PORT']}{control.PREFIX}{control.RESPOND}?{token}",
        "ResourceProperties": _strings(properties),
        **identity,
        **more,
    }
    _responses[token] = None
    function = get_backend(account, region).get_function(properties["ServiceToken"])
    _, _, log = function._invoke_lambda(json.dumps(event))
    answer = _responses.pop(token)
    if answer is None:
        raise ValidationError(message=f"{identity['LogicalResourceId']}: the function did not respond: {log[-800:]}")
    if answer["Status"] != "SUCCESS":
        raise ValidationError(message=f"Received response status [FAILED] from custom resource: {answer.get('Reason')}")
    return answer


def _strings(value: Any) -> Any:
    """CloudFormation hands every scalar to a custom resource as a string."""
    if isinstance(value, dict):
        return {key: _strings(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strings(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


@control.verb
def respond(**answer: Any) -> None:
    """A custom resource's function reports, once it was asked."""
    if answer["RequestId"] not in _responses:
        raise KeyError("nobody asked")
    _responses[answer["RequestId"]] = answer


@extend(parsing, "resource_class_from_type")
def resource_class_from_type(original: Any, resource_type: str) -> Any:
    """Custom types are ours; an unknown AWS type fails the stack instead of being dropped in silence."""
    if resource_type.startswith("Custom::"):
        return CustomResource
    found = original(resource_type)
    if found is None and resource_type not in parsing.NULL_MODELS:
        raise ValidationError(message=f"the embedded AWS does not know {resource_type}: see resources.py")
    return found
