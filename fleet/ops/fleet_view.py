"""Reads one fleet as the watchdog does, by the operator's access: shapes are parsed where the watchdog's are."""

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any

from fleet.account.access import Aws
from fleet.account.aws_errors import MissingError
from fleet.config.settings import Settings
from fleet.core import names
from lambdas.watchdog.aws import AwsCloud
from lambdas.watchdog.cloud import GoneError, Group
from lambdas.watchdog.state import State, StateError, loads
from lambdas.watchdog.world import World

DECISIONS_SINCE_HOURS = 6  # twelve scans
DECISION_SCANS = 2  # asked first: the log is told oldest first, in pages that may be empty
DECISION_PAGES = 3  # of both windows: with the other twelve calls of a look, fifteen
BOOTS_SINCE_DAYS = 14  # a minute each: within the 15 days for which CloudWatch keeps those
GATEWAY_PAGES = (  # a test has them all
    "gateway-down",
    "gateway-errors",
    "gateway-fallback",
    "gateway-nobody-answers",
    "gateway-spend",
)
TOLD_SINCE_SECONDS = 300  # what is told every minute while it is so, and CloudWatch takes a minute or two


class OperatorCloud(AwsCloud):
    """The watchdog's reads with the operator's credentials, retries and error messages; its writes are not for here."""

    def __init__(self, settings: Settings, aws: Aws, function: dict[str, Any]) -> None:
        environment = function["Environment"]["Variables"]
        super().__init__(
            settings,
            topic_arn=environment[names.ENV_TOPIC_ARN],
            target_group_arn=environment[names.ENV_TARGET_GROUP_ARN],
            remaining_seconds=lambda: float("inf"),
        )
        self._aws = aws

    def group(self) -> Group:
        try:
            return super().group()
        except GoneError as error:
            raise MissingError(
                str(error), "check `fleet_name` and `region` in cdk.json; `make deploy` makes it"
            ) from None

    def _call(self, service: str, operation: str, **request: Any) -> dict[str, Any]:
        return self._aws.call(service, self._api_name(service, operation), **request)

    def _pages(self, service: str, operation: str, **request: Any) -> Iterator[dict[str, Any]]:
        return self._aws.pages(service, self._api_name(service, operation), **request)

    def _api_name(self, service: str, operation: str) -> str:
        return str(self._aws.client(service).meta.method_to_api_mapping[operation])


@dataclass(frozen=True)
class Decided:
    """One invocation of the watchdog, from its log. `record` is the `decision` event of the event log."""

    at: datetime
    record: dict[str, Any]


@dataclass(frozen=True)
class GatewayView:
    """The gateway's tasks, and which of its alarms are lit."""

    running: int
    desired: int
    rollout: str  # ECS's word on the last deployment
    lit: tuple[str, ...]  # pages of docs/runbook


@dataclass(frozen=True)
class Told:
    """What boxes told in the last minutes; None where none did. Of several boxes, the longest."""

    runaway_seconds: float | None = None  # how long a generation has run that does not end
    in_line: int | None = None
    wait_seconds: float | None = None  # of a caller who comes now, as the lane expects it


@dataclass(frozen=True)
class View:
    """One look at a fleet: what the watchdog would see, what it remembers, what it did."""

    world: World
    state: State | None
    state_problem: str  # why there is no state
    decisions: tuple[Decided, ...]  # oldest first
    decisions_complete: bool  # whether the log was read to its end
    spot_usd: dict[tuple[str, str], float]  # by pool and zone, USD per hour, now
    told: Told
    streamed: bool | None = None  # whether the last warm boot loaded the model while it arrived; None where none told
    gateway: GatewayView | None = None  # None: the settings have none


def look(settings: Settings, aws: Aws) -> View:
    """Eleven calls and the log, the independent ones at the same time; with a gateway two more."""
    fleet = settings.fleet_name
    function = aws.call("lambda", "GetFunctionConfiguration", FunctionName=names.watchdog_function(fleet))
    cloud = OperatorCloud(settings, aws, function)
    (text, lever), group, alarm, health, deploying, refreshes, (decided, complete), prices, now, streamed = (
        aws.together(
            cloud.parameters,
            cloud.group,
            cloud.alarm,
            cloud.target_health,
            cloud.stack_in_progress,
            cloud.refreshes,
            functools.partial(last_decisions, aws, settings),
            functools.partial(spot_prices, aws, settings),
            functools.partial(told_now, aws, fleet),
            functools.partial(last_warm_boot, aws, fleet),
        )
    )
    ids = tuple(box.id for box in group.boxes)
    world = World(
        lever=lever,
        alarm=alarm,
        group=group,
        instances=cloud.instances(ids) if ids else {},
        health=health,
        deploying=deploying,
        refreshes=refreshes,
    )
    try:
        state, problem = loads(text), ""
    except StateError as error:
        state, problem = None, str(error)
    gateway = gateway_view(aws, fleet) if settings.gateway else None
    return View(world, state, problem, decided, complete, prices, now, streamed, gateway)


def gateway_view(aws: Aws, fleet: str) -> GatewayView:
    """Two calls; a gateway that is not deployed yet has no task and wants none."""
    name = names.gateway_service(fleet)
    answer = aws.find("ecs", "DescribeServices", cluster=name, services=[name]) or {"services": []}
    found = [each for each in answer["services"] if each["status"] == "ACTIVE"]  # one that went is told for a while
    if not found:
        return GatewayView(0, 0, "not deployed", ())
    wanted = [f"{fleet}-{page}" for page in GATEWAY_PAGES]  # each by its name: a fleet FLEET-gateway has some alike
    alarms = aws.call("cloudwatch", "DescribeAlarms", AlarmNames=wanted, StateValue="ALARM")["MetricAlarms"]
    lit = tuple(alarm["AlarmName"].removeprefix(f"{fleet}-") for alarm in alarms)
    rollout = next((each.get("rolloutState", "") for each in found[0]["deployments"]), "")
    return GatewayView(found[0]["runningCount"], found[0]["desiredCount"], rollout, lit)


def described(aws: Aws, fleet: str) -> dict[str, Any]:
    """The Auto Scaling group as AWS describes it; MissingError where there is none."""
    group = names.group(fleet)
    found = aws.call("autoscaling", "DescribeAutoScalingGroups", AutoScalingGroupNames=[group])["AutoScalingGroups"]
    if not found:
        raise MissingError(f"the group {group} does not exist", "run `make deploy`, or check `fleet_name` in cdk.json")
    return dict(found[0])


def target_group(aws: Aws, fleet: str) -> str:
    """ARN of the group's targets; raises as `described` does."""
    return str(described(aws, fleet)["TargetGroupARNs"][0])


def target_health(aws: Aws, fleet: str) -> dict[str, str]:
    """What the balancer says of each box: healthy, initial, draining ..."""
    found = aws.call("elbv2", "DescribeTargetHealth", TargetGroupArn=target_group(aws, fleet))
    return {target["Target"]["Id"]: target["TargetHealth"]["State"] for target in found["TargetHealthDescriptions"]}


def decisions(aws: Aws, fleet: str, since: datetime) -> tuple[Decided, ...]:
    """The watchdog's decision records since a time, oldest first."""
    return _decided(_log(aws, fleet, startTime=_milliseconds(since)))


def last_decisions(aws: Aws, settings: Settings) -> tuple[tuple[Decided, ...], bool]:
    """The last hours' within `DECISION_PAGES`, oldest first, the newest asked first; whether the log ended by then."""
    fleet, now = settings.fleet_name, datetime.now(UTC)
    recent = _milliseconds(now - timedelta(seconds=DECISION_SCANS * settings.scan_seconds))
    earlier = _milliseconds(now - timedelta(hours=DECISIONS_SINCE_HOURS))
    log = chain(_log(aws, fleet, startTime=recent), _log(aws, fleet, startTime=earlier, endTime=recent - 1))
    pages = list(islice(log, DECISION_PAGES))
    return _decided(pages), "nextToken" not in pages[-1]


def _log(aws: Aws, fleet: str, **window: int) -> Iterator[dict[str, Any]]:
    group = names.watchdog_log_group(fleet)
    return aws.pages("logs", "FilterLogEvents", logGroupName=group, filterPattern='"decision"', **window)


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _decided(pages: Iterable[dict[str, Any]]) -> tuple[Decided, ...]:
    found = []
    for event in (event for page in pages for event in page.get("events", [])):
        try:
            record = json.loads(event["message"])["decision"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # another line that holds the word
        if not _is_record(record):
            continue
        found.append(Decided(datetime.fromtimestamp(event["timestamp"] / 1000, UTC), record))
    return tuple(sorted(found, key=lambda decided: decided.at))


def _is_record(raw: Any) -> bool:
    """Whether it has the shape of what the watchdog writes, as far as readers rely on it."""
    if not isinstance(raw, dict):
        return False
    signal, world, scores = raw.get("signal", {}), raw.get("world", {}), raw.get("scores", {})
    if not all(isinstance(part, dict) for part in (signal, world, scores)):
        return False
    boxes, percentage = world.get("boxes", {}), world.get("percentage", 0)
    if not isinstance(boxes, dict) or not isinstance(percentage, int) or not 0 <= percentage <= 100:
        return False
    if not all(isinstance(box, dict) for box in boxes.values()):
        return False
    words = [raw.get(key, "") for key in ("action", "reason", "outcome", "mode")]
    words += [text for box in (signal, *boxes.values()) for text in box.values()]
    return all(isinstance(text, str) for text in words) and all(map(_is_score, scores.values())) and _is_time(signal)


def _is_score(score: object) -> bool:
    return isinstance(score, int) and 0 <= score <= 10


def _is_time(signal: dict[str, str]) -> bool:
    try:
        return "at" not in signal or datetime.fromisoformat(signal["at"]).utcoffset() is not None
    except ValueError:
        return False


def spot_prices(aws: Aws, settings: Settings) -> dict[tuple[str, str], float]:
    """What spot costs now, USD per hour, by pool and zone."""
    history = aws.call(
        "ec2",
        "DescribeSpotPriceHistory",
        InstanceTypes=list(settings.pools),
        ProductDescriptions=["Linux/UNIX"],
        StartTime=datetime.now(UTC),
    )["SpotPriceHistory"]
    return {(line["InstanceType"], line["AvailabilityZone"]): float(line["SpotPrice"]) for line in history}


def told_now(aws: Aws, fleet: str) -> Told:
    """What the boxes told in the last minutes."""
    metrics = (
        names.METRIC_RUNAWAY_GENERATION_SECONDS,
        names.METRIC_LANE_DEPTH,
        names.METRIC_LANE_EXPECTED_WAIT_SECONDS,
    )
    queries = [_query(f"m{number}", metric, fleet, 60, "Maximum") for number, metric in enumerate(metrics)]
    told = _told(aws, queries, timedelta(seconds=TOLD_SINCE_SECONDS))
    runaway, depth, wait = (next(reversed(told[query["Id"]]), None) for query in queries)
    return Told(runaway, None if depth is None else round(depth), wait)


def last_warm_boot(aws: Aws, fleet: str) -> bool | None:
    """Whether it loaded the model while it arrived (of several in one hour: all of them); None where none told."""
    query = _query("streamed", names.METRIC_BOOT_STREAMED, fleet, 3600, "Minimum")
    boots = _told(aws, [query], timedelta(days=BOOTS_SINCE_DAYS))["streamed"]
    return boots[-1] > 0 if boots else None


def _told(aws: Aws, queries: list[dict[str, Any]], since: timedelta) -> dict[str, list[float]]:
    """Values by query, oldest first."""
    now = datetime.now(UTC)
    found = aws.call("cloudwatch", "GetMetricData", MetricDataQueries=queries, StartTime=now - since, EndTime=now)
    results = {each["Id"]: zip(each["Timestamps"], each["Values"], strict=True) for each in found["MetricDataResults"]}
    return {query["Id"]: [value for _, value in sorted(results.get(query["Id"], ()))] for query in queries}


def _query(name: str, metric: str, fleet: str, period: int, statistic: str) -> dict[str, Any]:
    dimensions = [{"Name": names.DIMENSION_FLEET, "Value": fleet}]
    asked = {"Namespace": names.METRIC_NAMESPACE, "MetricName": metric, "Dimensions": dimensions}
    return {"Id": name, "MetricStat": {"Metric": asked, "Period": period, "Stat": statistic}}
