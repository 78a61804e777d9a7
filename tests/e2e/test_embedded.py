"""The embedded AWS where it differs from moto, on a stack as small as that allows."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fleet import localaws
from tests.e2e.small_stack import ALARM, FUNCTION, GROUP, PARAMETER, template

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[localaws.Aws]:
    with localaws.server(tmp_path_factory.mktemp("empty")) as running:
        running.client("ssm").put_parameter(Name=PARAMETER, Value="0", Type="String")
        yield running


@pytest.fixture
def aws(empty: localaws.Aws, tmp_path: Path) -> Iterator[localaws.Aws]:
    with empty.fork(tmp_path) as copy:
        yield copy


def deploy(aws: localaws.Aws, body: dict[str, Any], verb: str = "create", **more: Any) -> dict[str, Any]:
    call = getattr(aws.client("cloudformation"), f"{verb}_stack")
    call(StackName="small", TemplateBody=json.dumps(body), Capabilities=["CAPABILITY_IAM"], **more)
    found: dict[str, Any] = aws.client("cloudformation").describe_stacks(StackName="small")["Stacks"][0]
    return found


def group(aws: localaws.Aws) -> dict[str, Any]:
    answer = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])
    found: dict[str, Any] = answer["AutoScalingGroups"][0]
    return found


def percentage(aws: localaws.Aws) -> int:
    return int(group(aws)["MixedInstancesPolicy"]["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"])


def move_lever(aws: localaws.Aws, value: str) -> None:
    aws.client("ssm").put_parameter(Name=PARAMETER, Value=value, Type="String", Overwrite=True)
    policy = group(aws)["MixedInstancesPolicy"]
    aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=GROUP,
        MixedInstancesPolicy={
            "InstancesDistribution": {
                **policy["InstancesDistribution"],
                "OnDemandPercentageAboveBaseCapacity": int(value),
            }
        },
    )


def purchases(aws: localaws.Aws) -> list[str]:
    ids = [box["InstanceId"] for box in group(aws)["Instances"]]
    if not ids:
        return []
    reservations = aws.client("ec2").describe_instances(InstanceIds=ids)["Reservations"]
    return [each.get("InstanceLifecycle", "on-demand") for found in reservations for each in found["Instances"]]


def targets(aws: localaws.Aws) -> list[str]:
    balancer = aws.client("elbv2")
    arn = balancer.describe_target_groups()["TargetGroups"][0]["TargetGroupArn"]
    found = balancer.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
    return [target["Target"]["Id"] for target in found]


def test_template_reaches_the_group_whole(aws: localaws.Aws) -> None:
    assert deploy(aws, template())["StackStatus"] == "CREATE_COMPLETE"
    found = group(aws)
    assert found["CapacityRebalance"] is True
    assert found["DefaultInstanceWarmup"] == 60
    hooks = aws.client("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName=GROUP)["LifecycleHooks"]
    assert [(hook["LifecycleHookName"], hook["HeartbeatTimeout"]) for hook in hooks] == [("hold", 1800)]
    balancer = aws.client("elbv2").describe_load_balancers()["LoadBalancers"][0]
    assert balancer["Type"] == "network"
    assert ":loadbalancer/net/" in balancer["LoadBalancerArn"]
    assert purchases(aws) == ["spot"]


def test_changed_user_data_makes_version_two_and_pins_the_same_group_to_it(aws: localaws.Aws) -> None:
    deploy(aws, template())
    before = group(aws)
    assert deploy(aws, template(user_data="IyEvYmluL2Jhc2gK"), "update")["StackStatus"] == "UPDATE_COMPLETE"
    specification = group(aws)["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]
    assert specification["Version"] == "2"
    assert group(aws)["AutoScalingGroupARN"] == before["AutoScalingGroupARN"]


def test_next_deploy_carries_a_moved_lever_and_a_new_tag_rewrites_a_literal(aws: localaws.Aws) -> None:
    deploy(aws, template(lever=0))
    move_lever(aws, "100")
    with pytest.raises(ClientError, match="No updates are to be performed"):
        deploy(aws, template(lever=0), "update")
    assert percentage(aws) == 100
    deploy(aws, template(lever=0), "update", Tags=[{"Key": "owner", "Value": "someone"}])
    assert percentage(aws) == 0
    deploy(aws, template(), "update")
    assert percentage(aws) == 100


def test_alarm_runs_the_deployed_function_with_its_roles_key(aws: localaws.Aws) -> None:
    deploy(aws, template())
    aws.client("cloudwatch").set_alarm_state(AlarmName=ALARM, StateValue="ALARM", StateReason="nobody answers")
    aws.control("settle")
    woken = [run for run in aws.invocations() if run["event"].get("source") == "aws.cloudwatch"]
    assert [(run["function"], run["result"], run["log"]) for run in woken] == [
        (FUNCTION, "0", ["woken by aws.cloudwatch"])
    ]
    calls = [(line["service"], line["action"]) for line in aws.requests() if line["principal"] == "small-role"]
    assert calls == [("ssm", "GetParameter")]


def test_rule_without_permission_to_invoke_wakes_nobody(aws: localaws.Aws) -> None:
    deploy(aws, template(alarm_lambda=False))
    aws.client("cloudwatch").set_alarm_state(AlarmName=ALARM, StateValue="ALARM", StateReason="nobody answers")
    aws.control("settle")
    assert [run["event"].get("RequestType") for run in aws.invocations()] == ["Create"]


def test_failed_custom_resource_fails_the_stack_with_its_reason(aws: localaws.Aws) -> None:
    assert deploy(aws, template(refuse=True))["StackStatus"] == "ROLLBACK_COMPLETE"
    events = aws.client("cloudformation").describe_stack_events(StackName="small")["StackEvents"]
    assert any("asked to refuse" in event.get("ResourceStatusReason", "") for event in events)


def test_destroy_leaves_nothing(aws: localaws.Aws) -> None:
    deploy(aws, template())
    aws.client("cloudformation").delete_stack(StackName="small")
    assert aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
    assert aws.client("elbv2").describe_load_balancers()["LoadBalancers"] == []
    assert aws.client("cloudwatch").describe_alarms()["MetricAlarms"] == []
    assert [run["event"]["RequestType"] for run in aws.invocations()] == ["Create", "Delete"]


def test_closed_market_leaves_the_group_empty_until_a_flip_buys_on_demand(aws: localaws.Aws) -> None:
    deploy(aws, template())
    aws.control("market", spot=False)
    aws.client("ec2").terminate_instances(InstanceIds=[group(aws)["Instances"][0]["InstanceId"]])
    assert purchases(aws) == []
    activities = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=GROUP)["Activities"]
    assert activities[0]["StatusCode"] == "Failed"
    move_lever(aws, "100")
    assert purchases(aws) == ["on-demand"]


def test_held_box_enters_service_when_its_hook_is_completed(aws: localaws.Aws) -> None:
    aws.control("hold_launches", on=True)
    deploy(aws, template())
    box = group(aws)["Instances"][0]
    assert box["LifecycleState"] == "Pending:Wait"
    hook = {"AutoScalingGroupName": GROUP, "LifecycleHookName": "hold", "InstanceId": box["InstanceId"]}
    autoscaling = aws.client("autoscaling")
    autoscaling.record_lifecycle_action_heartbeat(**hook)
    autoscaling.complete_lifecycle_action(**hook, LifecycleActionResult="CONTINUE")
    assert group(aws)["Instances"][0]["LifecycleState"] == "InService"
    with pytest.raises(ClientError, match="No active Lifecycle Action"):
        autoscaling.complete_lifecycle_action(**hook, LifecycleActionResult="CONTINUE")


def test_log_names_the_group_of_an_instance_that_has_left_it(aws: localaws.Aws) -> None:
    deploy(aws, template())
    scaling, box = aws.client("autoscaling"), group(aws)["Instances"][0]["InstanceId"]
    scaling.terminate_instance_in_auto_scaling_group(InstanceId=box, ShouldDecrementDesiredCapacity=False)
    for gone in (box, "i-0123456789abcdef0"):
        with pytest.raises(ClientError, match="Instance Id not found"):
            scaling.terminate_instance_in_auto_scaling_group(InstanceId=gone, ShouldDecrementDesiredCapacity=False)
    assert targets(aws) == [group(aws)["Instances"][0]["InstanceId"]]
    calls = [line for line in aws.requests() if line["action"] == "TerminateInstanceInAutoScalingGroup"]
    assert [line["resources"].get("AutoScalingGroupName") for line in calls] == [GROUP, GROUP, None]


def test_refresh_is_one_at_a_time_and_can_be_cancelled(aws: localaws.Aws) -> None:
    deploy(aws, template())
    autoscaling = aws.client("autoscaling")
    started = autoscaling.start_instance_refresh(AutoScalingGroupName=GROUP)["InstanceRefreshId"]
    with pytest.raises(ClientError, match="InstanceRefreshInProgress"):
        autoscaling.start_instance_refresh(AutoScalingGroupName=GROUP)
    assert autoscaling.cancel_instance_refresh(AutoScalingGroupName=GROUP)["InstanceRefreshId"] == started
    found = autoscaling.describe_instance_refreshes(AutoScalingGroupName=GROUP)["InstanceRefreshes"]
    assert [each["Status"] for each in found] == ["Cancelled"]


def test_planned_fault_is_answered_in_the_services_own_words(aws: localaws.Aws) -> None:
    aws.control("fault", service="autoscaling", action="DescribeAutoScalingGroups", code="AccessDenied", message="no")
    with pytest.raises(ClientError, match="AccessDenied"):
        aws.client("autoscaling").describe_auto_scaling_groups()
    assert aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []


def test_a_request_that_ends_in_a_500_fails_the_run(empty: localaws.Aws, tmp_path: Path) -> None:
    run = empty.fork(tmp_path)
    aws = run.__enter__()
    with pytest.raises(ClientError, match="500"):
        aws.client("ssm").describe_sessions(State="Active")
    with pytest.raises(localaws.EmbeddedError, match="500: ssm:DescribeSessions"):
        run.__exit__(None, None, None)


def test_unknown_resource_type_fails_the_stack_instead_of_vanishing(aws: localaws.Aws) -> None:
    body = {"Resources": {"Odd": {"Type": "AWS::Batch::SchedulingPolicy", "Properties": {}}}}
    assert deploy(aws, body)["StackStatus"] == "ROLLBACK_COMPLETE"


def test_a_refused_change_set_leaves_no_stack_behind(empty: localaws.Aws, tmp_path: Path) -> None:
    """`cdk diff` before a first deploy: the group reads a lever that does not exist yet."""
    body = template()
    body["Parameters"] = {
        **body.get("Parameters", {}),
        "Absent": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/no"},
    }
    with empty.fork(tmp_path) as aws:
        cloudformation = aws.client("cloudformation")
        with pytest.raises(ClientError, match="Unable to fetch parameters"):
            cloudformation.create_change_set(
                StackName="fresh", ChangeSetName="diff", ChangeSetType="CREATE", TemplateBody=json.dumps(body)
            )
        assert "fresh" not in {stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]}


def test_a_change_sets_name_counts_within_its_stack(empty: localaws.Aws, tmp_path: Path) -> None:
    """The CLI names all of them alike and works on several stacks at once."""
    with empty.fork(tmp_path) as aws:
        cloudformation = aws.client("cloudformation")
        for stack in ("one", "two"):
            body = {
                "Resources": {"T": {"Type": "AWS::SNS::Topic"}},
                "Outputs": {"O": {"Value": "v", "Export": {"Name": stack}}},
            }
            cloudformation.create_change_set(
                StackName=stack, ChangeSetName="deploy", ChangeSetType="CREATE", TemplateBody=json.dumps(body)
            )
        found = cloudformation.describe_change_set(StackName="one", ChangeSetName="deploy")
        assert "/one/" in found["StackId"]
        cloudformation.delete_change_set(StackName="two", ChangeSetName="deploy")
        cloudformation.execute_change_set(StackName="one", ChangeSetName="deploy")
        assert cloudformation.describe_stacks(StackName="one")["Stacks"][0]["StackStatus"] == "CREATE_COMPLETE"
        assert [export["Name"] for export in cloudformation.list_exports()["Exports"]] == ["one"]
        with pytest.raises(ClientError, match="does not exist"):
            cloudformation.describe_change_set(StackName="two", ChangeSetName="deploy")


def test_copies_that_read_one_object_at_the_same_time_read_all_of_it(empty: localaws.Aws, tmp_path: Path) -> None:
    with empty.fork(tmp_path / "origin") as origin:
        content = bytes(range(256)) * (6 << 12)  # 6 MiB: more than moto would hold in memory by itself
        origin.client("s3").create_bucket(
            Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": origin.region}
        )
        origin.client("s3").put_object(Bucket="bucket", Key="k", Body=content)
        with origin.fork(tmp_path / "one") as one, origin.fork(tmp_path / "two") as two, ThreadPoolExecutor(4) as pool:
            read = [copy.client("s3").get_object for _ in range(16) for copy in (one, two)]
            found = pool.map(lambda get: get(Bucket="bucket", Key="k")["Body"].read() == content, read)
            assert all(found)
