"""The one event log: JSON lines, written by the demo, the drills, the live history and the game day; drawn by `report`.

A line is `{"at": ISO 8601 UTC, "kind": ..., ...fields}`, in order of time. Kinds and their fields:

- `start`, `end`              name, desired: what is observed, from when to when
- `box.launched`              box, purchase ("spot" | "on-demand"), pool, usd_per_hour: billing begins
- `box.serving`               box: the balancer routes to it
- `box.unserving`             box, why: it no longer serves (notice, drain, wedge, reclaim)
- `box.ended`                 box, why: billing ends
- `launch.failed`             purchase, pool, why
- `notice`, `rebalance`       box: interruption notice, rebalance recommendation
- `market`                    pool, sells (bool)
- `alarm`                     state ("ALARM" | "OK" | "INSUFFICIENT_DATA")
- `lever`                     percentage: the group's live value changed
- `mode`                      mode: the watchdog's state changed
- `decision`                  signal, world, action, reason, outcome: one per watchdog invocation
- `mail`                      subject, body
- `deploy`                    template_version, lever: what the group was left with

Degraded minutes are the integral of missing share (desired minus serving, over desired, floor 0); cost is the sum over
boxes of price times life. Both need nothing but this log.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO, Any


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


def write(events: Iterable[Event], file: IO[str]) -> None:
    """Append events as JSON lines."""
    for event in events:
        file.write(event.line() + "\n")


def read(lines: Iterable[str]) -> Iterator[Event]:
    """Parse JSON lines; raises ValueError naming the line that is damaged."""
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            raw = json.loads(text)
            at, kind = datetime.fromisoformat(raw.pop("at")), raw.pop("kind")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"event log line {number}: {error}") from None
        yield Event(at, kind, raw)
