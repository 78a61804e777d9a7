"""Deploys never fight the fleet: a roll is launch-first, a drought keeps the serving box, a roll-back is repaired.

What happens over time runs in the simulated cloud through the watchdog's own handler; what a deploy says, on the
embedded AWS with the synthesized templates.
"""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleet.account.access import Aws
from fleet.cli.fleetctl import main
from fleet.config.settings import Settings
from fleet.core import names
from fleet.core.errors import UserError
from fleet.eventlog.events import Event
from fleet.localaws import EmbeddedError, assembly, iam_policies
from fleet.localaws.deployed import Deployed
from fleet.ops.checks import Ground
from fleet.ops.checks_deploy import require_clear
from tests.drills.by_hand import HOUR, START, build, market, told
from tests.embedded_fleet import put
from tests.synth import ROOT, change_user_data

WATCHDOG_STATE = {"spot-armed": 0, "on-demand-failover": 100, "on-demand-pinned": 100}


def simulated(settings: Settings, *steps: tuple[float, int], mode: str = "spot-armed", hours: float = 4) -> Any:
    """A serving fleet in the simulated cloud, with the real watchdog; and its log."""
    lever = WATCHDOG_STATE[mode]
    state: dict[str, Any] = {"version": 1, "mode": mode}
    if mode == "on-demand-failover":
        state["cooldown_from"] = datetime.fromtimestamp(START, UTC).isoformat()  # no re-arm while we look
    start = {"lever": lever, "state": json.dumps(state), "serving": "on-demand" if lever else "spot"}
    return build(settings, market(*steps, hours=hours, spares=True), watched=True, **start)


def subjects(log: list[Event]) -> list[str]:
    return [event.fields["subject"] for event in log if event.kind == "mail"]


def told_states(log: list[Event]) -> list[str]:
    return [event.fields["state"] for event in log if event.kind == "alarm"]


# --- over time -------------------------------------------------------------------------------------------------


def test_a_template_change_in_a_drought_keeps_the_serving_box_and_fails(settings: Settings) -> None:
    cloud, log = simulated(settings, (HOUR / 2, 0))
    cloud.run(until=START + HOUR)
    before = [box.id for box in cloud.group().boxes]
    cloud.autoscaling.start_refresh(has_desired_configuration=True)
    cloud.run()
    assert [box.id for box in cloud.group().boxes if box.lifecycle == "InService"] == before
    assert told(log, "box.unserving") == []
    assert cloud.refreshes()[0].status == "Failed"


@pytest.mark.parametrize(("mode", "rolled_back_to"), [("spot-armed", 100), ("on-demand-failover", 0)])
def test_after_a_roll_back_mode_and_lever_agree_within_one_scan(
    settings: Settings, mode: str, rolled_back_to: int
) -> None:
    cloud, log = simulated(settings, mode=mode)
    cloud.run(until=START + HOUR + 60)
    cloud.flip(cloud.group(), rolled_back_to, send_template=True)  # what CloudFormation puts back with the old template
    cloud.run(until=START + HOUR + 60 + settings.watchdog.scan_seconds)
    text, lever = cloud.parameters()
    assert json.loads(text or "")["mode"] == mode
    assert (cloud.group().on_demand_percentage, lever) == (WATCHDOG_STATE[mode], str(WATCHDOG_STATE[mode]))
    assert sum("repaired" in str(event.fields.get("subject")) for event in log if event.kind == "mail") == 1


def test_a_failover_that_a_hanging_roll_back_undoes_is_repaired_past_the_skip_cap_and_serves(
    settings: Settings,
) -> None:
    """A drought, a failover; a deploy begins, fails and rolls back to the percentage of before, for hours."""
    cloud, log = simulated(settings, (HOUR, 0), hours=12)
    cloud.clock.at(START + HOUR, cloud.ec2.notice, next(iter(cloud.ec2.running.values())))
    cloud.run(until=START + HOUR + 1500)
    assert cloud.group().on_demand_percentage == 100
    (box,) = (box.id for box in cloud.group().boxes)
    cloud.deploying_until = START + 12 * HOUR
    cloud.flip(cloud.group(), 0, send_template=True)
    cloud.autoscaling.start_refresh(has_desired_configuration=True)
    cloud.ec2.end(cloud.ec2.running[box], "its boot failed with the new template")
    cloud.run(until=START + 4 * HOUR)
    repaired = [at for at, event in zip(told(log, "mail"), subjects(log), strict=True) if "repaired" in event]
    alarms = zip(told(log, "alarm"), told_states(log), strict=True)
    lit = max(at for at, state in alarms if state == "ALARM" and at < repaired[0])
    assert 0 <= repaired[0] - (lit + settings.watchdog.skip_cap_seconds) <= settings.scan_seconds
    assert cloud.refreshes()[0].status == "Cancelled"
    assert cloud.group().on_demand_percentage == 100
    assert cloud.balancer.healthy == 1


def test_a_roll_back_that_hangs_while_a_box_serves_is_waited_for_with_one_mail(settings: Settings) -> None:
    cloud, log = simulated(settings, mode="on-demand-failover", hours=8)
    cloud.run(until=START + HOUR)
    cloud.deploying_until = START + 4 * HOUR
    cloud.autoscaling.suspend("Launch")  # so that the group, too, leaves the box that serves
    cloud.flip(cloud.group(), 0, send_template=True)
    cloud.run(until=START + 3.9 * HOUR)
    assert cloud.group().on_demand_percentage == 0
    assert sum("repair waits" in subject for subject in subjects(log)) == 1
    cloud.run(until=START + 5 * HOUR)
    assert cloud.group().on_demand_percentage == 100


def test_after_a_roll_back_of_a_pinned_fleet_the_scan_reports_and_changes_nothing(settings: Settings) -> None:
    cloud, log = simulated(settings, mode="on-demand-pinned")
    cloud.run(until=START + HOUR + 60)
    cloud.flip(cloud.group(), 0, send_template=True)
    cloud.run(until=START + HOUR + 60 + settings.watchdog.scan_seconds)
    assert cloud.group().on_demand_percentage == 0
    scan = [event.fields for event in log if event.kind == "decision"][-1]
    assert scan["reason"] == "pinned; nothing to do"
    assert "parameter 100, group 0: on-demand-pinned expects 100" in scan["detail"]


# --- on the embedded AWS ---------------------------------------------------------------------------------------


@pytest.fixture
def changed(assembly: Path, tmp_path: Path) -> Path:
    """The app with other user data."""
    copy = Path(shutil.copytree(assembly, tmp_path / "cdk.out"))
    change_user_data(copy)
    return copy


def test_a_deploy_in_a_drought_keeps_the_box_and_says_why_it_failed(live: Deployed, changed: Path) -> None:
    before = [box["InstanceId"] for box in live.boxes()]
    live.market(spot=False)
    with pytest.raises(EmbeddedError) as failed:
        assembly.deploy(live.aws, changed, "llm-group")
    assert "there is no spot capacity to launch a successor from; no instance was terminated" in str(failed.value)
    assert [box["InstanceId"] for box in live.boxes()] == before
    assert live.template_version() == "1"


def test_the_same_deploy_goes_through_once_the_market_sells(live: Deployed, changed: Path) -> None:
    assembly.deploy(live.aws, changed, "llm-group")
    assert live.template_version() == "2"


def stand_in_the_way(live: Deployed, way: str) -> None:
    scaling = live.aws.client("autoscaling")
    if way.startswith("Launch"):
        scaling.suspend_processes(AutoScalingGroupName=live.group_name, ScalingProcesses=["Launch"])
    else:
        scaling.start_instance_refresh(AutoScalingGroupName=live.group_name)


WAYS = ["Launch is suspended", "Instance Refresh is already in progress"]


@pytest.mark.parametrize("way", WAYS)
def test_a_deploy_rolls_back_on_a_suspended_launch_and_on_a_refresh_under_way(
    live: Deployed, changed: Path, way: str
) -> None:
    before = [box["InstanceId"] for box in live.boxes()]
    stand_in_the_way(live, way)
    with pytest.raises(EmbeddedError, match=way):
        assembly.deploy(live.aws, changed, "llm-group")
    assert ([box["InstanceId"] for box in live.boxes()], live.template_version()) == (before, "1")


@pytest.mark.parametrize("way", WAYS)
def test_make_deploy_and_preflight_refuse_it_until_the_way_is_free(live: Deployed, way: str) -> None:
    stand_in_the_way(live, way)
    aws = Aws(live.aws.region, environment=live.aws.environment())
    with pytest.raises(UserError, match="Nothing was deployed"):
        require_clear(Ground(live.settings, aws))
    if way.startswith("Launch"):
        status = CliRunner().invoke(main, ["status", "--json"], env=live.aws.environment()).stdout
        assert any(
            problem.startswith(way) and problem.endswith(": docs/runbook/mail-suspended.md")
            for problem in json.loads(status)["problems"]
        )
        pressed = CliRunner().invoke(main, ["resume", "--why", "mended", "--yes"], env=live.aws.environment())
        assert pressed.exit_code == 0, pressed.output
    else:
        live.aws.control("refresh", group=live.group_name, status="Successful")
    require_clear(Ground(live.settings, aws))


def review(live: Deployed, cdk_out: Path, role: str | None = None) -> str:
    done = CliRunner().invoke(main, ["review", "--assembly", str(cdk_out)], env=live.aws.environment(role))
    assert done.exit_code == 0, done.output
    return done.output


def test_the_review_of_an_unchanged_app_says_nothing_changes(live: Deployed, assembly: Path) -> None:
    assert "**Nothing**" in review(live, assembly)


def test_the_review_after_a_flip_says_that_the_next_deploy_carries_the_lever(live: Deployed, assembly: Path) -> None:
    put(live, names.lever_parameter("llm"), "100")
    said = review(live, assembly)
    assert "llm-group: Lever moved 0 -> 100 since the last deploy; the next one carries it" in said
    assert "- **Rolls boxes:** no" in said


def test_the_review_runs_as_the_review_role_which_grants_no_more(live: Deployed, changed: Path) -> None:
    cloudformation, iam = live.aws.client("cloudformation"), live.aws.client("iam")
    cloudformation.create_stack(
        StackName="review-role",
        TemplateBody=(ROOT / ".github/review-role.yaml").read_text(),
        Capabilities=["CAPABILITY_IAM"],
        Parameters=[
            {"ParameterKey": "Repository", "ParameterValue": "someone/fleet"},
            {"ParameterKey": "Fleet", "ParameterValue": "llm"},
            {"ParameterKey": "ProviderArn", "ParameterValue": "arn:aws:iam::123456789012:oidc-provider/github"},
        ],
    )
    found = cloudformation.describe_stack_resources(StackName="review-role")["StackResources"]
    role = next(r["PhysicalResourceId"] for r in found if r.get("ResourceType") == "AWS::IAM::Role")
    document = iam.get_role_policy(RoleName=role, PolicyName="read-the-fleet")["PolicyDocument"]
    statements = (json.loads(document) if isinstance(document, str) else document)["Statement"]
    before = len(live.aws.requests())
    review(live, changed, role)
    calls = {f"{line['service']}:{line['action']}" for line in live.aws.requests()[before:] if line["service"] != "sts"}
    granted = {
        action for s in statements for action in ([s["Action"]] if isinstance(s["Action"], str) else s["Action"])
    }
    assert calls == granted
    own = "arn:aws:cloudformation:us-east-2:123456789012:stack/llm-group/1"
    assert iam_policies.allowed(statements, "cloudformation:GetTemplate", own, {})
    for room in names.STACKS:
        assert iam_policies.allowed(
            statements, "cloudformation:GetTemplate", own.replace("llm-group", f"llm-{room}"), {}
        )
        for other in ("other", "llm-b"):
            of_other = own.replace("llm-group", f"{other}-{room}")
            assert not iam_policies.allowed(statements, "cloudformation:GetTemplate", of_other, {}), of_other
    assert not iam_policies.allowed(statements, "cloudformation:ExecuteChangeSet", own, {})
