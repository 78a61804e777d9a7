"""What a review compares: the templates of a cloud assembly, and the stacks that stand. Reads only."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.errors import UserError
from fleet.ops.errors import MissingError
from fleet.ops.review import Stack, Template, refers


def synthesized(assembly: Path) -> dict[str, Template]:
    """Templates by stack name from a cloud assembly (`cdk.out`)."""
    manifest = assembly / "manifest.json"
    try:
        artifacts = json.loads(manifest.read_text())["artifacts"]
        return {
            artifact.get("properties", {}).get("stackName", name): json.loads(
                (assembly / artifact["properties"]["templateFile"]).read_text()
            )
            for name, artifact in artifacts.items()
            if artifact["type"] == "aws:cloudformation:stack"
        }
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{assembly}: not a cloud assembly ({error}); run `make synth` first") from None


def observed(aws: Any, templates: Mapping[str, Template]) -> tuple[Stack, ...]:
    """What is deployed beside what is proposed; `aws` is an `ops.aws.Aws`."""
    return tuple(_observe(aws, name, proposed) for name, proposed in templates.items())


def _observe(aws: Any, name: str, proposed: Template) -> Stack:
    try:
        stack = aws.call("cloudformation", "DescribeStacks", StackName=name)["Stacks"][0]
        deployed = aws.call("cloudformation", "GetTemplate", StackName=name, TemplateStage="Original")["TemplateBody"]
    except MissingError:
        return Stack(name, proposed)
    # Those that a resource uses: CloudFormation resolves the CDK's bootstrap version too, which a reviewer may not
    # read, and GetParameters is refused as a whole.
    used = [key for key in proposed.get("Parameters", {}) if refers(proposed["Resources"], key)]
    before = {p["ParameterKey"]: p for p in stack.get("Parameters", []) if p.get("ResolvedValue")}
    paths = {key: before[key]["ParameterValue"] for key in used if key in before}
    now = _values(aws, tuple(paths.values()))
    moved = {
        key: (before[key]["ResolvedValue"], now[path])
        for key, path in paths.items()
        if path in now and now[path] != before[key]["ResolvedValue"]
    }
    template = deployed if isinstance(deployed, Mapping) else json.loads(deployed)
    return Stack(name, proposed, template, moved, stack["StackStatus"])


def _values(aws: Any, paths: tuple[str, ...]) -> dict[str, str]:
    if not paths:
        return {}
    found = aws.call("ssm", "GetParameters", Names=sorted(set(paths)))["Parameters"]
    return {parameter["Name"]: parameter["Value"] for parameter in found}
