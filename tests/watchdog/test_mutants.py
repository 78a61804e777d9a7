"""A sample of the mutants in every run of the tests; `make mutants` takes them all."""

import subprocess
import sys

import pytest

from tests.watchdog.mutants import MODULES, ROOT, mutants

pytestmark = pytest.mark.slow


def test_every_hundredth_mutant_is_caught() -> None:
    command = [sys.executable, "-m", "tests.watchdog.mutants", "--every", "100", "--jobs", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


def test_names_tell_mutants_apart() -> None:
    every = [mutant.name for module in MODULES for mutant in mutants(module)]
    assert len(set(every)) == len(every) > 500
