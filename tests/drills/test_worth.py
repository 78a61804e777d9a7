"""Whether the fleet is worth having: against a spreadsheet written by hand, and where the answer must be plain."""

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from fleet.config import prices
from fleet.config.settings import Settings
from fleet.sim.callers import worth
from fleet.sim.callers.listener import ASSUMED
from fleet.sim.callers.tally import GPU
from fleet.sim.callers.traffic import Traffic
from fleet.sim.callers.worth import Curve, Option
from fleet.sim.drills.drill import default_settings
from fleet.sim.experiments import worth_ways
from tests.drills import by_hand

SHEET = Path(__file__).with_name("worth.csv")
ROUND = Traffic(shape="flat", spread=0)
HOURLY = tuple((rate / 24, share) for rate, share in ((300, 1.0), (3000, 0.96), (30000, 0.2)))
BOX = Option("as set", 1, 0.34 * 24, (0.01, 0.99), (Curve(HOURLY),))


def sheet(path: Path) -> dict[str, tuple[float, ...]]:
    """The rows of a spreadsheet by their first cell: its formulas carried out, from top to bottom."""
    cells: dict[str, float] = {}
    rows: dict[str, tuple[float, ...]] = {}
    with path.open() as file:
        for number, row in enumerate(csv.reader(file), 1):
            if number == 1:
                continue
            for column, text in zip("BCD", row[1:], strict=True):
                filled = re.sub(r"\b[BCD]\d+\b", lambda found: repr(cells[found[0]]), text.removeprefix("="))
                cells[f"{column}{number}"] = float(eval(filled, {"__builtins__": {}}))  # noqa: S307  our own file
            rows[row[0]] = tuple(cells[f"{column}{number}"] for column in "BCD")
    return rows


def test_three_rates_cost_what_the_spreadsheet_says_to_the_cent() -> None:
    rows = sheet(SHEET)
    each = worth.answer_usd(ROUND, ASSUMED)
    for place, rate in enumerate((300, 3000, 30000)):
        traffic = replace(ROUND, a_day=rate)
        assert BOX.gpu_share(traffic) == pytest.approx(rows["share by the GPU"][place])
        assert round(BOX.month(traffic, each), 2) == round(rows["the fleet a month"][place], 2)
        assert round(worth.cloud_alone(traffic, each), 2) == round(rows["the cloud alone a month"][place], 2)


def test_the_prices_are_those_of_the_page_on_cost() -> None:
    page = (Path(__file__).parents[2] / "docs/cost.md").read_text()
    rows = {cells[1].strip(): cells[-2].strip() for line in page.splitlines() if len(cells := line.split("|")) > 4}
    items = (*prices.FLEET, *prices.PER_BOX, *prices.GATEWAY)
    assert {item.what: f"${item.month:.2f}" for item in items} == {item.what: rows[item.what] for item in items}


def test_a_fleet_that_can_never_answer_enough_has_no_break_even_and_a_dear_cloud_gives_it_one() -> None:
    each = worth.answer_usd(ROUND, ASSUMED)
    assert worth.break_even(BOX, ROUND, each) is None
    rate = worth.break_even(BOX, ROUND, each * 20)
    assert rate is not None
    at = replace(ROUND, a_day=rate)
    assert BOX.month(at, each * 20) == pytest.approx(worth.cloud_alone(at, each * 20), rel=1e-6)
    assert worth.times_dearer(BOX, at, each * 20) == pytest.approx(1.0, rel=1e-6)
    below = replace(ROUND, a_day=rate * 0.9)
    assert BOX.month(below, each * 20) > worth.cloud_alone(below, each * 20)


def test_beyond_its_last_point_a_box_answers_no_more() -> None:
    curve = Curve(((10.0, 1.0), (100.0, 0.5)))
    assert [curve.answered(rate) for rate in (5, 10, 55, 100, 1000)] == [5, 10, 30, 50, 50]


def test_a_week_of_office_hours_loses_more_than_the_same_requests_spread_out() -> None:
    flat = Traffic(a_day=4000, shape="flat")
    assert BOX.gpu_share(replace(flat, shape="week")) < BOX.gpu_share(flat)


def test_the_price_of_the_cloud_moves_the_answer_one_to_one_and_the_most_comes_first() -> None:
    moved = worth.movers(BOX, replace(ROUND, a_day=300), ASSUMED)
    reach = {each.what: each.reach for each in moved}
    assert reach["the cloud model's price"] == pytest.approx(4.0)
    assert [each.reach for each in moved] == sorted(reach.values(), reverse=True)
    assert all(math.isfinite(value) and value > 1 for value in reach.values())


def test_a_box_that_always_serves_answers_everybody_below_its_rate_and_no_more_than_it_can_above(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "LOADS", (0.1, 3.0))
    monkeypatch.setattr(worth, "REQUESTS", 250)
    (low, few), (high, many) = worth.steady(Traffic(), settings, "g5.xlarge", 1).points
    assert few > 0.95
    assert high * many == pytest.approx(low * 10, rel=0.15), "the box is never idle"


@pytest.mark.usefixtures("quick")
def test_the_curves_tell_what_market_and_callers_lived_through_together_do() -> None:
    settings, traffic = default_settings(), Traffic(shape="flat")
    option = worth_ways.options(settings, traffic, 2, 1)[0]
    assert sum(option.serving) == pytest.approx(1)
    assert option.serving[0] > 0, "a market that takes nothing says nothing"
    tally = worth_ways.together(worth_ways.ways(settings)[0], traffic, 2, 1)
    assert tally.asked > 500
    assert option.gpu_share(traffic) == pytest.approx(tally.share(GPU), abs=0.02)


def test_while_one_of_two_boxes_is_missing_the_other_answers_what_one_can() -> None:
    one, two = Curve(((10.0, 1.0), (100.0, 0.5))), Curve(((20.0, 1.0), (200.0, 0.5)))
    pair = Option("two", 2, 1.0, (0.1, 0.3, 0.6), (one, two))
    assert pair.gpu_share(Traffic(a_day=24 * 5, shape="flat")) == pytest.approx(0.9), "few requests: one is enough"
    assert pair.gpu_share(Traffic(a_day=24 * 100, shape="flat")) == pytest.approx(
        0.3 * 0.5 + 0.6 * two.answered(100) / 100
    )
    assert pair.most() == pytest.approx(0.3 * 50 + 0.6 * 100)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth, "LOADS", (0.1, 1.0, 3.0))
    monkeypatch.setattr(worth, "REQUESTS", 60)


def call(tmp_path: Path, *words: str) -> Result:
    return by_hand.call("worth", "--days", 1, "--seeds", 1, "--out", tmp_path / "out", *words)


@pytest.mark.usefixtures("quick")
def test_the_page_says_plainly_that_it_is_not_worth_it_with_every_price_and_its_date(tmp_path: Path) -> None:
    result = call(tmp_path, "--rate", "300")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out/report.html").read_text()
    for said in ("Not worth having for its cost at 300 requests a day", "July 2026", "March 2026", "150 (median"):
        assert said in page
    assert {"the fleet as set", "on-demand only", "one box more", "the cloud model alone"} <= set(cells(page))


@pytest.mark.usefixtures("quick")
def test_a_dear_cloud_makes_it_worth_having_from_a_rate_on(tmp_path: Path) -> None:
    dear = ("--cloud-input", "20", "--cloud-output", "60", "--json")
    found = json.loads(call(tmp_path, "--rate", "3000", *dear).output)
    assert found["verdict"].startswith("Worth having at 3000 requests a day")
    assert found["ways"][0]["break_even_a_day"] < 3000
    assert found["ways"][0]["usd_a_month"] < found["ways"][-1]["usd_a_month"]


@pytest.mark.usefixtures("quick")
def test_a_ledger_gives_rate_lengths_and_shares(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    lines = [
        {"caller": f"key:{nth % 3}", "began": 1_790_000_000 + nth * 864, "stream": nth % 4 == 0, "tokens": 100 + nth}
        for nth in range(201)
    ]
    ledger.write_text("\n".join(map(json.dumps, lines)))
    found = json.loads(call(tmp_path, "--ledger", str(ledger), "--json").output)
    assert found["requests_a_day"] == pytest.approx(100, rel=0.01)
    assert "answers of 200 (median" in " ".join(found["assumed"])
    assert call(tmp_path, "--ledger", str(ledger), "--rate", "9").exit_code == 2


def cells(page: str) -> list[str]:
    return re.findall(r"<td>([^<]*)</td>", page)
