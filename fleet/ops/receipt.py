"""A live history in the receipts' format (`fleet/drills/histories`): anyone can replay their own fleet."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from fleet.events import Event
from fleet.ops.history import LAUNCH_TO_KERNEL_SECONDS, Life
from fleet.settings import Settings

_SCORE = re.compile(r"\bscore (\d+) in ")
MODE_OF_LEVER = {0: "spot-armed", 100: "on-demand-failover"}
# A decision's record tells the mode after it: by action, the mode that it was taken in.
MODE_BEFORE = {
    "failover": "spot-armed",
    "bridged": "spot-armed",
    "re-arm": "on-demand-failover",
    "gave-up": "on-demand-failover",
    "armed": "on-demand-pinned",
}


def receipt(log: Sequence[Event], settings: Settings, boots: Sequence[float | None] = ()) -> dict[str, Any]:
    """The receipt of an event log. `boots`: kernel to serving of each replacement, seconds, None if unknown."""
    decisions = [event for event in log if event.kind == "decision"]
    mode, lever = _start(log)
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
            "every_seconds": settings.scan_seconds,
            "scores": list(_scores(decisions)),
        },
        "outcome": _outcome(decisions, log),
    }


def _start(log: Sequence[Event]) -> tuple[str, int]:
    """Mode and lever before anything was decided: what the log says by then, else what the first decision was about."""
    lever: int | None = None
    for event in log:
        match event.kind, event.fields:
            case "lever", {"percentage": int(percentage)}:
                lever = percentage
            case "mode", {"mode": str(mode)}:
                return mode, (0 if mode == "spot-armed" else 100) if lever is None else lever
            case "decision", {"action": "pinned", "world": {"percentage": int(percentage)}}:
                return MODE_OF_LEVER.get(percentage, "on-demand-failover"), percentage
            case "decision", {"action": str(action)} if action in MODE_BEFORE:
                return MODE_BEFORE[action], 0 if MODE_BEFORE[action] == "spot-armed" else 100
    lever = lever or 0
    return MODE_OF_LEVER.get(lever, "on-demand-failover"), lever


def boots(lives: Mapping[str, Life], since: datetime) -> list[float | None]:
    """Kernel to serving of every box launched since, in order: by its own stages, else by the times around them.

    A box that already served when it was first seen was not launched then.
    """
    seen = [life for life in lives.values() if life.launched and life.launched > since]
    launched = sorted((life for life in seen if life.serving != life.launched), key=_launch)
    return [_boot(life) for life in launched]


def _launch(life: Life) -> datetime:
    return life.launched or datetime.max.replace(tzinfo=UTC)


def _boot(life: Life) -> float | None:
    """Seconds; None where the box never served or nothing tells."""
    ends = [stage.end for stage in life.stages if stage.name == "complete" and stage.outcome == "done"]
    if ends:
        return round(ends[0], 1)
    if life.serving and life.launched:
        return max(0.0, round((life.serving - life.launched).total_seconds() - LAUNCH_TO_KERNEL_SECONDS, 1))
    return None


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
        elif event.kind == "launch.failed" and event.fields["purchase"] == "spot" and sells:
            yield {"at": _text(event.at), "event": "refuses_from", "note": str(event.fields.get("why", ""))[:200]}
            sells = False
        elif event.kind == "box.launched" and kinds[box] == "spot" and not sells:
            yield {"at": _text(event.at), "event": "sells_from"}
            sells = True


def _scores(decisions: Sequence[Event]) -> Iterator[dict[str, Any]]:
    for event in decisions:
        # The reason, not the world: the record of a re-arm shows the world after the flip, when scores no longer count.
        if said := _SCORE.search(str(event.fields.get("reason", ""))):
            yield {"at": _text(event.at), "score": int(said[1])}


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
