"""One line of a message about settings: the key to change, its value and what is allowed."""

import json
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One line of the message."""

    key: str
    value: Any
    allowed: str

    def __str__(self) -> str:
        if self.value is MISSING:
            return f"{self.key}: missing; {self.allowed}"
        return f"{self.key} = {json.dumps(self.value)}: {self.allowed}"


def distinct(key: str, values: tuple[str, ...]) -> Iterator[Problem]:
    """A problem for each value that stands in a list twice."""
    for value in dict.fromkeys(value for value in values if values.count(value) > 1):
        yield Problem(key, value, "each only once")
