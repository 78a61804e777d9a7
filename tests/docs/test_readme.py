"""README and docs name files, by link or in passing: every name must lead somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> set[str]:
    """Relative targets of a page's links and pictures, without their anchors."""
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    return {target.partition("#")[0] for target in targets if "://" not in target and not target.startswith("#")}


def test_every_link_between_the_docs_leads_somewhere() -> None:
    assert len(links(ROOT / "README.md")) > 15
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in links(page)
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_file_that_the_docs_name_in_passing_exists() -> None:
    path = re.compile(r"`((?:assets|docs|fleet|lambdas|scripts|stacks|tests)/[\w./-]+)`")
    named = {(page.name, name) for page in PAGES for name in path.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 30
    assert sorted(each for each in named if not (ROOT / each[1]).exists()) == []
