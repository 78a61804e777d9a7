"""docs/security.md is one table of attackers: every row is held by tests that exist, or says that it stays."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
ATTACKERS = [
    "caller",
    "gateway's caller",
    "other account",
    "box",
    "lane",
    "engine",
    "watchdog role",
    "review role",
    "local user",
    "pull request",
]
NAMED = re.compile(r"`([a-z0-9_]+_[a-z0-9_]{12,})`")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_the_table_tells_of_every_attacker_in_one_order() -> None:
    assert list(dict.fromkeys(row[0] for row in rows())) == ATTACKERS
    assert all(len(row) == 4 for row in rows()), rows()


def test_every_row_names_a_test_or_a_check_that_exists_or_says_that_it_stays() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    unheld = [row for row in rows() if not NAMED.findall(row[3]) and "*Stays*: " not in row[2]]
    assert unheld == []
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert [name for name in named if f"def {name}(" not in code] == []
    assert len(set(named)) >= 18
