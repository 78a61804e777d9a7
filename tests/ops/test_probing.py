"""`fleetctl probe --all`: every row to be probed is told, seen or by hand, and what was seen fills the table."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleet.cli.fleetctl import main
from fleet.core import names
from fleet.localaws.deployed import Deployed
from fleet.ops import probing
from fleet.ops.probing import Seen

PAGE = probing.PAGE.read_text()
BOOT = (
    "BOOTSTAGE stage=register start=30.0 end=41.2 outcome=ok",
    "BOOTSTAGE stage=store start=30.0 end=30.9 outcome=reused",
    "BOOTSTAGE stage=restore start=31.0 end=92.0 outcome=ok how=streamed mb_per_s=298.4",
    "BOOTSTAGE stage=load start=92.0 end=93.0 outcome=ok how=streamed mb_per_s=298.4",
    "BOOTSTAGE stage=warm_up start=92.0 end=189.0 outcome=ok",
    "BOOTSTAGE stage=open start=189.0 end=189.1 outcome=ok",
    "BOOTSTAGE stage=healthy start=189.1 end=201.0 outcome=ok",
)


def booted(live: Deployed) -> None:
    """A boot of one box in the boxes' log."""
    logs, group = live.aws.client("logs"), names.box_log_group("llm")
    logs.create_log_stream(logGroupName=group, logStreamName="i-1")
    at = int(live.boxes()[0]["LaunchTime"].timestamp() * 1000)
    events = [{"timestamp": at, "message": message} for message in (*BOOT, "BOOTSTAGE stage=evil end=| x")]
    logs.put_log_events(logGroupName=group, logStreamName="i-1", logEvents=events)


def test_every_row_to_be_probed_is_told_and_what_was_seen_fills_the_table(
    live: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "docs" / "aws-behaviours.md"
    page.parent.mkdir()
    page.write_text(PAGE)
    monkeypatch.setattr(probing, "PAGE", page)
    booted(live)
    before = live.group()
    record = tmp_path / "docs" / "probes" / "first.json"
    words = ["probe", "--all", "--why", "first deploy", "--yes", "--record", str(record)]
    done = CliRunner().invoke(main, words, env=live.aws.environment())
    assert done.exit_code == 0, done.output
    rows = {row["row"]: row for row in json.loads(record.read_text())["rows"]}
    assert list(rows) == list(probing.to_be_probed(PAGE))
    held = {row for row, told in rows.items() if told["held"]}
    assert held >= {
        "bare-template-type",
        "burst-lasts",
        "flip-whole-distribution",
        "fuse-module",
        "held-registers",
        "hooks-follow",
        "image-mounts-store",
        "mounts-reach-units",
        "registration-overlaps",
        "run-command-channel",
        "store-read-rate",
        "store-write-rate",
    }
    assert rows["new-account-concurrency"] == {
        "row": "new-account-concurrency",
        "held": False,
        "found": "1000 concurrent executions in this account",
    }
    assert rows["list-prices"]["found"].startswith("by hand: ")
    after = page.read_text()
    assert "measured: `docs/probes/first.json`: stage load: mb_per_s 298.4 |" in after
    assert "measured: `docs/probes/first.json`: **otherwise**: 1000 concurrent executions" in after
    assert list(probing.to_be_probed(after)) == [row for row, told in rows.items() if told["held"] is None]
    assert live.group()["MixedInstancesPolicy"] == before["MixedInstancesPolicy"]


def test_a_probe_that_is_refused_says_so_and_the_next_goes_on(live: Deployed) -> None:
    live.aws.control("fault", service="lambda", action="GetAccountSettings", code="AccessDeniedException", times=-1)
    words = ["probe", "--all", "--why", "denied", "--yes"]
    done = CliRunner().invoke(main, words, env=live.aws.environment())
    assert done.exit_code == 0, done.output
    told = [line.split("; ")[0] for line in done.output.splitlines()]
    assert "new-account-concurrency: not seen" in told
    assert "held-registers: not seen" in told  # no boot in the log
    assert "run-command-channel: as the table says" in told


def test_every_probe_is_of_a_row_that_is_still_to_be_probed_or_was() -> None:
    rows = {row["name"] for row in probing.ROW.finditer(PAGE)}
    assert set(probing.PROBES) <= rows


def test_a_bar_in_what_was_seen_breaks_no_row() -> None:
    page = "| `a` behaves | `x` | to be probed: look |\n"
    assert probing.filled(page, [Seen("a", True, "1 | 2")], "r") == "| `a` behaves | `x` | measured: `r`: 1 / 2 |\n"
