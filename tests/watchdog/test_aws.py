"""boto3 at the edge: shapes parsed once, errors sorted into kinds, pages read to their end, no call begun too late."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.stub import Stubber

from fleet.core import names
from lambdas.watchdog import aws
from lambdas.watchdog.aws import RESERVE_SECONDS, ROLL, AwsCloud
from lambdas.watchdog.cloud import (
    Alarm,
    Box,
    BusyError,
    CloudError,
    DeniedError,
    GoneError,
    Instance,
    Refresh,
    RefreshActiveError,
    ThrottledError,
)
from tests.watchdog.still_cloud import SETTINGS, StillCloud

AT = datetime(2026, 7, 22, 0, 35, 41, tzinfo=UTC)
TEMPLATE = {"LaunchTemplateId": "lt-0a1b2c3d4e5f60718", "LaunchTemplateName": "llm-gpu", "Version": "3"}
POLICY = {
    "LaunchTemplate": {
        "LaunchTemplateSpecification": TEMPLATE,
        "Overrides": [
            {"InstanceType": "g6.xlarge"},
            {"InstanceType": "g5.xlarge", "LaunchTemplateSpecification": TEMPLATE},
        ],
    },
    "InstancesDistribution": {
        "OnDemandAllocationStrategy": "lowest-price",
        "OnDemandBaseCapacity": 0,
        "OnDemandPercentageAboveBaseCapacity": 0,
        "SpotAllocationStrategy": "price-capacity-optimized",
        "SpotMaxPrice": "0.9",
    },
}
GROUP = {
    "AutoScalingGroupName": "llm-gpu",
    "MinSize": 1,
    "MaxSize": 2,
    "DesiredCapacity": 1,
    "DefaultCooldown": 300,
    "AvailabilityZones": ["us-east-2a", "us-east-2b"],
    "HealthCheckType": "ELB",
    "CreatedTime": AT,
    "SuspendedProcesses": [{"ProcessName": "AZRebalance", "SuspensionReason": "User suspended"}],
    "MixedInstancesPolicy": POLICY,
    "Instances": [
        {
            "InstanceId": "i-0aaaaaaaaaaaaaaa1",
            "InstanceType": "g6.xlarge",
            "AvailabilityZone": "us-east-2a",
            "LifecycleState": "Pending:Wait",
            "HealthStatus": "Healthy",
            "ProtectedFromScaleIn": False,
        }
    ],
}


class Stubs:
    """Clients that answer from a list, and complain about a request that differs from what the list expects."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.stubbers: dict[str, Stubber] = {}

    def __call__(self, service: str) -> Stubber:
        if service not in self.stubbers:
            keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
            self.clients[service] = boto3.client(service, region_name="us-east-2", **keys)
            self.stubbers[service] = Stubber(self.clients[service])
            self.stubbers[service].activate()
        return self.stubbers[service]


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubs]:
    stubs = Stubs()
    monkeypatch.setattr(aws, "_client", lambda service: stubs.clients[service])
    yield stubs
    for stubber in stubs.stubbers.values():
        stubber.assert_no_pending_responses()


def cloud(remaining: float = 60, size: int = 1) -> AwsCloud:
    return AwsCloud(
        replace(SETTINGS, capacity=replace(SETTINGS.capacity, min=size, max=2 * size)),
        topic_arn="arn:aws:sns:us-east-2:123456789012:mail",
        target_group_arn="arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/llm/0",
        remaining_seconds=lambda: remaining,
    )


def test_both_parameters_come_in_one_call_and_absent_is_none(stubs: Stubs) -> None:
    wanted = {"Names": ["/llm/watchdog-state", "/llm/on-demand-percentage"]}
    found = {"Name": "/llm/on-demand-percentage", "Value": "100"}
    stubs("ssm").add_response("get_parameters", {"Parameters": [found]}, wanted)
    assert cloud().parameters() == (None, "100")


@pytest.mark.parametrize("transitioned", [True, False])
def test_alarm_is_lit_since_its_transition_where_aws_tells_it(stubs: Stubs, transitioned: bool) -> None:
    later = AT.replace(hour=5)
    told = {"StateValue": "ALARM", "StateUpdatedTimestamp": later}
    told |= {"StateTransitionedTimestamp": AT} if transitioned else {}
    wanted = {"AlarmNames": ["llm-no-healthy-target"], "AlarmTypes": ["MetricAlarm"]}
    stubs("cloudwatch").add_response("describe_alarms", {"MetricAlarms": [told]}, wanted)
    assert cloud().alarm() == Alarm("ALARM", AT if transitioned else later)


def test_alarm_that_does_not_exist_is_none(stubs: Stubs) -> None:
    stubs("cloudwatch").add_response("describe_alarms", {"MetricAlarms": []})
    assert cloud().alarm() is None


def test_group_is_parsed_once(stubs: Stubs) -> None:
    stubs("autoscaling").add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [GROUP]})
    group = cloud().group()
    assert group.boxes == (Box("i-0aaaaaaaaaaaaaaa1", "Pending:Wait", "us-east-2a", "g6.xlarge"),)
    assert (group.created_at, group.desired, group.on_demand_percentage) == (AT, 1, 0)
    assert (group.zones, group.suspended) == (("us-east-2a", "us-east-2b"), {"AZRebalance": "User suspended"})


def test_group_that_does_not_exist_is_gone(stubs: Stubs) -> None:
    stubs("autoscaling").add_response("describe_auto_scaling_groups", {"AutoScalingGroups": []})
    with pytest.raises(GoneError, match="llm-gpu does not exist"):
        cloud().group()


def test_instances_of_a_large_fleet_come_in_chunks_and_pages(stubs: Stubs) -> None:
    ids = tuple(f"i-{n:017x}" for n in range(201))
    tags = {
        ids[0]: {names.TAG_FLEET: "another"},
        ids[1]: {names.TAG_BOOT: "cold", names.TAG_FLEET: "llm"},
        ids[2]: {names.TAG_BOOT: "failed"},
        ids[3]: {names.TAG_BOOT: "rubbish"},
    }

    def page(found: tuple[str, ...], token: str | None) -> dict[str, Any]:
        instances = [
            {
                "InstanceId": box,
                "LaunchTime": AT,
                "State": {"Name": "shutting-down" if box == ids[1] else "running"},
                **({"StateReason": {"Code": "Server.SpotInstanceTermination"}} if box == ids[1] else {}),
                **({"InstanceLifecycle": "spot"} if box == ids[0] else {}),
                "Tags": [{"Key": key, "Value": value} for key, value in tags.get(box, {}).items()],
            }
            for box in found
        ]
        return {
            "Reservations": [{"Instances": [each]} for each in instances],
            **({"NextToken": token} if token else {}),
        }

    first = [{"Name": "instance-id", "Values": list(ids[:200])}]
    rest = [{"Name": "instance-id", "Values": [ids[200]]}]
    stubs("ec2").add_response("describe_instances", page(ids[:100], "more"), {"Filters": first})
    stubs("ec2").add_response("describe_instances", page(ids[100:199], None), {"Filters": first, "NextToken": "more"})
    stubs("ec2").add_response("describe_instances", page(ids[200:], None), {"Filters": rest})
    found = cloud().instances(ids)
    assert set(found) == set(ids) - {ids[199]}  # one that EC2 does not know yet is left out
    assert found[ids[0]] == Instance(AT, spot=True, boot=None, ours=False)
    reclaimed = {"state": "shutting-down", "reason": "Server.SpotInstanceTermination"}
    assert found[ids[1]] == Instance(AT, spot=False, boot="cold", ours=True, **reclaimed)
    assert [found[box].boot for box in ids[2:5]] == ["failed", None, None]
    assert (found[ids[0]].ended, found[ids[1]].ended) == (False, True)


def test_target_health_is_by_instance(stubs: Stubs) -> None:
    health = [{"Target": {"Id": "i-0a"}, "TargetHealth": {"State": "healthy"}}]
    stubs("elbv2").add_response("describe_target_health", {"TargetHealthDescriptions": health})
    assert cloud().target_health() == {"i-0a": "healthy"}


@pytest.mark.parametrize(
    ("status", "in_progress"),
    [
        ("UPDATE_IN_PROGRESS", True),
        ("CREATE_IN_PROGRESS", True),
        ("UPDATE_ROLLBACK_IN_PROGRESS", True),
        ("DELETE_IN_PROGRESS", True),
        ("UPDATE_COMPLETE", False),
        ("UPDATE_ROLLBACK_FAILED", False),
        ("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", False),
        ("REVIEW_IN_PROGRESS", False),
    ],
)
def test_deploy_is_in_progress_while_the_group_may_still_change(stubs: Stubs, status: str, in_progress: bool) -> None:
    stack = {"StackName": "llm-group", "CreationTime": AT, "StackStatus": status}
    stubs("cloudformation").add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": "llm-group"})
    assert cloud().stack_in_progress() is in_progress


def test_refreshes_newest_first_one_that_has_not_begun_is_newer_than_all(stubs: Stubs) -> None:
    deploys = {"MinHealthyPercentage": 100, "MaxHealthyPercentage": 200, "SkipMatching": True}
    told = [
        {"InstanceRefreshId": "r3", "Status": "Pending", "Preferences": {**ROLL, "InstanceWarmup": 60}},
        {"InstanceRefreshId": "r2", "Status": "InProgress", "StartTime": AT, "Preferences": deploys},
        {"InstanceRefreshId": "r1", "Status": "Successful", "StartTime": AT},
    ]
    stubs("autoscaling").add_response("describe_instance_refreshes", {"InstanceRefreshes": told})
    assert cloud().refreshes() == (
        Refresh("r3", "Pending", datetime.max.replace(tzinfo=UTC), like_ours=True),
        Refresh("r2", "InProgress", AT, like_ours=False),
        Refresh("r1", "Successful", AT, like_ours=False),
    )


def test_scores_are_asked_per_zone_with_enough_types_over_all_pages(stubs: Stubs) -> None:
    wanted = {
        "InstanceTypes": ["g6.xlarge", "g5.xlarge", "g6.2xlarge", "g5.2xlarge"],
        "TargetCapacity": 1,
        "SingleAvailabilityZone": True,
        "RegionNames": ["us-east-2"],
    }
    one = {"SpotPlacementScores": [{"Region": "us-east-2", "AvailabilityZoneId": "use2-az1", "Score": 3}]}
    two = {"SpotPlacementScores": [{"Region": "us-east-2", "AvailabilityZoneId": "use2-az2", "Score": 9}]}
    stubs("ec2").add_response("get_spot_placement_scores", {**one, "NextToken": "more"}, wanted)
    stubs("ec2").add_response("get_spot_placement_scores", two, {**wanted, "NextToken": "more"})
    assert cloud().scores() == {"use2-az1": 3, "use2-az2": 9}


def test_zone_ids_by_zone_name(stubs: Stubs) -> None:
    told = {"AvailabilityZones": [{"ZoneName": "us-east-2a", "ZoneId": "use2-az3"}]}
    stubs("ec2").add_response("describe_availability_zones", told)
    assert cloud().zone_ids() == {"us-east-2a": "use2-az3"}


@pytest.mark.parametrize("send_template", [True, False])
def test_flip_sends_the_whole_distribution_and_each_template_by_id_alone(stubs: Stubs, send_template: bool) -> None:
    by_id = {"LaunchTemplateId": "lt-0a1b2c3d4e5f60718", "Version": "3"}
    sent: dict[str, Any] = {
        "InstancesDistribution": {**POLICY["InstancesDistribution"], "OnDemandPercentageAboveBaseCapacity": 100}  # type: ignore[dict-item]
    }
    if send_template:
        sent["LaunchTemplate"] = {
            "LaunchTemplateSpecification": by_id,
            "Overrides": [
                {"InstanceType": "g6.xlarge"},
                {"InstanceType": "g5.xlarge", "LaunchTemplateSpecification": by_id},
            ],
        }
    stubs("autoscaling").add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [GROUP]})
    wanted = {"AutoScalingGroupName": "llm-gpu", "MixedInstancesPolicy": sent}
    stubs("autoscaling").add_response("update_auto_scaling_group", {}, wanted)
    aws_cloud = cloud()
    aws_cloud.flip(aws_cloud.group(), 100, send_template=send_template)


def test_template_known_by_name_only_is_sent_by_name(stubs: Stubs) -> None:
    named = {"LaunchTemplateName": "llm-gpu", "Version": "3"}
    group = {**GROUP, "MixedInstancesPolicy": {**POLICY, "LaunchTemplate": {"LaunchTemplateSpecification": named}}}
    stubs("autoscaling").add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [group]})
    sent = {
        "LaunchTemplate": {"LaunchTemplateSpecification": named, "Overrides": []},
        "InstancesDistribution": POLICY["InstancesDistribution"],
    }
    wanted = {"AutoScalingGroupName": "llm-gpu", "MixedInstancesPolicy": sent}
    stubs("autoscaling").add_response("update_auto_scaling_group", {}, wanted)
    aws_cloud = cloud()
    aws_cloud.flip(aws_cloud.group(), 0, send_template=True)


@pytest.mark.parametrize(("size", "percent"), [(1, 200), (3, 134), (4, 125), (20, 105)])
def test_roll_is_launch_first_box_by_box_and_skips_no_matching_one(stubs: Stubs, size: int, percent: int) -> None:
    wanted = {
        "AutoScalingGroupName": "llm-gpu",
        "Strategy": "Rolling",
        "Preferences": {"MinHealthyPercentage": 100, "MaxHealthyPercentage": percent, "SkipMatching": False},
    }
    stubs("autoscaling").add_response("start_instance_refresh", {"InstanceRefreshId": "r1"}, wanted)
    assert cloud(size=size).start_refresh() == "r1"


def test_ended_box_is_replaced_not_subtracted(stubs: Stubs) -> None:
    wanted = {"InstanceId": "i-0aaaaaaaaaaaaaaa1", "ShouldDecrementDesiredCapacity": False}
    stubs("autoscaling").add_response("terminate_instance_in_auto_scaling_group", {}, wanted)
    cloud().end_box("i-0aaaaaaaaaaaaaaa1")


def test_held_box_is_given_up_by_its_launch_hook(stubs: Stubs) -> None:
    wanted = {
        "AutoScalingGroupName": "llm-gpu",
        "LifecycleHookName": names.LAUNCH_HOOK,
        "InstanceId": "i-0aaaaaaaaaaaaaaa1",
        "LifecycleActionResult": "ABANDON",
    }
    stubs("autoscaling").add_response("complete_lifecycle_action", {}, wanted)
    cloud().abandon("i-0aaaaaaaaaaaaaaa1")


@pytest.mark.parametrize("running", [False, True])
def test_clock_is_named_by_its_time_and_one_that_runs_already_is_enough(
    stubs: Stubs, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = "arn:aws:states:us-east-2:123456789012:stateMachine:llm-patience"
    monkeypatch.setenv("CLOCK_ARN", arn)
    wanted = {"stateMachineArn": arn, "name": "2026-07-22T00-16-55Z", "input": '{"at": "2026-07-22T00:16:55Z"}'}
    stub = stubs("stepfunctions")
    if running:
        stub.add_client_error("start_execution", "ExecutionAlreadyExists", expected_params=wanted)
    else:
        stub.add_response("start_execution", {"executionArn": "arn:x", "startDate": datetime(2026, 7, 22)}, wanted)  # noqa: DTZ001
    cloud().wake(datetime(2026, 7, 22, 0, 16, 55, tzinfo=UTC))


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("AccessDenied", "User is not authorized to perform", DeniedError),
        ("AccessDeniedException", "User is not authorized to perform", DeniedError),
        ("AuthorizationError", "is not authorized to perform: SNS:Publish", DeniedError),
        ("UnauthorizedOperation", "You are not authorized to perform this operation", DeniedError),
        ("ValidationError", "You are not authorized to use launch template: lt-0", DeniedError),
        ("Throttling", "Rate exceeded", ThrottledError),
        ("ThrottlingException", "Rate exceeded", ThrottledError),
        ("RequestLimitExceeded", "Request limit exceeded", ThrottledError),
        ("TooManyUpdates", "", ThrottledError),
        ("ScalingActivityInProgress", "", BusyError),
        ("ScalingActivityInProgressFault", "", BusyError),
        ("ResourceContention", "", BusyError),
        ("InstanceRefreshInProgress", "", RefreshActiveError),
        ("ValidationError", "An active instance refresh with a desired configuration exists.", RefreshActiveError),
        ("ActiveInstanceRefreshNotFound", "", GoneError),
        ("TargetGroupNotFound", "", GoneError),
        ("NotFound", "Topic does not exist", GoneError),
        ("ValidationError", "AutoScalingGroup name not found - null", GoneError),
        ("ValidationError", "No active Lifecycle Action found with instance ID i-0a", GoneError),
        ("ValidationError", "Stack with id llm-group does not exist", GoneError),
        ("ValidationError", "MaxSize must be at least MinSize", CloudError),
        ("InternalFailure", "", CloudError),
    ],
)
def test_every_error_becomes_its_kind_and_names_call_and_code(
    stubs: Stubs, code: str, message: str, kind: type[CloudError]
) -> None:
    stubs("autoscaling").add_client_error("suspend_processes", code, message)
    with pytest.raises(CloudError) as caught:
        cloud().suspend("Launch")
    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"suspend_processes: {code}: ")


def test_silent_service_is_a_cloud_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def publish(self, **request: Any) -> None:
            raise ReadTimeoutError(endpoint_url="https://sns")

    monkeypatch.setattr(aws, "_client", lambda service: Silent())
    with pytest.raises(CloudError, match="publish: Read timeout"):
        cloud().mail("subject", "body")


@pytest.mark.parametrize(("remaining", "begun"), [(RESERVE_SECONDS - 0.1, False), (RESERVE_SECONDS, True)])
def test_no_call_is_begun_that_could_outlast_the_function(stubs: Stubs, remaining: float, begun: bool) -> None:
    if begun:
        stubs("autoscaling").add_response("resume_processes", {})
        cloud(remaining).resume("Launch")
    else:
        with pytest.raises(CloudError, match="resume_processes: not begun, the function's time is nearly up"):
            cloud(remaining).resume("Launch")


def test_slowest_call_and_the_report_fit_into_the_reserve_and_the_reserve_into_the_timeout() -> None:
    slowest = (aws.CONNECT_SECONDS + aws.READ_SECONDS) * aws.ATTEMPTS + 1  # one pause between two attempts
    assert slowest < RESERVE_SECONDS < names.WATCHDOG_TIMEOUT_SECONDS / 2


def test_error_without_a_message_is_still_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert aws._kind(ClientError({"Error": {"Code": "ValidationError"}}, "x")) is CloudError


def test_still_cloud_and_aws_offer_the_same_calls() -> None:
    calls = {name for name in vars(AwsCloud) if not name.startswith("_")}
    assert calls <= set(vars(StillCloud))
