"""What the docs say of the code word for word, written by `make reference`: settings, stages, indexes.

A page holds a part between `<!-- generated: NAME -->` and `<!-- /generated -->`.
"""

import dataclasses
import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleet.config import validation
from fleet.config.section import given
from fleet.config.settings import Settings

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
SCHEMA = ROOT / "docs" / "cdk.schema.json"
PART = re.compile(r"(<!-- generated: (?P<name>[a-z, ]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def pages() -> dict[Path, str]:
    """Every page that holds a generated part, as it should stand; and the schema."""
    docs = {page: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md"))}
    wanted = {
        page: PART.sub(lambda found: found[1] + part(found["name"]) + found[3], text) for page, text in docs.items()
    }
    return {page: wanted[page] for page, text in docs.items() if PART.search(text)} | {SCHEMA: schema()}


def part(name: str) -> str:
    """One generated part. KeyError: a page asks for something that nothing makes."""
    return "\n".join([*PARTS[name](), ""])


# --- settings ---------------------------------------------------------------------------------------------------


def _settings(section: str) -> Iterator[str]:
    """The table of one section of `cdk.json`, or of the keys that stand in none."""
    yield "| key | default | allowed | why |"
    yield "|---|---|---|---|"
    kind = Settings if section == "fleet" else given(Settings.__dataclass_fields__[section].type)
    yield from _rows(kind, "" if section == "fleet" else f"{section}.", deep=section != "fleet")


def _rows(kind: Any, prefix: str, *, deep: bool) -> Iterator[str]:
    for field in dataclasses.fields(kind):
        key, inner = prefix + field.name, given(field.type)
        if dataclasses.is_dataclass(inner):
            if deep:
                yield from _rows(inner, f"{key}.", deep=True)
        else:
            cells = (f"`{key}`", _default(field), validation.allowed(field), field.metadata.get("why", ""))
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: "dataclasses.Field[Any]") -> str:
    """900 as 900 s (15 min), where the name says seconds."""
    name, value = field.name, field.default
    if value is dataclasses.MISSING:
        return "must be given"
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    if not name.endswith("_seconds"):
        return f"{value} min" if name.endswith("_minutes") else str(value)
    for unit, length in (("h", 3600), ("min", 60)):
        if value >= 2 * length and value % length == 0:
            return f"{value} s ({value // length} {unit})"
    return f"{value} s"


def schema() -> str:
    """The JSON schema of `cdk.json`, by which an editor completes and checks keys; the reasons are its descriptions."""
    fleet = validation.schema().json_schema()
    sections = fleet.pop("$defs")
    for definition, kind in ((fleet, Settings), *((sections[kind.__name__], kind) for kind in _sections(Settings))):
        for field in dataclasses.fields(kind):
            found = definition["properties"][field.name]
            found.pop("title", None)
            if why := field.metadata.get("why") or field.metadata.get("allowed"):
                found["description"] = why
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cdk.json of the spot GPU fleet",
        "type": "object",
        "properties": {"context": {"type": "object", "required": ["fleet"], "properties": {"fleet": fleet}}},
        "$defs": sections,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _sections(kind: Any) -> Iterator[Any]:
    """Every class that stands somewhere below one of the settings."""
    for field in dataclasses.fields(kind):
        inner = validation.item_type(field.type)
        if dataclasses.is_dataclass(inner):
            yield inner
            yield from _sections(inner)


# --- the boot ---------------------------------------------------------------------------------------------------


def _stages() -> Iterator[str]:
    """The box's own declaration, read by its path: its folder is no package of ours."""
    spec = importlib.util.spec_from_file_location("box_stages", ROOT / "assets" / "bootstrap" / "stages.py")
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018  of a file there always is one
    stages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stages)
    yield "| stage | needs | what it does | budget, s |"
    yield "|---|---|---|---|"
    for stage in stages.STAGES:
        yield f"| {stage.name} | {', '.join(stage.needs)} | {stage.does} | {stage.budget_seconds} |"


# --- indexes ----------------------------------------------------------------------------------------------------


def _decisions() -> Iterator[str]:
    for page in _listed("decisions"):
        yield f"- [{_title(page)}]({page.name})"


def _runbook() -> Iterator[str]:
    """Mails by their subject, then alarms, each with what its page begins with."""
    for heading, mails in (("Mails", True), ("Alarms, and what else may go wrong", False)):
        yield from ("", f"**{heading}**", "", "| page | what it means |", "|---|---|")
        for page in _listed("runbook"):
            if page.name.startswith("mail-") is mails:
                means = page.read_text(encoding="utf-8").partition("**What it means.**")[2].partition("\n\n")[0]
                first = re.split(r"(?<=[.;:]) (?=[A-Za-z])", " ".join(means.split()))[0].rstrip(".;:")
                first = LINK.sub(r"\1", first)
                yield f"| [{_title(page).removeprefix('Mail: ')}]({page.name}) | {first} |"


def _listed(folder: str) -> list[Path]:
    return [page for page in sorted((ROOT / "docs" / folder).glob("*.md")) if page.name != "README.md"]


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


SECTIONS = ("fleet", *(f.name for f in dataclasses.fields(Settings) if dataclasses.is_dataclass(given(f.type))))
PARTS: dict[str, Callable[[], Iterator[str]]] = {
    **{f"settings, {section}": lambda section=section: _settings(section) for section in SECTIONS},  # type: ignore[misc]
    "stages of a boot": _stages,
    "decisions": _decisions,
    "runbook": _runbook,
}

if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
