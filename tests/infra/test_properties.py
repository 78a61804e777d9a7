"""The synthesized templates keep every promise, and a check notices each promise that is broken."""

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from fleet.config import validation
from fleet.config.settings import Settings
from fleet.core import names
from lambdas.watchdog.state import StateError
from tests.infra import mutation, templates
from tests.infra.checks import CHECKS, Check
from tests.infra.checks.shared import without
from tests.infra.templates import Templates, properties, resources
from tests.synth import CDK_JSON, ROOT, synth

STACKS = names.STACKS
# What may change without a check noticing, and why that is right.
FREE = {
    r"/(Group)?Description (changed|removed)$": "words for a human reader; an alarm's are checked",
    r"/Tags/\d+(/Key|/Value)? (changed|removed)$": "names that CDK adds; the fleet's own tag is checked",
    r"/(DisplayName|PolicyName|Sid|Path) (changed|removed)$": "names that nothing refers to",
    r"/Targets/0/Id (changed|removed)$": "a rule's own name for its only target",
    r"LaunchTemplate/Properties/TagSpecifications": "tags of the template itself; those of its boxes are checked",
    r"LaunchTemplate/DependsOn": "an order that the reference to the role implies",
    r"Custom::RequireArtifacts/(UpdateReplace|Deletion)Policy (changed|removed)$": "it holds nothing to keep",
}


@functools.cache
def read(assembly: Path) -> Templates:
    return templates.read(assembly)


@functools.cache
def settings() -> Settings:
    return validation.load(CDK_JSON)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_template_keeps_its_promise(check: Check, assembly: Path) -> None:
    check(read(assembly), settings())


@pytest.mark.parametrize("stack", STACKS)
def test_every_broken_property_is_noticed(stack: str, assembly: Path) -> None:
    broken = templates.read(assembly)
    unexplained, count = survivors(broken, stack, CHECKS, settings(), FREE)
    assert broken == read(assembly)  # the last mutation is undone: each was judged alone
    assert count > 30
    assert unexplained == []


def survivors(
    broken: Templates, stack: str, checks: list[Check], settings: Settings, free: Iterable[str]
) -> tuple[list[str], int]:
    """The mutants of a stack that no check notices although they are not free, and how many there are in all."""
    last_to_notice, found, count = list(checks), [], 0
    for mutant in mutation.mutants(broken, stack):
        count += 1
        if any(re.search(pattern, mutant) for pattern in free):
            continue
        for check in last_to_notice:
            try:
                check(broken, settings)
            except (AssertionError, AttributeError, KeyError, TypeError, ValueError, StateError):
                # A check that stumbles over what is missing has noticed it too. It is asked first for the next mutant,
                # which is a neighbour.
                last_to_notice.remove(check)
                last_to_notice.insert(0, check)
                break
        else:
            found.append(mutant)
    return found, count


def test_synth_asks_nobody(assembly: Path) -> None:
    manifest = json.loads((assembly / "manifest.json").read_text())
    assert "missing" not in manifest
    stacks = {
        name for name, artifact in manifest["artifacts"].items() if artifact["type"] == "aws:cloudformation:stack"
    }
    assert stacks == {names.stack("llm", stack) for stack in STACKS}


def test_stacks_deploy_in_order(assembly: Path) -> None:
    artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    needs = {stack: set(artifacts[names.stack("llm", stack)]["dependencies"]) for stack in STACKS}
    stacks = {stack: {need for need in found if not need.endswith(".assets")} for stack, found in needs.items()}
    assert not stacks["store"] | stacks["lever"]
    assert stacks["group"] == {"llm-store", "llm-lever"}


def test_unpinned_image_and_missing_mail_are_warned_of_at_synth(assembly: Path, other_assembly: Path) -> None:
    def warnings(path: Path) -> str:
        return "".join(file.read_text() for file in sorted(path.glob("*.metadata.json")))

    assert "ami_id is null" in warnings(assembly)
    assert "mail is empty" in warnings(assembly)
    assert "aws:cdk:warning" not in warnings(other_assembly)


@pytest.mark.slow
def test_the_operators_own_settings_are_right_and_synthesize(tmp_path: Path) -> None:
    stacks = {
        path.name.removesuffix(".template.json")
        for path in synth(tmp_path, cdk_json=ROOT / "cdk.json").glob("*.template.json")
    }
    fleet = validation.load(ROOT / "cdk.json").fleet_name
    assert {names.stack(fleet, stack) for stack in STACKS} <= stacks


# --- a fleet with every option the other way --------------------------------------------------------------------


def test_pinned_image_is_that_very_image(other_assembly: Path) -> None:
    data = properties(read(other_assembly)["group"], "AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    assert data["ImageId"] == "ami-0a1b2c3d4e5f60718"


def test_own_key_encrypts_the_root_disk(other_assembly: Path) -> None:
    data = properties(read(other_assembly)["group"], "AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    (disk,) = data["BlockDeviceMappings"]
    assert disk["Ebs"]["KmsKeyId"] == "arn:aws:kms:us-east-2:123456789012:key/0a1b2c3d-0000-0000-0000-000000000000"


def test_first_deploy_can_start_pinned_on_demand(other_assembly: Path) -> None:
    first = properties(read(other_assembly)["lever"], "Custom::CreateIfAbsent")["Parameters"]
    assert first["/other/on-demand-percentage"] == "100"
    assert json.loads(first["/other/watchdog-state"])["mode"] == "on-demand-pinned"


def test_each_mail_address_subscribes(other_assembly: Path) -> None:
    subscriptions = [
        found["Properties"] for found in resources(read(other_assembly)["group"], "AWS::SNS::Subscription")
    ]
    assert [(found["Protocol"], found["Endpoint"]) for found in subscriptions] == [
        ("email", "oncall@example.org"),
        ("email", "owner@example.org"),
    ]


def test_existing_vpc_gets_security_groups_and_an_endpoint_only(other_assembly: Path) -> None:
    stack = read(other_assembly)["group"]
    kinds = sorted(resource["Type"] for resource in stack["Resources"].values() if "::EC2::" in resource["Type"])
    assert [kind.removeprefix("AWS::EC2::") for kind in kinds] == [
        "LaunchTemplate",
        "SecurityGroup",
        "SecurityGroup",
        "SecurityGroupEgress",
        "SecurityGroupIngress",
        "VPCEndpoint",
    ]
    endpoint = properties(stack, "AWS::EC2::VPCEndpoint")
    assert endpoint["VpcId"] == "vpc-0a1b2c3d"
    assert endpoint["RouteTableIds"] == ["rtb-0a1b2c3d", "rtb-0a1b2c3e", "rtb-0a1b2c3f"]
    group = properties(read(other_assembly)["group"], "AWS::AutoScaling::AutoScalingGroup")
    assert group["VPCZoneIdentifier"] == ["subnet-0a1b2c3d", "subnet-0a1b2c3e", "subnet-0a1b2c3f"]


def test_public_callers_face_a_public_balancer_and_groups_are_callers_too(other_assembly: Path) -> None:
    ingress = read(other_assembly)["group"]["Resources"]["BalancerGroup"]["Properties"]["SecurityGroupIngress"]
    assert [without(rule, "Description") for rule in ingress] == [
        {"SourceSecurityGroupId": "sg-0a1b2c3d", "FromPort": 11434, "ToPort": 11434, "IpProtocol": "tcp"},
        {"CidrIp": "203.0.113.0/24", "FromPort": 11434, "ToPort": 11434, "IpProtocol": "tcp"},
    ]
    balancer = properties(read(other_assembly)["group"], "AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert balancer["Scheme"] == "internet-facing"
