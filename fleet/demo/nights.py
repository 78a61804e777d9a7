"""The recorded times of two nights, read from the histories that the project holds. What was not recorded says so."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from fleet.eventlog.receipts import Receipt, parsed

HISTORIES = Path(__file__).parent.parent / "sim" / "histories"


@dataclass(frozen=True)
class Night:
    """What happened when: `gone` and `ok` frame the time in which nobody served, as far as the alarm knew."""

    gone: datetime
    alarm: datetime
    failover: datetime  # the alarm's time, where nobody failed over
    launched: datetime
    serving: datetime
    ok: datetime


def short_night() -> Night:
    """28 July 2026, the seventh reclaim of the second history: the market held a replacement back for minutes."""
    raw = _read("2026-07-27-seven-reclaims-in-21-hours")
    alarm = _alarm(raw, "ALARM")
    return Night(
        gone=_market(raw, "no_healthy_target_from"),
        launched=alarm - timedelta(minutes=raw.outcome["instance_age_at_alarm_minutes"]),
        serving=datetime.fromisoformat(raw.outcome["healthy_target_about"]),
        alarm=alarm,
        failover=alarm,
        ok=_alarm(raw, "OK"),
    )


def drought() -> Night:
    """22 July 2026, the second reclaim of the first history: no spot to be had, failover to on-demand."""
    raw = _read("2026-07-21-four-reclaims-in-48-hours")
    alarm = _alarm(raw, "ALARM")
    failover = datetime.fromisoformat(raw.outcome["failovers"][0])
    gone = _market(raw, "refuses_from")
    serving = gone + timedelta(minutes=raw.outcome["degraded_minutes_per_drought"])
    other = short_night()
    return Night(
        gone=gone,
        alarm=alarm,
        failover=failover,
        launched=alarm + timedelta(seconds=raw.outcome["on_demand_launch_after_alarm_seconds"][0]),
        serving=serving,
        ok=serving + (other.ok - other.serving),  # not recorded: as long after serving as on the other night
    )


def _read(name: str) -> Receipt:
    path = HISTORIES / f"{name}.json"
    return parsed(path, json.loads(path.read_text()))


def _alarm(receipt: Receipt, state: str) -> datetime:
    return next(told.at for told in receipt.alarm if told.state == state and told.at)


def _market(receipt: Receipt, event: str) -> datetime:
    return next(item.at for item in receipt.market if item.event == event and item.at)
