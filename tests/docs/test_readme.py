"""The README tells the story by file name: every name must lead somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> set[str]:
    """Relative targets of a page's links and pictures, without their anchors."""
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    return {target.partition("#")[0] for target in targets if "://" not in target and not target.startswith("#")}


def test_every_file_that_the_readme_names_exists() -> None:
    named = links(ROOT / "README.md")
    assert len(named) > 15
    assert sorted(target for target in named if not (ROOT / target).exists()) == []


def test_every_link_between_the_docs_leads_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in links(page)
        if not (page.parent / target).exists()
    ]
    assert broken == []
