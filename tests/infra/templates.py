"""Reads synthesized templates: stacks by name, resources by type, and references written out as plain strings."""

import json
import re
from pathlib import Path
from typing import Any

Templates = dict[str, dict[str, Any]]  # stack to template


def read(assembly: Path) -> Templates:
    """All stacks of a cloud assembly, with every reference written out."""
    files = sorted(assembly.glob("*.template.json"))
    stacks = {path.name.removesuffix(".template.json"): json.loads(path.read_text()) for path in files}
    exports = {
        output["Export"]["Name"]: (template, output["Value"])
        for template in stacks.values()
        for output in template.get("Outputs", {}).values()
        if "Export" in output
    }
    return {name.rpartition("-")[2]: _named(_plain(template, template, exports)) for name, template in stacks.items()}


def _named(template: dict[str, Any]) -> dict[str, Any]:
    """The template with its resources under short names, as references have them."""
    named = {short(name): resource for name, resource in template["Resources"].items()}
    for resource in named.values():
        if "DependsOn" in resource:
            resource["DependsOn"] = [short(name) for name in resource["DependsOn"]]
    return {**template, "Resources": named}


def short(logical_id: str) -> str:
    """A logical id without the hash that CDK appends: Bucket83908E77 is Bucket."""
    return re.sub("[0-9A-F]{8}$", "", logical_id)


def _plain(value: Any, template: dict[str, Any], exports: dict[str, Any]) -> Any:
    """`{"Ref": "Bucket83908E77"}` becomes `<Bucket>`, a join one string, an import what the other stack exports."""

    def plain(inner: Any) -> Any:
        return _plain(inner, template, exports)

    match value:
        case {"Ref": str(name)}:
            return f"<{short(name)}>"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"<{short(name)}.{attribute}>"
        case {"Fn::ImportValue": str(name)}:
            other, exported = exports[name]
            return _plain(exported, other, exports)
        case {"Fn::Join": ["", [*parts]]}:
            return "".join(map(plain, parts))
        case {"Fn::Sub": str(text)}:
            return text.replace("${AWS::AccountId}", "<AWS::AccountId>")
        case {"Fn::Base64": inner}:
            return plain(inner)
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
    return value


def resources(stack: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The resources of one type, whole."""
    return [resource for resource in stack["Resources"].values() if resource["Type"] == kind]


def the(stack: dict[str, Any], kind: str) -> dict[str, Any]:
    """The one resource of that type; any other number is a failure."""
    (resource,) = resources(stack, kind)
    return resource


def properties(stack: dict[str, Any], kind: str) -> dict[str, Any]:
    """The properties of the one resource of that type."""
    found: dict[str, Any] = the(stack, kind)["Properties"]
    return found


def grants(role: dict[str, Any], *policies: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Each (action, resource, condition) that a role's inline policies and the given policies allow."""
    documents = [policy["PolicyDocument"] for policy in role["Properties"].get("Policies", [])]
    documents += [policy["Properties"]["PolicyDocument"] for policy in policies]
    return {
        (action, resource, json.dumps(statement.get("Condition", {}), sort_keys=True))
        for document in documents
        for statement in document["Statement"]
        if statement["Effect"] == "Allow"
        for action in _list(statement["Action"])
        for resource in _list(statement["Resource"])
    }


def _list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]
