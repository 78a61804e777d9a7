"""The patience clock: a workflow that waits to the second and then wakes the watchdog; with the bridge policy alone.

A schedule is only good to the minute, a delayed message that meets a busy function comes back after its visibility
timeout. A workflow's wait is exact, its call is tried again every few seconds, and its name makes it one of a kind.
"""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from fleet.config.settings import Settings
from fleet.core import names
from stacks.base_stack import BaseStack, accept

RETRY_SECONDS = 2  # the function is its own mutex, and one of its decisions takes a second or two
ATTEMPTS = 15
LIFE_HOURS = 3  # patience is at most 15 min, a turn's wait that and the budget of a cold boot, which is at most 2 h


def patience_clock(stack: BaseStack, settings: Settings, function: lambda_.IFunction) -> sfn.StateMachine:
    """Input `{"at": ISO time}`: waits, then sends the patience command. Whoever starts it names it by its time."""
    wait = sfn.Wait(stack, "WaitForPatience", time=sfn.WaitTime.timestamp_path("$.at"))
    wake = tasks.LambdaInvoke(
        stack,
        "WakeWatchdog",
        lambda_function=function,
        payload=sfn.TaskInput.from_object({"command": names.COMMAND_PATIENCE}),
        retry_on_service_exceptions=False,
    )
    wake.add_retry(
        errors=["Lambda.TooManyRequestsException", "Lambda.ServiceException", "Lambda.SdkClientException"],
        interval=cdk.Duration.seconds(RETRY_SECONDS),
        backoff_rate=1,
        max_attempts=ATTEMPTS,
    )
    role = iam.Role(
        stack,
        "PatienceClockRole",
        assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
        inline_policies={
            "calls": iam.PolicyDocument(
                statements=[stack.allow("lambda:InvokeFunction", on=function.function_arn)],
            )
        },
    )
    clock = sfn.StateMachine(
        stack,
        "PatienceClock",
        state_machine_name=names.patience_clock(settings.fleet_name),
        definition_body=sfn.DefinitionBody.from_chainable(wait.next(wake)),
        timeout=cdk.Duration.hours(LIFE_HOURS),
        role=role.without_policy_updates(),
    )
    accept(clock, "AwsSolutions-SF1", "Two steps, whose one effect the watchdog writes into its own log")
    accept(clock, "AwsSolutions-SF2", "Two steps: there is nothing to trace")
    return clock
