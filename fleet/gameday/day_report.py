"""What a game day leaves behind: receipts (JSON), the event log and the drawn page."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from fleet.eventlog import events, html_report
from fleet.eventlog.events import Event
from fleet.gameday.scenario import Day, StepReceipt
from fleet.ops import live_history


def write(day: Day, receipts: Sequence[StepReceipt], began: datetime, out: Path) -> Path:
    """Receipts first: they must survive whatever fails after."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "receipts.json").write_text(
        json.dumps([asdict(receipt) for receipt in receipts], indent=1, default=str) + "\n", encoding="utf-8"
    )
    settings = day.stage.settings
    log = live_history.events(live_history.read(settings, day.stage.aws, began, datetime.now(UTC)), settings)
    log = sorted([*log, *_darkness(log, day.dark)], key=lambda event: event.at)
    events.write(log, out / "events.jsonl")
    return html_report.render(log, out, title=f"Game day of {settings.fleet_name}, {began:%Y-%m-%d}")


def _darkness(log: Sequence[Event], dark: Sequence[tuple[datetime, tuple[str, ...]]]) -> Iterator[Event]:
    """What no source of AWS tells: from these moments on the boxes that served were out of the balancer's sight."""
    for moment, boxes in dark:
        served = {event.fields["box"] for event in log if event.kind == "box.serving" and event.at <= moment}
        gone = {event.fields["box"] for event in log if event.kind == "box.ended" and event.at <= moment}
        for box in sorted((served - gone) & set(boxes)):
            yield Event(moment, "box.unserving", {"box": box, "why": "taken out of service by the game day"})
