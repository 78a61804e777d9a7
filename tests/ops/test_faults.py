"""`fleetctl game-day --live --scenario N`: on the embedded AWS, whose experiments (moto's) do nothing by themselves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.fleetctl import main
from fleet.core import names
from fleet.localaws.deployed import Deployed
from stacks import faults as stack
from tests.infra.test_faults import as_called, experiments
from tests.synth import synthesized

pytestmark = pytest.mark.slow  # synthesizes stacks of its own

Play = Callable[..., Result]


@pytest.fixture
def play(live: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """One scenario; `meanwhile` is done whenever the command waits."""

    def run(number: int, meanwhile: Callable[[], None] = lambda: None) -> Result:
        monkeypatch.setattr("time.sleep", lambda _: meanwhile())
        arguments = ["game-day", "--live", "--scenario", str(number), "--yes", "--no-load", "--endpoint", "http://x"]
        return CliRunner().invoke(main, [*arguments, "--out", str(tmp_path / "day")], env=live.aws.environment())

    return run


@pytest.fixture
def made(live: Deployed, tmp_path: Path) -> dict[str, str]:
    """What `make faults` makes: ids by fault."""
    synthesized(tmp_path / "faults", {}, stack.build)
    fis = live.aws.client("fis")
    found = {}
    for fault, properties in experiments(tmp_path / "faults").items():
        called = {**as_called(properties), "roleArn": "arn:aws:iam::123456789012:role/faults"}
        created = fis.create_experiment_template(clientToken=fault, **called)
        found[fault] = created["experimentTemplate"]["id"]
    return found


def receipts(tmp_path: Path) -> dict[str, Any]:
    return {each["step"]: each for each in json.loads((tmp_path / "day" / "receipts.json").read_text())}


def test_a_notice_is_injected_and_held_once_another_box_serves(
    live: Deployed, play: Play, made: dict[str, str], tmp_path: Path
) -> None:
    done = play(1, live.reclaim)
    assert done.exit_code == 0, done.output
    (experiment,) = live.aws.client("fis").list_experiments()["experiments"]
    assert experiment["experimentTemplateId"] == made[names.FAULT_NOTICE]
    assert experiment["tags"] == {names.TAG_FLEET: "llm"}
    seen = receipts(tmp_path)
    assert list(seen) == ["serving", "fault", "successor", "callers"]
    assert "is gone, another serves" in seen["successor"]["seen"]


def test_without_its_templates_nothing_is_begun_and_the_verb_that_makes_them_is_named(
    live: Deployed, play: Play, tmp_path: Path
) -> None:
    done = play(3)
    assert done.exit_code == 3
    assert "no experiment template dry of llm: `make faults` makes it" in receipts(tmp_path)["serving"]["seen"]
    assert live.aws.client("fis").list_experiments()["experiments"] == []


def test_a_fleet_that_nobody_saves_is_a_miss(play: Play, made: dict[str, str], tmp_path: Path) -> None:
    done = play(2)
    assert done.exit_code == 3
    assert "another box serves: not within 1020 s" in receipts(tmp_path)["successor"]["seen"]
