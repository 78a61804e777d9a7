"""The game day: the whole day on the embedded AWS, the load's arithmetic, the live stage on scripted answers."""

import http.server
import itertools
import json
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleet.account.access import Aws
from fleet.cli.fleetctl import main
from fleet.config.settings import Settings
from fleet.gameday import scenario
from fleet.gameday.embedded_stage import EmbeddedStage
from fleet.gameday.live_stage import LiveStage
from fleet.gameday.load import Load, LoadRequest, Summary
from fleet.gameday.scenario import STEPS, Day, play
from fleet.gameday.stage import StageError
from fleet.localaws import standing_fleet
from fleet.localaws.deployed import Deployed
from tests.box import servers
from tests.conftest import PUBLIC_GATEWAY
from tests.synth import CDK_JSON


def test_every_step_of_the_day_holds_and_no_request_fails_during_the_planned_roll(
    live: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command itself, on the copy that stands already instead of one synthesized anew."""
    monkeypatch.setattr(standing_fleet, "standing", lambda *_: nullcontext(live))
    out = tmp_path / "day"
    done = CliRunner().invoke(main, ["game-day", "--out", str(out)], env={"COLUMNS": "200"})
    receipts = json.loads((out / "receipts.json").read_text())
    assert [(step["step"], step["seen"]) for step in receipts if not step["held"]] == []
    assert [step["step"] for step in receipts] == [name for name, _, _ in STEPS]
    assert done.exit_code == 0, done.output
    assert f"12 of 12 steps held; receipts beside {out}/report.html" in done.stdout.replace("\n", " ")
    by_name = {step["step"]: step for step in receipts}
    for step in ("arm through the gate", "planned roll under load", "after the cooldown"):
        assert "a stand-in (the embedded AWS leaves a refresh InProgress)" in by_name[step]["seen"]
    roll, dark = by_name["planned roll under load"]["load"], by_name["alarm in the dark"]["load"]
    assert roll["requests"] > 0
    assert roll["failed"] == 0
    assert dark["failed"] > 0  # darkness is real to callers
    assert "cooldown 10800 s" in by_name["scan inside the cooldown"]["seen"]
    assert by_name["valve"]["decision"]["action"] == "gave-up"
    assert (live.state()["mode"], live.lever()) == ("on-demand-pinned", "100")
    assert (out / "report.html").exists()
    kinds = {json.loads(line)["kind"] for line in (out / "events.jsonl").read_text().splitlines()}
    assert {"start", "decision", "mode", "lever", "alarm", "mail", "box.launched", "box.ended", "end"} <= kinds


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"policy": "bridge"}, ['game-day: policy is "bridge"; allowed: "alarm"']),
        ({"watchdog": {"valve_failovers": 3}}, ["game-day: watchdog.valve_failovers is 3; allowed: 2"]),
        (
            {"policy": "bridge", "watchdog": {"valve_failovers": 1}},
            [
                'game-day: policy is "bridge"; allowed: "alarm"',
                "game-day: watchdog.valve_failovers is 1; allowed: 2",
            ],
        ),
        (
            PUBLIC_GATEWAY,
            [
                "game-day: gateway.certificate_arn is set, and no certificate holds the balancer's own name; allowed: "
                "--live --endpoint https://NAME/v1, a NAME of yours that it holds and that leads there, or --no-load"
            ],
        ),
    ],
)
def test_a_day_whose_steps_cannot_hold_is_refused_before_anything_is_touched(
    edit: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    raw = json.loads(CDK_JSON.read_text())
    raw["context"]["fleet"] |= edit
    (tmp_path / "cdk.json").write_text(json.dumps(raw))
    out = tmp_path / "day"
    arguments = ["--settings", str(tmp_path / "cdk.json"), "game-day", "--live", "--yes", "--out", str(out)]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stdout, done.stderr.splitlines()) == (2, "", said)
    assert not out.exists()


def test_a_live_day_that_ends_in_the_dark_leaves_nothing_suspended(
    live: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dark(day: Day) -> tuple[bool, str]:
        day.stage._judge("SuspendProcesses")  # type: ignore[attr-defined]
        raise StageError("no target is healthy: not within 600 s")

    monkeypatch.setattr(scenario, "STEPS", (("alarm in the dark", "", dark),))
    arguments = ["game-day", "--live", "--yes", "--no-load", "--endpoint", "http://x", "--out", str(tmp_path)]
    assert CliRunner().invoke(main, arguments, env=live.aws.environment()).exit_code == 3
    assert [process["ProcessName"] for process in live.group()["SuspendedProcesses"]] == []


def test_a_live_day_ends_at_the_first_step_that_does_not_hold_and_is_written_down(
    live: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yes, no = (lambda _: (True, "yes")), (lambda _: (False, "no"))
    monkeypatch.setattr(scenario, "STEPS", (("fine", "", yes), ("wrong", "", no), ("never", "", yes)))
    arguments = ["game-day", "--live", "--yes", "--no-load", "--endpoint", "http://x", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, arguments, env=live.aws.environment())
    assert done.exit_code == 3, done.output
    receipts = json.loads((tmp_path / "receipts.json").read_text())
    assert [(step["step"], step["held"]) for step in receipts] == [("fine", True), ("wrong", False)]
    assert "1 of 2 steps held" in done.stdout
    assert (tmp_path / "report.html").exists()


def test_a_step_that_does_not_hold_fails_and_one_that_cannot_be_played_ends_the_day(live: Deployed) -> None:
    def impossible(_: Day) -> tuple[bool, str]:
        raise StageError("no successor")

    steps = (
        ("fine", "", lambda _: (True, "yes")),
        ("wrong", "", lambda _: (False, "no")),
        ("impossible", "", impossible),
        ("never", "", lambda _: (True, "yes")),
    )
    day = Day(EmbeddedStage(live, Aws("us-east-2", environment=live.aws.environment()), ""))
    receipts = list(play(day, steps, lambda _: None))
    assert [(step.step, step.held) for step in receipts] == [("fine", True), ("wrong", False), ("impossible", False)]
    assert receipts[-1].seen == "could not be played: no successor"


# --- load ------------------------------------------------------------------------------------------------------


def test_the_summary_counts_failures_and_the_longest_outage() -> None:
    requests = [
        LoadRequest(0, 1, ""),
        LoadRequest(2, 0.5, "refused"),
        LoadRequest(4, 0.5, "refused"),
        LoadRequest(7, 3, ""),
    ]
    found = Summary.of(requests)
    assert (found.requests, found.failed) == (4, 2)
    assert (found.longest_outage_seconds, found.errors) == (5, ("refused",))


def test_an_outage_that_never_ends_lasts_to_the_last_failure() -> None:
    assert Summary.of([LoadRequest(0, 1, "x"), LoadRequest(5, 1, "x")]).longest_outage_seconds == 6
    assert Summary.of([]).requests == 0


def test_the_load_keeps_what_each_request_met_and_stops_with_its_block() -> None:
    every_second = itertools.cycle((503, 200))

    def engine(handler: http.server.BaseHTTPRequestHandler) -> None:
        servers.body_of(handler)
        servers.reply(handler, b'{"response": "x"}', next(every_second))

    with servers.local(engine) as port, Load(f"http://127.0.0.1:{port}", "m", pause_seconds=0) as load:
        deadline = time.monotonic() + 20
        while len(load.requests) < 20 and time.monotonic() < deadline:
            time.sleep(0.02)
    count = len(load.requests)
    assert count >= 20
    assert {request.error for request in load.requests} == {"", "HTTP 503"}
    time.sleep(0.05)
    assert len(load.requests) == count


# --- the live stage --------------------------------------------------------------------------------------------


class Cloud:
    """A group and its target group, as the live stage's calls leave them. It takes what is deregistered for sick."""

    def __init__(self) -> None:
        self.suspended: set[str] = set()
        self.members = {"i-old": "InService"}
        self.health = {"i-old": "healthy"}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, service: str, operation: str, **arguments: Any) -> Any:
        self.calls.append((operation, arguments))
        match operation:
            case "DescribeAutoScalingGroups":
                boxes = [{"InstanceId": box, "LifecycleState": state} for box, state in self.members.items()]
                return {"AutoScalingGroups": [{"TargetGroupARNs": ["arn:tg"], "Instances": boxes}]}
            case "DescribeTargetHealth":
                pairs = self.health.items()
                return {
                    "TargetHealthDescriptions": [{"Target": {"Id": t}, "TargetHealth": {"State": s}} for t, s in pairs]
                }
            case "SuspendProcesses":
                self.suspended |= set(arguments["ScalingProcesses"])
            case "ResumeProcesses":
                self.suspended -= set(arguments["ScalingProcesses"])
            case "DeregisterTargets":
                for target in arguments["Targets"]:
                    self.health[target["Id"]] = "draining"
                    if "ReplaceUnhealthy" not in self.suspended:
                        self.members["i-successor"], self.health["i-successor"] = "InService", "healthy"
            case "RegisterTargets":
                for target in arguments["Targets"]:
                    self.health[target["Id"]] = "healthy"
        return {}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    return slept


@pytest.fixture
def stage(settings: Settings, cloud: Cloud, slept: list[float]) -> LiveStage:
    return LiveStage(settings, cloud, "http://x", narrate=lambda _: None)  # type: ignore[arg-type]


def test_time_is_waited_for_on_a_live_account(stage: LiveStage, slept: list[float]) -> None:
    stage.let_pass(130, "a scan")
    assert sum(slept) == 130


def test_darkness_is_targets_deregistered_and_they_come_back_where_the_box_still_runs(
    stage: LiveStage, cloud: Cloud
) -> None:
    stage.go_dark(("i-old",))
    assert cloud.health == {"i-old": "draining"}
    assert cloud.suspended == {"HealthCheck", "ReplaceUnhealthy"}
    stage.lights_on()
    assert cloud.health == {"i-old": "healthy"}
    assert cloud.suspended == set()
    stage.go_dark(("i-old",))
    cloud.members = {"i-new": "InService"}
    stage.lights_on()
    assert cloud.health["i-old"] == "draining"  # it ended meanwhile: nothing to register


def test_a_roll_is_over_when_the_old_box_is_gone_and_its_successor_is_healthy(stage: LiveStage, cloud: Cloud) -> None:
    cloud.members, cloud.health = {"i-new": "InService"}, {"i-new": "healthy"}
    stage.finish_roll(("i-old",))
    cloud.health = {"i-new": "initial"}
    with pytest.raises(StageError, match="the successors serve: not within 2700 s"):
        stage.finish_roll(("i-old",))


def test_the_synthetic_alarm_is_set_on_the_fleets_own_alarm(stage: LiveStage, cloud: Cloud) -> None:
    stage.light_alarm()
    stage.calm_alarm()
    states = [(a["AlarmName"], a["StateValue"]) for operation, a in cloud.calls if operation == "SetAlarmState"]
    assert states == [("llm-no-healthy-target", "ALARM"), ("llm-no-healthy-target", "OK")]
