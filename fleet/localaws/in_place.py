"""Updates in place that moto's CloudFormation lacks, or makes by deleting the resource and making another.

Each takes the resource, its new resolved properties, account and region; the old ones are the resource's own.
"""

import json
from collections.abc import Callable
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.elbv2.models import elbv2_backends
from moto.events.models import events_backends
from moto.iam.models import Role, iam_backends

from fleet.localaws.loopback import client
from fleet.localaws.patching import extend

Properties = dict[str, Any]


def _balancer(balancer: Any, properties: Properties, account: str, region: str) -> None:
    elbv2_backends[account][region].set_subnets(balancer.arn, properties["Subnets"], [])
    balancer.security_groups = properties.get("SecurityGroups") or []
    balancer.attrs.update({item["Key"]: item["Value"] for item in properties.get("LoadBalancerAttributes", [])})


def _target_group(group: Any, properties: Properties, account: str, region: str) -> None:
    attributes = properties.get("TargetGroupAttributes", [])
    group.attributes.update({item["Key"]: item["Value"] for item in attributes})


def _security_group(group: Any, properties: Properties, account: str, region: str) -> None:
    """Its inline rules alone: rules that are resources of their own stay."""
    ec2 = client("ec2", region)
    old, new = (each.get("SecurityGroupIngress", []) for each in (group.resolved_properties, properties))
    for rule in old:
        if rule not in new:
            ec2.revoke_security_group_ingress(GroupId=group.id, IpPermissions=[permission(rule)])
    for rule in new:
        if rule not in old:
            ec2.authorize_security_group_ingress(GroupId=group.id, IpPermissions=[permission(rule)])


def permission(rule: Properties) -> Properties:
    """An inbound rule of a template as the API has it."""
    peer: Properties = (
        {"UserIdGroupPairs": [{"GroupId": rule["SourceSecurityGroupId"]}]}
        if "SourceSecurityGroupId" in rule
        else {"IpRanges": [{"CidrIp": rule["CidrIp"]}]}
    )
    return {key: rule[key] for key in ("IpProtocol", "FromPort", "ToPort")} | peer


def _endpoint(endpoint: Any, properties: Properties, account: str, region: str) -> None:
    endpoint.route_table_ids = properties.get("RouteTableIds", [])


def _managed_policy(policy: Any, properties: Properties, account: str, region: str) -> None:
    document = json.dumps(properties["PolicyDocument"])
    iam_backends[account]["aws"].create_policy_version(policy.arn, document, True)


def _role(role: Any, properties: Properties, account: str, region: str) -> None:
    role.policies = {
        policy["PolicyName"]: json.dumps(policy["PolicyDocument"]) for policy in properties.get("Policies", [])
    }
    iam = iam_backends[account]["aws"]
    old, new = (set(each.get("ManagedPolicyArns", [])) for each in (role.resolved_properties, properties))
    for arn in new - old:
        if not arn.startswith("arn:aws:iam::aws:"):  # AWS's own, which the bootstrap's roles name, are not in moto
            iam.attach_role_policy(arn, role.name)
    for arn in old - new:
        iam.detach_role_policy(arn, role.name)


@extend(Role, "create_from_cloudformation_json")
def create_role(original: Any, cls: Any, name: str, template: Any, account: str, region: str, **kwargs: Any) -> Any:
    """moto attaches no managed policy to a new role, and keeps an inline one as no JSON."""
    role = original(cls, name, template, account, region, **kwargs)
    role.resolved_properties = {}
    _role(role, template["Properties"], account, region)
    return role


def _rule(rule: Any, properties: Properties, account: str, region: str) -> None:
    events = events_backends[account][region]
    pattern = properties.get("EventPattern")
    events.put_rule(
        rule.name,
        scheduled_expression=properties.get("ScheduleExpression"),
        event_pattern=pattern and json.dumps(pattern),
        state=properties.get("State"),
        event_bus_arn="default",
    )
    events.put_targets(name=rule.name, event_bus_arn="default", targets=properties.get("Targets", []))


def _dashboard(dashboard: Any, properties: Properties, account: str, region: str) -> None:
    cloudwatch_backends[account][region].put_dashboard(name=dashboard.name, body=properties["DashboardBody"])


def _tags_alone(resource: Any, properties: Properties, account: str, region: str) -> None:
    """Nothing of it can change in place but its tags."""


UPDATES: dict[str, Callable[[Any, Properties, str, str], None]] = {
    "AWS::CloudWatch::Dashboard": _dashboard,
    "AWS::EC2::Subnet": _tags_alone,
    "AWS::EC2::SecurityGroup": _security_group,
    "AWS::EC2::VPC": _tags_alone,
    "AWS::EC2::VPCEndpoint": _endpoint,
    "AWS::ElasticLoadBalancingV2::LoadBalancer": _balancer,
    "AWS::ElasticLoadBalancingV2::TargetGroup": _target_group,
    "AWS::Events::Rule": _rule,
    "AWS::IAM::ManagedPolicy": _managed_policy,
    "AWS::IAM::Role": _role,
}
