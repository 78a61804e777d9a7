"""Words of our own that the field has other words for stay retired: in names, files, settings and help."""

import io
import re
import tokenize
from itertools import pairwise
from pathlib import Path

import click

from fleet.cli.fleetctl import main
from fleet.config.section import RENAMED
from fleet.config.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDERS = ("assets", "fleet", "lambdas", "scripts", "stacks", "tests")
RETIRED = {
    "sways", "contradiction", "contradictions", "outsider", "outsiders", "twist", "ladder", "rung", "rungs", "knob",
    "knobs", "rooms", "door", "button", "buttons", "spell", "spells", "story", "teller", "late_event", "idle_warning",
}  # fmt: skip
STAGES = {"serve", "warm", "prime"}  # of a boot
PHRASES = re.compile(r"front door|four buttons|operator's door|\brooms share\b", re.IGNORECASE)
HELP = re.compile(r"\bluck\b|unless given|\byours\b|our fault|times real time|\brunning were\b")


def retired(name: str) -> bool:
    """Whether a name says one of these words, alone or among others."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    pairs = [f"{one}_{other}" for one, other in pairwise(words)]
    return not RETIRED.isdisjoint(word.lower() for word in (*words, *pairs))


def test_no_retired_word_names_a_file_or_stands_in_an_identifier() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in files if retired(path.stem)] == []
    named = {
        token.string
        for path in files
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
        if token.type == tokenize.NAME
    }
    assert {name for name in named if retired(name)} == set()


def test_no_page_and_no_comment_has_a_retired_phrase() -> None:
    sources = [
        path for folder in ("docs", *FOLDERS) for kind in ("md", "py") for path in (ROOT / folder).rglob(f"*.{kind}")
    ]
    others = [path for path in (ROOT / "README.md", *sources) if path != Path(__file__)]
    assert [path.name for path in others if PHRASES.search(path.read_text(encoding="utf-8"))] == []


def test_no_stage_of_a_boot_has_a_retired_name() -> None:
    stages = set(re.findall(r"^\| ([a-z_]+) \|", (ROOT / "docs" / "box.md").read_text(), re.MULTILINE))
    assert "start_engine" in stages
    assert stages & STAGES == set()


def test_no_setting_has_a_retired_name() -> None:
    keys = set(re.findall(r'"(\w+)":', (ROOT / "docs" / "cdk.schema.json").read_text()))
    assert len(keys) > 90
    assert {old.rpartition(".")[2] for old in RENAMED} & keys == set()
    bridge = Settings.__dataclass_fields__["bridge"].type
    assert all(hasattr(bridge, new.rpartition(".")[2]) for new in RENAMED.values() if new)


def test_help_speaks_of_seeds_defaults_and_usage() -> None:
    context = click.Context(main)
    texts = [main.get_help(context)]
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        texts.append(command.get_help(click.Context(command)))
    assert [found[0] for text in texts if (found := HELP.search(" ".join(text.split())))] == []
