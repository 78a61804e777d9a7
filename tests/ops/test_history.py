"""The live history: put in order from what AWS remembers, and exported so that the drills replay it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleet.cli.fleetctl import main
from fleet.config.settings import Settings
from fleet.eventlog import html_report
from fleet.eventlog.events import Event
from fleet.eventlog.measure import Measure
from fleet.localaws.deployed import Deployed
from fleet.ops import live_history, receipt
from fleet.ops.fleet_view import Decided
from fleet.ops.live_history import Activity, BootStage, BoxRecord, Sources
from fleet.sim.drills import drill
from fleet.sim.drills import replay as drills_history
from fleet.sim.drills.drill import Drill
from fleet.sim.policies.catalogue import watchdog
from tests.drills import lives
from tests.drills.by_hand import lived
from tests.synth import ROOT

T0 = datetime(2026, 7, 22, 0, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def decided(minutes: float, **record: Any) -> Decided:
    return Decided(at(minutes), {"outcome": "done", **record})


A_BOX = {"lifecycle": "InService", "purchase": "spot", "pool": "g6.xlarge", "health": "healthy"}
OLD = BoxRecord("spot", "g6.xlarge", at(-60))


def a_night(**more: Any) -> Sources:
    """A spot box reclaimed, a failed launch, a failover, an on-demand box."""
    base = Sources(
        since=T0,
        until=at(120),
        decisions=(
            decided(
                5,
                signal={"wake": "scan"},
                world={"percentage": 0, "boxes": {"i-1": A_BOX}},
                mode="spot-armed",
            ),
            decided(14, signal={"wake": "interruption", "box": "i-1", "at": at(14).isoformat()}, mode="spot-armed"),
            decided(
                35,
                signal={"wake": "alarm-lit"},
                action="failover",
                reason="no healthy target",
                mode="on-demand-failover",
                world={"percentage": 0},
            ),
        ),
        activities=(
            Activity(False, "i-1", at(16), at(16.5), True, "reclaimed"),
            Activity(True, "", at(17), at(17), False, "no spot capacity"),
            Activity(True, "i-2", at(35.2), at(40), True, "launched"),
        ),
        alarms=((at(35), "ALARM"), (at(46), "OK")),
        stages=(BootStage("i-2", "restore", 30, 130, "done"), BootStage("i-2", "complete", 266, 267.4, "done")),
        living={"i-2": BoxRecord("on-demand", "g6.xlarge", at(35.2))},
    )
    return replace(base, **more)


def test_every_source_becomes_events_in_the_order_of_time(settings: Settings) -> None:
    log = live_history.events(a_night(), settings)
    assert [event.at for event in log] == sorted(event.at for event in log)
    said = [(event.kind, event.fields.get("box")) for event in log if event.kind.startswith(("box.", "notice"))]
    assert said == [
        ("box.launched", "i-1"),
        ("box.serving", "i-1"),
        ("notice", "i-1"),
        ("box.unserving", "i-1"),
        ("box.ended", "i-1"),
        ("box.launched", "i-2"),
        ("box.serving", "i-2"),
        ("box.in_service", "i-2"),
    ]
    assert [(e.fields["mode"]) for e in log if e.kind == "mode"] == ["spot-armed", "on-demand-failover"]
    assert [(e.fields["percentage"]) for e in log if e.kind == "lever"] == [0, 100]
    assert [e.fields["subject"] for e in log if e.kind == "mail"] == ["on-demand failover"]


def test_the_log_measures_like_any_other(settings: Settings) -> None:
    measure = Measure()
    for event in live_history.events(a_night(), settings):
        measure.add(event)
    assert round(measure.degraded_seconds / 60, 1) == 31.0  # 5 before the first look, 26 between notice and successor
    assert measure.usd["on-demand"] > measure.usd["spot"] > 0


def test_a_box_that_was_told_to_go_just_before_the_window_does_not_serve_all_of_it(settings: Settings) -> None:
    told = BoxRecord("spot", "g6.xlarge", at(-60), serving=at(-55), noticed=at(-1), ended=at(1))
    sources = a_night(decisions=(), activities=(), alarms=(), stages=(), living={"i-1": told})
    measure = Measure()
    for event in live_history.events(sources, settings):
        measure.add(event)
    assert measure.degraded_minutes == 120


def test_a_notice_without_a_recorded_end_ends_two_minutes_later(settings: Settings) -> None:
    lives = live_history.lives(a_night(activities=()), settings)
    assert lives["i-1"].ended == at(16)


def test_boots_come_from_the_boxes_own_stages_where_they_are_logged(settings: Settings) -> None:
    lives = live_history.lives(a_night(), settings)
    assert receipt.boots(lives, T0) == [267.4]  # the box that served when it was first seen was launched before
    unlogged = BoxRecord(launched=at(1), serving=at(6))
    assert receipt.boots({"i-9": unlogged}, T0) == [270.0]


def test_the_receipt_names_reclaims_refusals_and_what_was_decided(settings: Settings) -> None:
    written = receipt.receipt(live_history.events(a_night(), settings), settings)
    notices = [(item.box, item.at) for item in written.market if item.event == "notice"]
    assert notices == [("i-1", at(14))], "when it was told, not when the box was gone"
    assert [item.purchase for item in written.market if item.event == "launch.failed"] == ["spot"]
    assert written.outcome["failovers"] == ["2026-07-22T00:35:00Z"]
    assert [(told.at, told.state) for told in written.alarm] == [(at(35), "ALARM"), (at(46), "OK")]
    assert written.fleet.lever_at_start == 0


def test_a_window_that_opens_with_a_failover_starts_armed_and_replays_to_it(settings: Settings, tmp_path: Path) -> None:
    """The record of a decision tells the mode after it: the receipt starts from the one before."""
    night = a_night()
    notice = decided(14, signal={"wake": "interruption", "box": "i-1", "at": at(14).isoformat()})
    opening = replace(night, decisions=(notice, night.decisions[-1]), living={**night.living, "i-1": OLD})
    written = receipt.receipt(live_history.events(opening, settings), settings, boots=[267.4])
    assert (written.fleet.mode_at_start, written.fleet.lever_at_start) == ("spot-armed", 0)
    path = tmp_path / "receipt.json"
    path.write_text(written.dumps())
    assert [e.fields["action"] for e in replayed(path) if e.kind == "decision"].count("failover") == 1


@pytest.mark.parametrize(
    ("action", "after", "percentage", "start"),
    [
        ("re-arm", "on-demand-failover", 0, ("on-demand-failover", 100)),
        ("gave-up", "on-demand-pinned", 100, ("on-demand-failover", 100)),
        ("on-demand-limit", "spot-armed", 0, ("on-demand-failover", 100)),
        ("bridged", "on-demand-failover", 0, ("spot-armed", 0)),
        ("re-armed", "spot-armed", 0, ("on-demand-failover", 0)),
        ("fell-back", "on-demand-failover", 100, ("on-demand-failover", 0)),
        ("pinned", "on-demand-pinned", 0, ("spot-armed", 0)),
        ("armed", "on-demand-failover", 100, ("on-demand-pinned", 100)),
        ("nothing", "on-demand-pinned", 100, ("on-demand-pinned", 100)),
    ],
)
def test_a_receipt_starts_before_its_first_decision(
    settings: Settings, action: str, after: str, percentage: int, start: tuple[str, int]
) -> None:
    first = decided(5, signal={"wake": "scan"}, action=action, mode=after, world={"percentage": percentage})
    written = receipt.receipt(live_history.events(a_night(decisions=(first,)), settings), settings)
    assert (written.fleet.mode_at_start, written.fleet.lever_at_start) == start
    assert written.fleet.rearming_at_start == (action in {"re-armed", "fell-back"})


@pytest.mark.parametrize(
    ("action", "after", "before", "rearming", "size"),
    [
        *(("re-arm", 25, 50, False, 4), ("re-arm", 75, 100, False, 4), ("re-arm", 80, 100, False, 20)),  # a fifth
        *(("fell-back", 50, 25, True, 4), ("fell-back", 25, 0, True, 4), ("failover", 75, 25, False, 4)),  # more of one
    ],
)
def test_receipt_of_several_boxes_starts_one_box_before_its_first_step(
    settings: Settings, action: str, after: int, before: int, rearming: bool, size: int
) -> None:
    several = replace(settings, capacity=replace(settings.capacity, min=size, max=2 * size))
    mode, world = "on-demand-failover", {"percentage": before if action == "failover" else after}
    first = decided(5, signal={"wake": "scan"}, action=action, mode=mode, lever=after, world=world)
    written = receipt.receipt(live_history.events(a_night(decisions=(first,)), several), several)
    assert (written.fleet.lever_at_start, written.fleet.rearming_at_start) == (before, rearming)


@pytest.mark.parametrize(("why", "kind"), [("no Spot capacity", "spot"), ("no on-demand capacity", "on-demand")])
def test_launch_refused_between_the_levers_ends_is_of_the_kind_that_aws_names(
    settings: Settings, why: str, kind: str
) -> None:
    first = decided(35, signal={"wake": "alarm-lit"}, action="failover", lever=50, world={"percentage": 0})
    refused = Activity(True, "", at(41), at(41), succeeded=False, why=why)
    log = live_history.events(a_night(decisions=(first,), activities=(refused,)), settings)
    assert [event.fields["purchase"] for event in log if event.kind == "launch.failed"] == [kind]


def test_launch_that_a_turn_asked_for_is_of_the_kind_it_turned_to(settings: Settings) -> None:
    turn = decided(40, signal={"wake": "scan"}, action="turned", lever=0, world={"percentage": 100})
    refused = Activity(True, "", at(41), at(41), succeeded=False, why="no capacity")
    log = live_history.events(a_night(decisions=(turn,), activities=(refused,)), settings)
    assert [event.fields["percentage"] for event in log if event.kind == "lever"] == [0]
    assert [event.fields["purchase"] for event in log if event.kind == "launch.failed"] == ["spot"]


def test_boots_by_stage_are_events_drawn_as_bars(settings: Settings, tmp_path: Path) -> None:
    log = live_history.events(a_night(), settings)
    stages = [event for event in log if event.kind == "boot.stage"]
    assert [(e.fields["box"], e.fields["stage"], e.fields["end"]) for e in stages] == [
        ("i-2", "restore", 130),
        ("i-2", "complete", 267.4),
    ]
    assert stages[0].at == at(35.2) + timedelta(seconds=30 + 130)
    page = html_report.render(log, tmp_path, title="a night").read_text()
    assert "Boots by stage" in page
    assert ">restore</text>" in page
    assert all(f"`{key}`" in (ROOT / "docs/event-log.md").read_text() for key in ("boot.stage", *stages[0].fields))


def test_an_alarm_told_in_the_operators_own_time_zone_is_exported_in_utc(answers: Any, settings: Settings) -> None:
    here = at(35).astimezone(timezone(timedelta(hours=-4)))
    told = {"Timestamp": here, "HistoryData": json.dumps({"newState": {"stateValue": "ALARM"}})}
    aws = answers({"cloudwatch DescribeAlarmHistory": {"AlarmHistoryItems": [told]}})
    alarms = tuple(live_history._alarms(aws, "llm", T0, at(120)))
    written = receipt.receipt(live_history.events(a_night(alarms=alarms), settings), settings)
    assert [(told.at, told.at.utcoffset()) for told in written.alarm] == [(at(35), timedelta(0))]


def test_words_and_boots_that_are_too_long_for_a_receipt_keep_nobody_from_the_history(settings: Settings) -> None:
    denied = "You are not authorized. Encoded authorization failure message: " + "A" * 2500
    endless = BootStage("i-2", "complete", 266, 9_999_999.9, "done")
    refused = Activity(True, "", at(36), at(36), succeeded=False, why=denied)
    night = a_night(stages=(endless,), activities=(*a_night().activities, refused))
    lives = live_history.lives(night, settings)
    written = receipt.receipt(live_history.events(night, settings), settings, boots=receipt.boots(lives, T0))
    assert denied.startswith(written.market[-1].why)
    assert written.boots == (258.0,)


def replayed(path: str | Path) -> list[Event]:
    return lived(drills_history.load(path))[0]


def test_an_exported_history_replays_in_the_drills_to_the_same_decisions(tmp_path: Path) -> None:
    """Out of the recorded night comes a log, out of the log a receipt, out of the receipt the same night."""
    log = replayed("07-21")
    path = tmp_path / "receipt.json"
    path.write_text(receipt.receipt(log, drill.default_settings()).dumps())
    assert lives.decided(replayed(path)) == lives.decided(log)


def test_a_successor_launched_within_the_two_minutes_of_a_notice_is_one_short_window(
    settings: Settings, tmp_path: Path
) -> None:
    """The smallest input: one notice, its box gone two minutes later, a successor launched 15 s after the notice."""
    launched = Activity(True, "i-2", at(14.25), at(19.5), True, "rebalancing")
    gone = Activity(False, "i-1", at(16), at(16), True, "reclaimed")
    night = a_night(
        decisions=a_night().decisions[:2],
        activities=(launched, gone),
        alarms=(),
        living={"i-1": OLD, "i-2": BoxRecord("spot", "g6.xlarge", at(14.25))},
    )
    path = tmp_path / "receipt.json"
    path.write_text(receipt.receipt(live_history.events(night, settings), settings).dumps())
    record = drills_history.load(path)
    result = drill.run(Drill(record, settings), watchdog)
    assert [(round(w.start - T0.timestamp()), round(w.seconds)) for w in result.measure.windows] == [(14 * 60, 330)]


def test_a_receipt_of_a_fleet_under_the_bridge_policy_loads_and_says_what_it_lacks(
    settings: Settings, tmp_path: Path
) -> None:
    bridge = replace(settings, policy="bridge")
    night = a_night(
        alarms=(), decisions=(decided(20, signal={"wake": "scan"}, action="bridged", mode="on-demand-failover"),)
    )
    written = receipt.receipt(live_history.events(night, bridge), bridge)
    assert written.outcome["bridged"] == ["2026-07-22T00:20:00Z"]
    path = tmp_path / "receipt.json"
    path.write_text(written.dumps())
    record = drills_history.load(path)
    assert (record.fleet.policy, record.scan_seconds, record.fleet.mode_at_start) == ("bridge", 120, "spot-armed")
    said = " ".join(Drill(record, bridge).assumptions)
    assert "alarm: not recorded, so modelled" in said
    assert "scores: 0 readings as recorded, drawn where a policy reads at other times" in said
    assert "not as recorded" not in said
    assert "policy alarm (bridge) not as recorded" in " ".join(Drill(record, settings).assumptions)


def test_the_history_of_the_deployed_fleet_is_drawn_and_exported(live: Deployed, tmp_path: Path) -> None:
    live.age_group(7200)
    live.age_boxes(3600)
    live.set_health("unhealthy")
    live.set_alarm("ALARM", seconds_ago=60)
    assert live.decisions()[-1]["result"]["action"] == "failover"
    done = CliRunner().invoke(
        main, ["history", "--out", str(tmp_path)], env={**live.aws.environment(), "COLUMNS": "200"}
    )
    assert done.exit_code == 0, done.output
    assert "on-demand failover" in done.output
    assert (tmp_path / "report.html").stat().st_size > 1000
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert {"box.launched", "alarm", "decision", "lever", "mail"} <= set(kinds)
    assert drills_history.load(tmp_path / "receipt.json").outcome["failovers"]
