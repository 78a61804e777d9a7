"""Growing by the lanes' wait, where `capacity.grow_to` is set: a box more while callers wait, one less while none does.

It grows by a step policy, which waits for no cooldown and counts what still launches, and shrinks by a simple one,
which waits: a box at a time either way. What is too much ends by the termination hook, as every planned end: it drains.
"""

from typing import Any, cast

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch

from fleet.config.settings import Settings
from fleet.core import names
from stacks.base_stack import BaseStack
from stacks.monitoring import fleet_metric

# Expected by who comes now, the mean over the boxes. At the fleet's 9.4 s a request, a box that is busy for three
# quarters of the time comes to it; from 30 s on no streaming caller of a gateway is let in.
GROW_WAIT_SECONDS = 15
GROW_MINUTES, OF_MINUTES = 3, 5  # of the last ones: a burst is no load
# Boxes busy for less than a third: without one of two the other is busy for less than two, and waits for 7 s.
SHRINK_WAIT_SECONDS = 2
SHRINK_MINUTES = 15  # the mean over them, and the pause between two boxes: a boot takes a third of it
DESIRED = "GroupDesiredCapacity"  # the group's own metric, put every minute once it is asked for
GROUP_METRICS = autoscaling.CfnAutoScalingGroup.MetricsCollectionProperty(granularity="1Minute", metrics=[DESIRED])


class Growth:
    """Policies and the alarms that move them. The alarms mail nobody: a fleet that grows is as it was asked to be."""

    def __init__(self, stack: BaseStack, settings: Settings, group: autoscaling.CfnAutoScalingGroup) -> None:
        self._room, self._settings, self._group = stack, settings, group
        capacity = settings.capacity
        self._moves(
            "Grow",
            +1,
            # MaxSize is the room for successors: the bound of growth is here.
            f"IF(desired < {capacity.grow_to}, wait, 0)",
            minutes=1,
            periods=OF_MINUTES,
            lit=GROW_MINUTES,
            threshold=GROW_WAIT_SECONDS,
            operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        )
        self._moves(
            "Shrink",
            -1,
            f"IF(desired > {capacity.min}, wait, {GROW_WAIT_SECONDS})",  # MinSize is the bound; this puts the alarm out
            minutes=SHRINK_MINUTES,
            periods=1,
            lit=1,
            threshold=SHRINK_WAIT_SECONDS,
            operator=cloudwatch.ComparisonOperator.LESS_THAN_OR_EQUAL_TO_THRESHOLD,
        )

    def _moves(
        self,
        id: str,
        boxes: int,
        expression: str,
        *,
        minutes: int,
        periods: int,
        lit: int,
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
            how = {"policy_type": "SimpleScaling", "scaling_adjustment": boxes, "cooldown": str(60 * SHRINK_MINUTES)}
        policy = autoscaling.CfnScalingPolicy(
            self._room,
            f"{id}Policy",
            auto_scaling_group_name=self._group.ref,
            adjustment_type="ChangeInCapacity",
            **how,
        )
        wait = fleet_metric(fleet, names.METRIC_LANE_EXPECTED_WAIT_SECONDS, "Average").with_(period=period)
        desired = cloudwatch.Metric(
            namespace="AWS/AutoScaling",
            metric_name=DESIRED,
            dimensions_map={"AutoScalingGroupName": names.group(fleet)},
            statistic="Average",
            period=period,
        )
        alarm = cloudwatch.Alarm(
            self._room,
            id,
            alarm_name=f"{fleet}-{id.lower()}",
            alarm_description=f"{boxes:+} box, as the lanes' wait asks; mails nobody: docs/lane.md",
            metric=cloudwatch.MathExpression(
                expression=expression, using_metrics={"desired": desired, "wait": wait}, period=period
            ),
            threshold=threshold,
            comparison_operator=operator,
            evaluation_periods=periods,
            datapoints_to_alarm=lit,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,  # no lane tells: nothing is known of waits
        )
        cast(cloudwatch.CfnAlarm, alarm.node.default_child).alarm_actions = [policy.ref]
