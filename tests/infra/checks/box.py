"""What a box may do."""

from fleet.config import box_config
from fleet.config.settings import Settings
from fleet.core import names
from tests.infra.checks.shared import ACCOUNT, NO_CONDITION, OWN_BUCKETS, ROLE, check, condition, launch_data, trust
from tests.infra.templates import Templates, grants


@check
def box_may_do_what_its_code_calls_on_this_fleets_resources(t: Templates, s: Settings) -> None:
    box = t["group"]["Resources"]["BoxRole"]
    group = f"arn:aws:autoscaling:{ACCOUNT}:autoScalingGroup:*:autoScalingGroupName/{names.group(s.fleet_name)}"
    targets = "<TargetGroup>"
    own_tag = condition(
        {
            "StringEquals": {f"aws:ResourceTag/{names.TAG_FLEET}": s.fleet_name},
            "ForAllValues:StringEquals": {"aws:TagKeys": [names.TAG_BOOT]},
        }
    )
    own_metrics = condition({"StringEquals": {"cloudwatch:namespace": names.METRIC_NAMESPACE}})
    found = grants(box)
    assert {grant for grant in found if not grant[0].startswith(("s3:", "ssm"))} == {
        ("autoscaling:CompleteLifecycleAction", group, NO_CONDITION),
        ("autoscaling:RecordLifecycleActionHeartbeat", group, NO_CONDITION),
        ("autoscaling:TerminateInstanceInAutoScalingGroup", group, NO_CONDITION),
        ("cloudwatch:PutMetricData", "*", own_metrics),
        ("ec2:CreateTags", f"arn:aws:ec2:{ACCOUNT}:instance/*", own_tag),
        ("elasticloadbalancing:RegisterTargets", targets, NO_CONDITION),
        ("elasticloadbalancing:DeregisterTargets", targets, NO_CONDITION),
        ("elasticloadbalancing:DescribeTargetHealth", "*", NO_CONDITION),
        ("logs:CreateLogStream", "<BoxLog.Arn>", NO_CONDITION),
        ("logs:PutLogEvents", "<BoxLog.Arn>", NO_CONDITION),
    }
    assert {action for action, _, _ in found} >= {a for actions in box_config.ACTIONS.values() for a in actions}


@check
def box_reads_the_store_and_its_bundle_and_writes_the_cache_only(t: Templates, s: Settings) -> None:
    box = t["group"]["Resources"]["BoxRole"]
    s3 = {grant for grant in grants(box) if grant[0].startswith("s3:")}
    assert {when for *_, when in s3} == {OWN_BUCKETS}
    found = {(action, resource) for action, resource, _ in s3}
    bundle = [resource for action, resource in found if resource.startswith("arn:aws:s3:::cdk-")]
    assert bundle == [f"arn:aws:s3:::cdk-hnb659fds-assets-<AWS::AccountId>-us-east-2/{s.fleet_name}/*"]
    assert found == {
        ("s3:GetObject", bundle[0]),
        ("s3:GetObject", "<Bucket.Arn>/*"),
        ("s3:ListBucket", "<Bucket.Arn>"),
        ("s3:PutObject", "<Bucket.Arn>/cache/*"),
        ("s3:AbortMultipartUpload", "<Bucket.Arn>/cache/*"),
    }


@check
def box_is_reached_by_session_manager_and_not_by_ssh(t: Templates, s: Settings) -> None:
    box = t["group"]["Resources"]["BoxRole"]
    channel = ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
    assert {grant for grant in grants(box) if grant[0].startswith("ssm")} == {
        ("ssm:UpdateInstanceInformation", "*", NO_CONDITION),
        *((f"ssmmessages:{name}", "*", NO_CONDITION) for name in channel),
    }
    assert "KeyName" not in launch_data(t)
    assert box["Type"] == ROLE
    assert box["Properties"]["AssumeRolePolicyDocument"]["Statement"] == [trust("ec2")]


@check
def box_log_group_is_the_fleets_and_ends_with_it(t: Templates, s: Settings) -> None:
    log = t["group"]["Resources"]["BoxLog"]
    assert log["Type"] == "AWS::Logs::LogGroup"
    assert log["Properties"]["LogGroupName"] == names.box_log_group(s.fleet_name)
