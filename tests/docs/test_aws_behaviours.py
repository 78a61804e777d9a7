"""docs/aws-behaviours.md: every behaviour of AWS once, how it is known, and what relies on it, which names its row."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "aws-behaviours.md"
ROW = re.compile(r"^\| `(?P<name>[a-z0-9-]+)` (?P<behaviour>.+?) \| (?P<relies>.+?) \| (?P<known>.+) \|$")
KNOWN = re.compile(r"^(documented|measured|to be probed): .{10,}")
NAMED = re.compile(r"aws-behaviours(?:\]\(\S+\))?: ([a-z0-9-]+(?:, [a-z0-9-]+)*)")  # a page names a row behind its link
FOLDERS = ("assets", "docs", "fleet", "lambdas", "stacks")
SUFFIXES = {".j2", ".md", ".py", ".service"}


@dataclass(frozen=True)
class Row:
    """One behaviour, as the page has it."""

    name: str
    behaviour: str
    relies: str
    known: str


def rows() -> list[Row]:
    return [Row(**found.groupdict()) for line in PAGE.read_text().splitlines() if (found := ROW.match(line))]


def paths(cell: str) -> list[str]:
    return [code for code in re.findall(r"`([^`]+)`", cell) if "/" in code and " " not in code and code[0] != "/"]


def cited() -> set[tuple[str, str]]:
    """Each row that a file names, with the file."""
    found = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES}
    return {
        (name, path.relative_to(ROOT).as_posix())
        for path in {*found, ROOT / "app.py"} - {PAGE}
        for names in NAMED.findall(path.read_text(encoding="utf-8"))
        for name in names.split(", ")
    }


def test_every_line_of_the_table_is_a_row() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert len(rows()) == len(lines) - 2 > 20, [line for line in lines[2:] if not ROW.match(line)]
    assert [name for name, count in Counter(row.name for row in rows()).items() if count > 1] == []


def test_no_row_lacks_how_it_is_known() -> None:
    assert [row.name for row in rows() if not KNOWN.match(row.known)] == []


def test_every_row_says_what_relies_on_it_and_a_measured_one_its_record() -> None:
    for row in rows():
        assert paths(row.relies), row.name
        assert row.known[:8] != "measured" or paths(row.known), row.name


def test_a_row_is_named_in_each_file_that_relies_on_it_and_in_no_other() -> None:
    relies = {(row.name, path) for row in rows() for path in re.findall(r"`([^`]+)`", row.relies)}
    assert sorted(relies - cited()) == [], "named by the row, which they do not name"
    assert sorted(cited() - relies) == [], "name the row, which does not name them"
