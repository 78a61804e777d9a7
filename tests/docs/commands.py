"""Every command that README and docs show, in fenced blocks and inline, and that our own messages tell to run."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("make", "fleetctl", "aws", "cdk", "source", "git")
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILLED = "1"  # stands for whatever a message fills in
BARE = re.compile(r"\baws [a-z0-9-]+ [a-z0-9-]+ --[^;`]*")  # an AWS command in a message, without marks
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


@dataclass(frozen=True)
class Shown:
    """One command as a reader would type it."""

    page: str = field(compare=False)  # the first that shows it
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


@cache
def shown() -> list[Shown]:
    """All of them, each once."""
    found = [
        Shown(str(page.relative_to(ROOT)), words)
        for page in PAGES
        for line in _lines(page.read_text(encoding="utf-8"))
        for words in _commands(line)
    ]
    return list(dict.fromkeys(found))


@cache
def told() -> list[Shown]:
    """Every command that a message of ours tells the reader to run: remedies, errors, help."""
    return list(
        dict.fromkeys(
            Shown(str(path.relative_to(ROOT)), words)
            for folder in ("fleet", "stacks", "lambdas")
            for path in sorted((ROOT / folder).rglob("*.py"))
            for text in _texts(ast.parse(path.read_text(encoding="utf-8")))
            for code in [*INLINE.findall(text), *BARE.findall(INLINE.sub("", text))]
            for words in _commands(code)
            if len(words) > 1
        )
    )


def _texts(tree: ast.AST) -> Iterator[str]:
    """String literals, each whole; what an f-string fills in is a placeholder."""
    filled = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in filled for part in node.values}
    for node in filled:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else FILLED for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


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
