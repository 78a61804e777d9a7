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
    return Role("r-1", "WatchdogRole", [{"Action": list(actions), "Resource": resource, **more}])


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


def test_grant_may_be_called_in_any_deployment_but_every_call_is_granted_in_its_own() -> None:
    unused, foreign = (
        "grant without a call: Watchdog sns:Publish on topic-1",
        "call without a grant: Box s3:PutObject on {}",
    )
    assert permissions.combined([[unused], [foreign]]) == [foreign]
    assert permissions.combined([[unused], [unused.replace("-1", "-2")]]) == [unused, unused.replace("-1", "-2")]
