"""What a game day leaves behind: receipts (JSON), the event log and the drawn page."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from fleet import events, report
from fleet.ops import history
from fleet.ops.gameday.scenario import Day, Receipt


def write(day: Day, receipts: Sequence[Receipt], began: datetime, out: Path) -> Path:
    """Receipts first: they must survive whatever fails after."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "receipts.json").write_text(
        json.dumps([asdict(receipt) for receipt in receipts], indent=1, default=str) + "\n", encoding="utf-8"
    )
    settings = day.stage.settings
    log = history.events(history.read(settings, day.stage.aws, began, datetime.now(UTC)), settings)
    with (out / "events.jsonl").open("w", encoding="utf-8") as file:
        events.write(log, file)
    return report.render(log, out, title=f"Game day of {settings.fleet_name}, {began:%Y-%m-%d}")
