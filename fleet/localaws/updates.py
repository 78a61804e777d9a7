"""How CloudFormation updates a stack: by resolved values, in the order of references, replacing what cannot change.

A resource is touched where what its properties resolve to has changed since it was made. A create-only property makes a
new one beside the old; what is replaced or removed is deleted last; what cannot be deleted is left behind, and
fails nothing.
"""

import copy
from contextlib import suppress
from typing import Any

from botocore.exceptions import ClientError
from moto.cloudformation import models, parsing
from moto.core.exceptions import ServiceException
from werkzeug.exceptions import HTTPException

from fleet.core.replacements import create_only
from fleet.localaws import ACCOUNT, control
from fleet.localaws.cloudformation import KEPT, REWRITTEN_BY_TAGS, in_order
from fleet.localaws.in_place import UPDATES
from fleet.localaws.patching import extend

REFUSALS = (ClientError, HTTPException, ServiceException)  # what a service says no with; a mistake of ours is none


def _resolved(resources: parsing.ResourceMap, name: str) -> dict[str, Any]:
    """What the properties of a resource come to now."""
    found: dict[str, Any] = parsing.clean_json(
        copy.deepcopy(resources._resource_json_map[name].get("Properties", {})), resources
    )
    return found


@extend(parsing, "parse_and_create_resource")
def parse_and_create_resource(original: Any, logical_id: str, body: Any, resources: Any, **where: Any) -> Any:
    """Remember what the properties came to."""
    properties = _resolved(resources, logical_id)
    resource = original(logical_id, copy.deepcopy(body), resources, **where)
    if resource is not None:
        resource.resolved_properties = properties
    return resource


@extend(parsing.ResourceMap, "update")
def update(
    _original: Any, resources: parsing.ResourceMap, template: dict[str, Any], parameters: dict[str, Any] | None = None
) -> None:
    """One update of a stack's resources."""
    before, parsed = resources._resource_json_map, dict(resources._parsed_resources)
    try:
        _update(resources, template, parameters)
    except Exception:
        # What had been taken out stands still: moto would make it anew wherever it is named.
        resources._resource_json_map = {**before, **template["Resources"]}
        resources._parsed_resources = {**parsed, **resources._parsed_resources}
        raise


def _update(resources: parsing.ResourceMap, template: dict[str, Any], parameters: dict[str, Any] | None) -> None:
    before = resources._resource_json_map
    leaving = [
        (before[name], resources._parsed_resources.pop(name))
        for name in reversed(in_order(before))
        if name not in template["Resources"] and name in resources._parsed_resources
    ]
    resources._template, resources._resource_json_map = template, template["Resources"]
    if parameters:
        resources.input_parameters = parameters
    for name in resources.resolved_parameters.keys() - template.get("Parameters", {}).keys():  # an image now pinned
        for known in (resources.resolved_parameters, resources.input_parameters, resources._parsed_resources):
            known.pop(name, None)
    resources.load_mapping()
    resources.load_parameters()
    resources.load_conditions()
    replaced: list[tuple[dict[str, Any], Any]] = []
    for name in in_order(template["Resources"]):
        body, resource = template["Resources"][name], resources[name]
        properties = _resolved(resources, name)
        retagged = getattr(resources, "new_tags", False) and body["Type"] in REWRITTEN_BY_TAGS
        if resource is None or (properties == resource.resolved_properties and not retagged):
            continue
        if before.get(name, body)["Type"] != body["Type"] or _must_be_replaced(body["Type"], resource, properties):
            replaced.append((before[name], resources._parsed_resources.pop(name)))
            resource = resources[name]
        else:
            resource = _update_in_place(resources, name, resource, properties)
            resources._parsed_resources[name] = resource
        resource.resolved_properties = properties
    for body, resource in (*reversed(replaced), *leaving):
        if body.get("DeletionPolicy") not in KEPT:
            with suppress(*REFUSALS):  # what cannot be deleted is left behind: the update has succeeded by then
                resources._delete_resource(resource, {**body, "Properties": resource.resolved_properties})


def _must_be_replaced(kind: str, resource: Any, properties: dict[str, Any]) -> bool:
    before = resource.resolved_properties
    return any(before.get(key) != properties.get(key) for key in create_only(kind)[0])


def _update_in_place(resources: parsing.ResourceMap, name: str, resource: Any, properties: dict[str, Any]) -> Any:
    body, where = resources._resource_json_map[name], (resources._account_id, resources._region_name)
    if own := UPDATES.get(body["Type"]):
        own(resource, copy.deepcopy(properties), *where)
        return resource
    return parsing.parse_and_update_resource(name, copy.deepcopy(body), resources, *where)


@control.verb
def unresolved(stack: str, region: str) -> list[str]:
    """Logical ids whose properties come to something else by now than when they were last written."""
    resources = models.cloudformation_backends[ACCOUNT][region].get_stack(stack).resource_map
    return [
        name
        for name, resource in resources._parsed_resources.items()
        if hasattr(resource, "resolved_properties") and resource.resolved_properties != _resolved(resources, name)
    ]
