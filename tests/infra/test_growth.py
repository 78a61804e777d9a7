"""Growth by the lanes' wait: which alarm moves the group when, and that the two do not work against each other."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_autoscaling as autoscaling

from fleet.config import validation
from fleet.config.settings import Capacity
from fleet.core import growth_thresholds as thresholds
from fleet.core import names
from stacks.base_stack import BaseStack
from stacks.growth import GROUP_METRICS, Growth
from tests.infra.checks.shared import without
from tests.infra.templates import properties, read, resources
from tests.synth import CDK_JSON

pytestmark = pytest.mark.slow  # synthesizes a stack of its own

ASSETS = Path(__file__).parents[2] / "assets" / "bootstrap"
SERVICE_SECONDS = 9.4  # the fleet's median request


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A stack of a group and its growth, and nothing else."""
    out = tmp_path_factory.mktemp("growth")
    app = cdk.App(outdir=str(out), builtin_cloud_formation_validation=False)
    settings = validation.check(json.loads(CDK_JSON.read_text())["context"]["fleet"])
    grown = dataclasses.replace(settings, capacity=Capacity(min=2, max=6, grow_to=4))
    stack = BaseStack(app, "group", grown)
    cfn = autoscaling.CfnAutoScalingGroup
    group = cfn(stack, "Group", min_size="2", max_size="6", metrics_collection=[GROUP_METRICS])
    Growth(stack, grown, group)
    app.synth()
    return read(Path(out))["group"]


def alarm(stack: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [
        each["Properties"]
        for each in resources(stack, "AWS::CloudWatch::Alarm")
        if each["Properties"]["AlarmName"].endswith(name)
    ]
    return found


@pytest.mark.parametrize(
    ("name", "expression", "compared", "minutes"),
    [
        (
            "grow",
            # Not while a box still launches, nor while the market has none to give.
            "IF(desired < 4 AND serving >= desired, wait, 0)",
            ("GreaterThanOrEqualToThreshold", 15),
            (60, 3),  # running: the first minute that says otherwise puts it out
        ),
        (
            "shrink",
            "IF(desired > 4, 0, IF(desired > 2, wait, 15))",
            ("LessThanOrEqualToThreshold", 2),
            (900, 1),
        ),
    ],
)
def test_an_alarm_reads_the_mean_wait_of_the_boxes_and_the_size_that_is_wanted(
    stack: dict[str, Any], name: str, expression: str, compared: tuple[str, int], minutes: tuple[int, int]
) -> None:
    found = alarm(stack, name)
    told, *metrics = found["Metrics"]
    assert told["Expression"] == expression
    assert (found["ComparisonOperator"], found["Threshold"]) == compared
    period, periods = minutes
    assert found["EvaluationPeriods"] == periods
    assert "DatapointsToAlarm" not in found
    read = {each["Id"]: each["MetricStat"]["Metric"] for each in metrics}
    of_group = {"desired": "GroupDesiredCapacity", **({"serving": "GroupInServiceInstances"} if name == "grow" else {})}
    assert {id: metric["MetricName"] for id, metric in read.items()} == {
        **of_group,
        "wait": names.METRIC_LANE_EXPECTED_WAIT_SECONDS,
    }
    assert {(each["Namespace"], str(each["Dimensions"])) for id, each in read.items() if id in of_group} == {
        ("AWS/AutoScaling", str([{"Name": "AutoScalingGroupName", "Value": names.group("llm")}]))
    }
    assert all((each["MetricStat"]["Stat"], each["MetricStat"]["Period"]) == ("Average", period) for each in metrics)
    assert found["TreatMissingData"] == "notBreaching"  # where no lane tells, nobody grows and nobody shrinks
    (collected,) = properties(stack, "AWS::AutoScaling::AutoScalingGroup")["MetricsCollection"]
    assert (collected["Granularity"], collected["Metrics"]) == (
        "1Minute",
        ["GroupDesiredCapacity", "GroupInServiceInstances"],
    )


def test_the_wait_that_moves_the_group_is_the_one_that_a_box_tells(stack: dict[str, Any]) -> None:
    told = {"line": [], "draining": False, "expected_wait_seconds": 21.5, "pid": 1, "refusals": {}, "wasted_tokens": 0}
    code = (
        f"import json, sys; sys.path.insert(0, {str(ASSETS)!r}); import lane_metrics, names, types; "
        f"line = json.loads(sys.argv[1]); box = types.SimpleNamespace(fleet='llm'); "
        f"print(json.dumps([names.METRIC_NAMESPACE, lane_metrics.data(box, line, None)]))"
    )  # in a process of its own: the box's modules have names of their own
    line = json.dumps({**told, "waits": {"count": 0, "seconds": 0.0}})
    out = subprocess.run([sys.executable, "-c", code, line], check=True, capture_output=True, text=True).stdout
    namespace, data = json.loads(out)
    (put,) = [each for each in data if each["MetricName"] == names.METRIC_LANE_EXPECTED_WAIT_SECONDS]
    for name in ("grow", "shrink"):
        (wait,) = [each["MetricStat"] for each in alarm(stack, name)["Metrics"] if each["Id"] == "wait"]
        assert wait["Metric"] == {
            "Namespace": namespace,
            "MetricName": put["MetricName"],
            "Dimensions": put["Dimensions"],
        }
        assert wait.get("Unit", put["Unit"]) == put["Unit"]


def test_each_alarm_moves_one_box_and_mails_nobody(stack: dict[str, Any]) -> None:
    moves = {
        name: stack["Resources"][action.strip("<>")]["Properties"]
        for name in ("grow", "shrink")
        for action in alarm(stack, name)["AlarmActions"]
    }
    step = {"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}
    assert {name: without(each, "AutoScalingGroupName", "AdjustmentType") for name, each in moves.items()} == {
        "grow": {"PolicyType": "StepScaling", "StepAdjustments": [step]},
        "shrink": {"PolicyType": "SimpleScaling", "ScalingAdjustment": -1, "Cooldown": "900"},
    }
    assert {each["AdjustmentType"] for each in moves.values()} == {"ChangeInCapacity"}


@pytest.mark.parametrize("boxes", range(2, 21))
def test_a_group_that_lost_a_box_to_the_shrink_alarm_does_not_want_it_back(boxes: int) -> None:
    def wait(busy: float) -> float:
        """Pollaczek and Khinchine: the mean wait before one server whose requests are about alike."""
        return busy * SERVICE_SECONDS / (2 * (1 - busy))

    busy = next(share / 1000 for share in range(1, 1000) if wait(share / 1000) >= thresholds.SHRINK_WAIT_SECONDS)
    assert wait(busy * boxes / (boxes - 1)) < thresholds.GROW_WAIT_SECONDS / 2
