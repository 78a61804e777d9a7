"""A live history in the receipts' format (`fleet/drills/histories`): anyone can replay their own fleet."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from fleet.events import Event
from fleet.settings import Settings

MODE_OF_LEVER = {0: "spot-armed", 100: "on-demand-failover"}


def receipt(log: Sequence[Event], settings: Settings, boots: Sequence[float | None] = ()) -> dict[str, Any]:
    """The receipt of an event log. `boots`: kernel to serving of each replacement, seconds, None if unknown."""
    decisions = [event for event in log if event.kind == "decision"]
    first = next((event for event in decisions if "mode" in event.fields), None)
    lever = next((event.fields["percentage"] for event in log if event.kind == "lever"), 0)
    mode = first.fields["mode"] if first else MODE_OF_LEVER[lever]
    return {
        "name": f"{log[0].at:%Y-%m-%d}-{settings.fleet_name}",
        "fleet": {
            "desired": settings.capacity.min,
            "pools": list(settings.pools),
            "lever_at_start": lever,
            "mode_at_start": mode,
            "thresholds": asdict(settings.watchdog),
        },
        "market": list(_market(log)),
        "boots": list(boots),
        "alarm": [{"at": _text(e.at), "state": e.fields["state"]} for e in log if e.kind == "alarm"],
        "scan": {
            "first": next((_text(e.at) for e in decisions if _wake(e) == "scan"), None),
            "every_seconds": settings.watchdog.scan_seconds,
            "scores": list(_scores(decisions)),
        },
        "outcome": _outcome(decisions, log),
    }


def _market(log: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Reclaims as they ended, and when launches began to fail or to succeed again."""
    kinds = {event.fields["box"]: event.fields["purchase"] for event in log if event.kind == "box.launched"}
    noticed = {event.fields["box"] for event in log if event.kind == "notice"}
    sells = True
    for event in log:
        box = event.fields.get("box", "")
        if event.kind == "box.ended" and box in noticed and kinds.get(box) == "spot":
            yield {"at": _text(event.at), "event": "reclaim"}
            sells = False
        elif event.kind == "launch.failed" and sells:
            yield {"at": _text(event.at), "event": "refuses_from", "note": str(event.fields.get("why", ""))[:200]}
            sells = False
        elif event.kind == "box.launched" and kinds[box] == "spot" and not sells:
            yield {"at": _text(event.at), "event": "sells_from"}
            sells = True


def _scores(decisions: Sequence[Event]) -> Iterator[dict[str, Any]]:
    for event in decisions:
        if scores := event.fields.get("world", {}).get("scores"):
            yield {"at": _text(event.at), "score": max(scores.values())}


def _outcome(decisions: Sequence[Event], log: Sequence[Event]) -> dict[str, Any]:
    def times(*actions: str) -> list[str]:
        return [_text(event.at) for event in decisions if event.fields.get("action") in actions]

    rearms = times("re-arm")
    return {
        "failovers": times("failover"),
        "rearm": rearms[0] if rearms else None,
        "rearms": rearms,
        "pinned": next(iter(times("gave-up", "pinned")), None),
        "skipped": times("skipped"),
        "mail": sum(event.kind == "mail" for event in log),
    }


def _wake(event: Event) -> str:
    return str(event.fields.get("signal", {}).get("wake", ""))


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
