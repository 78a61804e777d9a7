"""What stands on an embedded AWS, by listing: shows that a destroy leaves nothing but what is kept on purpose."""

from collections.abc import Callable, Iterator
from typing import Any

from fleet.localaws import Aws

NOT_THE_FLEETS = ("hnb659fds", "CDKToolkit", "/aws/service/", "AWSServiceRole")  # the CDK toolkit's, and AWS's own
OWN = [{"Key": "Owner", "Values": ["Self"]}]


def listing(aws: Aws) -> set[str]:
    """`kind: name` of everything that a fleet could have left, AWS's own defaults and the CDK toolkit aside."""
    found = ((kind, name) for kind, read in READERS.items() for name in read(aws))
    return {f"{kind}: {name}" for kind, name in found if not any(mark in name for mark in NOT_THE_FLEETS)}


def _instances(aws: Aws) -> Iterator[str]:
    for reservation in aws.client("ec2").describe_instances()["Reservations"]:
        for instance in reservation["Instances"]:
            if instance["State"]["Name"] != "terminated":
                yield instance["InstanceId"]


def _of(service: str, operation: str, key: str, name: str, **asked: Any) -> Callable[[Aws], Iterator[str]]:
    """A list call: the names in `key`."""

    def read(aws: Aws) -> Iterator[str]:
        items: list[dict[str, Any]] = getattr(aws.client(service), operation)(**asked)[key]
        return (item[name] for item in items)

    return read


READERS: dict[str, Callable[[Aws], Iterator[str]]] = {
    "stack": _of("cloudformation", "describe_stacks", "Stacks", "StackName"),
    "bucket": _of("s3", "list_buckets", "Buckets", "Name"),
    "parameter": _of("ssm", "describe_parameters", "Parameters", "Name"),
    "document": _of("ssm", "list_documents", "DocumentIdentifiers", "Name", Filters=OWN),
    "instance": _instances,
    "vpc": _of("ec2", "describe_vpcs", "Vpcs", "VpcId", Filters=[{"Name": "is-default", "Values": ["false"]}]),
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
    "policy": _of("iam", "list_policies", "Policies", "PolicyName", Scope="Local"),
}
