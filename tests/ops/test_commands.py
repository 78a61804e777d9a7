"""The four buttons: who and why travel with them, a busy function is retried, a failed one fails."""

import io
import json
from typing import Any

import pytest

from fleet.ops import commands
from fleet.ops.errors import DeniedError, OperatorError, ThrottledError

DECIDED = {"action": "pinned", "reason": "by me: holiday", "outcome": "done"}


def payload(value: Any, **more: Any) -> dict[str, Any]:
    return {"Payload": io.BytesIO(json.dumps(value).encode()), **more}


@pytest.fixture
def scripted(answers: Any) -> Any:
    def make(*script: Any) -> Any:
        turns = iter(script)
        aws = answers()
        aws.answers = {"lambda Invoke": lambda **_: next(turns)}
        return aws

    return make


def press(aws: Any, command: str = "pin") -> dict[str, Any]:
    return commands.press(aws, "llm", command, who="me@here", why="holiday", pause_seconds=0)


@pytest.mark.parametrize("command", ["pin", "arm", "scan", "probe"])
def test_a_command_invokes_the_watchdog_with_who_and_why_and_returns_its_record(scripted: Any, command: str) -> None:
    aws = scripted(payload(DECIDED))
    assert press(aws, command) == DECIDED
    ((_, sent),) = aws.asked
    assert (sent["FunctionName"], sent["InvocationType"]) == ("llm-watchdog", "RequestResponse")
    assert json.loads(sent["Payload"]) == {"command": command, "who": "me@here", "why": "holiday"}


def test_a_busy_function_is_asked_again_until_it_answers(scripted: Any) -> None:
    busy = ThrottledError("lambda Invoke was throttled", "wait")
    assert press(scripted(busy, busy, payload(DECIDED))) == DECIDED


def test_a_function_that_stays_busy_is_given_up_and_said(scripted: Any) -> None:
    busy = ThrottledError("lambda Invoke was throttled", "wait")
    aws = scripted(*[busy] * commands.BUSY_TRIES)
    with pytest.raises(ThrottledError):
        press(aws)
    assert len(aws.asked) == commands.BUSY_TRIES


def test_a_denied_invoke_is_not_tried_again(scripted: Any) -> None:
    aws = scripted(DeniedError("lambda Invoke was denied", "grant lambda:InvokeFunction"))
    with pytest.raises(DeniedError):
        press(aws)
    assert len(aws.asked) == 1


def test_a_watchdog_that_raised_is_a_failure_with_its_own_words(scripted: Any) -> None:
    error = {"errorType": "DeniedError", "errorMessage": "update_auto_scaling_group: AccessDenied"}
    with pytest.raises(OperatorError, match="DeniedError: update_auto_scaling_group: AccessDenied") as raised:
        press(scripted(payload(error, FunctionError="Unhandled")))
    assert "docs/runbook/function-failed.md" in raised.value.remedy


def test_every_command_says_what_it_does_before_it_asks() -> None:
    assert set(commands.EFFECT) == set(commands.HELP) == {"pin", "arm", "scan", "probe"}
