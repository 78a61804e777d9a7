"""AWS through boto3's own clients: the one implementation of `Cloud` that runs in Lambda.

Shapes are parsed here and nowhere else, errors become the kinds of `CloudError`. A client is made when it is first
used. No call is begun that could outlast the function: a record of a failure is worth more than a killed function.
"""

import functools
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from fleet.config.settings import Settings
from fleet.core import names
from lambdas.watchdog import shares
from lambdas.watchdog.cloud import (
    Alarm,
    Box,
    BusyError,
    CloudError,
    DeniedError,
    ExistsError,
    GoneError,
    Group,
    Instance,
    Refresh,
    RefreshActiveError,
    ThrottledError,
)

CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 2, 8, 2
RESERVE_SECONDS = (CONNECT_SECONDS + READ_SECONDS) * ATTEMPTS + 3  # the slowest single call, and the report
NOT_BEGUN = datetime.max.replace(tzinfo=UTC)  # start of a refresh that is still pending
# Boxes that differ in their purchase alone are replaced, too (aws-behaviours: skip-matching-compares).
ROLL = {"MinHealthyPercentage": names.MIN_HEALTHY_PERCENT, "SkipMatching": False}
MINUTE_SECONDS = 60
FILTER_VALUES = 200  # of one DescribeInstances filter

KINDS: dict[str, type[CloudError]] = {
    "AccessDenied": DeniedError,
    "AccessDeniedException": DeniedError,
    "AuthorizationError": DeniedError,
    "UnauthorizedOperation": DeniedError,
    "Throttling": ThrottledError,
    "ThrottlingException": ThrottledError,
    "RequestLimitExceeded": ThrottledError,
    "TooManyUpdates": ThrottledError,
    "ScalingActivityInProgress": BusyError,
    "ResourceContention": BusyError,
    "InstanceRefreshInProgress": RefreshActiveError,
    "ExecutionAlreadyExists": ExistsError,
    "ActiveInstanceRefreshNotFound": GoneError,
    "TargetGroupNotFound": GoneError,
    "NotFound": GoneError,
}
# One code for many things: the words decide.
VALIDATION_WORDS = {
    "not authorized": DeniedError,
    "active instance refresh": RefreshActiveError,
    "lifecycle action": GoneError,
    "not found": GoneError,
    "does not exist": GoneError,
}


class AwsCloud:
    """`remaining_seconds` tells how long the function may still run."""

    def __init__(
        self, settings: Settings, *, topic_arn: str, target_group_arn: str, remaining_seconds: Callable[[], float]
    ) -> None:
        self._settings, self._fleet = settings, settings.fleet_name
        self._group = names.group(self._fleet)
        self._topic, self._targets = topic_arn, target_group_arn
        self._remaining_seconds = remaining_seconds
        self._metric: dict[str, Any] = {}

    def parameters(self) -> tuple[str | None, str | None]:
        state, lever = names.state_parameter(self._fleet), names.lever_parameter(self._fleet)
        found = self._call("ssm", "get_parameters", Names=[state, lever])["Parameters"]
        values = {parameter["Name"]: parameter["Value"] for parameter in found}
        return values.get(state), values.get(lever)

    def put_state(self, text: str) -> None:
        self._put(names.state_parameter(self._fleet), text)

    def put_lever(self, percentage: int) -> None:
        self._put(names.lever_parameter(self._fleet), str(percentage))

    def alarm(self) -> Alarm | None:
        name = names.no_healthy_target_alarm(self._fleet)
        found = self._call("cloudwatch", "describe_alarms", AlarmNames=[name], AlarmTypes=["MetricAlarm"])
        for alarm in found["MetricAlarms"]:
            since = alarm.get("StateTransitionedTimestamp") or alarm["StateUpdatedTimestamp"]
            self._metric = {key: alarm.get(key) for key in ("Namespace", "MetricName", "Dimensions")}
            return Alarm(alarm["StateValue"], since)
        return None

    def dark_minutes(self, start: datetime, end: datetime) -> int:
        found = self._call(
            "cloudwatch",
            "get_metric_statistics",
            **self._metric,
            StartTime=start,
            EndTime=end,
            Period=MINUTE_SECONDS,
            Statistics=["Maximum"],
        )
        # With no target the metric vanishes (aws-behaviours: metric-lag).
        floor = self._settings.capacity.min
        served = sum(min(point["Maximum"], floor) for point in found["Datapoints"])
        return max(int((end - start).total_seconds() // MINUTE_SECONDS - served / floor), 0)

    def group(self) -> Group:
        found = self._call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[self._group])
        for raw in found["AutoScalingGroups"]:
            return _group(raw)
        raise GoneError(f"DescribeAutoScalingGroups: group {self._group} does not exist")

    def instances(self, ids: tuple[str, ...]) -> dict[str, Instance]:
        found: dict[str, Instance] = {}
        for start in range(0, len(ids), FILTER_VALUES):
            wanted = [{"Name": "instance-id", "Values": list(ids[start : start + FILTER_VALUES])}]
            for page in self._pages("ec2", "describe_instances", Filters=wanted):
                for reservation in page["Reservations"]:
                    found.update((raw["InstanceId"], _instance(raw, self._fleet)) for raw in reservation["Instances"])
        return found

    def target_health(self) -> dict[str, str]:
        found = self._call("elbv2", "describe_target_health", TargetGroupArn=self._targets)
        return {raw["Target"]["Id"]: raw["TargetHealth"]["State"] for raw in found["TargetHealthDescriptions"]}

    def deregister(self, targets: tuple[str, ...]) -> None:
        found = self._call("elbv2", "describe_target_health", TargetGroupArn=self._targets)["TargetHealthDescriptions"]
        ends = [{key: raw["Target"][key] for key in ("Id", "Port")} for raw in found if raw["Target"]["Id"] in targets]
        if ends:  # a port of its own must be named, or the target stays
            self._call("elbv2", "deregister_targets", TargetGroupArn=self._targets, Targets=ends)

    def stack_in_progress(self) -> bool:
        found = self._call("cloudformation", "describe_stacks", StackName=names.stack(self._fleet, "group"))
        status = found["Stacks"][0]["StackStatus"]
        # Clean-up and review change nothing of the group any more, or not yet.
        return str(status).endswith("_IN_PROGRESS") and "CLEANUP" not in status and not status.startswith("REVIEW")

    def refreshes(self) -> tuple[Refresh, ...]:
        found = self._call(
            "autoscaling", "describe_instance_refreshes", AutoScalingGroupName=self._group, MaxRecords=10
        )
        return tuple(map(refresh_of, found["InstanceRefreshes"]))

    def zone_ids(self) -> dict[str, str]:
        found = self._call("ec2", "describe_availability_zones")["AvailabilityZones"]
        return {zone["ZoneName"]: zone["ZoneId"] for zone in found}

    def scores(self) -> dict[str, int]:
        request = {
            "InstanceTypes": list(self._settings.score_types),
            "TargetCapacity": max(self._settings.capacity.min, 1),
            "SingleAvailabilityZone": True,
            "RegionNames": [self._settings.region],
        }
        pages = self._pages("ec2", "get_spot_placement_scores", **request)
        return {raw["AvailabilityZoneId"]: raw["Score"] for page in pages for raw in page["SpotPlacementScores"]}

    def flip(self, group: Group, percentage: int, *, send_template: bool) -> None:
        # aws-behaviours: flip-whole-distribution, flip-without-template
        distribution = {**group.policy["InstancesDistribution"], "OnDemandPercentageAboveBaseCapacity": percentage}
        policy: dict[str, Any] = {"InstancesDistribution": distribution}
        if send_template:
            policy["LaunchTemplate"] = _by_id_alone(group.policy["LaunchTemplate"])
        self._call(
            "autoscaling", "update_auto_scaling_group", AutoScalingGroupName=self._group, MixedInstancesPolicy=policy
        )

    def suspend(self, process: str) -> None:
        self._on_group("suspend_processes", ScalingProcesses=[process])

    def resume(self, process: str) -> None:
        self._on_group("resume_processes", ScalingProcesses=[process])

    def start_refresh(self) -> str:
        roll = {**ROLL, "MaxHealthyPercentage": shares.one_more_percent(self._settings)}
        answer = self._on_group("start_instance_refresh", Strategy="Rolling", Preferences=roll)
        return str(answer["InstanceRefreshId"])

    def cancel_refresh(self) -> None:
        self._on_group("cancel_instance_refresh")

    def abandon(self, box_id: str) -> None:
        self._on_group(
            "complete_lifecycle_action",
            LifecycleHookName=names.LAUNCH_HOOK,
            InstanceId=box_id,
            LifecycleActionResult="ABANDON",
        )

    def end_box(self, box_id: str) -> None:
        self._call(
            "autoscaling",
            "terminate_instance_in_auto_scaling_group",
            InstanceId=box_id,
            ShouldDecrementDesiredCapacity=False,
        )

    def wake(self, at: datetime) -> None:
        try:
            self._call(
                "stepfunctions",
                "start_execution",
                stateMachineArn=os.environ[names.ENV_CLOCK_ARN],
                name=f"{at:%Y-%m-%dT%H-%M-%SZ}",
                input=json.dumps({"at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}),
            )
        except ExistsError:
            return  # this clock runs already

    def mail(self, subject: str, body: str) -> None:
        self._call("sns", "publish", TopicArn=self._topic, Subject=subject, Message=body)

    # --- calls --------------------------------------------------------------------------------------------------

    def _put(self, name: str, value: str) -> None:
        self._call("ssm", "put_parameter", Name=name, Value=value, Type="String", Overwrite=True)

    def _on_group(self, operation: str, **request: Any) -> dict[str, Any]:
        return self._call("autoscaling", operation, AutoScalingGroupName=self._group, **request)

    def _call(self, service: str, operation: str, **request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._guarded(operation, lambda: getattr(_client(service), operation)(**request))
        return answer

    def _pages(self, service: str, operation: str, **request: Any) -> Iterator[dict[str, Any]]:
        pages = iter(_client(service).get_paginator(operation).paginate(**request))
        while page := self._guarded(operation, lambda: next(pages, None)):
            yield page

    def _guarded(self, operation: str, call: Callable[[], Any]) -> Any:
        if self._remaining_seconds() < RESERVE_SECONDS:
            raise CloudError(f"{operation}: not begun, the function's time is nearly up")
        try:
            return call()
        except ClientError as error:
            raise _kind(error)(f"{operation}: {error.response['Error']['Code']}: {error}") from error
        except BotoCoreError as error:
            raise CloudError(f"{operation}: {error}") from error


@functools.cache
def _session() -> Any:
    """The maker of boto3's clients. Importing boto3 itself would add its transfer manager: a third of a cold start."""
    return botocore.session.get_session()


@functools.cache
def _client(service: str) -> Any:
    retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    config = Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries=retries)
    return _session().create_client(service, config=config)


def _kind(error: ClientError) -> type[CloudError]:
    code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "").lower()
    if code == "ValidationError":
        return next((kind for words, kind in VALIDATION_WORDS.items() if words in message), CloudError)
    return KINDS.get(code, KINDS.get(code.removesuffix("Fault"), CloudError))


def _group(raw: dict[str, Any]) -> Group:
    policy = raw["MixedInstancesPolicy"]
    return Group(
        created_at=raw["CreatedTime"],
        desired=raw["DesiredCapacity"],
        on_demand_percentage=int(policy["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"]),
        boxes=tuple(
            Box(box["InstanceId"], box["LifecycleState"], box["AvailabilityZone"], box.get("InstanceType", ""))
            for box in raw["Instances"]
        ),
        zones=tuple(raw["AvailabilityZones"]),
        suspended={each["ProcessName"]: each.get("SuspensionReason", "") for each in raw["SuspendedProcesses"]},
        policy=policy,
    )


def refresh_of(raw: dict[str, Any]) -> Refresh:
    """As DescribeInstanceRefreshes tells it."""
    return Refresh(
        id=raw["InstanceRefreshId"],
        status=raw["Status"],
        started_at=raw.get("StartTime", NOT_BEGUN),
        like_ours=ROLL.items() <= raw.get("Preferences", {}).items(),  # aws-behaviours: refresh-tells-preferences
    )


def _instance(raw: dict[str, Any], fleet: str) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in raw.get("Tags", [])}
    boot = tags.get(names.TAG_BOOT)  # the box's own word: one of three, or none
    return Instance(
        raw["LaunchTime"],
        raw.get("InstanceLifecycle") == "spot",
        boot if boot in (names.BOOT_WARM, names.BOOT_COLD, names.BOOT_FAILED) else None,
        raw["State"]["Name"],
        ours=tags.get(names.TAG_FLEET) == fleet,
        reason=raw.get("StateReason", {}).get("Code", ""),
    )


def _by_id_alone(template: dict[str, Any]) -> dict[str, Any]:
    """Describe answers with name and id of every launch template, an update accepts one of them."""
    return {
        "LaunchTemplateSpecification": _one_key(template["LaunchTemplateSpecification"]),
        "Overrides": [
            {**override, "LaunchTemplateSpecification": _one_key(override["LaunchTemplateSpecification"])}
            if "LaunchTemplateSpecification" in override
            else override
            for override in template.get("Overrides", [])
        ],
    }


def _one_key(specification: dict[str, Any]) -> dict[str, Any]:
    return {
        k: v for k, v in specification.items() if k != "LaunchTemplateName" or "LaunchTemplateId" not in specification
    }
