"""The commands as an operator runs them: exit codes, one message per mistake, table, page and logs."""

import itertools
import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from fleet.eventlog.events import Event
from fleet.eventlog.measure import Measure
from fleet.sim.drills import replay
from fleet.sim.drills.drill import Drill
from fleet.sim.policies import catalogue
from tests.drills.by_hand import call

pytestmark = pytest.mark.slow

MARKET = "pool g6.xlarge us-east-2a\n0 all sells\n05:00 all takes\n08:00 all sells\n12:00 end\n"


def log_of(out: Path, policy: str) -> list[Event]:
    """The events of a written log."""
    lines = map(json.loads, (out / f"events-{policy}.jsonl").read_text().splitlines())
    return [Event(datetime.fromisoformat(raw.pop("at")), raw.pop("kind"), raw) for raw in lines]


def test_drill_writes_table_page_and_one_log_per_policy(market: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = call("drill", market, "--policy", "watchdog", "--policy", "spot-only", "--out", out)
    assert result.exit_code == 0, result.output
    assert "alarm watchdog" in result.output
    page = (out / "report.html").read_text()
    assert "failover" in page
    zooms = re.findall(r"(\d\d \w{3} \d\d:\d\d) to \d\d:\d\d: \d+ min degraded", page)
    assert len(zooms) == 2 * len(set(zooms)) > 0, "every policy is shown in the same detail"
    measure = Measure()
    for event in log_of(out, "alarm"):
        measure.add(event)
    assert f"{measure.degraded_minutes:.1f}" in result.output


def test_the_two_policies_stand_on_one_page_under_their_own_names_and_bridges_are_counted(tmp_path: Path) -> None:
    both = ["--policy", "alarm", "--policy", "bridge"]
    done = call("drill", "us-east-1", "--days", 2, "--seeds", 1, "--warned", 1, *both, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    alarm, bridge = (
        next(line for line in lines if line.strip(" │").startswith(f"{name} w")) for name in ("alarm", "bridge")
    )
    bridged = sum(e.kind == "decision" and e.fields["action"] == "bridged" for e in log_of(tmp_path, "bridge"))
    assert bridged > 0
    assert (alarm.split()[-2], bridge.split()[-2]) == ("0.0", f"{bridged:.1f}")
    page = (tmp_path / "report.html").read_text()
    assert "alarm watchdog" in page
    assert "bridge watchdog" in page


def test_the_watchdog_is_drilled_under_the_policy_that_the_settings_name(market: Path, tmp_path: Path) -> None:
    done = call("drill", market, "--policy", "watchdog", "--set", "policy=bridge", "--out", tmp_path)
    assert "bridge watchdog" in done.output
    assert (tmp_path / "events-bridge.jsonl").exists()


def test_every_comparison_says_what_it_assumes_and_is_made_without_early_warnings_too(tmp_path: Path) -> None:
    done = call("drill", "us-east-1", "--days", 1, "--seeds", 1, "--policy", "fallback", "--out", tmp_path)
    said, page = " ".join(done.output.split()), " ".join((tmp_path / "report.html").read_text().split())
    for text in (said, page):
        assert "Boots take 244 to 445 s" in text
        assert "30 % of the losses are announced 60 to 600 s ahead (assumed, not measured)" in text
        assert "The alarm is told 184 to 540 s late" in text
        assert "5 % of the answers of the placement score are wrong" in text
        assert "The same without early warnings" in text


def test_files_of_different_length_are_cut_to_the_shortest_and_that_is_said(tmp_path: Path) -> None:
    for name, ticks in (("a_g6.xlarge", 3600), ("b_g6.xlarge", 1800)):
        raw = {"metadata": {"gap_seconds": 10}, "data": [1] * ticks}
        (tmp_path / f"{name}.json").write_text(json.dumps(raw))
    paths = sorted(tmp_path.glob("*.json"))
    done = call("drill", *paths, "--policy", "spot-only", "--out", tmp_path / "out")
    assert "a_g6.xlarge: cut to the 5.0 h of the shortest file" in done.output
    first, *_, last = log_of(tmp_path / "out", "spot-only")
    assert (last.at - first.at).total_seconds() == 5 * 3600


def test_every_drill_of_a_page_is_lived_through_once(
    market: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived: list[int] = []

    def counted(drill: Drill) -> None:
        lived.append(drill.seed)
        catalogue.unwatched(drill, lever=0)

    monkeypatch.setitem(catalogue.POLICIES, "spot-only", catalogue.Named("counted", counted))
    twice = ["--policy", "spot-only", "--policy", "spot-only"]
    call("drill", market, *twice, "--seeds", 2, "--workers", 1, "--warned", 0, "--out", tmp_path)
    assert lived == [0, 1]


def test_drill_narrates_live(market: Path) -> None:
    result = call("drill", market, "--policy", "watchdog", "--live", "--speed", 1e9)
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert any("NOTICE" in line for line in lines)
    assert any("MAIL" in line and "on-demand failover" in line for line in lines)
    assert lines.index(next(x for x in lines if "ALARM" in x and "ALARM:" in x)) > 2


@pytest.mark.parametrize(
    ("spot", "on_demand", "refused"),
    [
        (4, 4, set()),  # launch-first from one kind to the other charges each to its own quota
        (0, 8, {"MaxSpotInstanceCountExceeded"}),
        (8, 0, {"VcpuLimitExceeded"}),
    ],
)
def test_a_launch_beyond_the_quota_of_its_own_kind_is_refused(
    market: Path, tmp_path: Path, spot: int, on_demand: int, refused: set[str]
) -> None:
    quotas = ["--spot-quota", spot, "--on-demand-quota", on_demand]
    result = call("drill", market, "--policy", "watchdog", *quotas, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "knows no vCPU quotas" in result.output
    log = log_of(tmp_path, "alarm")
    why = {event.fields["why"] for event in log if event.kind == "launch.failed"}
    assert why - {"InsufficientInstanceCapacity"} == refused
    levers = [event.fields["percentage"] for event in log if event.kind == "lever"]
    assert levers[:3] == [0, 100, 0]
    mailed = [event.fields for event in log if event.kind == "mail" and "quota" in event.fields["subject"]]
    assert [refused & set(mail["body"].replace(".", "").split()) for mail in mailed] == [refused] * len(refused)


MISTAKES = {
    "negative quota": (["drill", "--spot-quota", "-4"], "--spot-quota"),
    "unknown scene": (["drill", "atlantis"], "'atlantis' is no history, region or file"),
    "unknown policy": (["drill", "--policy", "hope"], "policy 'hope' is unknown"),
    "unknown key": (["drill", "--set", "watchdog.luck=1"], "--set watchdog.luck=1"),
    "value out of bounds": (["drill", "--set", "watchdog.grace_seconds=1"], "watchdog.grace_seconds"),
    "seeds of a history": (["drill", "07-21", "--seeds", "3"], "--seeds"),
    "unknown sweep key": (["sweep", "nothing", "1"], "--set nothing=1"),
    "sweep value": (["sweep", "watchdog.grace_seconds", "soon"], "watchdog.grace_seconds"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_message_and_exit_code_2(case: str) -> None:
    arguments, message = MISTAKES[case]
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_sweep_names_what_is_not_beaten_and_draws_it(tmp_path: Path) -> None:
    key, out = "watchdog.cooldown_seconds", tmp_path / "out"
    result = call("sweep", key, 0, 10800, "--on", "us-east-2", "--days", 3, "--seeds", 2, "--no-valve", "--out", out)
    assert result.exit_code == 0, result.output
    assert "±" in result.output
    assert "not beaten in both cost and degraded minutes" in result.output
    assert (out / f"{key}.svg").stat().st_size > 0


def test_scenes_that_need_no_file_are_listed() -> None:
    assert "us-west-2" in call("drill", "--list").output


def test_seeds_vary_the_luck_over_a_market_file(market: Path, tmp_path: Path) -> None:
    result = call("drill", market, "--policy", "spot-only", "--seeds", 3, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "1 market, 3 random seeds" in " ".join(result.output.split())
    assert "±" in next(line for line in result.output.splitlines() if "spot, no watchdog" in line)


def test_a_history_brings_its_own_size_and_rhythm_unless_asked_otherwise(tmp_path: Path) -> None:
    raw = json.loads((replay.FOLDER / f"{replay.names()[1]}.json").read_text())
    raw["fleet"]["desired"], raw["scan"]["every_seconds"] = 3, 900
    path = tmp_path / "three.json"
    path.write_text(json.dumps(raw))
    logs = []
    for more in ([], ["--desired", "2"]):
        assert call("drill", path, "--policy", "watchdog", "--out", tmp_path, *more).exit_code == 0
        logs.append(log_of(tmp_path, "alarm"))
    assert [log[0].fields["desired"] for log in logs] == [3, 2]
    scans = [e.at.timestamp() for e in logs[0] if e.kind == "decision" and e.fields["signal"]["wake"] == "scan"]
    assert {after - before for before, after in itertools.pairwise(scans)} == {900}


def test_a_drill_needs_no_deployment_but_a_settings_file_that_is_named_must_be_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("drill", "07-27", "--policy", "spot-only").exit_code == 0
    assert call("--settings", "mine.json", "drill", "07-27", "--policy", "spot-only").exit_code == 2


def test_a_skipped_failover_is_told_in_its_own_words_once() -> None:
    lines = call("drill", "07-27", "--policy", "watchdog", "--live", "--speed", 1e9).output.splitlines()
    (skipped,) = [line for line in lines if "skipped" in line]
    assert skipped.endswith("watchdog  failover skipped: instance younger than grace is still warming")
    assert any(line.endswith("ALARM: no box had answered for a whole window, told minutes late") for line in lines)
