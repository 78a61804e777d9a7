"""The README's table of thresholds, generated from the settings: `python -m fleet.thresholds` writes it anew."""

import dataclasses
from pathlib import Path
from typing import Any

from fleet import settings

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- thresholds: generated, do not edit -->", "<!-- /thresholds -->"


def table() -> str:
    """Every setting that states a reason: its key, its default and why."""
    rows = ["| setting | default | why |", "|---|---|---|"]
    rows += [f"| `{key}` | {value} | {why} |" for key, value, why in _reasons(settings.Settings)]
    return "\n".join(rows)


def _reasons(kind: Any, prefix: str = "") -> list[tuple[str, str, str]]:
    rows = []
    for field in dataclasses.fields(kind):
        key = prefix + field.name
        if dataclasses.is_dataclass(field.type):
            rows += _reasons(field.type, f"{key}.")
        elif "why" in field.metadata:
            rows.append((key, _readable(field.name, field.default), field.metadata["why"]))
    return rows


def _readable(name: str, value: Any) -> str:
    """900 as 900 s (15 min), where the name says seconds."""
    if not name.endswith("_seconds"):
        return f"{value} min" if name.endswith("_minutes") else str(value)
    for unit, length in (("h", 3600), ("min", 60)):
        if value >= 2 * length and value % length == 0:
            return f"{value} s ({value // length} {unit})"
    return f"{value} s"


def inserted(text: str) -> str:
    """The README's text with the table of now between its marks."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    README.write_text(inserted(README.read_text()))
