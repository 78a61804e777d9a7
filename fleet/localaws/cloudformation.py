"""CloudFormation's engine where moto's differs: what counts as a change, how failures end, how change sets behave.

- A value behind an SSM-typed parameter is compared on every deploy, as CloudFormation does.
- A new stack tag updates what carries tags, literal values included.
- A failure ends in a failed stack with its reason as an event, never in a 500 that a client retries into a "success".
"""

import json
import traceback
from graphlib import TopologicalSorter
from typing import Any

import yaml
from moto.cloudformation import models, parsing, responses
from moto.cloudformation.exceptions import ValidationError

from fleet.localaws.exports import check_exports, exported, publish_exports
from fleet.localaws.patching import extend

# A stack tag is passed on by updating the resource with all its properties, written values included.
REWRITTEN_BY_TAGS = {"AWS::SSM::Parameter", "AWS::AutoScaling::AutoScalingGroup"}
IMAGE = "ami-04681a1dbd79675a5"  # one that moto knows
KEPT = {"Retain", "RetainExceptOnCreate"}


def references(node: Any) -> set[str]:
    """Logical ids that a piece of template refers to."""
    if isinstance(node, list):
        return set().union(*(references(item) for item in node))
    if not isinstance(node, dict):
        return set()
    found = set().union(*(references(item) for item in node.values()))
    for kind in ("Ref", "Fn::GetAtt"):
        target = node.get(kind)
        if isinstance(target, str | list):
            found.add(target[0] if isinstance(target, list) else target.split(".")[0])
    return found


@extend(yaml, "load")
def load(original: Any, text: Any, *loader: Any, **named: Any) -> Any:
    """CDK's templates are JSON, which a reader of YAML reads too, three hundred times as slowly."""
    try:
        return json.loads(text)
    except (ValueError, TypeError):  # YAML, or a file
        return original(text, *loader, **named)


# --- what counts as a change ----------------------------------------------------------------------------------


@extend(parsing.ResourceMap, "load_parameters")
def load_parameters(original: Any, resources: parsing.ResourceMap) -> None:
    """Remember template defaults: the CDK CLI answers them with UsePreviousValue."""
    for name, parameter in resources._template.get("Parameters", {}).items():
        if "Default" in parameter:
            resources.input_parameters.setdefault(name, parameter["Default"])
    original(resources)


@extend(parsing.ResourceMap, "parse_ssm_parameter")
def parse_ssm_parameter(original: Any, resources: parsing.ResourceMap, path: str, kind: str) -> Any:
    """An absent parameter is the user's error, not ours; AWS's own image parameters name some image."""
    if kind.startswith("AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"):
        return IMAGE
    try:
        return original(resources, path, kind)
    except AttributeError:
        raise ValidationError(message=f"Unable to fetch parameters [{path}] from parameter store.") from None


def _parameter_list(stack: models.Stack) -> list[dict[str, Any]]:
    """As given, beside what CloudFormation resolved: moto tells the resolved value for the given one."""
    declared, resources = stack.template_dict.get("Parameters", {}), stack.resource_map
    told = []
    for name, value in resources.resolved_parameters.items():
        if name not in declared:
            continue  # of an earlier template
        stored = declared[name]["Type"].startswith("AWS::SSM::Parameter::Value")
        own = {"ParameterValue": resources.input_parameters[name], "ResolvedValue": value}
        told.append({"ParameterKey": name, **(own if stored else {"ParameterValue": value})})
    return told


models.Stack.parameter_list = property(_parameter_list)  # type: ignore[assignment,method-assign]


def _stack_parameters(stack: models.Stack) -> dict[str, Any]:
    """What "the previous value" means: as it was given, the name of a stored parameter and not what it held."""
    return {**stack.resource_map.resolved_parameters, **stack.resource_map.input_parameters}


models.Stack.stack_parameters = property(_stack_parameters)  # type: ignore[assignment,method-assign]


def moved_parameters(
    resources: parsing.ResourceMap, template: dict[str, Any], given: dict[str, Any] | None
) -> set[str]:
    """SSM-typed template parameters whose stored value is no longer the deployed one."""
    moved = set()
    for name, parameter in template.get("Parameters", {}).items():
        if parameter["Type"].startswith("AWS::SSM::Parameter::Value"):
            path = (given or resources.input_parameters).get(name) or parameter.get("Default")
            if resources.parse_ssm_parameter(path, parameter["Type"]) != resources.resolved_parameters.get(name):
                moved.add(name)
    return moved


@extend(parsing.ResourceMap, "build_resource_diff")
def build_resource_diff(
    original: Any, resources: parsing.ResourceMap, template: dict[str, Any], parameters: dict[str, Any] | None = None
) -> dict[str, list[str]]:
    """Names of resources to add, modify and remove."""
    old, new = resources._resource_json_map, template["Resources"]
    for resource in (*old.values(), *new.values()):
        resource.setdefault("Properties", {})  # moto adds it to one side only, and then sees a change
    diff: dict[str, list[str]] = original(resources, template, parameters)
    retagged = getattr(resources, "new_tags", False)
    moved = moved_parameters(resources, template, parameters)
    touched = {
        name
        for name, resource in new.items()
        if references(resource["Properties"]) & moved or (retagged and resource["Type"] in REWRITTEN_BY_TAGS)
    }
    return {**diff, "Modify": [name for name in new if name in old and (name in diff["Modify"] or name in touched)]}


def in_order(resources: dict[str, Any]) -> list[str]:
    """Logical ids, each after those that it refers to or depends on."""
    needs = {}
    for name, resource in resources.items():
        stated = resource.get("DependsOn", [])
        above = references(resource.get("Properties", {})) | set([stated] if isinstance(stated, str) else stated)
        needs[name] = above & resources.keys() - {name}
    return list(TopologicalSorter(needs).static_order())


def has_changes(stack: models.Stack, template: dict[str, Any], parameters: dict[str, Any] | None, tags: Any) -> bool:
    """Whether an update would do anything."""
    stack.resource_map.new_tags = tags is not None and tags != stack.tags  # type: ignore[attr-defined]
    return any(stack.resource_map.build_resource_diff(template, parameters).values())


@extend(responses.CloudFormationResponse, "_validate_different_update")
def validate_different_update(
    original: Any, response: Any, parameters: list[dict[str, Any]], body: str, stack: models.Stack
) -> None:
    """Refuse an update without changes, in CloudFormation's own words; an empty change set is no refusal."""
    if response._get_action() == "CreateChangeSet":
        return
    tags = {tag["Key"]: tag["Value"] for tag in response._get_param("Tags", [])} or None
    template = models.Stack.parse_template(body)
    if not has_changes(stack, template, None, tags) and template.get("Outputs") == stack.template_dict.get("Outputs"):
        raise ValidationError(stack.name, message="No updates are to be performed.")


# --- how a deploy ends ----------------------------------------------------------------------------------------


def _reason(error: Exception) -> str:
    return str(getattr(error, "message", None) or error) or type(error).__name__


def _forget_exports(stack: models.Stack) -> None:
    """Outputs and exports go with the resources."""
    stack.output_map = parsing.OutputMap(stack.resource_map, {}, stack.stack_id)
    publish_exports(stack)


@extend(models.CloudFormationBackend, "create_stack")
def create_stack(original: Any, backend: models.CloudFormationBackend, **kwargs: Any) -> models.Stack:
    """A failed creation is rolled back and says why; a template that is refused leaves no stack."""
    before = set(backend.stacks)
    try:
        created: models.Stack = original(backend, **kwargs)
    except Exception as error:
        begun = [stack for stack_id, stack in backend.stacks.items() if stack_id not in before]
        if not begun:
            raise
        traceback.print_exc()
        created = begun[0]
        created._add_stack_event("CREATE_FAILED", resource_status_reason=_reason(error))
        created._add_stack_event("ROLLBACK_IN_PROGRESS")
        created.resource_map.delete()
        _forget_exports(created)
        created._add_stack_event("ROLLBACK_COMPLETE")
        created.status = "ROLLBACK_COMPLETE"
    return created


@extend(models.Stack, "update")
def update(original: Any, stack: models.Stack, template: str, *args: Any, **kwargs: Any) -> None:
    """A failed update ends in UPDATE_ROLLBACK_FAILED: moto keeps no earlier properties to go back to."""
    tags = kwargs.get("tags")
    stack.resource_map.new_tags = tags is not None and tags != stack.tags  # type: ignore[attr-defined]
    before = exported(stack)
    try:
        original(stack, template, *args, **kwargs)
        check_exports(stack, before)
        publish_exports(stack)
    except Exception as error:
        _fail_update(stack, error)


def _fail_update(stack: models.Stack, error: Exception) -> None:
    traceback.print_exc()
    stack._add_stack_event("UPDATE_FAILED", resource_status_reason=_reason(error))
    stack._add_stack_event("UPDATE_ROLLBACK_FAILED")
    stack.status = "UPDATE_ROLLBACK_FAILED"


@extend(parsing.ResourceMap, "delete")
def delete_resources(_original: Any, resources: parsing.ResourceMap) -> None:
    """Dependents first (moto tries in no order until it works), kept ones not at all."""
    declared = resources._resource_json_map
    for name in reversed(in_order(declared)):
        resource = resources._parsed_resources.get(name)
        if resource is not None and declared[name].get("DeletionPolicy") not in KEPT:
            resources._delete_resource(resource, declared[name])
            del resources._parsed_resources[name]


@extend(models.CloudFormationBackend, "delete_stack")
def delete_stack(_original: Any, backend: models.CloudFormationBackend, name_or_stack_id: str) -> None:
    """The stack stays visible while it is being deleted, and if that fails, with the reason."""
    for stack in [each for each in backend.stacks.values() if name_or_stack_id in (each.name, each.stack_id)]:
        stack.status = "DELETE_IN_PROGRESS"
        try:
            stack.delete()
        except Exception as error:
            traceback.print_exc()
            stack._add_stack_event("DELETE_FAILED", resource_status_reason=_reason(error))
            stack.status = "DELETE_FAILED"
            continue
        _forget_exports(stack)
        backend.deleted_stacks[stack.stack_id] = backend.stacks.pop(stack.stack_id)


# --- change sets ----------------------------------------------------------------------------------------------


class ChangeSetNotFoundError(ValidationError):
    """What the CLI polls for before every update."""

    code = "ChangeSetNotFound"


@extend(responses.CloudFormationResponse, "_get_param")
def get_param(original: Any, response: Any, name: str, *rest: Any, **more: Any) -> Any:
    """A change set's name counts within its stack: the CLI gives the same to all that it deploys side by side."""
    value, stack = original(response, name, *rest, **more), original(response, "StackName")
    if name != "ChangeSetName" or not value or value.startswith("arn:") or response._get_action() == "CreateChangeSet":
        return value
    ours = [
        set_id
        for set_id, change_set in response.cloudformation_backend.change_sets.items()
        if change_set.change_set_name == value and stack in (None, change_set.stack.name, change_set.stack.stack_id)
    ]
    return ours[-1] if ours else f"{value} of {stack}"


def _has_change_set(backend: models.CloudFormationBackend, name: str) -> bool:
    return any(name in (set_id, change_set.change_set_name) for set_id, change_set in backend.change_sets.items())


@extend(models.CloudFormationBackend, "describe_change_set")
def describe_change_set(original: Any, backend: models.CloudFormationBackend, change_set_name: str) -> Any:
    """A missing change set is an answer, not a failure."""
    if not _has_change_set(backend, change_set_name):
        raise ChangeSetNotFoundError(message=f"ChangeSet [{change_set_name}] does not exist")
    return original(backend, change_set_name)


@extend(models.CloudFormationBackend, "delete_change_set")
def delete_change_set(original: Any, backend: models.CloudFormationBackend, change_set_name: str) -> None:
    """Deleting what is not there succeeds."""
    if _has_change_set(backend, change_set_name):
        original(backend, change_set_name)


@extend(models.CloudFormationBackend, "create_change_set")
def create_change_set(original: Any, backend: models.CloudFormationBackend, *args: Any, **kwargs: Any) -> Any:
    """A change set is empty only if nothing would change, moved SSM values and new tags included."""
    before = set(backend.stacks)
    try:
        set_id, stack_id = original(backend, *args, **kwargs)
    except Exception:
        for begun in set(backend.stacks) - before:  # `cdk diff` before the first deploy: the lever does not exist yet
            del backend.stacks[begun]
        raise
    change_set = backend.change_sets[set_id]
    # moto gives a new stack's change set no exports to import.
    change_set.stack.cross_stack_resources = change_set.stack.resource_map.cross_stack_resources = backend.exports
    if change_set.change_set_type == "UPDATE":
        changed = has_changes(change_set.stack, change_set.template_dict, change_set.parameters, change_set.tags)
        change_set.changes = change_set.diff()
        change_set.status = "CREATE_COMPLETE" if changed else "FAILED"
        change_set.execution_status = "AVAILABLE" if changed else "UNAVAILABLE"
        change_set.status_reason = None if changed else "The submitted information didn't contain changes."
    return set_id, stack_id


@extend(models.CloudFormationBackend, "execute_change_set")
def execute_change_set(
    original: Any, backend: models.CloudFormationBackend, change_set_name: str, *args: Any, **kwargs: Any
) -> None:
    """An update that fails ends in a failed stack, as one without a change set does."""
    try:
        original(backend, change_set_name, *args, **kwargs)
    except Exception as error:
        ours = [each for key, each in backend.change_sets.items() if change_set_name in (key, each.change_set_name)]
        if not ours or ours[-1].change_set_type != "UPDATE":
            raise
        _fail_update(ours[-1].stack, error)


@extend(models.ChangeSet, "apply")
def apply(original: Any, change_set: models.ChangeSet) -> None:
    """Outputs, exports and parameters follow an executed change set."""
    stack = change_set.stack
    before = exported(stack)
    original(change_set)
    stack.template = change_set.template
    stack._parse_template()
    stack.output_map = stack._create_output_map()
    stack.parameters = stack.resource_map.input_parameters
    publish_exports(stack)
    check_exports(stack, before)
