"""The docs' tables of settings say what the settings say."""

from pathlib import Path

import pytest

from fleet import thresholds

README, GATEWAY = thresholds.PAGES


@pytest.mark.parametrize("page", thresholds.PAGES, ids=lambda page: page.name)
def test_page_holds_the_table_of_now(page: Path) -> None:
    assert thresholds.inserted(page) == page.read_text(), "run `python -m fleet.thresholds`"


def test_each_threshold_stands_with_its_unit_and_reason() -> None:
    rows = thresholds.table(README).splitlines()
    assert (
        "| `watchdog.skip_cap_seconds` | 1800 s (30 min) | "
        "a churn loop always has a young box in it, and on-demand is what ends one |" in rows
    )
    assert "| `watchdog.alarm_minutes` | 12 min | " in "\n".join(rows)
    assert len(rows) > 20
    rows = thresholds.table(GATEWAY).splitlines()
    assert "| `gateway.budgets.comment_seconds` | 20 s | a stream that stalls still shows that it lives |" in rows
    assert len(rows) > 20
