"""The stack of faults: made by nobody but `make faults`, held to this fleet, ended by alarms that the fleet has."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.validate import ParamValidator

from fleet.config import validation
from fleet.config.settings import Policy
from fleet.core import names
from fleet.gameday import fault_injection
from stacks import faults as stack
from tests.conftest import GATEWAY_SETTINGS, OTHER_SETTINGS
from tests.infra import templates
from tests.infra.templates import grants, resources, the
from tests.infra.test_linters import findings_in, wildcards_of
from tests.synth import CDK_JSON, synthesized

pytestmark = pytest.mark.slow  # synthesizes stacks of its own


def experiments(out: Path) -> dict[str, dict[str, Any]]:
    """The properties of each template, by its fault."""
    stack = templates.read(out)[names.STACK_FAULTS]
    found = [each["Properties"] for each in resources(stack, "AWS::FIS::ExperimentTemplate")]
    return {each["Tags"][names.TAG_FAULT]: each for each in found}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    synthesized(folder, {}, stack.build)
    return folder


def test_every_scenario_has_its_template_and_no_deploy_of_the_fleet_makes_one(out: Path, assembly: Path) -> None:
    assert experiments(out).keys() == {chosen.fault for chosen in fault_injection.SCENARIOS.values()}
    assert "AWS::FIS" not in "".join(path.read_text() for path in assembly.glob("*.template.json"))


def test_targets_are_this_fleets_spot_boxes_and_its_group_and_nothing_else(out: Path) -> None:
    for fault, each in experiments(out).items():
        for target in each["Targets"].values():
            assert target["ResourceTags"] == {names.TAG_FLEET: "llm"}
            assert "ResourceArns" not in target
        box = each["Targets"]["box"]
        assert (box["ResourceType"], box["Filters"]) == (
            stack.SPOT_BOX,
            [{"Path": "State.Name", "Values": ["running"]}],
        )
        assert box["SelectionMode"] == {"notice": "COUNT(1)", "dry": "ALL"}[fault]
        assert each["ExperimentOptions"] == {"AccountTargeting": "single-account", "EmptyTargetResolutionMode": "fail"}
        assert each["Actions"]["notice"]["Parameters"] == {"durationBeforeInterruption": "PT2M"}


@pytest.mark.parametrize(("policy", "minutes"), [("alarm", 23), ("bridge", 3)])
def test_the_market_is_dry_in_every_zone_for_the_notice_and_the_policys_bound(
    policy: Policy, minutes: int, tmp_path: Path
) -> None:
    synthesized(tmp_path, {"policy": policy}, stack.build)
    settings = replace(validation.load(CDK_JSON), policy=policy)
    dry = experiments(tmp_path)["dry"]["Actions"]["dry"]
    assert dry["ActionId"] == stack.REFUSE
    assert dry["Parameters"] == {
        "availabilityZoneIdentifiers": ",".join(settings.zones),
        "duration": f"PT{minutes}M",
        "percentage": "100",
    }
    assert (minutes - 1) * 60 < names.NOTICE_SECONDS + fault_injection.dark_seconds(settings) <= minutes * 60


def test_each_experiment_is_ended_by_alarms_that_the_fleet_has(
    out: Path, assembly: Path, gateway_assembly: Path, tmp_path: Path
) -> None:
    synthesized(tmp_path, GATEWAY_SETTINGS, stack.build)
    for mine, whole in ((out, assembly), (tmp_path, gateway_assembly)):
        built = templates.read(whole).values()
        alarms = {
            each["Properties"]["AlarmName"] for stack in built for each in resources(stack, "AWS::CloudWatch::Alarm")
        }
        for each in experiments(mine).values():
            stops = {stop["Value"].rpartition(":alarm:")[2] for stop in each["StopConditions"]}
            assert stops <= alarms
            assert len(stops) == (3 if whole is gateway_assembly else 2)
            assert {stop["Source"] for stop in each["StopConditions"]} == {"aws:cloudwatch:alarm"}


def test_the_role_interrupts_this_fleets_boxes_and_refuses_this_group_alone(out: Path) -> None:
    role = the(templates.read(out)[names.STACK_FAULTS], "AWS::IAM::Role")
    (trust,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "fis.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": "<AWS::AccountId>"}}
    found = {action: (resource, json.loads(condition)) for action, resource, condition in grants(role)}
    assert found.keys() == {
        "ec2:SendSpotInstanceInterruptions",
        "ec2:InjectApiError",
        "ec2:DescribeInstances",
        "autoscaling:DescribeAutoScalingGroups",
    }
    resource, condition = found["ec2:SendSpotInstanceInterruptions"]
    assert resource.endswith(":instance/*")
    assert condition == {"StringEquals": {"aws:ResourceTag/fleet:name": "llm"}}
    (group,) = found["ec2:InjectApiError"][1]["ForAnyValue:StringLike"]["ec2:FisTargetArns"]
    assert group.endswith(":autoScalingGroupName/llm-gpu")
    assert found["ec2:InjectApiError"][1]["ForAnyValue:StringEquals"] == {"ec2:FisActionId": [stack.REFUSE]}


def test_the_service_takes_the_templates_by_its_own_model(out: Path) -> None:
    """botocore's description of CreateExperimentTemplate: names, types and required members."""
    model = boto3.client("fis", region_name="us-east-2", aws_access_key_id="x", aws_secret_access_key="x").meta
    shape = model.service_model.operation_model("CreateExperimentTemplate").input_shape
    for each in experiments(out).values():
        called = {**as_called(each), "clientToken": "x", "roleArn": f"arn:aws:iam::123456789012:role/{each['RoleArn']}"}
        report = ParamValidator().validate(called, shape)
        assert not report.has_errors(), report.generate_report()


def as_called(properties: dict[str, Any]) -> dict[str, Any]:
    """CloudFormation's names as the API has them: the first letter small, but for what the template itself names."""

    def small(value: Any, depth: int) -> Any:
        if isinstance(value, list):
            return [small(each, depth) for each in value]
        if not isinstance(value, dict):
            return value
        return {key[0].lower() + key[1:]: inner(key, each, depth) for key, each in value.items()}

    def inner(key: str, value: Any, depth: int) -> Any:
        if key in ("Tags", "ResourceTags", "Parameters") or (depth and key == "Targets"):
            return value
        if key in ("Targets", "Actions"):
            return {name: small(each, depth + 1) for name, each in value.items()}
        return small(value, depth)

    found: dict[str, Any] = small(properties, 0)
    return found


def test_cfn_lint_and_cdk_nag_find_nothing_unexplained(tmp_path: Path) -> None:
    app = synthesized(tmp_path, OTHER_SETTINGS, stack.build, nag=True)
    template = tmp_path / "other-faults.template.json"
    run = subprocess.run(["cfn-lint", str(template)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")
    assert findings_in(tmp_path) == wildcards_of(app)
