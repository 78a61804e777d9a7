"""Real event payloads against the synthesized rules: what the watchdog understands reaches it, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.infra import templates
from tests.infra.templates import resources

EVENTS = sorted((Path(__file__).parent.parent / "events").glob("*.json"))


def matches(pattern: Any, event: Any) -> bool:
    """EventBridge's rule for the patterns that we use: lists of allowed values, nested objects."""
    if isinstance(pattern, list):
        values = event if isinstance(event, list) else [event]
        return any(value in pattern for value in values)
    return all(name in event and matches(inner, event[name]) for name, inner in pattern.items())


@pytest.mark.parametrize("path", EVENTS, ids=lambda path: path.stem)
def test_each_known_payload_is_delivered_once(path: Path, assembly: Path) -> None:
    event = json.loads(path.read_text())
    rules = [rule["Properties"] for rule in resources(templates.read(assembly)["group"], "AWS::Events::Rule")]
    text = json.dumps([rule["EventPattern"] for rule in rules if "EventPattern" in rule])
    text = text.replace("<NoHealthyTarget.Arn>", (event.get("resources") or ["none"])[0])
    delivered = [pattern for pattern in json.loads(text) if matches(pattern, event)]
    commands = [json.loads(target["Input"]) for rule in rules for target in rule["Targets"] if "Input" in target]
    if "command" in event:
        assert (event in commands) is (event["command"] == "scan")
        assert not delivered
    else:
        assert len(delivered) == (0 if path.stem in {"unknown-event", "alarm-action"} else 1)
