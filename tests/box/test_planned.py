"""An end that the group plans: who goes on being served, until when, and what a notice or a fault makes of it."""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import agent
import aws
import drain
import ending
import gate
import imds
import leave
import line
import notices
import paths
import pytest
import streams

from fleet.core import names
from tests.box import world
from tests.box.conftest import a_box

BOX = dataclasses.replace(
    a_box(),
    let_go_least_seconds=0.6,
    let_go_quiet_seconds=0.3,
    let_go_most_seconds=1.5,
    planned_seconds=30.0,
    health_poll_seconds=0.1,
)


class Parts:
    """An agent with the world around it scripted: metadata, the balancer, the connections of now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.metadata: dict[str, str] = {}
        self.done: list[tuple[str, str]] = []  # what was called, and how the gate stood
        self.live: Callable[[], set[str]] = set
        self.streams = 0  # in the lane's line
        self.targets: dict[str, str] = {}
        monkeypatch.setattr(imds.Imds, "get", lambda _, path: self.metadata.get(path))
        monkeypatch.setattr(streams, "callers", lambda _: self.live())
        monkeypatch.setattr(line, "drain", lambda _: line.Told(self.streams, answered=1 - self.streams))
        monkeypatch.setattr(gate, "set_state", lambda state, *_, **__: paths.mark(paths.GATE, state))
        monkeypatch.setattr(gate, "_run", lambda *_, **__: 0)
        monkeypatch.setattr(aws.Aws, "_call", lambda _, *args, **more: self.call(*args, **more))
        monkeypatch.setattr(leave, "request", lambda why: self.done.append(("leave", why)))
        monkeypatch.setattr(ending, "QUIET_SECONDS", 0.1)
        for mark in (paths.OPENED, paths.COMPLETED):
            paths.mark(mark)
        paths.mark(paths.GATE, gate.OPEN)
        self.agent = agent.Agent(BOX, imds.Imds(), aws.Aws(BOX, "i-1"))

    def call(self, patience: float, service: str, verb: str, *args: str, **more: Any) -> Any:
        if verb == "describe-target-health":
            told = [{"Target": {"Id": i}, "TargetHealth": {"State": state}} for i, state in self.targets.items()]
            return {"TargetHealthDescriptions": told}
        self.done.append((verb, gate.current()))
        return {}

    def planned(self) -> None:
        self.metadata[notices.LIFECYCLE] = notices.TERMINATED
        self.agent.poll()

    def notice(self, seconds: float = 119) -> None:
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        text = {"action": "terminate", "time": end.strftime("%Y-%m-%dT%H:%M:%SZ")}
        self.metadata[notices.INTERRUPTION] = json.dumps(text)
        self.agent.poll()

    def polled_until(self, condition: Callable[[], Any]) -> None:
        def poll() -> Any:
            self.agent.poll()
            return condition()

        world.wait(poll, 6, lambda: f"{self.done} {paths.LOG.read_text()}")

    def called(self, verb: str) -> str:
        """How the gate stood at the first such call; "" before it."""
        return next((state for name, state in self.done if name == verb), "")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts]:
    """The agent; what it began ends with the test."""
    made = Parts(monkeypatch)
    yield made
    made.agent._noticed.set()
    if made.agent._planned:
        made.agent._planned.join(3)


def test_planned_end_deregisters_first_and_keeps_its_gate_open_until_no_new_connection_comes(parts: Parts) -> None:
    began = time.monotonic()
    parts.live = lambda: {f"10.0.0.1:{int(min(time.monotonic() - began, 0.8) * 100)}"}
    parts.planned()
    parts.polled_until(lambda: parts.called("complete-lifecycle-action"))
    assert time.monotonic() - began >= 0.8 + BOX.let_go_quiet_seconds
    assert parts.called("deregister-targets") == gate.OPEN
    assert parts.called("complete-lifecycle-action") == gate.DRAINING
    assert ("leave", "interruption notice") not in parts.done
    assert "the balancer has let go" in paths.LOG.read_text()


def test_planned_end_shuts_the_gate_at_last_though_new_connections_go_on(parts: Parts) -> None:
    parts.live = lambda: {f"10.0.0.1:{int(time.monotonic() * 100)}"} if gate.current() == gate.OPEN else set()
    parts.planned()
    parts.polled_until(lambda: parts.called("complete-lifecycle-action"))


def test_hook_is_not_completed_while_a_stream_of_a_planned_end_lives(parts: Parts) -> None:
    parts.streams = 1
    parts.planned()
    parts.polled_until(lambda: gate.current() == gate.DRAINING)
    for _ in range(5):
        parts.agent.poll()
        time.sleep(0.1)
    assert not parts.called("complete-lifecycle-action")
    parts.streams = 0
    parts.polled_until(lambda: parts.called("complete-lifecycle-action"))
    assert "1 streams finished, 0 cut" in paths.LOG.read_text()


@pytest.mark.parametrize("when", [gate.OPEN, gate.DRAINING], ids=["while it lets go", "while streams end"])
def test_notice_during_a_planned_end_takes_over_with_its_own_gate_and_budget(parts: Parts, when: str) -> None:
    parts.streams = 1
    parts.planned()
    parts.polled_until(lambda: gate.current() == when)
    parts.metadata[notices.INTERRUPTION] = ""
    parts.streams = 0
    parts.notice()
    assert gate.current() == gate.DRAINING
    assert ("leave", "interruption notice") in parts.done
    log = paths.LOG.read_text()
    assert "DRAIN interruption notice (terminate): new connections refused" in log
    assert paths.NOTICE.read_text() == "terminate"
    parts.polled_until(lambda: parts.called("complete-lifecycle-action"))


@pytest.mark.parametrize("how", ["wedged", "never opened", "leaves for a fault"])
def test_box_that_is_not_served_from_leaves_at_once(parts: Parts, how: str) -> None:
    paths.mark(paths.TOLD)
    if how == "wedged":
        paths.mark(paths.GATE, gate.DRAINING)
    elif how == "never opened":
        paths.OPENED.unlink()
    else:
        paths.mark(paths.WHY, "the instance store is empty")
    parts.planned()
    parts.polled_until(lambda: parts.called("complete-lifecycle-action"))
    log = paths.LOG.read_text()
    assert "DRAIN termination: new connections refused" in log
    assert "PLANNED" not in log


def test_engine_that_is_wedged_while_the_balancer_lets_go_has_the_box_drained_at_once(parts: Parts) -> None:
    parts.planned()
    paths.mark(paths.GATE, gate.DRAINING)  # by the keeper
    parts.polled_until(lambda: parts.called("complete-lifecycle-action"))
    assert "DRAIN termination: new connections refused" in paths.LOG.read_text()


@pytest.mark.parametrize(
    ("targets", "asks"),
    [({"i-1": "healthy", "i-2": "healthy"}, True), ({"i-1": "healthy", "i-2": "initial"}, False)],
    ids=["beside another", "alone"],
)
def test_notice_deregisters_once_unhealthy_where_another_target_answers(
    parts: Parts, targets: dict[str, str], asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.targets = targets
    parts.notice()
    assert gate.current() == gate.DRAINING
    if asks:
        time.sleep(0.4)
        assert not parts.called("deregister-targets")
        targets["i-1"] = "unhealthy"
    world.wait(lambda: "deregistered" in paths.LOG.read_text(), 10)
    assert parts.called("deregister-targets") == gate.DRAINING


def test_notice_deregisters_after_a_minute_whatever_the_balancer_says(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "UNHEALTHY_SECONDS", 0.3)
    parts.targets = {"i-1": "healthy", "i-2": "healthy"}
    parts.notice()
    world.wait(lambda: "deregistered" in paths.LOG.read_text(), 10)


def test_metrics_of_a_planned_end_tell_its_streams(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(agent.telemetry, "put", lambda _, data: sent.extend(data))
    parts.planned()
    parts.polled_until(lambda: sent)
    assert {each["MetricName"] for each in sent} == {names.METRIC_STREAMS_FINISHED, names.METRIC_STREAMS_CUT}


def test_scheduled_stop_within_minutes_is_a_planned_end(parts: Parts) -> None:
    due = (datetime.now(UTC) + timedelta(minutes=10)).strftime("%d %b %Y %H:%M:%S GMT")
    parts.metadata[notices.SCHEDULED] = json.dumps([{"Code": "instance-stop", "NotBefore": due, "State": "active"}])
    terminate = "terminate-instance-in-auto-scaling-group"
    box = dataclasses.replace(BOX, planned_seconds=600.0, let_go_most_seconds=300.0)
    parts.agent = agent.Agent(box, imds.Imds(), aws.Aws(box, "i-1"))
    parts.polled_until(lambda: parts.called(terminate))
    for _ in range(3):
        parts.agent.poll()
    assert [name for name, _ in parts.done].count(terminate) == 1
    assert parts.called(terminate) == gate.OPEN
    assert not paths.LEAVING.exists()


def test_hook_waits_a_moment_for_what_the_leaving_box_tells(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    paths.mark(paths.WHY, "the instance store is empty")
    parts.planned()
    parts.polled_until(lambda: "DRAINED" in paths.LOG.read_text())
    assert not parts.called("complete-lifecycle-action")
    paths.mark(paths.TOLD)
    parts.polled_until(lambda: parts.called("complete-lifecycle-action"))


def test_hook_does_not_wait_for_a_cloudwatch_that_hangs(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "REPORT_SECONDS", 0.5)
    paths.mark(paths.WHY, "the instance store is empty")
    parts.planned()
    parts.polled_until(lambda: parts.called("complete-lifecycle-action"))
