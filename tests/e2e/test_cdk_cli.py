"""The README's walk by the real CDK CLI on the embedded AWS, and the drift gate on what it deployed.

The drift gate: whichever way the lever was moved, a deploy without changes, a deploy with changed user data and a
deploy with a new stack tag all keep it. A copy of the app with a literal 0 in the lever's place fails the same gate.
The demo deploys on a moved lever by the CLI; here the same assemblies go to CloudFormation without it, and by it again
in `make test-deploys`.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fleet import localaws
from fleet.config import validation
from fleet.core import names
from fleet.core.cdk_cli import Cdk, CdkError, with_settings
from fleet.localaws import assembly as cloud_assembly
from fleet.localaws import inventory
from fleet.localaws.deployed import Deployed
from fleet.ops.review import MARKER
from tests.e2e import walk
from tests.e2e.walk import Typed
from tests.synth import CDK_JSON, NOT_VALIDATED

pytestmark = pytest.mark.slow

FLEET = validation.load(CDK_JSON).fleet_name
GROUP_STACK = names.stack(FLEET, "group")


@dataclass(frozen=True)
class World:
    """An account at the end of the walk, before its last line; the assembly it deployed, and the one it reviewed."""

    fleet: Deployed
    cdk: Cdk
    checkout: Path
    typed: tuple[Typed, ...]
    leave: str  # the last line
    assembly: Path
    other_user_data: Path

    def on(self, aws: localaws.Aws) -> "World":
        """The same on a copy of the account."""
        return replace(self, fleet=self.fleet.on(aws), cdk=Cdk(aws.environment(), self.cdk.log))

    def said(self, beginning: str) -> list[Typed]:
        """The lines of the walk that begin with these words."""
        return [typed for typed in self.typed if typed.line.startswith(beginning)]


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The walk, once."""
    base = tmp_path_factory.mktemp("cdk")
    checkout, deployed, reviewed = walk.linked(base / "checkout"), base / "deployed", base / "reviewed"
    typed: list[Typed] = []
    with walk.cloud(checkout) as aws, walk.terminal(checkout, NOT_VALIDATED) as enter:
        cdk = Cdk(aws.environment(), base / "cdk.log")
        *lines, leave = walk.lines()[1]
        for line in lines:
            typed.append(enter(line))
            if line.startswith("make deploy") and not deployed.exists():
                shutil.copytree(checkout / "cdk.out", deployed)
                with aws.fork(base / "empty-store") as copy, pytest.raises(CdkError, match="fleetctl publish"):
                    Cdk(copy.environment(), cdk.log).deploy(deployed, GROUP_STACK)
        shutil.copytree(checkout / "cdk.out", reviewed)
        fleet = Deployed(aws, validation.load(checkout / "cdk.json"))
        yield World(fleet, cdk, checkout, tuple(typed), leave, deployed, reviewed)


@pytest.fixture
def world(account: World, tmp_path: Path) -> Iterator[World]:
    """A copy of the deployed account."""
    with account.fleet.aws.fork(tmp_path / "aws") as copy:
        yield account.on(copy)


def test_the_readmes_walk_ends_well_but_where_it_must_stop(account: World) -> None:
    empty, full = account.said("make deploy")
    assert [typed for typed in account.typed if typed.code != (2 if typed is empty else 0)] == []
    assert "The model store lacks artifacts/" in empty.said
    assert "Fill it with `fleetctl publish`" in empty.said
    assert "Traceback" not in empty.said
    assert GROUP_STACK in full.said
    before, after = validation.load(CDK_JSON), account.fleet.settings
    assert (before.network.callers, after.network.callers) == (("10.42.0.0/20",), ("10.0.0.0/8",))
    assert (before.mail, after.mail) == ((), ("you@example.org",))


def test_the_pull_requests_command_tells_what_rolls_boxes_and_writes_it_where_the_comment_is_read(
    account: World,
) -> None:
    (told,) = account.said("make review")
    comment = (account.checkout / "out" / "review.md").read_text()
    assert comment in told.said
    assert comment.startswith(MARKER)
    assert "- **Rolls boxes:** yes, launch-first" in comment
    assert "LaunchTemplateData/UserData" in comment
    assert "- **Destructive:** no" in comment


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


Deploy = Callable[[World, Path, dict[str, str]], object]


def without_the_cli(world: World, assembly: Path, tags: dict[str, str]) -> None:
    cloud_assembly.deploy(world.fleet.aws, assembly, GROUP_STACK, tags or None)


def by_the_cli(world: World, assembly: Path, tags: dict[str, str]) -> None:
    world.cdk.deploy(assembly, GROUP_STACK, tags=tags)


def drift_gate(world: World, *percentages: int, deploy: Deploy = without_the_cli) -> Iterator[str]:
    """Which deploys move the lever, or fail to do what they are for; none: the gate holds."""
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
            deploy(world, assembly, tags)
            found = (world.fleet.percentage(), world.fleet.lever())
            if found != (percentage, str(percentage)):
                yield f"{name} after a flip to {percentage}: group and lever are {found}"
                flip(world.fleet, percentage)
        if int(world.fleet.template_version()) != version + 2:
            yield f"two changes of user data moved version {version} to {world.fleet.template_version()}"


@pytest.mark.parametrize("deploy", [without_the_cli, pytest.param(by_the_cli, marks=pytest.mark.deploys)])
def test_no_deploy_moves_the_lever(world: World, deploy: Deploy) -> None:
    assert list(drift_gate(world, 100, 0, deploy=deploy)) == []


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
    first = next(drift_gate(replace(world, assembly=copies[0], other_user_data=copies[1]), 100))
    assert first.endswith("after a flip to 100: group and lever are (0, '100')")


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

    flip(world.fleet, 0)  # the walk pinned
    assert "There were no differences" in world.cdk.diff(world.assembly, GROUP_STACK)
    assert change_set("still") == []
    flip(world.fleet, 100)
    assert change_set("moved") == ["AWS::AutoScaling::AutoScalingGroup"]


@pytest.mark.deploys
def test_a_change_of_every_class_deploys_on_the_standing_fleet_and_leaves_no_difference(
    world: World, tmp_path: Path
) -> None:
    """Balancer, zones, callers, boxes and function at once; tests/infra/test_standing_fleet.py has each setting."""
    before = world.fleet.settings
    changed = {
        "port": 12000,
        "zones": list(before.zones[:-1]),
        "network": {"callers": ["10.9.0.0/16"], "allow_public": True},
        "boot": {"hook_heartbeat_seconds": 1801},
        "watchdog": {"alarm_minutes": 13},
    }
    app = with_settings(tmp_path / "app", changed, world.checkout / "cdk.json")
    world.cdk.synth(tmp_path / "cdk.out", app_dir=app)
    world.cdk.deploy(tmp_path / "cdk.out", GROUP_STACK)
    assert "There were no differences" in world.cdk.diff(tmp_path / "cdk.out", GROUP_STACK)
    (target_group,) = world.fleet.aws.client("elbv2").describe_target_groups()["TargetGroups"]
    assert world.fleet.group()["TargetGroupARNs"] == [target_group["TargetGroupArn"]]
    assert target_group["Port"] == 12000
    assert len(world.fleet.boxes()) == 1


def test_destroy_leaves_what_is_kept_on_purpose_and_nothing_else(world: World) -> None:
    kept = {
        f"bucket: {world.fleet.output('store', 'BucketName')}",
        f"parameter: {names.lever_parameter(FLEET)}",
        f"parameter: {names.state_parameter(FLEET)}",
    }
    assert kept < inventory.listing(world.fleet.aws)
    with walk.terminal(world.checkout, {**world.cdk.environment, **NOT_VALIDATED}) as enter:
        told = enter(world.leave)
    assert told.code == 0, told.said
    assert inventory.listing(world.fleet.aws) == kept
    for item in kept:
        assert item.split(": ")[1] in told.said
    assert "$0.00 a month" in told.said
