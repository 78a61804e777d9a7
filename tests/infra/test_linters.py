"""Kept checkers over the stacks: nothing is found that has no written reason, and no reason is left over."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import assertions

from fleet.config import validation
from stacks.base_stack import BaseStack
from stacks.network import FleetNetwork
from tests.conftest import OTHER_SETTINGS, PUBLIC_GATEWAY, SEVERAL_BOXES
from tests.synth import CDK_JSON, ROOT, synthesized

pytestmark = pytest.mark.slow

# Findings of cfn-lint that stay, and why.
CFN_LINT_ACCEPTED = {
    "W3005": "CDK writes out an order that a reference implies; it does no harm",
    "W3010": "zones are a setting: not every zone sells the pools, and synth asks no account",
}


def test_cfn_lint_finds_nothing_unexplained(assembly: Path, other_assembly: Path, several_assembly: Path) -> None:
    templates = [str(path) for out in (assembly, other_assembly) for path in sorted(out.glob("*.template.json"))]
    templates += [str(several_assembly / f"llm-{stack}.template.json") for stack in ("group", "gateway")]
    assert len(templates) == 8
    run = subprocess.run(["cfn-lint", "--format", "json", *templates], capture_output=True, text=True, check=False)
    findings = json.loads(run.stdout)
    unexplained = [
        f"{Path(finding['Filename']).name}: {finding['Rule']['Id']} {finding['Message']}"
        for finding in findings
        if finding["Rule"]["Id"] not in CFN_LINT_ACCEPTED
    ]
    assert not unexplained
    assert {finding["Rule"]["Id"] for finding in findings} == set(CFN_LINT_ACCEPTED)


def test_cfn_lint_finds_nothing_in_the_review_role() -> None:
    run = subprocess.run(["cfn-lint", ROOT / ".github/review-role.yaml"], capture_output=True, text=True, check=False)
    assert run.stdout == ""
    assert run.returncode == 0


def test_cdk_validation_finds_nothing_unexplained(other_assembly: Path) -> None:
    """The other assemblies are made without it; a synth of the operator's own settings fails on what it finds."""
    assert not findings_in(other_assembly)


@pytest.mark.parametrize(
    "changes",
    [{}, OTHER_SETTINGS, SEVERAL_BOXES, PUBLIC_GATEWAY],
    ids=["default", "other", "gateway and several boxes", "public gateway"],
)
def test_cdk_nag_finds_nothing_unexplained(changes: dict[str, Any], tmp_path: Path) -> None:
    explained = wildcards_of(synthesized(tmp_path, changes, nag=True))
    assert findings_in(tmp_path) == explained  # no reason without its wildcard, either
    assert len(explained) >= 10


def wildcards_of(app: cdk.App) -> set[str]:
    """What has a written reason, as cdk-nag's finding."""
    return {
        f"AwsSolutions-IAM5[Resource::{flat(stack.resolve(resource))}]"
        for stack in app.node.children
        if isinstance(stack, BaseStack)
        for resource in stack.wildcards
    }


def findings_in(assembly: Path) -> set[str]:
    report = json.loads((assembly / "validation-report.json").read_text())
    return {violation["ruleName"] for plugin in report["pluginReports"] for violation in plugin["violations"]}


def flat(value: Any) -> str:
    """A resolved ARN as cdk-nag writes it."""
    match value:
        case {"Fn::Join": ["", [*parts]]}:
            return "".join(map(flat, parts))
        case {"Ref": str(name)}:
            return f"<{name}>"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"<{name}.{attribute}>"
        case {"Fn::ImportValue": str(name)}:
            return name
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{(.+?)\}", r"<\1>", text)
    return str(value)


def test_wildcard_without_a_reason_is_refused_at_synth() -> None:
    settings = validation.load(CDK_JSON)
    stack = BaseStack(cdk.App(), "network", settings)
    with pytest.raises(ValueError, match="a reason for each wildcard"):
        stack.allow("s3:GetObject", on="arn:aws:s3:::bucket/*")
    with pytest.raises(ValueError, match="a reason for each wildcard"):
        stack.allow("s3:GetObject", on="arn:aws:s3:::bucket/key", because="none is needed")


def test_empty_callers_are_warned_of_at_synth() -> None:
    settings = validation.load(CDK_JSON)
    closed = replace(settings, network=replace(settings.network, callers=()))
    stack = BaseStack(cdk.App(builtin_cloud_formation_validation=False), "group", closed)
    FleetNetwork(stack, closed)
    said = assertions.Annotations.from_stack(stack).find_warning(
        "*", assertions.Match.string_like_regexp("network.callers is empty: nobody may call the model")
    )
    assert len(said) == 1
