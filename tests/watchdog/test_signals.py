"""What wakes the watchdog: real payloads, each to its signal; the rest is ignored with a reason, never an error."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambdas.watchdog.signals import Signal, Wake, parse
from tests.watchdog.still_cloud import EVENTS, NOW, event, group_event

BOX = "i-0aaaaaaaaaaaaaaa1"
WAKES = {
    "alarm-action": Wake.IGNORED,
    "alarm-lit": Wake.ALARM_LIT,
    "alarm-ok": Wake.ALARM_OK,
    "alarm-insufficient-data": Wake.IGNORED,
    "arm": Wake.ARM,
    "box-ended": Wake.BOX_ENDED,
    "interruption-warning": Wake.INTERRUPTION,
    "launch-abandoned": Wake.LAUNCH_FAILED,
    "launch-no-capacity": Wake.LAUNCH_FAILED,
    "launch-no-capacity-on-demand": Wake.LAUNCH_FAILED,
    "launch-successful": Wake.LAUNCHED,
    "pin": Wake.PIN,
    "probe": Wake.PROBE,
    "resume": Wake.RESUME,
    "rebalance-recommendation": Wake.REBALANCE,
    "refresh-cancelled": Wake.REFRESH_ENDED,
    "refresh-failed": Wake.REFRESH_ENDED,
    "refresh-succeeded": Wake.REFRESH_ENDED,
    "scan": Wake.SCAN,
    "terminate-successful": Wake.TERMINATED,
    "unknown-event": Wake.IGNORED,
}


def test_every_payload_in_the_folder_is_listed_here() -> None:
    assert {path.stem for path in EVENTS.glob("*.json")} == set(WAKES)


@pytest.mark.parametrize(("name", "wake"), WAKES.items())
def test_real_payload_becomes_its_signal(name: str, wake: Wake) -> None:
    assert parse(event(name), "llm").wake is wake


def test_failed_launch_tells_when_it_began_and_whether_it_got_a_box() -> None:
    abandoned = parse(event("launch-abandoned"), "llm")
    assert (abandoned.box, abandoned.refused) == (BOX, False)
    assert abandoned.at == datetime(2026, 7, 22, 0, 41, 3, tzinfo=UTC)
    assert abandoned.began == datetime(2026, 7, 22, 0, 35, 49, 911000, tzinfo=UTC)
    refused = parse(event("launch-no-capacity"), "llm")
    assert (refused.box, refused.refused) == ("", True)
    assert refused.detail.startswith("Could not launch Spot Instances.")


@pytest.mark.parametrize(
    ("box", "words", "refused"),
    [
        ("", "Could not launch Spot Instances. UnfulfillableCapacity", True),
        ("", "anything", True),
        (BOX, "Termination Reason: Server.InsufficientInstanceCapacity", True),
        (BOX, "Termination Reason: Client.InternalError: Client error on launch", False),
        (BOX, "was abandoned: Lifecycle Action Completed with ABANDON Result", False),
        (BOX, "anything", False),
    ],
)
def test_launch_that_names_a_box_got_one_unless_the_market_or_the_account_refused_it(
    box: str, words: str, refused: bool
) -> None:
    assert Signal(Wake.LAUNCH_FAILED, detail=words, box=box).refused is refused
    assert not Signal(Wake.LAUNCHED, detail=words, box=box).refused


def test_code_that_stands_last_comes_first_and_is_not_cut_off() -> None:
    words = "Instance became unhealthy while waiting for instance to be in InService state. " + "x" * 300
    payload = group_event("launch-abandoned", at=NOW)
    for code in ("Client.InternalError", "Client.SomethingNew"):
        payload["detail"]["StatusMessage"] = f"{words} Termination Reason: {code}"
        assert parse(payload, "llm").detail.startswith(f"{code}: Instance became unhealthy")
    payload["detail"]["StatusMessage"] = words
    assert parse(payload, "llm").detail == words[:200]


@pytest.mark.parametrize("key", ["EC2InstanceId", "instance-id"])
@pytest.mark.parametrize("box", [7, ["i-1"], {"i-1": 1}, True, "i-", "x", "i-1\n", "i-" + "0" * 31, "i-1 i-2"])
def test_instance_id_that_is_none_is_refused_by_name(key: str, box: object) -> None:
    payload = event("launch-abandoned" if key == "EC2InstanceId" else "interruption-warning")
    payload["detail"][key] = box
    refused = parse(payload, "llm")
    assert refused.wake is Wake.IGNORED
    assert "is no instance id" in refused.detail


def test_alarm_that_calls_the_function_itself_is_called_what_it_is() -> None:
    ignored = parse(event("alarm-action"), "llm")
    assert ignored.wake is Wake.IGNORED
    assert ignored.detail == "a CloudWatch alarm's own call of the function: the rule on its state changes wakes it"


def test_operators_words_are_one_printable_line_of_bounded_length() -> None:
    signal = parse({"command": "pin", "who": "ann\n\x00", "why": "x\ny" + "z" * 500}, "llm")
    assert signal.who == "ann"
    assert signal.detail.startswith("x y")
    assert len(signal.detail) == 200


@pytest.mark.parametrize("name", ["launch-successful", "refresh-failed", "alarm-lit"])
def test_events_of_another_fleet_are_ignored(name: str) -> None:
    signal = parse(event(name), "other")
    assert signal.wake is Wake.IGNORED
    assert signal.detail.endswith("is not this fleet's")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"command": "explode"}, "unknown command 'explode'; known: scan, pin, arm, resume, probe, patience"),
        ({"command": None}, "unknown command None; known: scan, pin, arm, resume, probe, patience"),
        ({"command": ["scan"]}, "not an event of a known shape (TypeError: unhashable type: 'list')"),
        ({}, "not an event of a known shape (KeyError: 'source')"),
        (None, "not an event of a known shape (TypeError: argument of type 'NoneType' is not iterable)"),
        ({"source": "aws.s3", "detail-type": "x", "detail": {}, "time": "2026-07-22T00:35:41Z"}, "aws.s3 / x"),
        (
            {"source": "aws.s3", "detail-type": "x", "detail": {}, "time": "yesterday"},
            "not an event of a known shape (ValueError: Invalid isoformat string: 'yesterday')",
        ),
    ],
)
def test_anything_else_is_ignored_with_its_reason(payload: Any, reason: str) -> None:
    assert parse(payload, "llm") == Signal(Wake.IGNORED, detail=reason)


@pytest.mark.parametrize("name", ["alarm-lit", "launch-abandoned", "interruption-warning"])
@pytest.mark.parametrize("key", ["detail", "time", "source", "detail-type"])
def test_damaged_event_is_ignored(name: str, key: str) -> None:
    damaged = event(name)
    del damaged[key]
    assert parse(damaged, "llm").wake is Wake.IGNORED


def test_time_without_a_zone_is_utc() -> None:
    payload = event("launch-successful")
    payload["time"] = "2026-07-22T00:41:03"
    assert parse(payload, "llm").at == datetime(2026, 7, 22, 0, 41, 3, tzinfo=UTC)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["command", "detail", "time", "x"]), inner),
    max_leaves=5,
)


@settings(max_examples=50)
@given(JSON)
def test_no_payload_raises(payload: Any) -> None:
    assert isinstance(parse(payload, "llm"), Signal)
