"""The operator commands: who and why travel with them, a busy function is retried, a failed one fails."""

import contextlib
import http.server
import io
import json
import time
from typing import Any

import pytest
from botocore.config import Config

from fleet.account import access
from fleet.account.aws_errors import OperatorError, RateExceededError, UnreachableError
from fleet.core import names
from fleet.ops import commands
from tests.box import servers

DECIDED = {"action": "pinned", "reason": "by me: holiday", "outcome": "done"}


def payload(value: Any, **more: Any) -> dict[str, Any]:
    return {"Payload": io.BytesIO(json.dumps(value).encode()), **more}


@pytest.fixture
def scripted(answers: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(commands, "BUSY_PAUSE_SECONDS", 0)

    def make(*script: Any) -> Any:
        turns = iter(script)
        return answers({"lambda Invoke": lambda **_: next(turns)})

    return make


def press(aws: Any, command: str = "pin") -> dict[str, Any]:
    return commands.press(aws, "llm", command, who="me@here", why="holiday")


@pytest.mark.parametrize("command", ["pin", "arm", "resume", "scan", "probe"])
def test_a_command_invokes_the_watchdog_with_who_and_why_and_returns_its_record(scripted: Any, command: str) -> None:
    aws = scripted(payload(DECIDED))
    assert press(aws, command) == DECIDED
    ((_, sent),) = aws.asked
    assert (sent["FunctionName"], sent["InvocationType"]) == ("llm-watchdog", "RequestResponse")
    assert json.loads(sent["Payload"]) == {"command": command, "who": "me@here", "why": "holiday"}


def test_a_busy_function_is_asked_again_until_it_answers(scripted: Any) -> None:
    busy = RateExceededError("lambda Invoke was throttled", "wait")
    assert press(scripted(busy, busy, payload(DECIDED))) == DECIDED


def test_a_function_that_stays_busy_is_given_up_and_said(scripted: Any) -> None:
    busy = RateExceededError("lambda Invoke was throttled", "wait")
    aws = scripted(*[busy] * commands.BUSY_TRIES)
    with pytest.raises(RateExceededError):
        press(aws)
    assert len(aws.asked) == commands.BUSY_TRIES


def test_a_watchdog_that_raised_is_a_failure_with_its_own_words(scripted: Any) -> None:
    error = {"errorType": "DeniedError", "errorMessage": "update_auto_scaling_group: AccessDenied"}
    with pytest.raises(OperatorError, match="DeniedError: update_auto_scaling_group: AccessDenied") as raised:
        press(scripted(payload(error, FunctionError="Unhandled")))
    assert "docs/runbook/function-failed.md" in raised.value.remedy


def test_an_invocation_that_was_not_answered_is_not_sent_again_and_said(scripted: Any) -> None:
    aws = scripted(UnreachableError("lambda Invoke: no answer (read timeout)", "check the network"))
    with pytest.raises(UnreachableError, match="may have carried it out all the same") as raised:
        press(aws)
    assert len(aws.asked) == 1
    assert "fleetctl status" in raised.value.remedy


@pytest.mark.parametrize(("seconds", "status"), [(1.0, 200), (0.0, 429), (0.0, 503)])
def test_the_operators_access_sends_an_invocation_once(
    monkeypatch: pytest.MonkeyPatch, seconds: float, status: int
) -> None:
    assert access._INVOKE.read_timeout > names.WATCHDOG_TIMEOUT_SECONDS
    monkeypatch.setattr(access, "_INVOKE", access._INVOKE.merge(Config(read_timeout=0.3)))
    asked: list[str] = []

    def slow_or_busy(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        time.sleep(seconds)
        with contextlib.suppress(OSError):  # the caller has hung up
            servers.reply(handler, b"{}", status)

    with servers.local(slow_or_busy) as port:
        keys = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "x"}
        aws = access.Aws("us-east-2", {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"})
        with pytest.raises(OperatorError):
            aws.call("lambda", "Invoke", FunctionName="llm-watchdog")
    assert len(asked) == 1


def test_every_command_says_what_it_does_before_it_asks() -> None:
    assert set(commands.EFFECT) == set(commands.HELP) == {"pin", "arm", "resume", "scan", "probe"}
