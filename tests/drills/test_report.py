"""The page: one file, nothing from the network, the same bytes for the same log, everything of the log on it."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet.config.settings import Settings
from fleet.eventlog import html_report, spans, timeline
from fleet.eventlog.events import Event
from fleet.sim.drills import replay
from fleet.sim.experiments.pictures import FOLDER
from tests.drills.by_hand import build

pytestmark = pytest.mark.slow


@pytest.fixture
def log(settings: Settings) -> list[Event]:
    """The four reclaims of July without a watchdog, with one mail and one decision put in."""
    record = replay.load("07-21")
    cloud, events = build(settings, record.market, record.behaviour, serving="spot")
    cloud.run(record.market.start + 6000)
    cloud.mail("a <mail> subject", "its body")
    cloud.world.log("decision", signal={"wake": "scan"}, action="skipped", reason="a reason to skip", outcome="done")
    cloud.run()
    return events


def test_page_is_one_file_of_all_that_was_told_alike_each_time_and_asks_nothing_of_the_network(
    log: list[Event], tmp_path: Path
) -> None:
    text, again = (html_report.render(log, tmp_path / n, title="four reclaims").read_text() for n in ("one", "two"))
    assert text == again
    assert "<svg" in text
    assert not re.search(r"""(src|href)=["'](?!data:|#)|@import|<script""", text)
    for words in ("a &lt;mail&gt; subject", "its body", "a reason to skip"):
        assert words in text
    assert "a <mail> subject" not in text, "nor in the tables: a picture escapes by itself"
    assert (tmp_path / "one/timeline.svg").stat().st_size > 0
    assert (tmp_path / "one/timeline.png").read_bytes().startswith(b"\x89PNG")


def test_quiet_decisions_in_a_row_are_one_line_only_where_their_reasons_are_the_same(tmp_path: Path) -> None:
    def decided(minute: int, reason: str) -> Event:
        fields = {"signal": {"wake": "scan"}, "action": "nothing", "reason": reason, "outcome": "done"}
        return Event(datetime(2026, 7, 28, 2, minute, tzinfo=UTC), "decision", fields)

    rest = [
        decided(minute, reason)
        for minute, reason in enumerate(["all is well", "all is well", "score 2", "all is well"])
    ]
    text = html_report.render(
        [Event(rest[0].at, "start", {"name": "x", "desired": 1}), *rest], tmp_path, title="x"
    ).read_text()
    assert text.count("score 2") == 1
    assert text.count("all is well") == 2
    assert "nothing &times; 2" in text


def test_a_long_table_is_closed_and_ends_with_a_word_on_what_is_left_out(tmp_path: Path) -> None:
    start = datetime(2026, 7, 28, tzinfo=UTC)
    skipped = {"signal": {"wake": "scan"}, "action": "skipped", "outcome": "done"}
    log = [Event(start + timedelta(minutes=n), "decision", {**skipped, "reason": f"reason {n}."}) for n in range(250)]
    text = html_report.render(
        [Event(start, "start", {"name": "x", "desired": 1}), *log], tmp_path, title="x"
    ).read_text()
    page = text[text.index("<details") :]
    assert page.startswith("<details>")
    assert page.count("<td>reason ") == html_report.ROWS_AT_MOST
    assert "50 more lines: all of them are in the event log beside this page" in page


def test_a_clock_that_was_set_is_no_mark_on_a_picture(tmp_path: Path) -> None:
    waiting = {"signal": {"wake": "rebalance"}, "action": "waiting", "reason": "i-1 may go"}
    log = [at(0, "start", name="x", desired=1), at(1, "decision", **waiting), at(9, "end", name="x", desired=1)]
    assert "may go" not in drawn(log, tmp_path)


def test_spans_find_the_degraded_windows(log: list[Event]) -> None:
    minutes = [round((span.end - span.start) / 60, 1) for span in spans.read(log).degraded()]
    assert minutes == [5.5, 214.0, 7.2, 111.6]


def at(minute: float, kind: str, **fields: object) -> Event:
    return Event(datetime(2026, 7, 28, 2, tzinfo=UTC) + timedelta(minutes=minute), kind, fields)


def drawn(events: list[Event], folder: Path) -> str:
    return timeline.save(spans.read(events), folder / "x.svg", title="x").read_text()


def test_the_night_of_28_july_says_why_the_alarm_is_late_that_nobody_was_mailed_and_that_both_pools_refused() -> None:
    text = (FOLDER / "night-of-28-july.svg").read_text()
    for words in ("it tells of the minutes before", ">none<", ">mail<", ">g5.xlarge spot<", "two minutes are left"):
        assert words in text, words


@pytest.mark.parametrize(("minute", "says"), [(4, f"◂ {timeline.LATE}"), (36, f"{timeline.LATE} ▸"), (20, None)])
def test_a_late_alarm_is_explained_on_the_side_that_has_the_room(tmp_path: Path, minute: int, says: str | None) -> None:
    box = {"purchase": "spot", "pool": "g6.xlarge", "usd_per_hour": 0.3}
    log = [
        at(0, "start", name="x", desired=1),
        at(0, "box.launched", box="i-1", **box),
        at(1, "box.serving", box="i-1"),
    ]
    log += [at(m, "alarm", state=state) for m, state in ((1, "OK"), (minute, "ALARM"), (minute + 2, "OK"))]
    text = drawn([*log, at(40, "end", name="x", desired=1)], tmp_path)
    assert (says in text) if says else (timeline.LATE not in text)


def test_a_picture_of_many_days_names_what_was_done_and_a_shorter_one_says_why(tmp_path: Path) -> None:
    why = "spot box i-00000000000000042 serves"
    log = [at(0, "start", name="x", desired=1), at(60, "decision", signal={}, action="re-armed", reason=why)]
    week = drawn([*log, at(7 * 1440, "end", name="x", desired=1)], tmp_path)
    assert ">re-armed<" in week
    assert ">re-armed: spot box i-42 serves<" in drawn([*log, at(1440, "end", name="x", desired=1)], tmp_path)


def test_an_on_demand_drought_has_a_lane(tmp_path: Path) -> None:
    dry = [at(m, "market", pool="g6.xlarge", sells=m > 9, purchase="on-demand") for m in (0, 10)]
    text = drawn([at(0, "start", name="x", desired=1), *dry, at(20, "end", name="x", desired=1)], tmp_path)
    assert ">g6.xlarge on-demand<" in text


def test_what_moved_the_lever_is_drawn_before_what_was_skipped_and_the_rest_is_counted(tmp_path: Path) -> None:
    skipped = {"signal": {}, "action": "skipped", "reason": "a long reason why nothing was done about it"}
    many = [at(tenth / 10, "decision", **skipped) for tenth in range(90)]
    log = [at(0, "start", name="x", desired=1), *many, at(9, "decision", signal={}, action="failover", reason="dark")]
    text = drawn([*log, at(10, "end", name="x", desired=1)], tmp_path)
    assert "failover: dark" in text
    assert re.search(r"watchdog \(\+\d+ more\)", text)


def test_a_picture_of_twenty_boxes_keeps_its_legend_inside_and_the_names_of_its_pools_apart(tmp_path: Path) -> None:
    lives = [
        at(0, "box.launched", box=f"i-{n}", purchase="spot", pool="us-east-2a", usd_per_hour=0.34) for n in range(140)
    ]
    dry = [at(0, "market", pool=pool, purchase="spot", sells=False) for pool in ("us-east-2b", "us-east-2c")]
    log = [at(0, "start", name="x", desired=20), *lives, *dry, at(60, "end", name="x", desired=20)]
    text = drawn(log, tmp_path)
    width = float(re.findall(r'viewBox="0 0 ([0-9.]+) ', text)[0])

    def place(words: str) -> tuple[float, float]:
        x, y = re.findall(rf'x="([-0-9.]+)" y="([-0-9.]+)"[^>]*>{words}<', text)[0]
        return float(x), float(y)

    assert place("spot, serving")[0] > 0
    assert place("notice: two minutes are left")[0] < width - 100, "8 points high, it is 110 wide"
    assert place("us-east-2c spot")[1] - place("us-east-2b spot")[1] > 9, "the names are 9 points high"


def test_a_return_box_by_box_hides_nothing_that_was_decided_after_it(tmp_path: Path) -> None:
    step = {"signal": {"wake": "scan"}, "outcome": "done", "reason": "x" * 60}
    returned = [at(n, "decision", **step, action="re-arm") for n in range(19)]
    after = [at(20 + n, "decision", **step, action=act) for n, act in enumerate(("re-armed", "failover", "gave-up"))]
    text = drawn([at(0, "start", name="x", desired=20), *returned, *after, at(120, "end", name="x")], tmp_path)
    for act in ("re-arm:", "re-armed:", "failover:", "gave-up:"):
        assert f">{act} xxx" in text, act
    assert "+16 more" in text


def test_page_of_several_boxes_tells_box_minutes_and_the_minutes_without_any(tmp_path: Path) -> None:
    launched = [at(0, "box.launched", box=f"i-{n}", purchase="spot", pool="g6", usd_per_hour=0.34) for n in (1, 2)]
    served = [at(2, "box.serving", box="i-1"), at(5, "box.serving", box="i-2")]
    log = [at(0, "start", name="x", desired=2), *launched, *served, at(60, "end", name="x", desired=2)]
    page = html_report.render(log, tmp_path, title="x").read_text()
    assert "7.0 box-minutes (2.0 min without any box)" in page
