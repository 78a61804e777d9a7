"""The whole app through the real CDK CLI on the embedded AWS: bootstrap, deploy, the drift gate, diff, destroy.

The drift gate: whichever way the lever was moved, a deploy without changes, a deploy with changed user data and a
deploy with a new stack tag all keep it. A copy of the app with a literal 0 in the lever's place fails the same gate.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fleet import cdk_cli, embedded, names, validation
from fleet.cdk_cli import Cdk, CdkError
from fleet.embedded import inventory
from fleet.embedded.deployed import Deployed, fill_store
from tests.synth import CDK_JSON

pytestmark = pytest.mark.xdist_group("cdk")

SETTINGS = validation.load(CDK_JSON)
FLEET = SETTINGS.fleet_name
GROUP_STACK = names.stack(FLEET, "group")


@dataclass(frozen=True)
class World:
    """A bootstrapped account, a folder with the app's cdk.json, its assembly, and one with changed user data."""

    fleet: Deployed
    cdk: Cdk
    app: Path
    assembly: Path
    other_user_data: Path

    def on(self, aws: embedded.Aws) -> "World":
        """The same on a copy of the account."""
        fleet = self.fleet.on(aws)
        return replace(self, fleet=fleet, cdk=Cdk(aws.environment(), self.cdk.log))


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Everything deployed once, by the CLI."""
    base = tmp_path_factory.mktemp("cdk")
    with embedded.server(base / "aws", SETTINGS.region) as aws:
        cdk = Cdk(aws.environment(), base / "cdk.log")
        fleet = Deployed(aws, SETTINGS)
        app = cdk_cli.with_settings(base / "app", {}, CDK_JSON)
        world = World(fleet, cdk, app, base / "cdk.out", base / "cdk.out.user-data")
        cdk.synth(world.assembly, app_dir=app)
        changed = {**json.loads(fleet.settings.to_json())["drain"], "budget_seconds": 90}
        cdk.synth(world.other_user_data, app_dir=cdk_cli.with_settings(base / "other", {"drain": changed}, CDK_JSON))
        cdk.bootstrap(embedded.ACCOUNT, aws.region, base / "empty")
        with pytest.raises(CdkError, match="fleetctl publish"):
            cdk.deploy(world.assembly, names.stack(FLEET, "network"), names.stack(FLEET, "store"), GROUP_STACK)
        fill_store(fleet)
        cdk.deploy(world.assembly)
        yield world


@pytest.fixture
def world(account: World, tmp_path: Path) -> Iterator[World]:
    """A copy of the deployed account."""
    with account.fleet.aws.fork(tmp_path / "aws") as copy:
        yield account.on(copy)


def sequence(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `make deploy` and `make destroy` run."""
    environment = {**os.environ, **world.cdk.environment, "PYTHONPATH": str(cdk_cli.ROOT)}
    command = [sys.executable, "-m", "fleet.sequence", *arguments]
    return subprocess.run(command, cwd=world.app, env=environment, capture_output=True, text=True, check=False)


def flip(fleet: Deployed, percentage: int) -> None:
    """Move parameter and group as the watchdog does."""
    name = names.lever_parameter(FLEET)
    fleet.aws.client("ssm").put_parameter(Name=name, Value=str(percentage), Type="String", Overwrite=True)
    distribution = fleet.group()["MixedInstancesPolicy"]["InstancesDistribution"]
    fleet.aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=fleet.group_name,
        MixedInstancesPolicy={
            "InstancesDistribution": {**distribution, "OnDemandPercentageAboveBaseCapacity": percentage}
        },
    )


def drift_gate(world: World, *percentages: int) -> list[str]:
    """Which deploys moved the lever, or failed to do what they were for; empty: the gate holds."""
    findings = []
    for percentage in percentages:
        flip(world.fleet, percentage)
        version = int(world.fleet.template_version())
        deploys = {
            "the next deploy": (world.assembly, {}),
            "changed user data": (world.other_user_data, {}),
            "a new stack tag": (world.other_user_data, {"owner": f"team-{percentage}"}),
            "the old user data": (world.assembly, {"owner": f"team-{percentage}"}),
        }
        for name, (assembly, tags) in deploys.items():
            world.cdk.deploy(assembly, GROUP_STACK, tags=tags)
            found = (world.fleet.percentage(), world.fleet.lever())
            if found != (percentage, str(percentage)):
                findings.append(f"{name} after a flip to {percentage}: group and lever are {found}")
                flip(world.fleet, percentage)
        if int(world.fleet.template_version()) != version + 2:
            findings.append(f"two changes of user data moved version {version} to {world.fleet.template_version()}")
    return findings


def test_no_deploy_moves_the_lever(world: World) -> None:
    assert drift_gate(world, 100, 0) == []


def test_a_literal_zero_in_the_levers_place_fails_the_gate(world: World, tmp_path: Path) -> None:
    copies = []
    for assembly in (world.assembly, world.other_user_data):
        copy = tmp_path / assembly.name
        shutil.copytree(assembly, copy)
        path = copy / f"{GROUP_STACK}.template.json"
        template = json.loads(path.read_text())
        replaced = 0
        for resource in template["Resources"].values():
            policy = resource["Properties"].get("MixedInstancesPolicy")
            if policy:
                policy["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"] = 0
                replaced += 1
        assert replaced == 1
        path.write_text(json.dumps(template))
        copies.append(copy)
    findings = drift_gate(replace(world, assembly=copies[0], other_user_data=copies[1]), 100)
    assert any("changed user data after a flip to 100" in finding for finding in findings), findings
    assert any("a new stack tag after a flip to 100" in finding for finding in findings), findings


def test_diff_in_change_set_mode_sees_the_lever_move(world: World) -> None:
    def change_set(name: str) -> list[dict[str, Any]]:
        cloudformation = world.fleet.aws.client("cloudformation")
        stack = cloudformation.describe_stacks(StackName=GROUP_STACK)["Stacks"][0]
        cloudformation.create_change_set(
            StackName=GROUP_STACK,
            ChangeSetName=name,
            ChangeSetType="UPDATE",
            TemplateBody=(world.assembly / f"{GROUP_STACK}.template.json").read_text(),
            Tags=stack["Tags"],
        )
        found = cloudformation.describe_change_set(StackName=GROUP_STACK, ChangeSetName=name)
        return [change["ResourceChange"]["ResourceType"] for change in found["Changes"]]

    assert "There were no differences" in world.cdk.diff(world.assembly, GROUP_STACK)
    assert change_set("still") == []
    flip(world.fleet, 100)
    assert change_set("moved") == ["AWS::AutoScaling::AutoScalingGroup"]


def test_destroy_leaves_what_is_kept_on_purpose_and_nothing_else(world: World) -> None:
    kept = {
        f"bucket: {world.fleet.output('store', 'BucketName')}",
        f"parameter: {names.lever_parameter(FLEET)}",
        f"parameter: {names.state_parameter(FLEET)}",
    }
    assert kept < inventory.listing(world.fleet.aws)
    told = sequence(world, "destroy", "--force", "--app", str(world.assembly))
    assert inventory.listing(world.fleet.aws) == kept
    for item in kept:
        assert item.split(": ")[1] in told.stdout
    assert "$0.00 a month" in told.stdout


def test_make_deploy_stops_at_an_empty_store_and_names_the_next_command(world: World) -> None:
    model = world.fleet.settings.model
    bucket = world.fleet.output("store", "BucketName")
    world.fleet.aws.client("s3").delete_object(Bucket=bucket, Key=model.gguf.key)
    told = sequence(world, "deploy", "--require-approval=never")
    assert told.returncode == 2
    assert model.gguf.key in told.stderr
    assert "fleetctl publish" in told.stderr
    assert "Traceback" not in told.stderr
