"""A live history in the receipts' format (`fleet/sim/histories`): anyone can replay their own fleet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, cast

from fleet.config.settings import Settings
from fleet.core import boot_length
from fleet.core.untrusted import one_line
from fleet.eventlog.events import Event
from fleet.eventlog.receipts import (
    LOGGED,
    LONGEST_SECONDS,
    AlarmTold,
    Fleet,
    Happening,
    Logged,
    Reading,
    Receipt,
    RecordedWindow,
    Scan,
    Woken,
)
from fleet.ops.live_history import BoxRecord
from lambdas.watchdog import shares

# A decision's record tells the mode after it: by action, the mode and the lever that it was taken in.
BEFORE = {
    "failover": ("spot-armed", 0),
    "bridged": ("spot-armed", 0),
    "re-arm": ("on-demand-failover", 100),
    "re-armed": ("on-demand-failover", 0),
    "fell-back": ("on-demand-failover", 0),
    "gave-up": ("on-demand-failover", 100),
    "on-demand-limit": ("on-demand-failover", 100),
}
REARMING = {"re-armed", "fell-back"}  # which end a phase that had begun before
FIELDS = {"box", "purchase", "pool", "usd_per_hour", "sells", "why"}
HEARD = ("pin", "arm", "patience")  # wakes without an event of AWS behind them


def receipt(log: Sequence[Event], settings: Settings, boots: Sequence[float | None] = ()) -> Receipt:
    """The receipt of an event log. `boots`: kernel to serving of each replacement, seconds, None if unknown."""
    decisions = [event for event in log if event.kind == "decision"]
    market = [event for event in log if event.kind in LOGGED]
    mode, lever, rearming = _start(log, settings)
    labels = [event.fields["pool"] for event in market if event.fields.get("pool")]
    return Receipt(
        name=f"{log[0].at:%Y-%m-%d}-{settings.fleet_name}",
        fleet=Fleet(
            desired=log[0].fields.get("desired", settings.capacity.min),
            pools=tuple(dict.fromkeys(labels)) or settings.pools,
            lever_at_start=lever,
            mode_at_start=mode,
            rearming_at_start=rearming,
            policy=settings.policy,
            thresholds=asdict(settings.watchdog),
            bridge=asdict(settings.bridge),
        ),
        window=RecordedWindow(since=log[0].at, until=log[-1].at),
        market=tuple(
            Happening(
                at=e.at,
                event=cast(Logged, e.kind),
                **{key: _field(e.fields[key]) for key in FIELDS if e.fields.get(key) is not None},
            )
            for e in market
        ),
        boots=tuple(boots),
        alarm=tuple(AlarmTold(at=e.at, state=e.fields["state"]) for e in log if e.kind == "alarm"),
        scan=Scan(
            first=next((e.at for e in decisions if _wake(e) == "scan"), None),
            every_seconds=settings.scan_seconds,
            scores=tuple(_scores(decisions)),
        ),
        wakes=tuple(_wakes(decisions)),
        outcome=_outcome(decisions, log),
    )


def _start(log: Sequence[Event], settings: Settings) -> tuple[Any, int, bool]:
    """Mode, lever, and whether a re-arm was under way before anything was decided: what the log says by then, else what
    the first decision that changed something was about.
    """
    lever: int | None = None
    for event in log:
        match event.kind, event.fields:
            case "lever", {"percentage": int(percentage)}:
                lever = percentage
            case "mode", {"mode": str(mode)}:
                parts = [e.fields["percentage"] for e in log if e.kind == "lever" and e.at == event.at]
                if parts and 0 < parts[0] < 100:
                    return mode, parts[0], False
                return mode, (0 if mode == "spot-armed" else 100) if lever is None else lever, False
            case "decision", {"action": "pinned", "world": {"percentage": int(percentage)}}:
                return _mode_of(percentage), percentage, False
            case "decision", {"action": "armed", "mode": str(after)}:
                armed = after == "spot-armed"  # it resumed Launch and left the rest alone
                return (after, 0, False) if armed else ("on-demand-pinned", 100, False)
            case "decision", {"action": "failover" | "bridged", "world": {"percentage": int(part)}} if 0 < part < 100:
                return "on-demand-failover", part, False
            case "decision", {"action": "re-arm" | "fell-back" as action, "lever": int(after)}:
                step = shares.step(settings)  # so many are given back at once, or taken
                boxes = shares.bought(after, settings) + (step if action == "re-arm" else -step)
                return "on-demand-failover", max(0, min(shares.lever(boxes, settings), 100)), action in REARMING
            case "decision", {"action": str(action)} if action in BEFORE:
                return *BEFORE[action], action in REARMING
            case "decision", {"mode": "on-demand-failover", "rearming": True}:
                return "on-demand-failover", 0, True
    lever = lever or 0
    return _mode_of(lever), lever, False


def _mode_of(lever: int) -> str:
    return "spot-armed" if lever == 0 else "on-demand-failover"


def boots(lives: Mapping[str, BoxRecord], since: datetime) -> list[float | None]:
    """Kernel to serving of every box launched since, in order: by its own stages, else by the times around them.

    A box that already served when it was first seen was not launched then.
    """
    seen = [life for life in lives.values() if life.launched and life.launched > since]
    launched = sorted((life for life in seen if life.serving != life.launched), key=lambda life: life.launched or since)
    return [_boot(life) for life in launched]


def _boot(life: BoxRecord) -> float | None:
    """Seconds; None where the box never served or nothing tells."""
    ends = [stage.end for stage in life.stages if stage.name == "complete" and stage.outcome == "done"]
    if ends and ends[0] <= LONGEST_SECONDS:  # the box says so
        return round(ends[0], 1)
    if life.serving and life.launched:
        seconds = (life.serving - life.launched).total_seconds() - boot_length.LAUNCH_TO_KERNEL_SECONDS
        return max(0.0, round(seconds, 1)) if seconds <= LONGEST_SECONDS else None
    return None


def _field(value: Any) -> Any:
    """AWS's words for a failed launch may be longer than what a receipt takes."""
    return one_line(value) if isinstance(value, str) else value


def _scores(decisions: Sequence[Event]) -> Iterator[Reading]:
    """What each decision read."""
    for event in decisions:
        if seen := event.fields.get("scores"):
            yield Reading(at=event.at, zones=seen)


def _wakes(decisions: Sequence[Event]) -> Iterator[Woken]:
    """When the watchdog heard of what: its scans come by the clock."""
    for event in decisions:
        signal = event.fields.get("signal", {})
        wake, of = str(signal.get("wake", "")), signal.get("at")
        if of or wake in HEARD:
            told = datetime.fromisoformat(of) if of else None
            yield Woken(at=event.at, wake=wake, box=str(signal.get("box", "")), of=told)


def _outcome(decisions: Sequence[Event], log: Sequence[Event]) -> dict[str, Any]:
    def times(*actions: str) -> list[str]:
        return [f"{event.at:%Y-%m-%dT%H:%M:%SZ}" for event in decisions if event.fields.get("action") in actions]

    return {
        "failovers": times("failover"),
        "bridged": times("bridged"),
        "rearms": times("re-arm"),
        "pinned": next(iter(times("gave-up", "pinned")), None),
        "skipped": times("skipped"),
        "mail": sum(event.kind == "mail" for event in log),
    }


def _wake(event: Event) -> str:
    return str(event.fields.get("signal", {}).get("wake", ""))
