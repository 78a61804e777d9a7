"""Callers as an operator drills them: the table, the page, files of callers, and one message per mistake."""

import itertools
import json
from pathlib import Path

import pytest
from click.testing import Result

from fleet.cli import drill_and_sweep
from fleet.sim.callers import recorded
from fleet.sim.callers.listener import Plan
from fleet.sim.callers.tally import CLOUD, CUT, GPU, LEFT, NOBODY, REFUSED
from fleet.sim.callers.traffic import Traffic
from fleet.sim.drills import replay, scene
from fleet.sim.drills.drill import default_settings
from fleet.sim.experiments import callers_told
from fleet.sim.experiments.experiment import Job, Row
from fleet.sim.policies.catalogue import POLICIES
from tests.drills.by_hand import call

pytestmark = pytest.mark.slow  # draws

MARKET = "pool g5.xlarge us-east-2a\n0 all sells\n02:00 all takes\n04:00 all sells\n06:00 end\n"


def drill(market: Path, callers: object, *more: object) -> Result:
    return call("drill", market, "--policy", "spot-only", "--out", market.parent / "out", "--callers", callers, *more)


def row(result: Result) -> list[str]:
    """The callers' line of the one policy."""
    lines = result.output.rpartition("What callers met")[2].splitlines()
    return next(line for line in lines if "spot, no watchdog" in line).replace("│", " ").split()[3:]


def test_a_table_of_times_is_answered_by_gpu_cloud_and_nobody_and_drawn(market: Path) -> None:
    """One while the box serves; a thrifty and a favoured caller in the drought; one refused for its size."""
    wishes = market.parent / "wishes.csv"
    wishes.write_text(
        "at,caller,tier,stream,prompt_tokens\n600,a,pro,true,420\n9000,b,pro,false,420\n"
        "9000,c,anonymous,true,420\n600,d,pro,true,9000\n"
    )
    result = drill(market, wishes)
    assert result.exit_code == 0, result.output
    assert row(result)[:4] == ["25.00%", "25.00%", "25.00%", "25.00%"]
    page = (market.parent / "out/report.html").read_text()
    assert "4 requests from a file" in page
    assert "by who answered" in page
    assert (market.parent / "out/callers.svg").stat().st_size > 5000


def test_a_ledger_replays_against_a_history_as_the_requests_that_it_is_of(tmp_path: Path) -> None:
    """Its seconds are whole, and a prompt's length is not in it: nothing else is lost."""
    past = replay.load("2026-07-21-four-reclaims-in-48-hours")
    traffic, start = Traffic(a_day=600, keys=3), past.market.start
    wishes = list(itertools.takewhile(lambda each: each.at < past.market.end, traffic.drawn(start, 0)))
    ledger = tmp_path / "ledger.jsonl"
    ends = [
        {"state": "done", "answered_by": "fallback", "micro_dollars": 40_000},
        {"state": "done", "answered_by": "fallback", "micro_dollars": 40_000},
        {"state": "cancelled", "answered_by": "gpu"},
        {"state": "failed", "answered_by": "gpu"},  # in the middle
        {"state": "failed", "answered_by": "", "tokens": 0},
        {"state": "failed", "answered_by": "gpu", "tokens": 0},  # the target's own no
        {"tokens": 0},  # of a gateway that was killed
    ]
    lines = [
        {"id": str(nth), "caller": f"key:{each.caller}", "began": int(each.at), "stream": each.stream}
        | {"tokens": each.tokens, "state": "done", "answered_by": "gpu"}
        | (ends[nth] if nth < len(ends) else {})
        for nth, each in enumerate(wishes)
    ]
    lines[6].pop("state")
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = recorded.read(ledger, start, past.market.end)
    assert len(read) == len(wishes) > 1000
    place = scene.named(["07-21"], days=1)
    told = recorded.ledger_tally(ledger, read)
    assert told is not None
    assert told.outcomes == {GPU: len(wishes) - 7, CLOUD: 2, LEFT: 1, CUT: 1, NOBODY: 2, REFUSED: 1}
    plans = (Plan(traffic), Plan(recorded=read, ledger=told))
    settings = default_settings()
    results = [Job(place, settings.policy, 0, settings, callers=plan).run() for plan in plans]
    drawn, replayed = (result.callers for result in results)
    assert drawn is not None
    assert replayed is not None
    rows = [Row(POLICIES[settings.policy].name, (results[1],))]
    simulated, itself = callers_told.lines(rows, told)
    assert (itself["policy"], itself["first, s"], itself["cut"]) == ("the ledger itself", "-", f"{1 / len(wishes):.2%}")
    assert float(itself["GPU"].rstrip("%")) == pytest.approx(100 * (1 - 7 / len(wishes)), abs=0.01)
    off = callers_told.off(rows, plans[1], settings)
    points = 100 * (replayed.share(CLOUD) - 2 / len(wishes))
    assert f"the cloud model {points:+.2f} points" in off
    assert f"the cloud model ${replayed.cloud_usd:.2f} for $0.08" in off
    assert callers_told.off(rows, plans[0], settings) == "", "no ledger, nothing to hold it against"
    assert simulated["left"] == "-"
    for outcome in (GPU, CLOUD):
        assert replayed.outcomes[outcome] == pytest.approx(drawn.outcomes[outcome], abs=5)
    assert drawn.outcomes[CLOUD] > 20


def test_a_ledger_of_another_time_than_the_drills_is_refused(market: Path) -> None:
    ledger = market.parent / "ledger.jsonl"
    ledger.write_text('{"caller": "key:1", "began": 946684801}\n')
    done = drill(market, ledger)
    assert (done.exit_code, "no request between" in done.output) == (2, True)


def test_drawn_callers_are_described_and_without_a_cloud_model_a_drought_leaves_them_unanswered(
    market: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drill_and_sweep, "_page", lambda *given, **named: Path("drawn/elsewhere"))
    result = drill(market, 300, "--traffic", "shape=flat", "--no-cloud", "--no-lane")
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "300 requests a day, the same at every hour, from 30 callers of the pro tier" in said
    assert "first come, first served; there is no cloud model" in said
    assert "nobody" in result.output.rpartition("What callers met")[2]


WRONG = [
    (("drill", "--traffic", "streams=0.5"), "--traffic, --no-lane and --no-cloud: of callers; allowed: with --callers"),
    (("drill", "--callers", "nobody.csv"), "--callers nobody.csv: expected requests a day, or a file that exists"),
    (("drill", "--callers", "0"), "--callers = 0.0: a number above 0, at most 1000000"),
    (
        ("drill", "--callers", "9", "--traffic", "streams=2", "--traffic", "tier=gold", "--traffic", "x=1"),
        "--traffic x=1: expected KEY=VALUE with one of a_day, at_once, keys, tier, streams, background, shape, "
        "prompt_tokens, tokens, spread\n--traffic tier = gold: anonymous, free or pro\n"
        "--traffic streams = 2: a number from 0 to 1",
    ),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[words[-1] for words, _ in WRONG])
def test_a_wrong_word_is_one_message_and_code_2(words: tuple[str, ...], message: str) -> None:
    result = call(*words)
    assert (result.exit_code, result.stderr.strip()) == (2, message)


def test_a_file_of_callers_is_told_all_its_odd_lines_at_once(market: Path) -> None:
    wishes = market.parent / "wishes.csv"
    wishes.write_text("at,tokens,tier\nsoon,1,pro\n5,0,pro\n5,1,gold\n5,1\n-1,1,pro\n")
    result = drill(market, wishes)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"{wishes}, line 2: at is 'soon'; allowed: seconds from the start, or ISO 8601",
        f"{wishes}, line 3: tokens is '0'; allowed: a whole number from 1 to 1048576",
        f"{wishes}, line 4: tier is 'gold'; allowed: one of anonymous, free, pro",
        f"{wishes}, line 5: at is 'as many values as columns'; allowed: seconds from the start, or ISO 8601",
        f"{wishes}, line 6: at is '-1'; allowed: seconds from the start, or since 1970",
    ]
    wishes.write_text("when,tokens\n1,1\n")
    assert "columns are when, tokens; allowed: at, and any of caller" in drill(market, wishes).stderr
    wishes.write_text('{"began": null}\n')
    assert "line 1: at is None; allowed" in drill(market, wishes).stderr
