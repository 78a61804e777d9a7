"""The patience clock: there with the bridge policy, absent without it, and allowed exactly what it does."""

import json
import re
from dataclasses import fields
from pathlib import Path

from fleet.config.settings import Boot
from fleet.core import names
from lambdas.watchdog import turns
from tests.infra.checks.shared import ACCOUNT, NO_CONDITION, function_of
from tests.infra.templates import grants, properties, read, resources

MACHINE = "AWS::StepFunctions::StateMachine"


def test_specified_policy_has_no_clock(assembly: Path) -> None:
    stack = read(assembly)["group"]
    assert not resources(stack, MACHINE)
    assert "states:StartExecution" not in json.dumps(stack)


def test_clock_waits_to_the_second_and_sends_the_patience_command(other_assembly: Path) -> None:
    stack = read(other_assembly)["group"]
    machine = json.dumps(properties(stack, MACHINE)["DefinitionString"]).replace("\\", "")
    assert '"Type":"Wait","TimestampPath":"$.at","Next":"WakeWatchdog"' in machine
    assert f'"Payload":{{"command":"{names.COMMAND_PATIENCE}"}}' in machine
    assert '"Lambda.TooManyRequestsException"' in machine
    assert '"IntervalSeconds":2,"MaxAttempts":15,"BackoffRate":1' in machine


def test_clock_outlives_the_longest_wait_that_the_watchdog_asks_for(other_assembly: Path) -> None:
    machine = json.dumps(properties(read(other_assembly)["group"], MACHINE)["DefinitionString"]).replace("\\", "")
    (life,) = map(int, re.findall('"TimeoutSeconds":([0-9]+)', machine))
    (coldest,) = (each.metadata["le"] for each in fields(Boot) if each.name == "cold_budget_seconds")
    assert life > turns.LONGEST_SECONDS + coldest


def test_clock_may_wake_the_watchdog_and_the_watchdog_may_start_the_clock(other_assembly: Path) -> None:
    stack = read(other_assembly)["group"]
    (role,) = [r for r in resources(stack, "AWS::IAM::Role") if "states.amazonaws.com" in json.dumps(r)]
    assert grants(role) == {("lambda:InvokeFunction", "<Watchdog.Arn>", NO_CONDITION)}
    machine = properties(stack, MACHINE)
    function = function_of(read(other_assembly), "Watchdog")
    arn = f"arn:aws:states:{ACCOUNT}:stateMachine:{machine['StateMachineName']}"
    assert function["Environment"]["Variables"][names.ENV_CLOCK_ARN] == arn
    (start,) = [p for p in resources(stack, "AWS::IAM::Policy") if "states:StartExecution" in json.dumps(p)]
    (statement,) = start["Properties"]["PolicyDocument"]["Statement"]
    assert (statement["Action"], statement["Resource"]) == ("states:StartExecution", arn)


def test_scan_of_the_bridge_policy_reads_the_market_every_two_minutes(other_assembly: Path) -> None:
    rules = resources(read(other_assembly)["group"], "AWS::Events::Rule")
    assert [r["Properties"]["ScheduleExpression"] for r in rules if "ScheduleExpression" in r["Properties"]] == [
        "rate(2 minutes)"
    ]
