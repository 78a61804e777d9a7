"""What the tests read of a program's source: what it imports, and whether the box's Python would run it."""

import ast
import subprocess
from collections.abc import Iterable
from pathlib import Path

BOX_PYTHON = "3.9-"


def imported(path: Path) -> set[str]:
    """The modules that a file imports, by their first names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def too_new_for_the_box(files: Iterable[Path]) -> str:
    """What these need that the box's Python lacks, in the checker's words; empty: nothing."""
    command = ["vermin", f"-t={BOX_PYTHON}", "--eval-annotations", "--violations", "--no-tips", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode else ""
