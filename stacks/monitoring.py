"""What a human looks at: one dashboard, and alarms that mail with a link to their page in docs/runbook."""

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns

from fleet.config.settings import Settings
from fleet.core import names
from stacks.base_stack import BaseStack
from stacks.watchdog import WatchdogFunction

FIVE_MINUTES = cdk.Duration.minutes(5)
ONE_MINUTE = cdk.Duration.minutes(1)


def fleet_metric(fleet: str, name: str, statistic: str) -> cloudwatch.Metric:
    """A metric that the fleet's own code writes."""
    return cloudwatch.Metric(
        namespace=names.METRIC_NAMESPACE,
        metric_name=name,
        dimensions_map={names.DIMENSION_FLEET: fleet},
        statistic=statistic,
        period=ONE_MINUTE,
    )


def search(fleet: str, name: str, dimension: str, statistic: str) -> cloudwatch.MathExpression:
    """One line for each value of that dimension that was told: a search, so that a new one needs no deploy."""
    schema = f"{names.METRIC_NAMESPACE},{names.DIMENSION_FLEET},{dimension}"
    wanted = f'{{{schema}}} MetricName="{name}" {names.DIMENSION_FLEET}="{fleet}"'
    return cloudwatch.MathExpression(
        expression=f"SEARCH('{wanted}', '{statistic}', 300)", label="", period=FIVE_MINUTES, using_metrics={}
    )


def mailing_alarm(
    stack: BaseStack,
    fleet: str,
    topic: sns.ITopic,
    page: str,
    meaning: str,
    metric: cloudwatch.IMetric,
    *,
    threshold: int = 1,
    operator: cloudwatch.ComparisonOperator = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
    minutes: int = 1,
    missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
) -> cloudwatch.Alarm:
    """An alarm that mails when it lights and when it goes out, and names its page."""
    alarm = cloudwatch.Alarm(
        stack,
        page,
        alarm_name=f"{fleet}-{page}",
        alarm_description=f"{meaning}. What to do: docs/runbook/{page}.md",
        metric=metric,
        threshold=threshold,
        comparison_operator=operator,
        evaluation_periods=minutes,
        treat_missing_data=missing,
    )
    alarm.add_alarm_action(actions.SnsAction(topic))
    alarm.add_ok_action(actions.SnsAction(topic))
    return alarm


class Monitoring:
    """Dashboard and alarms of one fleet."""

    def __init__(
        self, stack: BaseStack, settings: Settings, *, healthy: cloudwatch.Metric, watchdog: WatchdogFunction
    ) -> None:
        self._stack, self._fleet = stack, settings.fleet_name
        self._topic = watchdog.topic

        # The watchdog answers after alarm_minutes and at the latest when the skip cap ends: after both, nobody did.
        # A share that is missing for so long is news like the one box of a fleet of one (docs/watchdog.md).
        patience_minutes = settings.watchdog.alarm_minutes + settings.watchdog.skip_cap_seconds // 60
        self._alarm(
            "nothing-serves",
            f"Fewer boxes than {settings.capacity.min} serve although the watchdog had its time: "
            "no spot, no on-demand, or no watchdog",
            healthy,
            threshold=settings.capacity.min,
            operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            minutes=patience_minutes,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )
        self._alarm(
            "function-failed",
            "The watchdog raised: its event was not handled, the next scan tries again",
            watchdog.function.metric_errors(statistic="Sum", period=ONE_MINUTE),
        )
        self._alarm("boot-failed", "A box gave up its boot and left", self._metric(names.METRIC_BOOT_FAILED, "Sum"))
        # told every minute: over five, one that comes late neither lights the alarm anew nor puts it out
        runaway = self._metric(names.METRIC_RUNAWAY_GENERATION_SECONDS, "Maximum").with_(period=FIVE_MINUTES)
        self._alarm("runaway-generation", "A generation does not end, and callers wait behind it", runaway)
        self._dashboard(healthy, gateway=settings.gateway is not None)

    def _metric(self, name: str, statistic: str) -> cloudwatch.Metric:
        return fleet_metric(self._fleet, name, statistic)

    def _alarm(self, page: str, meaning: str, metric: cloudwatch.IMetric, **how: Any) -> None:
        mailing_alarm(self._stack, self._fleet, self._topic, page, meaning, metric, **how)

    def _dashboard(self, healthy: cloudwatch.IMetric, *, gateway: bool) -> None:
        stages = search(self._fleet, names.METRIC_BOOT_STAGE_SECONDS, names.DIMENSION_STAGE, "Maximum")
        mode, lever = (self._metric(name, "Maximum") for name in (names.METRIC_MODE, names.METRIC_LEVER))
        failed = self._metric(names.METRIC_LAUNCHES_FAILED, "Sum")
        reclaims = [
            self._metric(name, "Sum") for name in (names.METRIC_INTERRUPTIONS, names.METRIC_REBALANCE_RECOMMENDATIONS)
        ]
        dashboard = cloudwatch.Dashboard(
            self._stack,
            "Dashboard",
            dashboard_name=self._fleet,
            widgets=[
                [
                    cloudwatch.GraphWidget(title="Healthy targets", left=[healthy], width=12),
                    cloudwatch.GraphWidget(
                        title="Mode (0 spot, 1 failover, 2 pinned) and lever (percent)",
                        left=[mode],
                        right=[lever],
                        width=12,
                    ),
                ],
                [
                    cloudwatch.GraphWidget(title="Boots by stage, seconds", left=[stages], width=12),
                    cloudwatch.GraphWidget(title="Failed launches", left=[failed], width=6),
                    cloudwatch.GraphWidget(title="Reclaims", left=reclaims, width=6),
                ],
            ],
        )
        dashboard.add_widgets(*lane_row(self._fleet))
        if gateway:
            dashboard.add_widgets(*gateway_row(self._fleet))


def lane_row(fleet: str) -> list[cloudwatch.IWidget]:
    """The dashboard's: who waits, how long, and who was told to go elsewhere."""
    refusals = search(fleet, names.METRIC_LANE_REFUSALS, names.DIMENSION_REASON, "Sum")
    waits = (names.METRIC_LANE_EXPECTED_WAIT_SECONDS, names.METRIC_LANE_WAIT_SECONDS)
    return [
        cloudwatch.GraphWidget(
            title="In line (the longest)", left=[fleet_metric(fleet, names.METRIC_LANE_DEPTH, "Maximum")], width=8
        ),
        cloudwatch.GraphWidget(
            title="Wait in line, expected and had, seconds",
            left=[fleet_metric(fleet, name, "Maximum") for name in waits],
            width=8,
        ),
        cloudwatch.GraphWidget(
            title="Refused in line, and tokens wasted",
            left=[refusals],
            right=[fleet_metric(fleet, names.METRIC_LANE_WASTED_TOKENS, "Sum")],
            width=8,
        ),
    ]


def gateway_row(fleet: str) -> list[cloudwatch.IWidget]:
    """The dashboard's: who answered, how fast, and what the fallback cost."""
    by = names.DIMENSION_ANSWERED_BY
    requests = search(fleet, names.METRIC_REQUESTS, by, "Sum")
    latencies = [
        search(fleet, name, by, "p95") for name in (names.METRIC_FIRST_TOKEN_SECONDS, names.METRIC_ANSWER_SECONDS)
    ]
    broken = [fleet_metric(fleet, name, "Sum") for name in (names.METRIC_ANSWERS_BROKEN, names.METRIC_NOBODY_ANSWERED)]
    dollars = fleet_metric(fleet, names.METRIC_FALLBACK_DOLLARS, "Sum").with_(period=cdk.Duration.hours(1))
    return [
        cloudwatch.GraphWidget(title="Requests by who answered", left=[requests], right=broken, width=8),
        cloudwatch.GraphWidget(title="First token and whole answer, p95 seconds", left=latencies, width=8),
        cloudwatch.GraphWidget(title="Fallback, dollars an hour", left=[dollars], width=8),
    ]
