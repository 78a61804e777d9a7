"""The demo's times are the recorded ones."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet import localaws
from fleet.config import validation
from fleet.core import cdk_cli
from fleet.demo import __main__ as demo
from fleet.demo import acts, nights
from fleet.demo.screen import Narrator
from fleet.localaws.deployed import Deployed
from tests.synth import CDK_JSON


def at(day: int, clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-07-{day}T{clock}").replace(tzinfo=UTC)


def test_drought_has_its_recorded_times() -> None:
    night = nights.drought()
    assert (night.gone, night.alarm, night.failover) == (at(22, "00:14:30"), at(22, "00:35:41"), at(22, "00:35:43"))
    assert night.serving == at(22, "00:40:30")
    assert (night.launched - night.alarm).total_seconds() == 7.6


def test_short_night_finds_a_ten_minute_old_box() -> None:
    night = nights.short_night()
    assert (night.gone, night.alarm, night.ok) == (at(28, "02:04:00"), at(28, "02:20:04"), at(28, "02:22:04"))
    assert (night.alarm - night.launched).total_seconds() == 600
    assert night.serving == at(28, "02:16:00")


OWN_POOL = {"instance_type": "g6e.xlarge", "gpu_memory_gib": 44.5, "vcpus": 4, "on_demand_usd": 2.0, "spot_usd": 1.0}
# A fleet that was edited in every way that the embedded AWS knows nothing of.
EDITED = {
    "region": "eu-west-1",
    "zones": ["eu-west-1a", "eu-west-1b"],
    "pools": ["g6e.xlarge"],
    "own_pools": [OWN_POOL],
    "score_types": ["g6e.xlarge", "g6.xlarge", "g5.xlarge"],
    "ami_id": "ami-0a1b2c3d",
    "ebs_key_arn": "arn:aws:kms:eu-west-1:123456789012:key/0a1b2c3d",
    "network": {
        "vpc_id": "vpc-0a1b2c3d",
        "subnet_ids": ["subnet-0a1b2c3d", "subnet-0a1b2c3e"],
        "callers": ["10.0.0.0/8"],
    },
}


class StoppedError(Exception):
    """Far enough."""


def test_demo_plays_an_edited_fleet_in_its_own_region_without_what_one_account_alone_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = json.loads(CDK_JSON.read_text())["context"]["fleet"]["model"]
    pinned = {**model, "gguf": {**model["gguf"], "sha256": "0" * 64}}
    own = cdk_cli.with_settings(tmp_path / "own", {**EDITED, "model": pinned}, CDK_JSON) / "cdk.json"
    began = []

    def server(_: Path, region: str) -> None:
        began.append(region)
        raise StoppedError

    monkeypatch.setattr(demo, "OUT", tmp_path / "demo")
    monkeypatch.setattr(localaws, "server", server)
    with pytest.raises(StoppedError):
        demo.main(own)
    assert began == ["eu-west-1"]
    played = validation.load(tmp_path / "demo" / "app" / "cdk.json")
    assert (played.ami_id, played.ebs_key_arn, played.network.vpc_id, played.model.gguf.sha256) == (
        None,
        None,
        None,
        "",
    )
    assert (played.pools, played.network.callers) == (("g6e.xlarge",), ("10.0.0.0/8",))


def test_demo_counts_the_dollars_of_an_own_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "OUT", tmp_path)
    monkeypatch.setattr(cdk_cli, "ROOT", tmp_path)  # paths are told from there
    own = cdk_cli.with_settings(tmp_path, {**EDITED, "network": {}}, CDK_JSON)
    fleet = Deployed(None, validation.load(own / "cdk.json"))  # type: ignore[arg-type]  # asked nothing
    log = acts.Log()
    log.add(at(22, "00:00:00"), "start", name="a night", desired=1)
    log.launched(at(22, "00:00:00"), "i-1", "spot", fleet.settings.pool("g6e.xlarge"))
    log.add(at(22, "00:00:00"), "box.serving", box="i-1")
    log.add(at(22, "02:00:00"), "end")
    tell = Narrator()
    with tell.console.capture() as said:
        demo._sum(fleet, [log], [], tell)
    assert "$2.00 against $4.00 all on-demand. A quiet day costs $24.00 against $48.00." in said.get()
