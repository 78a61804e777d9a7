"""A page for every alarm and for every mail, and every page that anything points at exists."""

import re
from pathlib import Path

from lambdas.watchdog.mail import TEXTS

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs" / "runbook"
PARTS = ("**What it means.**", "**Look.**", "**Do.**")


def test_every_mail_has_a_page_under_its_own_subject() -> None:
    for kind, text in TEXTS.items():
        page = (RUNBOOK / f"mail-{kind}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# Mail: {text.subject}\n"), kind


def test_every_page_says_what_it_means_where_to_look_and_what_to_run() -> None:
    pages = [page for page in sorted(RUNBOOK.glob("*.md")) if page.name != "README.md"]
    assert len(pages) >= 16
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert all(part in text for part in PARTS), page.name
        assert re.search(r"`(fleetctl|make|aws) |```|Nothing", text), page.name


def test_every_page_of_the_runbook_that_code_points_at_exists() -> None:
    code = [*ROOT.glob("fleet/**/*.py"), *ROOT.glob("stacks/*.py"), *ROOT.glob("lambdas/**/*.py")]
    named = {page for path in code for page in re.findall(r"docs/runbook/[a-z-]+\.md", path.read_text())}
    assert len(named) >= 6
    assert sorted(page for page in named if not (ROOT / page).exists()) == []
