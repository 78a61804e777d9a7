"""The permission check must fail when either side is broken."""

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


def test_a_grant_for_every_call_and_a_call_for_every_grant_is_no_finding() -> None:
    assert findings([role("autoscaling:SuspendProcesses")], [SUSPEND]) == []


def test_call_without_a_grant_is_found() -> None:
    found = findings([role("autoscaling:SuspendProcesses")], [SUSPEND, call("sns", "Publish", TopicArn="arn:t")])
    assert found == ['call without a grant: WatchdogRole sns:Publish on {"TopicArn": "arn:t"}']


def test_call_on_another_resource_than_granted_is_found() -> None:
    other = call("autoscaling", "SuspendProcesses", AutoScalingGroupName="other-gpu")
    (found,) = findings([role("autoscaling:SuspendProcesses")], [SUSPEND, other])
    assert found.startswith("call without a grant")
    assert "other-gpu" in found


def test_grant_without_a_call_is_found() -> None:
    (found,) = findings([role("autoscaling:SuspendProcesses", "autoscaling:ResumeProcesses")], [SUSPEND])
    assert found.startswith("grant without a call: WatchdogRole autoscaling:ResumeProcesses")


def test_metric_outside_the_granted_namespace_is_found() -> None:
    holder = role(
        "cloudwatch:PutMetricData",
        resource="*",
        Condition={"StringEquals": {"cloudwatch:namespace": "SpotFleet"}},
    )
    inside = call("cloudwatch", "PutMetricData", Namespace="SpotFleet")
    assert findings([holder], [inside]) == []
    assert len(findings([holder], [inside, call("cloudwatch", "PutMetricData", Namespace="Other")])) == 1


def test_exception_that_excuses_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "UNCALLED", {("WatchdogRole", "autoscaling:ResumeProcesses", "*"): "why"})
    holder = role("autoscaling:SuspendProcesses", "autoscaling:ResumeProcesses")
    assert findings([holder], [SUSPEND]) == []
    (found,) = findings([role("autoscaling:SuspendProcesses")], [SUSPEND])
    assert found.startswith("exception without use")


def test_operations_with_another_name_in_iam_are_known() -> None:
    bucket = role("s3:GetObject", resource="arn:aws:s3:::store/*")
    assert findings([bucket], [call("s3", "HeadObject", Bucket="store", Key="model.gguf")]) == []


def test_a_deny_is_no_grant_and_takes_one_away() -> None:
    holder = role("autoscaling:SuspendProcesses")
    (found,) = findings([role("autoscaling:SuspendProcesses", Effect="Deny")], [SUSPEND])
    assert found.startswith("call without a grant")
    denied = Role(
        "r-1", "WatchdogRole", [*holder.statements, {"Effect": "Deny", "Action": "autoscaling:*", "Resource": "*"}]
    )
    (found,) = findings([denied], [SUSPEND])
    assert found.startswith("call without a grant")


def test_targets_of_another_group_than_granted_are_found() -> None:
    holder = role("elasticloadbalancing:RegisterTargets", resource="arn:tg/own")
    own, other = (
        call("elasticloadbalancing", "RegisterTargets", TargetGroupArn=f"arn:tg/{name}") for name in ("own", "other")
    )
    assert findings([holder], [own]) == []
    (found,) = findings([holder], [own, other])
    assert "arn:tg/other" in found


def test_an_instance_of_another_group_than_granted_is_found() -> None:
    holder = role("autoscaling:TerminateInstanceInAutoScalingGroup")
    own, other = (
        call("autoscaling", "TerminateInstanceInAutoScalingGroup", InstanceId="i-1", AutoScalingGroupName=name)
        for name in ("llm-gpu", "other-gpu")
    )
    assert findings([holder], [own]) == []
    assert len(findings([holder], [own, other])) == 1
    nowhere = call("autoscaling", "TerminateInstanceInAutoScalingGroup", InstanceId="i-1")
    assert len(findings([holder], [own, nowhere])) == 1


def test_tags_that_the_conditions_do_not_admit_are_found() -> None:
    conditions = {
        "StringEquals": {"aws:ResourceTag/fleet:name": "llm"},
        "ForAllValues:StringEquals": {"aws:TagKeys": ["fleet:boot"]},
    }
    holder = role("ec2:CreateTags", resource="arn:aws:ec2:us-east-2:123456789012:instance/*", Condition=conditions)

    def tags(fleet: str, *keys: str) -> dict[str, Any]:
        return call("ec2", "CreateTags", Resources=["i-1"], TagKeys=list(keys), ResourceTags={"fleet:name": fleet})

    own = tags("llm", "fleet:boot")
    assert findings([holder], [own]) == []
    assert len(findings([holder], [own, tags("other", "fleet:boot")])) == 1
    assert len(findings([holder], [own, tags("llm", "fleet:boot", "fleet:name")])) == 1


def test_a_condition_that_no_log_line_can_answer_does_not_hold() -> None:
    holder = role("autoscaling:SuspendProcesses", Condition={"StringEquals": {"aws:PrincipalTag/team": "x"}})
    assert any(found.startswith("call without a grant") for found in findings([holder], [SUSPEND]))
