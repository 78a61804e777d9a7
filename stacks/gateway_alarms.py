"""What mails for the gateway, each with its page in docs/runbook. Its metrics come out of its log.

CloudWatch reads them off the lines as they arrive (aws-behaviours: metrics-off-the-log).
"""

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_sns as sns

from fleet.config.settings import Settings
from fleet.core import names
from stacks.base_stack import BaseStack
from stacks.monitoring import FIVE_MINUTES, ONE_MINUTE, fleet_metric, mailing_alarm

BROKEN_IN_FIVE_MINUTES = 5  # a reclaim breaks the one or two streams that it finds
REFUSED_IN_FIVE_MINUTES = 5  # one may be its caller's own: a field or a prompt that the cloud does not take
DOWN_MINUTES = 3


class GatewayAlarms:
    """Broken answers, nobody who could answer, no gateway at all, a fallback set wrong, and the day's dollars."""

    def __init__(
        self,
        stack: BaseStack,
        settings: Settings,
        *,
        topic: sns.ITopic,
        balancer: elbv2.ApplicationLoadBalancer,
        target_group: elbv2.ApplicationTargetGroup,
        service: ecs.FargateService,
    ) -> None:
        fleet = settings.fleet_name
        for page, meaning, metric, threshold in (
            (
                "gateway-errors",
                "Answers break after they have begun, or by an error of the gateway's own",
                names.METRIC_ANSWERS_BROKEN,
                BROKEN_IN_FIVE_MINUTES,
            ),
            (
                "gateway-nobody-answers",
                "A caller was turned away: neither GPU nor fallback could answer in time",
                names.METRIC_NOBODY_ANSWERED,
                1,
            ),
            (
                "gateway-fallback",
                "The fallback takes no such requests: its key, its model or a field",
                names.METRIC_FALLBACK_MISCONFIGURED,
                REFUSED_IN_FIVE_MINUTES,
            ),
            (
                "gateway-spend",
                "The fallback's dollars of the day are spent: until midnight UTC it is not asked",
                names.METRIC_FALLBACK_SPENT,
                1,
            ),
        ):
            summed = fleet_metric(fleet, metric, "Sum").with_(period=FIVE_MINUTES)
            mailing_alarm(stack, fleet, topic, page, meaning, summed, threshold=threshold)
        healthy = cloudwatch.Metric(
            namespace="AWS/ApplicationELB",
            metric_name="HealthyHostCount",
            dimensions_map={
                "LoadBalancer": balancer.load_balancer_full_name,
                "TargetGroup": target_group.target_group_full_name,
            },
            statistic="Maximum",
            period=ONE_MINUTE,
        )
        down = mailing_alarm(
            stack,
            fleet,
            topic,
            "gateway-down",
            "No task of the gateway is healthy: callers get the balancer's own 503",
            healthy,
            operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            minutes=DOWN_MINUTES,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )
        down.node.add_dependency(service)  # made once tasks answer, gone before they go: neither mails
