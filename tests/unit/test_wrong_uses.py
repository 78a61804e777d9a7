"""Every wrong use of the settings gets its whole answer, everywhere alike: exit code 2 and no traceback."""

import contextlib
import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleet.cli.fleetctl import main
from fleet.config import validation
from fleet.config.cross_field_rules import RULES
from fleet.config.settings import Settings
from tests import wrong_uses
from tests.synth import CDK_JSON, ROOT
from tests.wrong_uses import ABSENT, SETTINGS

DOCUMENT = json.loads(CDK_JSON.read_text())


def edited(edits: dict[str, Any]) -> str:
    """The tests' cdk.json with these keys of the fleet replaced."""
    document = copy.deepcopy(DOCUMENT)
    for dotted, value in edits.items():
        *path, last = dotted.split(".")
        section = document["context"]["fleet"]
        for name in path:
            section = section[name]
        if value is ABSENT:
            del section[last]
        else:
            section[last] = value
    return json.dumps(document)


def answer(lines: tuple[str, ...]) -> str:
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return "\n  ".join([f"cdk.json: {count} in the settings of the fleet", *lines])


FILES = wrong_uses.FILES | {name: (edited(edits), lines) for name, (edits, lines) in SETTINGS.items()}


@pytest.mark.parametrize(("text", "lines"), FILES.values(), ids=FILES)
def test_wrong_settings_are_answered_in_full(
    text: str | None, lines: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("cdk.json").write_text(text)
    with pytest.raises(validation.SettingsError) as caught:
        validation.load()
    assert str(caught.value) == answer(lines)


@pytest.mark.parametrize(("arguments", "lines"), wrong_uses.COMMANDS.values(), ids=wrong_uses.COMMANDS)
def test_a_wrong_command_is_answered_in_full(arguments: tuple[str, ...], lines: tuple[str, ...]) -> None:
    """Before anything is asked of AWS: there is none here."""
    done = CliRunner().invoke(main, arguments, prog_name="fleetctl")
    assert done.exit_code == 2
    assert done.stderr == "\n".join(lines) + "\n"
    assert done.stdout == ""


def test_every_cross_field_rule_stands_in_the_table() -> None:
    unseen = set(RULES)
    for edits, _ in SETTINGS.values():
        fleet = json.loads(edited(edits))["context"]["fleet"]
        with contextlib.suppress(TypeError, AttributeError):  # values that the schema refuses first
            settings = Settings.from_json(json.dumps(fleet))
            for rule in list(unseen):
                with contextlib.suppress(AttributeError):  # of a gateway where there is none
                    unseen -= {rule} if any(rule(settings)) else set()
    assert not unseen


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(("app.py",), id="synth", marks=pytest.mark.slow),
        pytest.param(("-c", "from fleet.cli.fleetctl import main; main(args=['status'])"), id="fleetctl"),
    ],
)
def test_wrong_settings_end_every_program_with_code_2_and_no_traceback(
    program: tuple[str, ...], tmp_path: Path
) -> None:
    edits, lines = SETTINGS["several at once: all are told, and none twice"]
    (tmp_path / "cdk.json").write_text(edited(edits))
    command = [str(ROOT / part) if part.endswith(".py") else part for part in program]
    run = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert run.stderr == answer(lines) + "\n"
    assert run.stdout == ""
