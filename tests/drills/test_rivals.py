"""What policies are held against: the fixed knobs, markets of another build, and the judge of droughts."""

import itertools
import re
from collections import Counter
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleet.drills import bounds, contest, levels, standing, synthetic
from fleet.drills.behaviour import Behaviour, Boots
from fleet.drills.compare import Job, Row
from fleet.drills.drill import Drill, Result
from fleet.drills.droughts import Droughts
from fleet.drills.knobs import FixedKnobs
from fleet.drills.market import Market, Step
from fleet.drills.policies import DynamicFallback
from fleet.drills.scene import Scene
from fleet.events import Event
from fleet.measure import Measure
from fleet.settings import Settings
from tests.drills.by_hand import BOOT_SECONDS, START, exact, market, with_steps


def logged(settings: Settings, policy: FixedKnobs, *steps: tuple[float, int], hours: float = 6) -> list[Event]:
    log: list[Event] = []
    policy.live(Drill(market(*steps, hours=hours), settings, exact(), emit=log.append))
    return log


def levers(log: list[Event]) -> list[tuple[float, int]]:
    return [(e.at.timestamp() - START, e.fields["percentage"]) for e in log if e.kind == "lever"]


def test_fixed_knobs_fail_over_on_the_first_failure_and_return_after_their_time_of_supply(settings: Settings) -> None:
    log = logged(settings, FixedKnobs(1800), (3600, 0), (7200, 1000))
    (_, spot), (failover, on_demand), (back, again) = levers(log)
    assert [spot, on_demand, again] == [0, 100, 0]
    assert failover == 3600 + 15 + 1  # the attempt at the notice, and its event
    assert 7200 + 1800 <= back <= 7200 + 1800 + 60


def test_fixed_knobs_start_counting_anew_when_supply_ends(settings: Settings) -> None:
    log = logged(settings, FixedKnobs(1800), (3600, 0), (7200, 1000), (8000, 0), (8300, 1000))
    assert 8300 + 1800 <= levers(log)[-1][0] <= 8300 + 1800 + 60


def test_fixed_knobs_return_launch_first(settings: Settings) -> None:
    log = logged(settings, FixedKnobs(1800), (3600, 0), (7200, 1000))
    outages = [e.at.timestamp() - START for e in log if e.kind == "box.unserving"]
    serving = [e.at.timestamp() - START for e in log if e.kind == "box.serving"]
    assert serving[0] == 2 + BOOT_SECONDS
    assert serving[2] < outages[1]  # spot serves before the on-demand box leaves


@pytest.mark.parametrize("region", levels.REGIONS)
def test_levels_have_the_published_shares(region: str) -> None:
    days, any_zone = 200.0, 0.0
    for zone in (z for z in synthetic.statistics() if z[:-1] == region):
        seen = [synthetic.observe(levels._changes(region, zone, seed, _end(days)), _end(days)) for seed in (1, 2)]
        share = sum(o.available_share for o in seen) / 2
        assert abs(share - synthetic.statistics()[zone]["available_share"]) < 0.08
        any_zone = max(any_zone, share)
        wanted = synthetic.statistics()[zone]["transitions_per_day"]
        assert 0.5 < sum(o.transitions_per_day for o in seen) / 2 / wanted < 1.5
    assert any_zone > 0


def _end(days: float) -> float:
    return synthetic.START + days * synthetic.DAY_SECONDS


def test_levels_are_the_same_for_the_same_seed() -> None:
    first, again, other = (list(levels.market("us-east-2", seed, days=3).steps()) for seed in (1, 1, 2))
    assert first == again != other


def judged(*events: tuple[float, str, dict[str, Any]]) -> Droughts:
    droughts = Droughts(130)
    for at, kind, fields in events:
        droughts.add(Event(datetime.fromtimestamp(at, UTC), kind, fields))
    return droughts


SERVING = [
    (0.0, "lever", {"percentage": 0}),
    (0.0, "box.launched", {"box": "a", "purchase": "spot"}),
    (300.0, "box.serving", {"box": "a"}),
]
LOST = [(1000.0, "notice", {"box": "a"}), (1003.0, "box.unserving", {"box": "a", "why": "notice"})]
FAILED = (1015.0, "launch.failed", {"purchase": "spot"})


def test_patience_is_measured_from_the_first_failed_launch_with_nothing_serving() -> None:
    early = (900.0, "launch.failed", {"purchase": "spot"})
    found = judged(*SERVING, early, *LOST, FAILED, (1150.0, "lever", {"percentage": 100}))
    assert (found.late_seconds, found.early, found.bridges) == ([5.0], 0, 0)


def test_a_failover_before_patience_runs_out_is_early() -> None:
    assert judged(*SERVING, *LOST, FAILED, (1100.0, "lever", {"percentage": 100})).early == 1


@pytest.mark.parametrize(("after", "answered", "missed"), [(120, 1, 0), (150, 0, 0), (400, 0, 1)])
def test_a_launch_that_succeeds_ends_the_drought(after: float, answered: int, missed: int) -> None:
    found = judged(*SERVING, *LOST, FAILED, (1015.0 + after, "box.launched", {"box": "b", "purchase": "spot"}))
    assert (found.answered, found.missed, found.late_seconds) == (answered, missed, [])


def test_a_move_while_a_box_serves_is_a_bridge() -> None:
    assert judged(*SERVING, (900.0, "lever", {"percentage": 100})).bridges == 1


def test_a_front_is_straight_between_its_points_out_of_reach_below_them_and_level_above() -> None:
    front = [(100.0, 50.0), (200.0, 30.0)]
    assert [bounds.interpolated(front, cost) for cost in (100, 150, 200, 90, 210)] == [50, 40, 30, inf, 30]


@pytest.mark.parametrize(
    ("minutes", "cost", "said", "holds"),
    [
        (47, 120.0, "1.02", False),
        (42, 120.0, "0.91", True),
        (99, 90.0, "cheaper than any knob", True),
        (31, 250.0, "1.03", False),
    ],
)
def test_a_policy_is_held_against_the_knobs_at_its_own_cost(
    minutes: float, cost: float, said: str, holds: bool
) -> None:
    points = {
        "knobs 10 min": (48, 110.0),
        "knobs 30 min": (30, 200.0),
        "knobs 60 min": (60, 115.0),
        "alarm": (100, 100.0),
        "fallback": (60, 100.0),
    }
    points["bridge"] = (minutes, cost)
    results = bounds.Results(
        contest.Outcome(contest.Task("fitted", "as measured", "r", policy, 1, 1), at, usd, 1, (1.0, 2.0), 0, 0, 0, 0)
        for policy, (at, usd) in points.items()
    )
    (verdict,) = [found for found in bounds.verdicts(results, "bridge") if found[0].startswith("fixed knobs")]
    assert verdict[1:] == (f"r {said}", holds)


def test_every_case_has_its_market_and_behaviour() -> None:
    for name, behaviour in contest.default_cases():
        assert behaviour in contest.BEHAVIOURS
        steps = contest.MARKETS[name]("us-west-2", 1, 2).steps()
        assert list(itertools.islice(steps, 3))


def fallback(settings: Settings, behaviour: Behaviour, scene: Market) -> list[Event]:
    log: list[Event] = []
    DynamicFallback().live(Drill(scene, settings, behaviour, emit=log.append))
    return log


def test_the_fallback_tries_once_a_minute_while_on_demand_is_dry_and_every_refusal_is_in_the_log(
    settings: Settings,
) -> None:
    dry = [Step(START, "g6.xlarge", 0, purchase="on-demand"), Step(START + 3600, "g6.xlarge", 9, purchase="on-demand")]
    scene = with_steps(market((600, 0), (1200, 1000), (1300, 0), hours=2), dry)
    refused = [
        e.at.timestamp() - START
        for e in fallback(settings, exact(), scene)
        if e.kind == "launch.failed" and e.fields["purchase"] == "on-demand"
    ]
    assert refused[0] == 0
    assert max(Counter(int(at) // 60 for at in refused if at > 1300).values()) == 1
    assert len([at for at in refused if at > 1300]) == pytest.approx((3600 - 1300) / 60, abs=2)


@pytest.mark.parametrize("boots", [Boots(failed_first=2), Boots(stuck_share=0.5)])
def test_the_fallback_replaces_a_box_beside_the_group_whose_boot_fails(boots: Boots, settings: Settings) -> None:
    log = fallback(settings, exact(boots=boots), market((0, 0), hours=6))
    assert [e for e in log if e.kind == "box.ended"]
    assert [e for e in log if e.kind == "box.serving"]


def test_drills_of_an_earlier_run_are_not_drilled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--seeds", "1", "--days", "0.2", "--jobs", "1", "--case", "fitted/as measured", "--out", str(tmp_path)]
    first = CliRunner().invoke(bounds.main, [*arguments, "--policy", "fallback", "--policy", "knobs 10 min"])
    assert first.exit_code == 0, first.output
    (written,) = tmp_path.iterdir()
    known = contest.remembered(written)
    assert {task.policy for task in known} == {"fallback", "knobs 10 min"}
    asked: list[contest.Task] = []
    monkeypatch.setattr(contest, "run_all", lambda tasks, jobs, console: asked.extend(tasks) or [])
    CliRunner().invoke(bounds.main, [*arguments, "--policy", "fallback", "--policy", "alarm", "--resume"])
    assert {task.policy for task in asked} == {"alarm"}
    assert contest.remembered(written) == known


def test_page_of_thresholds_is_of_the_policy_and_the_defaults_of_now() -> None:
    job = Job(Scene(region=standing.REGION, days=standing.DAYS), "watchdog", 0, standing.defaults("alarm"))
    page = (standing.DOCS / "thresholds.md").read_text()
    assert standing.first_market(job.run()) in page, "run `make thresholds`, then read the page again"


def test_a_threshold_that_makes_no_difference_is_not_said_to_lie_on_the_front() -> None:
    lines = (standing.DOCS / "thresholds.md").read_text().splitlines()
    rows = [line.split("|") for line in lines if line.startswith("| `")]
    rows = [row for row in rows if len(row) == 8]
    assert len(rows) > 5
    for row in rows:
        changes = [[float(number) for number in re.findall(r"[-+]?[\d.]+", cell)] for cell in row[4:6]]
        if any(abs(value) == half_width != 0 for value, half_width in changes):
            continue  # rounded, they do not tell on which side of the interval zero lies
        no_difference = all(abs(value) <= half_width for value, half_width in changes)
        assert no_difference == (row[6].strip() == "indistinguishable"), row


def test_two_rows_are_indistinguishable_where_both_intervals_hold_zero() -> None:
    def row(name: str, *minutes: float) -> Row:
        return Row(name, tuple(Result("m", "p", 0, Measure(degraded_seconds=m, usd={"spot": m})) for m in minutes))

    base = row("the defaults", 100, 100)
    assert standing.indistinguishable(row("noise", 99, 101), base)
    assert not standing.indistinguishable(row("better", 80, 81), base)
    assert not standing.indistinguishable(base, base)
    assert standing.distinct_front([base, row("noise", 90, 109)]) == [base]
