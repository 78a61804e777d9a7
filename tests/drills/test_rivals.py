"""What policies are held against: the fixed timer, markets of another build, and the judge of droughts."""

import itertools
import math
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleet.config.settings import Settings
from fleet.eventlog.events import Event
from fleet.eventlog.measure import Measure
from fleet.sim.cloud.behaviour import Boots
from fleet.sim.drills.drill import Result
from fleet.sim.drills.droughts import Droughts
from fleet.sim.drills.scene import Scene
from fleet.sim.experiments import benchmark_matrix, bounds, experiment, ratios, threshold_sweep
from fleet.sim.experiments.experiment import Job, Row
from fleet.sim.markets import levels, synthetic
from fleet.sim.markets.market import Step
from fleet.sim.policies.catalogue import POLICIES, dynamic_fallback
from tests.drills import fitting
from tests.drills.by_hand import BOOT_SECONDS, START, exact, lived, market, told, with_steps

pytestmark = pytest.mark.slow  # drills whole regions


def logged(settings: Settings, *steps: tuple[float, int]) -> list[Event]:
    return lived(market(*steps, hours=6), POLICIES["timer-30"], settings=settings, behaviour=exact())[0]


def levers(log: list[Event]) -> list[tuple[float, int]]:
    return [(e.at.timestamp() - START, e.fields["percentage"]) for e in log if e.kind == "lever"]


def test_the_fixed_timer_fails_over_on_the_first_failure_and_returns_launch_first_after_its_time_of_supply(
    settings: Settings,
) -> None:
    log = logged(settings, (3600, 0), (7200, 1000))
    (_, spot), (failover, on_demand), (back, again) = levers(log)
    assert [spot, on_demand, again] == [0, 100, 0]
    assert failover == 3600 + 15 + 1  # the attempt at the notice, and its event
    assert 7200 + 1800 <= back <= 7200 + 1800 + 60
    outages, serving = told(log, "box.unserving"), told(log, "box.serving")
    assert serving[0] == 2 + BOOT_SECONDS
    assert serving[2] < outages[1]  # spot serves before the on-demand box leaves


def test_the_fixed_timer_starts_counting_anew_when_supply_ends(settings: Settings) -> None:
    log = logged(settings, (3600, 0), (7200, 1000), (8000, 0), (8300, 1000))
    assert 8300 + 1800 <= levers(log)[-1][0] <= 8300 + 1800 + 60


@pytest.mark.parametrize("region", levels.REGIONS)
def test_levels_have_the_published_shares(region: str) -> None:
    days, any_zone = 200.0, 0.0
    for zone in (z for z in synthetic.statistics() if z[:-1] == region):
        seen = [fitting.observe(levels._changes(region, zone, seed, _end(days)), _end(days)) for seed in (1, 2)]
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
    elsewhere = (1.0, "market", {"pool": "p", "sells": True})
    assert judged(elsewhere, *SERVING, *LOST, FAILED, (1100.0, "lever", {"percentage": 100})).early == 1


def test_a_failover_at_once_is_early_unless_no_pool_sells() -> None:
    sold, dry = ((at, "market", {"pool": "p", "sells": at < 900}) for at in (1.0, 999.0))
    at_once = (1001.5, "lever", {"percentage": 100})
    assert judged(sold, *SERVING, *LOST, at_once).early == 1
    found = judged(sold, *SERVING, dry, *LOST[:1], at_once)
    assert (found.late_seconds, found.early, found.bridges) == ([1.5 - 130], 0, 0)


@pytest.mark.parametrize(("after", "answered", "missed"), [(120, 1, 0), (150, 0, 0), (400, 0, 1)])
def test_a_launch_that_succeeds_ends_the_drought(after: float, answered: int, missed: int) -> None:
    found = judged(*SERVING, *LOST, FAILED, (1015.0 + after, "box.launched", {"box": "b", "purchase": "spot"}))
    assert (found.answered, found.missed, found.late_seconds) == (answered, missed, [])


def test_a_move_while_a_box_serves_is_a_bridge() -> None:
    assert judged(*SERVING, (900.0, "lever", {"percentage": 100})).bridges == 1


def test_a_front_is_straight_between_its_points_and_tells_nothing_outside_them() -> None:
    points = [(100.0, 50.0), (200.0, 30.0)]
    assert [ratios.interpolated(points, cost) for cost in (100, 150, 200)] == [50, 40, 30]
    assert all(math.isnan(ratios.interpolated(points, cost)) for cost in (90, 210))


def case_of(*, minutes: float, usd: float) -> ratios.Compared:
    """A bridge policy at this point, three seeds alike, beside timers that span $110 to $200 and two dearer rivals."""
    points = dict.fromkeys(benchmark_matrix.TIMERS, (99.0, 199.0))
    points |= {"timer-0": (48, 110.0), "timer-10": (30, 200.0), "timer-30": (60, 115.0)}
    points |= {"alarm": (100, 100.0), "fallback": (60, 100.0), "bridge": (minutes, usd)}
    return ratios.Compared(
        {
            "us-east-1": {
                policy: [
                    benchmark_matrix.Outcome(benchmark_matrix.Task("fitted", "us-east-1", policy, seed, 1), *at)
                    for seed in range(3)
                ]
                for policy, at in points.items()
            }
        }
    )


@pytest.mark.parametrize(
    ("minutes", "usd", "said", "holds"),
    [
        (47, 120.0, "1.02 ± 0.00", "**falls**"),
        (42, 120.0, "0.91 ± 0.00", "holds"),
        (9999, 90.0, "not comparable", "**falls**"),
        (1, 250.0, "not comparable", "**falls**"),
    ],
)
def test_a_policy_is_held_against_the_timers_at_its_own_cost_and_fails_where_they_do_not_reach(
    minutes: float, usd: float, said: str, holds: str
) -> None:
    row = bounds.rows_of("fitted", case_of(minutes=minutes, usd=usd))[-1]
    assert f"| {said} |" in row
    assert row.endswith(f"| {holds} |")


def outcomes(*minutes: float) -> list[benchmark_matrix.Outcome]:
    task = benchmark_matrix.Task("fitted", "r", "one", 0, 1)
    return [benchmark_matrix.Outcome(task, value, 1) for value in minutes]


def test_an_interval_is_paired_so_that_luck_which_both_share_does_not_widen_it() -> None:
    alike = ratios.Compared({"r": {"one": outcomes(30, 150, 270), "other": outcomes(60, 300, 540)}})
    assert alike.ratio("one", "other", ratios.minutes, "r") == experiment.Mean(0.5, 0)
    apart = ratios.Compared({"r": {"one": outcomes(30, 150, 270), "other": outcomes(540, 300, 60)}})
    assert apart.ratio("one", "other", ratios.minutes, "r").half_width > 0.5


def test_an_interval_of_a_mean_over_places_has_the_luck_of_each_in_it_and_is_narrower_than_theirs() -> None:
    places = {
        place: {"one": outcomes(*own), "other": outcomes(10, 10, 10)}
        for place, own in (("r", (9, 10, 14)), ("s", (5, 6, 7)))
    }
    found = ratios.Compared(places)
    each = [found.ratio("one", "other", ratios.minutes, place).half_width for place in "rs"]
    both = found.ratio("one", "other", ratios.minutes, *"rs")
    assert both.value == pytest.approx((1.1 + 0.6) / 2)
    assert both.half_width == pytest.approx(math.hypot(*each) / 2 * experiment.t95(4) / experiment.t95(2))


@pytest.mark.parametrize("case", ["fitted", "a fifth of the events lost"])
def test_scans_that_are_passed_over_would_have_changed_nothing(case: str) -> None:
    brisk = benchmark_matrix.Task(case, "us-west-2", "bridge", 7, 6).job()
    figures = [
        (one.measure.windows, one.measure.usd, one.droughts) for one in (brisk.run(), replace(brisk, brisk=False).run())
    ]
    assert figures[0] == figures[1]
    assert figures[0][0]


@pytest.mark.parametrize("case", [name for name, case in benchmark_matrix.CASES.items() if case.blind])
def test_policies_that_a_case_calls_blind_live_in_it_as_in_the_plain_one(case: str) -> None:
    for policy in ("fallback", "timer-30"):
        there = benchmark_matrix.Task(case, "us-east-2", policy, 7, 4)
        measured = {
            benchmark_matrix.outcome(there, task.job().run()) for task in (there, replace(there, case="fitted"))
        }
        assert len(measured) == (1 if policy in benchmark_matrix.CASES[case].blind else 2)


def test_a_place_with_few_losses_is_lived_in_more_often_and_each_life_once() -> None:
    tasks = list(benchmark_matrix.tasks(["fitted", "the valve as shipped"], ["bridge", "fallback"], None, 45))
    assert len(tasks) == len(set(tasks))
    lived = Counter((task.case, task.policy, task.place) for task in tasks)
    assert lived["fitted", "bridge", "us-west-2"] > lived["fitted", "bridge", "us-east-1"] > 1
    assert lived["the valve as shipped", "bridge", "us-west-2"] == lived["fitted", "bridge", "us-west-2"]
    assert not any(of[:2] == ("the valve as shipped", "fallback") for of in lived)


def test_every_case_of_the_matrix_has_its_markets() -> None:
    for case in benchmark_matrix.CASES:
        for place in benchmark_matrix.places(case):
            job = benchmark_matrix.Task(case, place, "bridge", 1001, 2).job()
            assert list(itertools.islice(job.drill().market.steps(), 3)), (case, place)


def test_the_fallback_tries_once_a_minute_while_on_demand_is_dry_and_every_refusal_is_in_the_log(
    settings: Settings,
) -> None:
    dry = [Step(START, "g6.xlarge", 0, purchase="on-demand"), Step(START + 3600, "g6.xlarge", 9, purchase="on-demand")]
    scene = with_steps(market((600, 0), (1200, 1000), (1300, 0), hours=2), dry)
    refused = [
        e.at.timestamp() - START
        for e in lived(scene, dynamic_fallback, settings=settings, behaviour=exact())[0]
        if e.kind == "launch.failed" and e.fields["purchase"] == "on-demand"
    ]
    assert refused[0] == 0
    assert max(Counter(int(at) // 60 for at in refused if at > 1300).values()) == 1
    assert len([at for at in refused if at > 1300]) == pytest.approx((3600 - 1300) / 60, abs=2)


@pytest.mark.parametrize("boots", [Boots(failed_first=2), Boots(stuck_share=0.5)])
def test_the_fallback_replaces_a_box_beside_the_group_whose_boot_fails(boots: Boots, settings: Settings) -> None:
    log, _ = lived(market((0, 0), hours=6), dynamic_fallback, settings=settings, behaviour=exact(boots=boots))
    assert [e for e in log if e.kind == "box.ended"]
    assert [e for e in log if e.kind == "box.serving"]


def test_drills_of_an_earlier_run_are_not_drilled_again_even_if_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CHECKED", benchmark_matrix.Task("fitted", "us-east-2", "timer-0", 201, 0.2))
    arguments = ["--seeds", "1", "--days", "0.2", "--workers", "1", "--case", "fitted", "--out", str(tmp_path)]
    first = CliRunner().invoke(bounds.main, [*arguments, "--policy", "fallback", "--policy", "timer-0"])
    assert first.exit_code == 0, first.output
    path = tmp_path / "outcomes.jsonl"
    known = benchmark_matrix.remembered(path)
    assert {task.policy for task in known} == {"fallback", "timer-0"}
    path.write_text(path.read_text()[:-20])
    cut = benchmark_matrix.remembered(path)
    assert len(cut) == len(known) - 1
    asked: list[experiment.Job] = []
    monkeypatch.setattr(bounds, "run", lambda jobs, **_: asked.extend(jobs) or iter(()))
    CliRunner().invoke(bounds.main, [*arguments, "--policy", "fallback", "--policy", "timer-0", "--resume"])
    assert len(asked) == 1


def test_page_of_thresholds_is_of_the_policy_and_the_defaults_of_now() -> None:
    job = Job(
        Scene(region=threshold_sweep.REGION, days=threshold_sweep.DAYS), "alarm", 0, threshold_sweep.defaults("alarm")
    )
    page = (threshold_sweep.DOCS / "thresholds.md").read_text()
    assert threshold_sweep.first_market(job.run()) in page, "run `make thresholds`, then read the page again"


def test_page_of_the_bridge_policy_is_of_the_policy_and_the_simulated_cloud_of_now() -> None:
    assert bounds.checked_line() in bounds.PAGE.read_text(), "run `make bench-policy`, then read the page again"


def test_a_threshold_that_makes_no_difference_is_not_said_to_lie_on_the_front() -> None:
    lines = (threshold_sweep.DOCS / "thresholds.md").read_text().splitlines()
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
        return Row(name, tuple(Result(Measure(degraded_seconds=m, usd={"spot": m})) for m in minutes))

    base = row("the defaults", 100, 100)
    assert threshold_sweep.indistinguishable(row("noise", 99, 101), base)
    assert not threshold_sweep.indistinguishable(row("better", 80, 81), base)
    assert not threshold_sweep.indistinguishable(base, base)
    assert threshold_sweep.distinct_front([base, row("noise", 90, 109)]) == [base]
