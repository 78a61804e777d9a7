"""What stands on an embedded AWS, by listing: shows that a destroy leaves nothing but what is kept on purpose."""

from collections.abc import Callable, Iterator
from typing import Any

from fleet.localaws import Aws

NOT_THE_FLEETS = ("hnb659fds", "CDKToolkit", "/aws/service/", "AWSServiceRole")  # the CDK toolkit's, and AWS's own


def listing(aws: Aws) -> set[str]:
    """`kind: name` of everything that a fleet could have left, AWS's own defaults and the CDK toolkit aside."""
    found = ((kind, name) for kind, read in READERS.items() for name in read(aws))
    return {f"{kind}: {name}" for kind, name in found if not any(mark in name for mark in NOT_THE_FLEETS)}


def _stacks(aws: Aws) -> Iterator[str]:
    found = aws.client("cloudformation").describe_stacks()["Stacks"]
    return (stack["StackName"] for stack in found)


def _buckets(aws: Aws) -> Iterator[str]:
    return (bucket["Name"] for bucket in aws.client("s3").list_buckets()["Buckets"])


def _parameters(aws: Aws) -> Iterator[str]:
    return (parameter["Name"] for parameter in aws.client("ssm").describe_parameters()["Parameters"])


def _documents(aws: Aws) -> Iterator[str]:
    mine = [{"Key": "Owner", "Values": ["Self"]}]
    return (item["Name"] for item in aws.client("ssm").list_documents(Filters=mine)["DocumentIdentifiers"])


def _instances(aws: Aws) -> Iterator[str]:
    for reservation in aws.client("ec2").describe_instances()["Reservations"]:
        for instance in reservation["Instances"]:
            if instance["State"]["Name"] != "terminated":
                yield instance["InstanceId"]


def _vpcs(aws: Aws) -> Iterator[str]:
    return (vpc["VpcId"] for vpc in aws.client("ec2").describe_vpcs()["Vpcs"] if not vpc["IsDefault"])


def _of(service: str, operation: str, key: str, name: str) -> Callable[[Aws], Iterator[str]]:
    """A plain list call: the names in `key`."""

    def read(aws: Aws) -> Iterator[str]:
        items: list[dict[str, Any]] = getattr(aws.client(service), operation)()[key]
        return (item[name] for item in items)

    return read


READERS: dict[str, Callable[[Aws], Iterator[str]]] = {
    "stack": _stacks,
    "bucket": _buckets,
    "parameter": _parameters,
    "document": _documents,
    "instance": _instances,
    "vpc": _vpcs,
    "launch template": _of("ec2", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateName"),
    "group": _of("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", "AutoScalingGroupName"),
    "balancer": _of("elbv2", "describe_load_balancers", "LoadBalancers", "LoadBalancerName"),
    "target group": _of("elbv2", "describe_target_groups", "TargetGroups", "TargetGroupName"),
    "function": _of("lambda", "list_functions", "Functions", "FunctionName"),
    "topic": _of("sns", "list_topics", "Topics", "TopicArn"),
    "rule": _of("events", "list_rules", "Rules", "Name"),
    "alarm": _of("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    "dashboard": _of("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
    "log group": _of("logs", "describe_log_groups", "logGroups", "logGroupName"),
    "role": _of("iam", "list_roles", "Roles", "RoleName"),
    "table": lambda aws: iter(aws.client("dynamodb").list_tables()["TableNames"]),
    "cluster": lambda aws: iter(aws.client("ecs").list_clusters()["clusterArns"]),
    "policy": lambda aws: (p["PolicyName"] for p in aws.client("iam").list_policies(Scope="Local")["Policies"]),
}
