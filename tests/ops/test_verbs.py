"""What the command line adds to what it calls: a watch that outlives a throttle, a question answered with no."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from fleet.account.aws_errors import RateExceededError
from fleet.cli import operate
from fleet.cli.fleetctl import main
from tests.synth import ROOT


def test_a_watch_shows_a_look_that_failed_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    throttled = RateExceededError("lambda GetFunctionConfiguration was throttled", "wait a minute")
    looks = iter(["first look", throttled, "third look", KeyboardInterrupt()])

    def look(_: Any) -> Any:
        found = next(looks)
        if isinstance(found, BaseException):
            raise found
        return SimpleNamespace(text=found, problems=())

    monkeypatch.setattr(operate, "_look", look)
    monkeypatch.setattr(operate, "WATCH_SECONDS", 0)
    monkeypatch.setattr(operate.tables, "status", lambda found: found.text)
    done = CliRunner().invoke(main, ["status", "--watch"])
    assert next(looks, None) is None  # it looked until it was interrupted
    assert "Traceback" not in done.output


def test_a_question_answered_with_no_is_the_users_and_does_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["game-day", "--live", "--out", str(tmp_path)], input="n\n")
    assert done.exit_code == 2
    assert done.stderr.endswith("fleetctl: nothing was done\n")


def test_a_reader_that_has_read_enough_is_no_error_to_report() -> None:
    read, written = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", "from fleet.cli.fleetctl import main; main(['drill', '--list'])"]
    done = subprocess.run(command, stdout=written, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    os.close(written)
    assert done.stderr == ""
