"""Growing by the lanes' wait, where `capacity.grow_to` is set: a box more while callers wait, one less while none does.

It grows by a step policy, which waits for no cooldown, and only while every box that is wanted serves: so what launches
is awaited, and a drought is not asked for more. It shrinks by a simple one, which waits: a box at a time either way.
What is too much ends by the termination hook, as every planned end: it drains.
"""

from collections.abc import Mapping
from typing import Any, cast

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch

from fleet.config.settings import Settings
from fleet.core import growth_thresholds as thresholds
from fleet.core import names
from stacks.base_stack import BaseStack
from stacks.monitoring import fleet_metric

# The group's own metrics, put every minute once they are asked for. In service: its launch hook lets go once it serves.
DESIRED, SERVING = "GroupDesiredCapacity", "GroupInServiceInstances"
GROUP_METRICS = autoscaling.CfnAutoScalingGroup.MetricsCollectionProperty(
    granularity="1Minute", metrics=[DESIRED, SERVING]
)


class Growth:
    """Policies and the alarms that move them. The alarms mail nobody: a fleet that grows is as it was asked to be."""

    def __init__(self, stack: BaseStack, settings: Settings, group: autoscaling.CfnAutoScalingGroup) -> None:
        self._room, self._settings, self._group = stack, settings, group
        capacity = settings.capacity
        self._moves(
            "Grow",
            +1,
            # MaxSize is the room for successors: the bound of growth is here.
            f"IF(desired < {capacity.grow_to} AND serving >= desired, wait, 0)",
            reads={"serving": SERVING},
            minutes=1,
            periods=thresholds.GROW_MINUTES,
            threshold=thresholds.GROW_WAIT_SECONDS,
            operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        )
        self._moves(
            "Shrink",
            -1,
            # MinSize is the bound; the last number puts the alarm out. Above `grow_to`, which was lowered, it is lit.
            f"IF(desired > {capacity.grow_to}, 0, IF(desired > {capacity.min}, wait, {thresholds.GROW_WAIT_SECONDS}))",
            reads={},
            minutes=thresholds.SHRINK_MINUTES,
            periods=1,
            threshold=thresholds.SHRINK_WAIT_SECONDS,
            operator=cloudwatch.ComparisonOperator.LESS_THAN_OR_EQUAL_TO_THRESHOLD,
        )

    def _moves(
        self,
        id: str,
        boxes: int,
        expression: str,
        *,
        reads: Mapping[str, str],
        minutes: int,
        periods: int,
        threshold: int,
        operator: cloudwatch.ComparisonOperator,
    ) -> None:
        fleet, period = self._settings.fleet_name, cdk.Duration.minutes(minutes)
        how: dict[str, Any] = {  # aws-behaviours: step-counts-launching
            "policy_type": "StepScaling",
            "step_adjustments": [
                autoscaling.CfnScalingPolicy.StepAdjustmentProperty(
                    metric_interval_lower_bound=0, scaling_adjustment=boxes
                )
            ],
        }
        if boxes < 0:  # aws-behaviours: simple-scaling-waits
            how = {
                "policy_type": "SimpleScaling",
                "scaling_adjustment": boxes,
                "cooldown": str(60 * thresholds.SHRINK_MINUTES),
            }
        policy = autoscaling.CfnScalingPolicy(
            self._room,
            f"{id}Policy",
            auto_scaling_group_name=self._group.ref,
            adjustment_type="ChangeInCapacity",
            **how,
        )
        wait = fleet_metric(fleet, names.METRIC_LANE_EXPECTED_WAIT_SECONDS, "Average").with_(period=period)
        of_group = {
            word: cloudwatch.Metric(
                namespace="AWS/AutoScaling",
                metric_name=name,
                dimensions_map={"AutoScalingGroupName": names.group(fleet)},
                statistic="Average",
                period=period,
            )
            for word, name in {"desired": DESIRED, **reads}.items()
        }
        alarm = cloudwatch.Alarm(
            self._room,
            id,
            alarm_name=f"{fleet}-{id.lower()}",
            alarm_description=f"{boxes:+} box, as the lanes' wait asks; mails nobody: docs/lane.md",
            metric=cloudwatch.MathExpression(
                expression=expression, using_metrics={**of_group, "wait": wait}, period=period
            ),
            threshold=threshold,
            comparison_operator=operator,
            evaluation_periods=periods,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,  # no lane tells: nothing is known of waits
        )
        cast(cloudwatch.CfnAlarm, alarm.node.default_child).alarm_actions = [policy.ref]
