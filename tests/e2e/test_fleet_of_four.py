"""Four boxes on the embedded AWS, with the deployed zip: two are lost and bought, deploys keep that, both return."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet.account.access import Aws
from fleet.config.validation import check
from fleet.core import names
from fleet.gameday import scenario
from fleet.gameday.embedded_stage import EmbeddedStage
from fleet.localaws import assembly as cloud_assembly
from fleet.localaws.deployed import Deployed
from lambdas.watchdog.state import loads
from tests.embedded_fleet import act, ago, put_state
from tests.synth import CDK_JSON, in_process
from tests.watchdog.still_cloud import event

CAPACITY = {"capacity": {"min": 4, "max": 8, "on_demand_base": 0}}


def purchases(live: Deployed) -> Counter[str]:
    return Counter(box.get("InstanceLifecycle", "on-demand") for box in live.boxes())


def deploy(live: Deployed, assembly: Path) -> Deployed:
    for stack in cloud_assembly.stacks(assembly):
        cloud_assembly.deploy(live.aws, assembly, stack)
    settings = check({**json.loads(CDK_JSON.read_text())["context"]["fleet"], **CAPACITY})
    return replace(live, settings=settings)


def changed(live: Deployed, assembly: Path) -> list[str]:
    """What `cdk diff` would show of the group's stack: a change set, the lever's parameter as it stands."""
    stack = names.stack(live.settings.fleet_name, "group")
    cloudformation = live.aws.client("cloudformation")
    template = cloud_assembly.template(assembly, stack)
    request: dict[str, Any] = {
        "StackName": stack,
        "ChangeSetName": f"look-{len(live.aws.requests())}",
        "TemplateBody": json.dumps(template),
        "ChangeSetType": "UPDATE",
        "Parameters": [{"ParameterKey": key, "UsePreviousValue": True} for key in template["Parameters"]],
        "Capabilities": ["CAPABILITY_NAMED_IAM"],
        "Tags": [
            {"Key": key, "Value": value}
            for key, value in cloud_assembly.stacks(assembly)[stack]["properties"].get("tags", {}).items()
        ],
    }
    cloudformation.create_change_set(**request)
    found = cloudformation.describe_change_set(StackName=stack, ChangeSetName=request["ChangeSetName"])
    changes = found.get("Changes", []) if found["Status"] != "FAILED" else []
    return [change["ResourceChange"]["ResourceType"] for change in changes]


def replaced_by_the_group(live: Deployed) -> None:
    """One on-demand box has its spot successor in service, and is gone; the group tells of it."""
    old = next(box["InstanceId"] for box in live.boxes() if box.get("InstanceLifecycle") != "spot")
    live.aws.client("ec2").terminate_instances(InstanceIds=[old])
    live.set_health("healthy")
    live.age_boxes(4000)
    launched = event("launch-successful")
    launched["detail"]["AutoScalingGroupName"] = live.group_name
    act(live, launched)


def test_two_of_four_are_lost_bought_and_given_back_box_by_box(live: Deployed, tmp_path: Path) -> None:
    assembly = in_process(tmp_path, CAPACITY)
    live = deploy(live, assembly)
    assert purchases(live) == {"spot": 4}
    assert changed(live, assembly) == []
    fleet = live.settings.fleet_name
    alarms = [f"{fleet}-{page}" for page in ("no-healthy-target", "nothing-serves")]
    standing = live.aws.client("cloudwatch").describe_alarms(AlarmNames=alarms)["MetricAlarms"]
    asked = {alarm["AlarmName"]: (alarm["ComparisonOperator"], alarm["Threshold"]) for alarm in standing}
    assert asked == dict.fromkeys(alarms, ("LessThanThreshold", 4)), "one box of four that is missing lights both"
    live.set_health("healthy")
    live.age_boxes(40000)
    live.age_group(86400)

    live.market(spot=False)
    live.aws.client("ec2").terminate_instances(InstanceIds=[box["InstanceId"] for box in live.boxes()[:2]])
    live.set_alarm("ALARM", seconds_ago=2)
    run = live.decisions()[-1]
    assert "error" not in run, run
    assert run["result"]["reason"].startswith("2 of 4 boxes missing, alarm lit for ")
    assert (live.lever(), live.percentage()) == ("50", 50)
    assert purchases(live) == {"spot": 2, "on-demand": 2}
    (mail,) = live.mails()
    assert "4 boxes, 2 of them on-demand" in mail["body"]

    assert changed(live, assembly) == ["AWS::AutoScaling::AutoScalingGroup"]  # the lever's move, and nothing else
    deploy(live, assembly)
    assert (live.lever(), live.percentage()) == ("50", 50)
    assert purchases(live) == {"spot": 2, "on-demand": 2}
    assert changed(live, assembly) == []

    live.market(spot=True)
    live.set_health("healthy")
    live.age_boxes(20000)
    live.set_alarm("OK", seconds_ago=18000)
    past = ago(20000)
    state = loads(live.parameter(names.state_parameter(live.settings.fleet_name)))
    cooled = replace(state, since=past, cooldown_from=past, failovers=(past,), parts=((past, 50),), launched_at=past)
    put_state(live, replace(cooled, streak=1, scored_at=ago(1800), on_demand_since=ago(18000)))
    assert act(live, {"command": "scan"})["action"] == "re-arm"
    assert (live.lever(), live.percentage()) == ("25", 25)
    replaced_by_the_group(live)
    assert (live.lever(), live.percentage()) == ("0", 0)
    assert purchases(live) == {"spot": 3, "on-demand": 1}
    replaced_by_the_group(live)
    assert purchases(live) == {"spot": 4}
    assert live.state()["mode"] == "spot-armed"
    assert [mail["subject"] for mail in live.mails()] == ["[llm] on-demand failover", "[llm] back on spot"]
    deploy(live, assembly)
    assert changed(live, assembly) == []


def test_game_day_of_four_loses_a_share_and_follows_its_return(live: Deployed, tmp_path: Path) -> None:
    live = deploy(live, in_process(tmp_path, CAPACITY))
    live.set_health("healthy")
    day = scenario.Day(EmbeddedStage(live, Aws("us-east-2", environment=live.aws.environment()), ""))
    of_a_share = tuple(step for step in scenario.steps(live.settings) if step not in scenario.STEPS)
    receipts = list(scenario.play(day, of_a_share, lambda _: None))
    assert [(receipt.step, receipt.seen) for receipt in receipts if not receipt.held] == []
    assert len(receipts) == len(scenario.OF_A_SHARE)
    assert receipts[0].seen.startswith("2 of 4 boxes missing")
    assert receipts[0].seen.endswith("group 50")
    assert receipts[1].seen == "serving: 4 of 4; on-demand: 2"
    assert receipts[2].seen.startswith("re-armed: spot boxes serving: 4")
