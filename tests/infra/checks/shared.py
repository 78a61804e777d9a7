"""What the checks share: the register, the names of types, and how to find things in a template."""

import json
from collections.abc import Callable
from typing import Any

from fleet.config.settings import Settings
from tests.infra.templates import Templates, grants, properties, resources

Check = Callable[[Templates, Settings], None]
CHECKS: list[Check] = []
GROUP = "AWS::AutoScaling::AutoScalingGroup"
TEMPLATE = "AWS::EC2::LaunchTemplate"
FUNCTION = "AWS::Lambda::Function"
ROLE = "AWS::IAM::Role"
ALARM = "AWS::CloudWatch::Alarm"
ACCOUNT = "us-east-2:<AWS::AccountId>"
NO_CONDITION = "{}"
OWN_BUCKETS = '{"StringEquals": {"aws:ResourceAccount": "<AWS::AccountId>"}}'
# Types without tags, or whose tags CDK writes in a place of their own.
UNTAGGED = {
    "AWS::EC2::LaunchTemplate",
    "AWS::EC2::Route",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::VPCGatewayAttachment",
    "AWS::IAM::InstanceProfile",
    "AWS::IAM::ManagedPolicy",
    "AWS::IAM::Policy",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::Permission",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::TopicPolicy",
    "Custom::CreateIfAbsent",
    "Custom::RequireArtifacts",
}
FUNCTIONS = {"CreateIfAbsent": "lever", "RequireArtifacts": "group", "Watchdog": "group"}  # name to stack
WRITE_LOG = ("logs:CreateLogStream", "logs:PutLogEvents")


def check(function: Check) -> Check:
    """Register a promise that the templates keep."""
    CHECKS.append(function)
    return function


def documents(properties: dict[str, Any]) -> list[dict[str, Any]]:
    """The policy documents of one resource."""
    keys = ("PolicyDocument", "AssumeRolePolicyDocument")
    inline = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
    return [properties[key] for key in keys if key in properties] + inline


def security_group(t: Templates, name: str) -> dict[str, Any]:
    group = t["group"]["Resources"][name]
    assert group["Type"] == "AWS::EC2::SecurityGroup"
    found: dict[str, Any] = group["Properties"]
    return found


def subnets(s: Settings) -> list[str]:
    return [f"<VpcpublicSubnet{number}Subnet>" for number in range(1, len(s.zones) + 1)]


def without(mapping: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys}


def condition(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def trust(service: str) -> dict[str, Any]:
    return {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": f"{service}.amazonaws.com"}}


def attributes(pairs: list[dict[str, str]]) -> dict[str, str]:
    return {pair["Key"]: pair["Value"] for pair in pairs}


def launch_data(t: Templates) -> dict[str, Any]:
    data: dict[str, Any] = properties(t["group"], TEMPLATE)["LaunchTemplateData"]
    return data


def group_of(t: Templates) -> dict[str, Any]:
    return properties(t["group"], GROUP)


def function_of(t: Templates, name: str) -> dict[str, Any]:
    """The properties of one function."""
    resource = t[FUNCTIONS[name]]["Resources"][name]
    assert resource["Type"] == FUNCTION
    found: dict[str, Any] = resource["Properties"]
    return found


def role_of_function(t: Templates, name: str) -> set[tuple[str, str, str]]:
    """All that a function may do, its own log left out."""
    stack = t[FUNCTIONS[name]]["Resources"]
    assert stack[f"{name}Role"]["Type"] == ROLE
    found = grants(stack[f"{name}Role"], stack[f"{name}RoleDefaultPolicy"])
    return {grant for grant in found if not grant[0].startswith("logs:")}


def rules_of(t: Templates) -> list[dict[str, Any]]:
    return [rule["Properties"] for rule in resources(t["group"], "AWS::Events::Rule")]


def rule_of(t: Templates, source: str) -> dict[str, Any]:
    (rule,) = [rule for rule in rules_of(t) if source in rule.get("EventPattern", {}).get("source", [])]
    return rule


def alarm_of(t: Templates, s: Settings, page: str) -> dict[str, Any]:
    alarms = {alarm["Properties"]["AlarmName"]: alarm["Properties"] for alarm in resources(t["group"], ALARM)}
    found: dict[str, Any] = alarms[f"{s.fleet_name}-{page}"]
    return found


def healthy_hosts(alarm: dict[str, Any]) -> bool:
    dimensions: list[dict[str, str]] = alarm["Dimensions"]
    return dimensions == [
        {"Name": "LoadBalancer", "Value": "<Balancer.LoadBalancerFullName>"},
        {"Name": "TargetGroup", "Value": "<TargetGroup.TargetGroupFullName>"},
    ]


def at_once(alarm: dict[str, Any]) -> bool:
    keys = ("ComparisonOperator", "Threshold", "EvaluationPeriods", "Period", "TreatMissingData")
    return [alarm[key] for key in keys] == ["GreaterThanOrEqualToThreshold", 1, 1, 60, "notBreaching"]
