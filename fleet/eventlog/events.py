"""The one event log: JSON lines, written by the demo, the drills, the live history and the game day; drawn by `report`.

A line is `{"at": ISO 8601 UTC, "kind": ..., ...fields}`, in order of time. The kinds, their
fields and what follows from them stand in docs/event-log.md.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Every kind with all of its fields, as docs/event-log.md explains them.
FIELDS: dict[str, tuple[str, ...]] = {
    "start": ("name", "desired"),
    "end": ("name", "desired"),
    "box.launched": ("box", "purchase", "pool", "usd_per_hour"),
    "box.serving": ("box",),
    "box.in_service": ("box",),
    "box.unserving": ("box", "why"),
    "box.ended": ("box", "why"),
    "boot.stage": ("box", "stage", "start", "end", "outcome"),
    "launch.failed": ("purchase", "pool", "why", "box"),
    "notice": ("box",),
    "rebalance": ("box",),
    "market": ("pool", "sells", "purchase"),
    "alarm": ("state",),
    "lever": ("percentage",),
    "mode": ("mode",),
    "decision": (
        *("signal", "world", "scores", "action", "reason", "detail", "also", "outcome", "mode", "rearming", "streak"),
        *("owed_mails", "lever"),
    ),
    "deploy": ("template_version", "lever"),
    "mail": ("subject", "body"),
}


@dataclass(frozen=True)
class Event:
    """One line of the log. `at` is timezone-aware UTC."""

    at: datetime
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """The JSON line, keys in a fixed order, without the newline."""
        stamp = self.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps({"at": stamp, "kind": self.kind, **self.fields}, separators=(", ", ": "))


def write(events: Iterable[Event], path: Path) -> None:
    """A file of events as JSON lines."""
    path.write_text("".join(f"{event.line()}\n" for event in events), encoding="utf-8")
