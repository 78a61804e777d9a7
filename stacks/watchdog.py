"""The watchdog: one function, what wakes it, whom it tells, and exactly what it may do."""

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions

from fleet.config.settings import Settings
from fleet.core import names
from lambdas.watchdog.signals import BOX_EVENTS, ENDING, GROUP_EVENTS, STATE_EVENT
from stacks.base_stack import BaseStack, python_function
from stacks.grants import GROUP_ARN_WILDCARD
from stacks.package import WATCHDOG
from stacks.patience_clock import patience_clock

HANDLER = "lambdas.watchdog.handler.handler"
MEMORY_MIB = 256  # it needs half; the processor share comes with the memory, and boto3's import is all processor
MAX_EVENT_AGE_MINUTES = 15  # an alarm older than that must not flip anything: the scan has seen the world since
RETRIES = 2
SCAN_EVENT = {"command": "scan"}


class WatchdogFunction:
    """Alarm, topic, function, rules."""

    def __init__(
        self,
        stack: BaseStack,
        settings: Settings,
        *,
        healthy_targets: cloudwatch.Metric,
        target_group_arn: str,
        group_arn: str,
        launch_grants: iam.ManagedPolicy,
    ) -> None:
        self._stack, self._settings = stack, settings
        self._healthy_targets, self._launch_grants = healthy_targets, launch_grants
        self._group_arn, self._target_group_arn = group_arn, target_group_arn
        self.alarm = self._alarm()
        self.topic = self._topic()
        self.function = self._function()
        if settings.on_events:
            self._clock()
        self._wake()

    def _alarm(self) -> cloudwatch.Alarm:
        """Fewer targets healthy than should serve, for the whole of the minutes.

        Maximum: Minimum is 0 in any zone without a box.
        """
        floor = self._settings.capacity.min
        lacks = "No target is healthy" if floor == 1 else f"Fewer than {floor} targets are healthy"
        return cloudwatch.Alarm(
            self._stack,
            "NoHealthyTarget",
            alarm_name=names.no_healthy_target_alarm(self._settings.fleet_name),
            alarm_description=f"{lacks}: wakes the watchdog. What to do: docs/runbook/no-healthy-target.md",
            metric=self._healthy_targets,
            comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            threshold=floor,
            evaluation_periods=self._settings.watchdog.alarm_minutes,
            datapoints_to_alarm=self._settings.watchdog.alarm_minutes,
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING,  # with no target the metric vanishes
        )

    def _topic(self) -> sns.Topic:
        topic = sns.Topic(self._stack, "Mail", display_name=f"GPU fleet {self._settings.fleet_name}", enforce_ssl=True)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                conditions={"StringEquals": {"aws:SourceAccount": self._stack.account}},
            )
        )
        for address in self._settings.mail:
            topic.add_subscription(subscriptions.EmailSubscription(address))
        if not self._settings.mail:
            cdk.Annotations.of(self._stack).add_warning_v2("fleet:no-mail", "mail is empty: nobody hears of failovers.")
        return topic

    def _function(self) -> lambda_.Function:
        function = python_function(
            self._stack,
            "Watchdog",
            function_name=names.watchdog_function(self._settings.fleet_name),
            log_group_name=names.watchdog_log_group(self._settings.fleet_name),
            package=WATCHDOG,
            handler=HANDLER,
            description="Flips the fleet between spot and on-demand, and says so",
            grants=self._grants(),
            timeout_seconds=names.WATCHDOG_TIMEOUT_SECONDS,
            memory_mib=MEMORY_MIB,
            environment={
                names.ENV_SETTINGS: self._settings.to_json(),
                names.ENV_TOPIC_ARN: self.topic.topic_arn,
                names.ENV_TARGET_GROUP_ARN: self._target_group_arn,
            },
            reserved_concurrent_executions=1,  # the mutex: no two decisions at once
            max_event_age=cdk.Duration.minutes(MAX_EVENT_AGE_MINUTES),
            retry_attempts=RETRIES,
            on_failure=destinations.SnsDestination(self.topic),  # grants sns:Publish, which the mails need as well
        )
        if function.role:
            function.role.add_managed_policy(self._launch_grants)
        return function

    def _clock(self) -> None:
        """By its name, not its reference: the clock calls the function, so the function cannot wait for the clock."""
        patience_clock(self._stack, self._settings, self.function)
        arn = self._stack.arn("states", f"stateMachine:{names.patience_clock(self._settings.fleet_name)}")
        self.function.add_environment(names.ENV_CLOCK_ARN, arn)
        if isinstance(self.function.role, iam.Role):
            iam.Policy(
                self._stack,
                "StartClock",
                roles=[self.function.role],
                statements=[self._stack.allow("states:StartExecution", on=arn)],
            )

    def _grants(self) -> list[iam.PolicyStatement]:
        """One grant for each call in lambdas/watchdog/aws.py."""
        fleet = self._settings.fleet_name
        parameters = [
            self._stack.arn("ssm", f"parameter{name(fleet)}") for name in (names.lever_parameter, names.state_parameter)
        ]
        group_stack = self._stack.arn("cloudformation", f"stack/{names.stack(fleet, 'group')}/*")
        return [
            self._stack.allow("ssm:GetParameters", "ssm:PutParameter", on=parameters),
            self._stack.allow(
                "cloudwatch:DescribeAlarms",
                on=self._stack.arn("cloudwatch", "alarm:*"),
                because="DescribeAlarms lists: one alarm's ARN may be refused",
            ),
            self._stack.allow(
                "cloudformation:DescribeStacks",
                on=group_stack,
                because="a stack's ARN ends in an id that only AWS knows",
            ),
            self._stack.allow(
                "autoscaling:UpdateAutoScalingGroup",
                "autoscaling:SuspendProcesses",
                "autoscaling:ResumeProcesses",
                "autoscaling:StartInstanceRefresh",
                "autoscaling:CancelInstanceRefresh",
                "autoscaling:CompleteLifecycleAction",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
                on=self._group_arn,
                because=GROUP_ARN_WILDCARD,
            ),
            self._stack.allow("elasticloadbalancing:DeregisterTargets", on=self._target_group_arn),
            self._stack.allow(
                "cloudwatch:GetMetricStatistics",
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeInstanceRefreshes",
                "ec2:DescribeAvailabilityZones",
                "ec2:DescribeInstances",
                "ec2:GetSpotPlacementScores",
                "elasticloadbalancing:DescribeTargetHealth",
                on="*",
                because="reads that know no resource",
            ),
        ]

    def _wake(self) -> None:
        """Events, and the schedule of the scan: other inputs of the same function, or the mutex is none."""
        group = names.group(self._settings.fleet_name)
        patterns = {
            "AlarmChanged": events.EventPattern(
                source=["aws.cloudwatch"],
                detail_type=["CloudWatch Alarm State Change"],
                resources=[self.alarm.alarm_arn],
            ),
            # These name an instance and no group: the function looks whether it is one of ours.
            "SpotNotice": events.EventPattern(source=["aws.ec2"], detail_type=list(BOX_EVENTS)),
            "BoxEnded": events.EventPattern(  # aws-behaviours: end-told
                source=["aws.ec2"], detail_type=[STATE_EVENT], detail={"state": list(ENDING)}
            ),
            "GroupChanged": events.EventPattern(  # aws-behaviours: group-events
                source=["aws.autoscaling"], detail_type=list(GROUP_EVENTS), detail={"AutoScalingGroupName": [group]}
            ),
        }
        for name, pattern in patterns.items():
            events.Rule(self._stack, name, event_pattern=pattern, targets=[targets.LambdaFunction(self.function)])
        scan = targets.LambdaFunction(self.function, event=events.RuleTargetInput.from_object(SCAN_EVENT))
        period = cdk.Duration.seconds(self._settings.scan_seconds)
        events.Rule(self._stack, "Scan", schedule=events.Schedule.rate(period), targets=[scan])
