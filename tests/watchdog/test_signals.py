"""What wakes the watchdog: real payloads, each to its signal; the rest is ignored with a reason, never an error."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambdas.watchdog.signals import Signal, Wake, parse
from tests.watchdog.still_cloud import EVENTS, event

BOX = "i-0aaaaaaaaaaaaaaa1"
WAKES = {
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


def test_failed_launch_tells_when_it_began_and_whether_its_box_gave_up() -> None:
    abandoned = parse(event("launch-abandoned"), "llm")
    assert (abandoned.box, abandoned.abandoned) == (BOX, True)
    assert abandoned.at == datetime(2026, 7, 22, 0, 41, 3, tzinfo=UTC)
    assert abandoned.began == datetime(2026, 7, 22, 0, 35, 49, 911000, tzinfo=UTC)
    refused = parse(event("launch-no-capacity"), "llm")
    assert (refused.box, refused.abandoned) == ("", False)
    assert refused.detail.startswith("Could not launch Spot Instances.")


@pytest.mark.parametrize("missing", ["box", "word", "failure"])
def test_abandoned_is_a_failed_launch_of_a_named_box_in_so_many_words(missing: str) -> None:
    signal = Signal(
        Wake.LAUNCHED if missing == "failure" else Wake.LAUNCH_FAILED,
        detail="" if missing == "word" else "was ABANDONED",
        box="" if missing == "box" else BOX,
    )
    assert not signal.abandoned
    assert Signal(Wake.LAUNCH_FAILED, detail="was ABANDONED", box=BOX).abandoned


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
