"""Fleets whose names begin alike (`llm`, `llm-b`) share an account: no grant, name or read of one is of the other."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.core import names
from fleet.localaws import iam_policies

ALIKE = ("llm-b", "llm-gpu", "llm-group", "llm-watchdog", "llm2", "ll")
STACKS = (*names.ALL_STACKS, names.STACK_FAULTS)
NAMES: tuple[Callable[[str], str], ...] = (
    names.group,
    names.lever_parameter,
    names.state_parameter,
    names.watchdog_function,
    names.watchdog_log_group,
    names.box_log_group,
    names.patience_clock,
    names.no_healthy_target_alarm,
    names.ask_document,
    names.lane_document,
    names.lane_drop_document,
    names.gateway_table,
    names.gateway_log_group,
    *((lambda fleet, stack=stack: names.stack(fleet, stack)) for stack in STACKS),  # type: ignore[misc]
)


def of(fleet: str) -> set[str]:
    """ARNs of whatever a fleet names, in every service that could hold it."""
    here = "arn:aws:{}:us-east-2:123456789012:{}"
    return {
        *(here.format("ssm", f"parameter{name(fleet)}") for name in (names.lever_parameter, names.state_parameter)),
        *(
            here.format("ssm", f"document/{name(fleet)}")
            for name in (names.ask_document, names.lane_document, names.lane_drop_document)
        ),
        *(
            here.format("logs", f"log-group:{name(fleet)}:x")
            for name in (names.box_log_group, names.watchdog_log_group)
        ),
        *(here.format("cloudformation", f"stack/{names.stack(fleet, stack)}/1") for stack in STACKS),
        here.format("dynamodb", f"table/{names.gateway_table(fleet)}"),
        here.format("logs", f"log-group:{names.gateway_log_group(fleet)}:x"),
        here.format("autoscaling", f"autoScalingGroup:1:autoScalingGroupName/{names.group(fleet)}"),
        here.format("lambda", f"function:{names.watchdog_function(fleet)}"),
        here.format("states", f"stateMachine:{names.patience_clock(fleet)}"),
        here.format("cloudwatch", f"alarm:{names.no_healthy_target_alarm(fleet)}"),
    }


def statements(assembly: Path) -> Iterator[dict[str, Any]]:
    """Every statement of every role of the app, its ARNs as plain text."""
    for path in assembly.glob("*.template.json"):
        for resource in json.loads(path.read_text())["Resources"].values():
            properties = resource.get("Properties", {})
            policies_of = [properties, *properties.get("Policies", [])] if "AWS::IAM::" in resource["Type"] else []
            for policy in policies_of:
                yield from policy.get("PolicyDocument", {"Statement": []})["Statement"]


def text(value: Any) -> str:
    """An ARN with its references filled in: this account and region, anything else unguessable."""
    known = {"AWS::Partition": "aws", "AWS::Region": "us-east-2", "AWS::AccountId": "123456789012"}
    match value:
        case {"Fn::Join": ["", [*parts]]}:
            return "".join(map(text, parts))
        case {"Ref": str(name)}:
            return known.get(name, "unguessable")
        case dict():
            return "unguessable"
    return str(value)


def test_no_grant_of_one_fleet_reaches_what_another_of_a_like_name_has(assembly: Path) -> None:
    patterns = {
        (action, text(resource))
        for statement in statements(assembly)
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        for resource in (statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]])
    }
    # What knows no resource, or an alarm's list: reads alone (tests/infra/test_linters.py has their reasons).
    narrow = {(action, pattern) for action, pattern in patterns if pattern != "*" and not pattern.endswith("alarm:*")}
    assert len(narrow) > 20
    for action, pattern in narrow:
        granted = [{"Effect": "Allow", "Action": action, "Resource": pattern}]
        for other in ALIKE:
            reached = [arn for arn in of(other) if iam_policies.allowed(granted, action, arn, {})]
            assert reached == [], (action, pattern)


@pytest.mark.parametrize("other", ALIKE)
def test_no_two_fleets_share_a_name(other: str) -> None:
    assert {name("llm") for name in NAMES} & {name(other) for name in NAMES} == set()
