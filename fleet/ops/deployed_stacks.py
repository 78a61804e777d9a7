"""What a review compares: the templates of a cloud assembly, and the stacks that stand. Reads only.

The assembly is a pull request's, so it is data of an outsider: files of that folder and no others, of the shape that
CloudFormation takes, or it is refused.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet.account.access import Aws
from fleet.account.aws_errors import AccessDeniedError, MissingError
from fleet.core import names
from fleet.core.errors import UserError
from fleet.ops.review import Stack, Template, refers

LOGICAL_ID = re.compile("[A-Za-z0-9]{1,255}")
DEEPEST = 60  # levels of a template: the app's have fifteen


def synthesized(assembly: Path) -> dict[str, Template]:
    """Templates by stack name from a cloud assembly (`cdk.out`)."""
    try:
        artifacts = json.loads((assembly / "manifest.json").read_text(encoding="utf-8"))["artifacts"]
        return {
            str(artifact["properties"].get("stackName", name)): _template(assembly, artifact["properties"])
            for name, artifact in artifacts.items()
            if artifact["type"] == "aws:cloudformation:stack"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{assembly}: not a cloud assembly ({error}); run `make synth` first") from None


def _template(assembly: Path, properties: Mapping[str, Any]) -> Template:
    path = assembly / properties["templateFile"]
    if path.parent != assembly or path.is_symlink():
        raise ValueError(f"{path} is no file of its own")
    template: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    _flat_enough(template, DEEPEST)
    for kind in ("Resources", "Parameters"):
        if not all(isinstance(body["Type"], str) for body in template.get(kind, {}).values()):
            raise ValueError(f"{path}: {kind} without types")
    for logical_id, body in template.get("Resources", {}).items():
        shaped = all(isinstance(body.get(key, {}), dict) for key in ("Properties", "UpdatePolicy"))
        if not shaped or not LOGICAL_ID.fullmatch(logical_id):
            raise ValueError(f"{path}: {logical_id} is no resource")
    return template


def _flat_enough(value: Any, levels: int) -> None:
    if not levels:
        raise ValueError(f"nested in more than {DEEPEST} levels")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _flat_enough(item, levels - 1)


def observed(aws: Aws, fleet: str, templates: Mapping[str, Template]) -> tuple[Stack, ...]:
    """What is deployed beside what is proposed, stack by stack.

    UserError for a stack of another name: it would be no part of this fleet, and the role may not read it.
    """
    own = [names.stack(fleet, stack) for stack in names.STACKS]
    gateway = names.stack(fleet, names.STACK_GATEWAY)
    if strange := sorted(templates.keys() - {*own, gateway}):
        allowed = ", ".join((*own, gateway))
        raise UserError(f"review: {', '.join(strange)}: no stack of fleet {fleet}; allowed: {allowed}")
    found = [
        _observe(aws, name, templates[name]) if name in templates else Stack(name, {}, left_out=True) for name in own
    ]
    if gateway in templates:
        return (*found, _observe(aws, gateway, templates[gateway]))
    return (*found, *_taken_out(aws, gateway))


def _taken_out(aws: Aws, gateway: str) -> tuple[Stack, ...]:
    """A gateway that stands and is not asked for any more: `make deploy` deletes it."""
    try:
        stack = _observe(aws, gateway, {})
    except AccessDeniedError:  # a reviewer's role of a time before gateways
        return ()
    return () if stack.deployed is None else (replace(stack, taken_out=True),)


def _observe(aws: Aws, name: str, proposed: Template) -> Stack:
    try:
        stack = aws.call("cloudformation", "DescribeStacks", StackName=name)["Stacks"][0]
        deployed = aws.call("cloudformation", "GetTemplate", StackName=name, TemplateStage="Original")["TemplateBody"]
    except MissingError:
        return Stack(name, proposed)
    # aws-behaviours: resolved-inputs, parameters-all-or-nothing
    # Those that a resource uses: CloudFormation resolves the CDK's bootstrap version too, which a reviewer may not
    # read, and GetParameters is refused as a whole.
    used = [key for key in proposed.get("Parameters", {}) if refers(proposed.get("Resources"), key)]
    before = {p["ParameterKey"]: p for p in stack.get("Parameters", []) if p.get("ResolvedValue")}
    paths = {key: before[key]["ParameterValue"] for key in used if key in before}
    now = _values(aws, tuple(paths.values()))
    moved = {
        key: (before[key]["ResolvedValue"], now[path])
        for key, path in paths.items()
        if path in now and now[path] != before[key]["ResolvedValue"]
    }
    return Stack(name, proposed, deployed, moved, stack["StackStatus"])


def _values(aws: Aws, paths: tuple[str, ...]) -> dict[str, str]:
    if not paths:
        return {}
    found = aws.call("ssm", "GetParameters", Names=sorted(set(paths)))["Parameters"]
    return {parameter["Name"]: parameter["Value"] for parameter in found}
