"""Every command that README and docs show: out of fenced blocks and out of inline code."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("make", "fleetctl", "aws", "cdk", "source", "git")
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


@dataclass(frozen=True)
class Shown:
    """One command as a reader would type it."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def shown() -> list[Shown]:
    """All of them, each once."""
    found = [
        Shown(str(page.relative_to(ROOT)), words)
        for page in PAGES
        for line in _lines(page.read_text(encoding="utf-8"))
        for words in _commands(line)
    ]
    return list(dict.fromkeys(found))


def _lines(text: str) -> Iterator[str]:
    for block in FENCE.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    for code in INLINE.findall(FENCE.sub("", text)):
        if " " in code and "..." not in code.partition('"')[0]:
            yield code


def _commands(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of one line, without comments, joined by && or ; or piped."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return  # prose with an apostrophe
    command: list[str] = []
    for word in [*words, "&&"]:
        if word in ("&&", "|", ";", "||"):
            if command and command[0] in PROGRAMS:
                yield tuple(command)
            command = []
        else:
            command.append(word)
