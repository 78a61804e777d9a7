"""The permission check must fail when either side is broken."""

import json
from typing import Any

import pytest

from tests import permissions
from tests.permissions import Role, findings

GROUP = "arn:aws:autoscaling:us-east-2:123456789012:autoScalingGroup:*:autoScalingGroupName/llm-gpu"


@pytest.fixture(autouse=True)
def no_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "UNCALLED", {})


def role(*actions: str, resource: str = GROUP, **more: Any) -> Role:
    return Role("r-1", "WatchdogRole", [{"Effect": "Allow", "Action": list(actions), "Resource": resource, **more}])


def call(service: str, action: str, **resources: Any) -> dict[str, Any]:
    return {"principal": "r-1", "service": service, "action": action, "resources": resources}


SUSPEND = call("autoscaling", "SuspendProcesses", AutoScalingGroupName="llm-gpu")


def tags(fleet: str, *keys: str) -> dict[str, Any]:
    return call("ec2", "CreateTags", Resources=["i-1"], TagKeys=list(keys), ResourceTags={"fleet:name": fleet})


def ends(**group: str) -> dict[str, Any]:
    return call("autoscaling", "TerminateInstanceInAutoScalingGroup", InstanceId="i-1", **group)


def targets(name: str) -> dict[str, Any]:
    return call("elasticloadbalancing", "RegisterTargets", TargetGroupArn=f"arn:tg/{name}")


def metric(space: str) -> dict[str, Any]:
    return call("cloudwatch", "PutMetricData", Namespace=space)


SUSPENDS, ENDS = role("autoscaling:SuspendProcesses"), role("autoscaling:TerminateInstanceInAutoScalingGroup")
READS = role("s3:GetObject", resource="arn:aws:s3:::store/*")
REGISTERS = role("elasticloadbalancing:RegisterTargets", resource="arn:tg/own")
PUTS = role("cloudwatch:PutMetricData", resource="*", Condition={"StringEquals": {"cloudwatch:namespace": "own"}})
TAGGED = {
    "StringEquals": {"aws:ResourceTag/fleet:name": "llm"},
    "ForAllValues:StringEquals": {"aws:TagKeys": ["fleet:boot"]},
}
TAGS = role("ec2:CreateTags", resource="arn:aws:ec2:us-east-2:123456789012:instance/*", Condition=TAGGED)


@pytest.mark.parametrize(
    ("holder", "own", "other"),
    [
        (SUSPENDS, SUSPEND, call("sns", "Publish", TopicArn="arn:t")),
        (SUSPENDS, SUSPEND, call("autoscaling", "SuspendProcesses", AutoScalingGroupName="other-gpu")),
        (READS, call("s3", "HeadObject", Bucket="store", Key="k"), call("s3", "HeadObject", Bucket="other", Key="k")),
        (REGISTERS, targets("own"), targets("other")),
        (PUTS, metric("own"), metric("other")),
        (ENDS, ends(AutoScalingGroupName="llm-gpu"), ends(AutoScalingGroupName="other-gpu")),
        (ENDS, ends(AutoScalingGroupName="llm-gpu"), ends()),
        (TAGS, tags("llm", "fleet:boot"), tags("other", "fleet:boot")),
        (TAGS, tags("llm", "fleet:boot"), tags("llm", "fleet:boot", "fleet:name")),
    ],
)
def test_a_call_of_another_kind_or_on_another_resource_than_granted_is_found(
    holder: Role, own: dict[str, Any], other: dict[str, Any]
) -> None:
    """One under another name in IAM is known by it."""
    assert findings([holder], [own]) == []
    (found,) = findings([holder], [own, other])
    assert found.startswith("call without a grant: WatchdogRole ")
    assert found.endswith(f" on {json.dumps(other['resources'])}")


def test_grant_without_a_call_is_found() -> None:
    (found,) = findings([role("autoscaling:SuspendProcesses", "autoscaling:ResumeProcesses")], [SUSPEND])
    assert found.startswith("grant without a call: WatchdogRole autoscaling:ResumeProcesses")


def test_exception_that_excuses_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "UNCALLED", {("WatchdogRole", "autoscaling:ResumeProcesses", "*"): "why"})
    holder = role("autoscaling:SuspendProcesses", "autoscaling:ResumeProcesses")
    assert findings([holder], [SUSPEND]) == []
    (found,) = findings([role("autoscaling:SuspendProcesses")], [SUSPEND])
    assert found.startswith("exception without use")


def test_a_deny_is_no_grant_and_takes_one_away() -> None:
    holder = role("autoscaling:SuspendProcesses")
    (found,) = findings([role("autoscaling:SuspendProcesses", Effect="Deny")], [SUSPEND])
    assert found.startswith("call without a grant")
    denied = Role(
        "r-1", "WatchdogRole", [*holder.statements, {"Effect": "Deny", "Action": "autoscaling:*", "Resource": "*"}]
    )
    (found,) = findings([denied], [SUSPEND])
    assert found.startswith("call without a grant")


def test_a_condition_that_no_log_line_can_answer_does_not_hold() -> None:
    holder = role("autoscaling:SuspendProcesses", Condition={"StringEquals": {"aws:PrincipalTag/team": "x"}})
    assert any(found.startswith("call without a grant") for found in findings([holder], [SUSPEND]))
