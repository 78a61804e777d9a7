"""The tables of settings in the README and in docs/gateway.md, generated: `python -m fleet.thresholds` writes them."""

import dataclasses
from pathlib import Path
from typing import Any

from fleet.gateway_settings import Gateway
from fleet.settings import Settings

ROOT = Path(__file__).parent.parent
PAGES: dict[Path, tuple[Any, str]] = {  # whose settings stand there, and what their keys begin with
    ROOT / "README.md": (Settings, ""),
    ROOT / "docs" / "gateway.md": (Gateway, "gateway."),
}
BEGIN, END = "<!-- thresholds: generated, do not edit -->", "<!-- /thresholds -->"


def table(page: Path) -> str:
    """Every setting that states a reason: its key, its default and why; an optional section has a page of its own."""
    rows = ["| setting | default | why |", "|---|---|---|"]
    rows += [f"| `{key}` | {value} | {why} |" for key, value, why in _reasons(*PAGES[page])]
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


def inserted(page: Path) -> str:
    """The page's text with the table of now between its marks."""
    head, rest = page.read_text().split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{table(page)}\n{END}{tail}"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(inserted(path))
