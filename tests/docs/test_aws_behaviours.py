"""docs/aws-behaviours.md: every behaviour of AWS once, what relies on it and how it is known; code names its rows."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "aws-behaviours.md"
ROW = re.compile(r"^\| `(?P<name>[a-z0-9-]+)` (?P<behaviour>.+?) \| (?P<relies>.+?) \| (?P<known>.+) \|$")
KNOWN = re.compile(r"^(documented|measured|to be probed): .{10,}")
NAMED = re.compile(r"aws-behaviours: ([a-z0-9-]+(?:, [a-z0-9-]+)*)")


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


def test_every_line_of_the_table_is_a_row() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert len(rows()) == len(lines) - 2 > 20, [line for line in lines[2:] if not ROW.match(line)]
    assert [name for name, count in Counter(row.name for row in rows()).items() if count > 1] == []


def test_no_row_lacks_how_it_is_known() -> None:
    assert [row.name for row in rows() if not KNOWN.match(row.known)] == []


def test_every_row_says_what_relies_on_it_and_a_measured_one_its_record() -> None:
    for row in rows():
        assert paths(row.relies), row.name
        named = [*paths(row.relies), *(paths(row.known) if row.known.startswith("measured") else ["docs"])]
        assert [path for path in named if not (ROOT / path).exists()] == [], row.name
        assert row.known[:8] != "measured" or paths(row.known), row.name


def test_every_row_that_code_names_exists() -> None:
    names = {row.name for row in rows()}
    code = [
        path for folder in ("assets", "fleet", "lambdas", "stacks", "tests") for path in (ROOT / folder).rglob("*.py")
    ]
    named = {
        (path.name, name)
        for path in code
        for found in NAMED.findall(path.read_text(encoding="utf-8"))
        for name in found.split(", ")
    }
    assert {(path, name) for path, name in named if name not in names} == set()
