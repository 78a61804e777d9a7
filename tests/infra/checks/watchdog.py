"""What wakes the watchdog, and what it may do."""

import json

from fleet.config.settings import Settings
from fleet.core import names
from tests.infra.checks.shared import (
    ACCOUNT,
    NO_CONDITION,
    alarm_of,
    check,
    condition,
    function_of,
    healthy_hosts,
    role_of_function,
    rule_of,
    rules_of,
    subnets,
    without,
)
from tests.infra.templates import Templates, grants, properties, resources, the


@check
def alarm_fires_after_the_minutes_without_a_healthy_target(t: Templates, s: Settings) -> None:
    alarm = alarm_of(t, s, "no-healthy-target")
    assert without(alarm, "AlarmDescription", "Tags", "Dimensions") == {
        "AlarmName": names.no_healthy_target_alarm(s.fleet_name),
        "Namespace": "AWS/NetworkELB",
        "MetricName": "HealthyHostCount",
        "Statistic": "Maximum",
        "Period": 60,
        "ComparisonOperator": "LessThanThreshold",
        "Threshold": 1,
        "EvaluationPeriods": s.watchdog.alarm_minutes,
        "DatapointsToAlarm": s.watchdog.alarm_minutes,
        "TreatMissingData": "breaching",
    }
    assert healthy_hosts(alarm)


@check
def alarm_wakes_the_watchdog_in_both_directions(t: Templates, s: Settings) -> None:
    assert rule_of(t, "aws.cloudwatch")["EventPattern"] == {
        "source": ["aws.cloudwatch"],
        "detail-type": ["CloudWatch Alarm State Change"],
        "resources": ["<NoHealthyTarget.Arn>"],
    }


@check
def spot_notices_and_ends_of_instances_wake_the_watchdog(t: Templates, s: Settings) -> None:
    notice, end = (rule["EventPattern"] for rule in rules_of(t) if "aws.ec2" in str(rule))
    assert notice == {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"],
    }
    assert end == {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance State-change Notification"],
        "detail": {"state": ["shutting-down", "stopping"]},
    }


@check
def launches_terminations_and_refreshes_of_the_group_wake_the_watchdog(t: Templates, s: Settings) -> None:
    pattern = rule_of(t, "aws.autoscaling")["EventPattern"]
    assert pattern["detail"] == {"AutoScalingGroupName": [names.group(s.fleet_name)]}
    assert pattern["source"] == ["aws.autoscaling"]
    refresh = "EC2 Auto Scaling Instance Refresh"
    assert pattern["detail-type"] == [
        *(f"EC2 Instance {what}" for what in ("Launch Successful", "Launch Unsuccessful")),
        "EC2 Instance Terminate Successful",
        *(f"{refresh} {end}" for end in ("Succeeded", "Failed", "Cancelled")),
    ]


@check
def scan_is_another_input_of_the_same_function(t: Templates, s: Settings) -> None:
    (scan,) = [rule for rule in rules_of(t) if "ScheduleExpression" in rule]
    assert scan["ScheduleExpression"] == f"rate({s.scan_seconds // 60} minutes)"
    (target,) = scan["Targets"]
    assert target["Arn"] == "<Watchdog.Arn>"
    assert json.loads(target["Input"]) == {"command": "scan"}
    assert function_of(t, "Watchdog")["Handler"] == "lambdas.watchdog.handler.handler"


@check
def every_rule_is_enabled_and_may_invoke_the_function(t: Templates, s: Settings) -> None:
    assert [rule["State"] for rule in rules_of(t)] == ["ENABLED"] * 5
    events = [rule["Targets"] for rule in rules_of(t) if "EventPattern" in rule]
    assert [without(target, "Id") for (target,) in events] == [{"Arn": "<Watchdog.Arn>"}] * 4
    permissions = [found["Properties"] for found in resources(t["group"], "AWS::Lambda::Permission")]
    rules = ("AlarmChanged", "SpotNotice", "BoxEnded", "GroupChanged", "Scan")
    assert [permission["SourceArn"] for permission in permissions] == [f"<{rule}.Arn>" for rule in rules]
    for permission in permissions:
        assert without(permission, "SourceArn") == {
            "Action": "lambda:InvokeFunction",
            "FunctionName": "<Watchdog.Arn>",
            "Principal": "events.amazonaws.com",
        }


@check
def reserved_concurrency_of_one_is_the_mutex(t: Templates, s: Settings) -> None:
    assert function_of(t, "Watchdog")["ReservedConcurrentExecutions"] == 1


@check
def stale_events_are_dropped_and_failures_are_mailed(t: Templates, s: Settings) -> None:
    assert properties(t["group"], "AWS::Lambda::EventInvokeConfig") == {
        "FunctionName": "<Watchdog>",
        "Qualifier": "$LATEST",
        "MaximumEventAgeInSeconds": 900,
        "MaximumRetryAttempts": 2,
        "DestinationConfig": {"OnFailure": {"Destination": "<Mail>"}},
    }


@check
def watchdog_is_named_and_gets_its_settings_whole(t: Templates, s: Settings) -> None:
    function = function_of(t, "Watchdog")
    assert function["FunctionName"] == names.watchdog_function(s.fleet_name)
    variables = function["Environment"]["Variables"]
    assert Settings.from_json(variables[names.ENV_SETTINGS]) == s
    arn = "<TargetGroup>"
    assert without(variables, names.ENV_SETTINGS) == {names.ENV_TOPIC_ARN: "<Mail>", names.ENV_TARGET_GROUP_ARN: arn}


@check
def watchdog_has_one_grant_per_call(t: Templates, s: Settings) -> None:
    group = f"arn:aws:autoscaling:{ACCOUNT}:autoScalingGroup:*:autoScalingGroupName/{names.group(s.fleet_name)}"
    paths = (names.lever_parameter(s.fleet_name), names.state_parameter(s.fleet_name))
    parameters = [f"arn:aws:ssm:{ACCOUNT}:parameter{path}" for path in paths]
    on_group = ("UpdateAutoScalingGroup", "SuspendProcesses", "ResumeProcesses", "StartInstanceRefresh")
    assert role_of_function(t, "Watchdog") == {
        *(("ssm:GetParameters", parameter, NO_CONDITION) for parameter in parameters),
        *(("ssm:PutParameter", parameter, NO_CONDITION) for parameter in parameters),
        *((f"autoscaling:{action}", group, NO_CONDITION) for action in on_group),
        ("autoscaling:CancelInstanceRefresh", group, NO_CONDITION),
        ("autoscaling:CompleteLifecycleAction", group, NO_CONDITION),
        ("autoscaling:TerminateInstanceInAutoScalingGroup", group, NO_CONDITION),
        ("autoscaling:DescribeAutoScalingGroups", "*", NO_CONDITION),
        ("autoscaling:DescribeInstanceRefreshes", "*", NO_CONDITION),
        (
            "cloudformation:DescribeStacks",
            f"arn:aws:cloudformation:{ACCOUNT}:stack/{s.fleet_name}-group/*",
            NO_CONDITION,
        ),
        ("cloudwatch:GetMetricStatistics", "*", NO_CONDITION),
        ("cloudwatch:DescribeAlarms", f"arn:aws:cloudwatch:{ACCOUNT}:alarm:*", NO_CONDITION),
        ("ec2:DescribeAvailabilityZones", "*", NO_CONDITION),
        ("ec2:DescribeInstances", "*", NO_CONDITION),
        ("ec2:GetSpotPlacementScores", "*", NO_CONDITION),
        ("elasticloadbalancing:DescribeTargetHealth", "*", NO_CONDITION),
        ("elasticloadbalancing:DeregisterTargets", "<TargetGroup>", NO_CONDITION),
        ("sns:Publish", "<Mail>", NO_CONDITION),
    }
    assert t["group"]["Resources"]["WatchdogRole"]["Properties"]["ManagedPolicyArns"] == ["<LaunchGrants>"]


@check
def watchdog_may_try_the_launch_that_a_flip_is_checked_with(t: Templates, s: Settings) -> None:
    template = f"arn:aws:ec2:{ACCOUNT}:launch-template/<Template>"
    from_template = {"ArnEquals": {"ec2:LaunchTemplate": template}}
    of_pools = condition({**from_template, "StringEquals": {"ec2:InstanceType": list(s.pools)}})
    not_overridden = condition({**from_template, "Bool": {"ec2:IsLaunchTemplateResource": "true"}})
    at_launch = condition({"StringEquals": {"ec2:CreateAction": "RunInstances"}})
    to_ec2 = condition({"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}})
    created = [f"arn:aws:ec2:{ACCOUNT}:{kind}/*" for kind in ("instance", "network-interface", "volume")]
    policy = the(t["group"], "AWS::IAM::ManagedPolicy")
    assert grants({"Properties": {}}, policy) == {
        ("ec2:RunInstances", created[0], of_pools),
        ("ec2:RunInstances", created[1], condition(from_template)),
        ("ec2:RunInstances", created[2], condition(from_template)),
        ("ec2:RunInstances", "arn:aws:ec2:us-east-2::image/*", not_overridden),
        ("ec2:RunInstances", template, NO_CONDITION),
        *(("ec2:RunInstances", f"arn:aws:ec2:{ACCOUNT}:subnet/{subnet}", NO_CONDITION) for subnet in subnets(s)),
        ("ec2:RunInstances", f"arn:aws:ec2:{ACCOUNT}:security-group/<BoxGroup.GroupId>", not_overridden),
        *(("ec2:CreateTags", resource, at_launch) for resource in created),
        ("iam:PassRole", "<BoxRole.Arn>", to_ec2),
    }


@check
def topic_takes_tls_only_and_the_accounts_own_alarms(t: Templates, s: Settings) -> None:
    the(t["group"], "AWS::SNS::Topic")
    policy = properties(t["group"], "AWS::SNS::TopicPolicy")
    assert policy["Topics"] == ["<Mail>"]
    tls, alarms = policy["PolicyDocument"]["Statement"]
    publish = {"Action": "sns:Publish", "Resource": "<Mail>"}
    insecure = {"Bool": {"aws:SecureTransport": "false"}}
    assert without(tls, "Sid") == {**publish, "Effect": "Deny", "Principal": "*", "Condition": insecure}
    assert without(alarms, "Sid") == {
        **publish,
        "Effect": "Allow",
        "Principal": {"Service": "cloudwatch.amazonaws.com"},
        "Condition": {"StringEquals": {"aws:SourceAccount": "<AWS::AccountId>"}},
    }
