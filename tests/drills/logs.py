"""Event logs as they stand in files."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime

from fleet.eventlog.events import Event


def read(lines: Iterable[str]) -> Iterator[Event]:
    """The events of a written log."""
    for raw in map(json.loads, lines):
        yield Event(datetime.fromisoformat(raw.pop("at")), raw.pop("kind"), raw)
