"""The README's table of thresholds says what the settings say."""

from fleet import thresholds


def test_readme_holds_the_table_of_now() -> None:
    text = thresholds.README.read_text()
    assert thresholds.inserted(text) == text, "run `python -m fleet.thresholds`"


def test_each_threshold_stands_with_its_unit_and_reason() -> None:
    rows = thresholds.table().splitlines()
    assert (
        "| `watchdog.skip_cap_seconds` | 1800 s (30 min) | "
        "a churn loop always has a young box in it, and on-demand is what ends one |" in rows
    )
    assert "| `watchdog.alarm_minutes` | 12 min | " in "\n".join(rows)
    assert len(rows) > 20
