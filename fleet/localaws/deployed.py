"""A fleet that stands on an embedded AWS: what tests and the demo look at and turn, in the fleet's own words."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleet.config.settings import Settings
from fleet.core import names
from fleet.localaws import Aws, EmbeddedError


@dataclass(frozen=True)
class Deployed:
    """Reads and moves through the same APIs as an operator; only ages, health and markets are switches."""

    aws: Aws
    settings: Settings

    def on(self, aws: Aws) -> "Deployed":
        """The same fleet on a copy of its AWS."""
        return replace(self, aws=aws)

    # --- what stands ------------------------------------------------------------------------------------------

    @property
    def group_name(self) -> str:
        return names.group(self.settings.fleet_name)

    def output(self, stack: str, key: str) -> str:
        """An output of one of the fleet's stacks."""
        stack = names.stack(self.settings.fleet_name, stack)
        found = self.aws.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
        return str(next(item["OutputValue"] for item in found["Outputs"] if item["OutputKey"] == key))

    def resource(self, stack: str, kind: str, prefix: str = "") -> str:
        """Physical id of the one resource of this CloudFormation type whose logical id begins with `prefix`."""
        stack = names.stack(self.settings.fleet_name, stack)
        found = self.aws.client("cloudformation").describe_stack_resources(StackName=stack)["StackResources"]
        ids = [
            item["PhysicalResourceId"]
            for item in found
            if item["ResourceType"] == kind and item["LogicalResourceId"].startswith(prefix)
        ]
        if len(ids) != 1:
            raise EmbeddedError(f"{stack} has {len(ids)} resources {kind} {prefix}*: {ids}")
        return str(ids[0])

    def role(self, stack: str, prefix: str) -> str:
        """Name of a role, to act as: `aws.client(service, role=...)`, `aws.environment(role=...)`."""
        return self.resource(stack, "AWS::IAM::Role", prefix)

    def group(self) -> dict[str, Any]:
        """The group as DescribeAutoScalingGroups tells it."""
        answer = self.aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[self.group_name])
        found: dict[str, Any] = answer["AutoScalingGroups"][0]
        return found

    def percentage(self) -> int:
        """The group's live share of on-demand."""
        distribution = self.group()["MixedInstancesPolicy"]["InstancesDistribution"]
        return int(distribution["OnDemandPercentageAboveBaseCapacity"])

    def template_version(self) -> str:
        """The launch template version that the group is pinned to."""
        template = self.group()["MixedInstancesPolicy"]["LaunchTemplate"]
        return str(template["LaunchTemplateSpecification"]["Version"])

    def boxes(self) -> list[dict[str, Any]]:
        """The group's instances as DescribeInstances tells them."""
        ids = [box["InstanceId"] for box in self.group()["Instances"]]
        if not ids:
            return []
        found = self.aws.client("ec2").describe_instances(InstanceIds=ids)["Reservations"]
        return [instance for reservation in found for instance in reservation["Instances"]]

    def parameter(self, name: str) -> str:
        """Value of a stored parameter."""
        return str(self.aws.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])

    def lever(self) -> str:
        """The stored lever."""
        return self.parameter(names.lever_parameter(self.settings.fleet_name))

    def state(self) -> dict[str, Any]:
        """The watchdog's stored state."""
        found: dict[str, Any] = json.loads(self.parameter(names.state_parameter(self.settings.fleet_name)))
        return found

    def mails(self) -> list[dict[str, str]]:
        """Everything published to the fleet's topics: topic, subject, body."""
        found: list[dict[str, str]] = self.aws.control("mails", region=self.aws.region)
        return found

    def gateway(self) -> dict[str, Any]:
        """Where callers find the gateway here (`url`), and the process ids of its `tasks`."""
        found: dict[str, Any] = self.aws.control("tasks", service=names.gateway_service(self.settings.fleet_name))
        return found

    # --- what happens to it -----------------------------------------------------------------------------------

    def wake(self, event: dict[str, Any]) -> dict[str, Any]:
        """Invoke the watchdog with an event and wait; its line of the invocation log (result or error, log)."""
        self.aws.client("lambda").invoke(
            FunctionName=names.watchdog_function(self.settings.fleet_name), Payload=json.dumps(event).encode()
        )
        return self.decisions()[-1]

    def decisions(self) -> list[dict[str, Any]]:
        """The watchdog's invocations so far."""
        self.aws.control("settle")
        function = names.watchdog_function(self.settings.fleet_name)
        return [run for run in self.aws.invocations() if run["function"] == function]

    def set_alarm(self, state: str, *, seconds_ago: float = 0) -> None:
        """The alarm changes state, as of `seconds_ago`; rules and functions hear of it at once."""
        self.aws.control(
            "alarm",
            name=names.no_healthy_target_alarm(self.settings.fleet_name),
            state=state,
            seconds_ago=seconds_ago,
            region=self.aws.region,
        )

    def age_boxes(self, seconds: float) -> None:
        """Every box was launched `seconds` ago."""
        for box in self.boxes():
            self.aws.control("age", instance_id=box["InstanceId"], seconds=seconds)

    def age_group(self, seconds: float) -> None:
        """The group was created `seconds` ago."""
        self.aws.control("age", group=self.group_name, seconds=seconds)

    def set_health(self, state: str) -> None:
        """Every box's target is in this state (healthy, initial, unhealthy)."""
        for box in self.boxes():
            self.aws.control("health", instance_id=box["InstanceId"], state=state)

    def market(self, *, spot: bool | None = None, on_demand: bool | None = None) -> None:
        """Open or close the markets."""
        self.aws.control("market", spot=spot, on_demand=on_demand)

    def reclaim(self) -> None:
        """Every box is taken away; the group replaces what the market sells."""
        ids = [box["InstanceId"] for box in self.boxes()]
        self.aws.client("ec2").terminate_instances(InstanceIds=ids)


def fill_store(deployed: Deployed) -> None:
    """Stand-ins for the artifacts, for tests that only need the store not to be empty."""
    model = deployed.settings.model
    bucket = deployed.output("store", "BucketName")
    for artifact in (model.engine, model.gguf, model.modelfile):
        deployed.aws.client("s3").put_object(Bucket=bucket, Key=artifact.key, Body=Path(__file__).name.encode())
