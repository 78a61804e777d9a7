"""The pull request's comment: what changes, does it roll boxes and how, what is lost."""

import copy
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.core import names
from fleet.ops.review import MARKER, ResourceAction, Stack, markdown, review
from tests.synth import ROOT

GROUP_TEMPLATE: dict[str, Any] = {
    "Parameters": {
        "Lever": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/llm/on-demand-percentage"},
        "Image": {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": "/aws/service/ami"},
    },
    "Resources": {
        "Template": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {"LaunchTemplateData": {"UserData": "one", "ImageId": {"Ref": "Image"}}},
        },
        "Group": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "UpdatePolicy": {
                "AutoScalingInstanceRefresh": {
                    "Preferences": {"MinHealthyPercentage": 100, "MaxHealthyPercentage": 200}
                }
            },
            "Properties": {
                "AutoScalingGroupName": "llm-gpu",
                "MinSize": "1",
                "MixedInstancesPolicy": {
                    "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": {"Ref": "Lever"}},
                    "LaunchTemplate": {"Overrides": [{"InstanceType": "g6.xlarge"}]},
                },
            },
        },
        "Store": {"Type": "AWS::S3::Bucket", "DeletionPolicy": "Retain", "Properties": {"BucketName": "store"}},
        "Topic": {"Type": "AWS::SNS::Topic"},
    },
}


def edited(*path: str | int, value: Any = None, remove: bool = False) -> dict[str, Any]:
    """The template with one value set or removed."""
    template = copy.deepcopy(GROUP_TEMPLATE)
    place: Any = template["Resources"]
    for step in path[:-1]:
        place = place[step]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return template


def reviewed(proposed: dict[str, Any], **moved: tuple[str, str]) -> Any:
    return review((Stack("llm-group", proposed, GROUP_TEMPLATE, moved),))


def test_changed_user_data_rolls_boxes_launch_first() -> None:
    result = reviewed(edited("Template", "Properties", "LaunchTemplateData", "UserData", value="two"))
    assert result.rolls == ("llm-group/Template changes LaunchTemplateData/UserData",)
    assert "yes, launch-first" in markdown(result)
    assert result.destructive == ()


def test_another_pool_rolls_boxes() -> None:
    overrides = [{"InstanceType": "g6.xlarge"}, {"InstanceType": "g5.xlarge"}]
    path = ("Group", "Properties", "MixedInstancesPolicy", "LaunchTemplate", "Overrides")
    assert reviewed(edited(*path, value=overrides)).rolls == (
        "llm-group/Group changes MixedInstancesPolicy/LaunchTemplate/Overrides",
    )


def test_a_distribution_change_rolls_nothing_by_itself() -> None:
    path = ("Group", "Properties", "MixedInstancesPolicy", "InstancesDistribution", "OnDemandBaseCapacity")
    result = reviewed(edited(*path, value=1))
    assert [change.action for change in result.changes] == [ResourceAction.UPDATE]
    assert result.rolls == ()


@pytest.mark.parametrize(
    "preferences",
    [
        {},
        {"MinHealthyPercentage": 90, "MaxHealthyPercentage": 100},
        {"MinHealthyPercentage": 100, "MaxHealthyPercentage": 100},
        {"MinHealthyPercentage": 50, "MaxHealthyPercentage": 200},
    ],
)
def test_a_roll_that_ends_before_it_launches_is_called_an_outage(preferences: dict[str, int]) -> None:
    proposed = edited("Template", "Properties", "LaunchTemplateData", "UserData", value="two")
    proposed["Resources"]["Group"]["UpdatePolicy"] = {"AutoScalingInstanceRefresh": {"Preferences": preferences}}
    assert "**not launch-first**: callers will see an outage" in markdown(reviewed(proposed))


def test_a_renamed_group_is_destructive_and_rolls() -> None:
    result = reviewed(edited("Group", "Properties", "AutoScalingGroupName", value="other"))
    assert result.changes[0].action is ResourceAction.REPLACE
    assert result.rolls == ("llm-group/Group is replaced",)
    assert "loses every box, serving ones included" in markdown(result)


def test_a_removed_topic_is_destructive_and_a_retained_bucket_is_only_left_behind() -> None:
    proposed = edited("Topic", remove=True)
    del proposed["Resources"]["Store"]
    result = reviewed(proposed)
    assert {change.logical_id: change.action for change in result.changes} == {
        "Store": ResourceAction.FORGET,
        "Topic": ResourceAction.REMOVE,
    }
    assert len(result.destructive) == 1
    assert "every confirmed subscription" in result.destructive[0]


def test_a_property_that_replaces_only_when_it_appears_is_told_apart() -> None:
    appears = review((Stack("s", GROUP_TEMPLATE, edited("Group", "Properties", "MixedInstancesPolicy", remove=True)),))
    assert appears.changes[0].action is ResourceAction.MAY_REPLACE
    assert "may be replaced" in appears.destructive[0]


def test_a_new_image_rolls_the_boxes_and_a_moved_lever_does_not() -> None:
    result = reviewed(copy.deepcopy(GROUP_TEMPLATE), Image=("ami-1", "ami-2"), Lever=("0", "33"))
    assert result.rolls == ("llm-group reads Image anew: ami-1 -> ami-2",)
    assert "llm-group: Lever moved 0 -> 33 since the last deploy; the next one carries it" in result.notes


def test_a_changed_update_policy_is_a_change() -> None:
    proposed = edited("Group", "UpdatePolicy", value={})
    assert reviewed(proposed).changes[0].properties == ("UpdatePolicy",)


def test_a_widened_role_is_named_for_reading() -> None:
    proposed = edited("Role", value={"Type": "AWS::IAM::Role", "Properties": {}})
    assert "Permissions or network openings change:** yes, read them:\n  - `llm-group/Role`" in markdown(
        reviewed(proposed)
    )


def test_a_new_stack_only_adds() -> None:
    result = review((Stack("llm-group", GROUP_TEMPLATE),))
    assert {change.action for change in result.changes} == {ResourceAction.ADD}
    assert result.destructive == ()
    assert result.rolls == ()


def test_a_stack_in_the_middle_of_a_deploy_is_noted() -> None:
    stack = Stack("llm-group", GROUP_TEMPLATE, GROUP_TEMPLATE, status="UPDATE_IN_PROGRESS")
    assert "a deploy is under way" in review((stack,)).notes[0]


GH = """#!/bin/bash
printf '%s\\n' "$*" >> "$CALLS"
[[ "$*" != *--jq* ]] || printf '%s' "$OWN"
"""


@pytest.mark.parametrize(
    ("own", "does"),
    [
        ("", "pr comment 7 --repo owner/name --body-file review.md"),
        ("41\n42\n", "api --method PATCH repos/owner/name/issues/comments/41 --field body=@review.md"),
    ],
)
def test_the_workflow_edits_its_own_comment_by_the_marker_and_no_other(tmp_path: Path, own: str, does: str) -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/review.yml").read_text())["jobs"]
    (script,) = [step["run"] for step in jobs["comment"]["steps"] if "run" in step]
    gh, calls = tmp_path / "gh", tmp_path / "calls"
    gh.write_text(GH)
    gh.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(calls),
        "OWN": own,
        "PULL_REQUEST": "7",
        "REPOSITORY": "owner/name",
    }
    subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], env=environment, check=True)
    asked, done = calls.read_text().splitlines()
    assert f'startswith("{MARKER}")' in asked
    assert done == does


def test_every_wildcard_of_the_review_role_says_why() -> None:
    lines = (ROOT / ".github/review-role.yaml").read_text().splitlines()
    wildcards = [
        number
        for number, line in enumerate(lines)
        if line.lstrip(" -").startswith(("Resource: !Sub arn", "!Sub arn")) and "*" in line
    ]
    assert len(wildcards) == 2 + len(names.ALL_STACKS)
    first = [number for number in wildcards if number - 1 not in wildcards]
    above = ["\n".join(lines[number - 2 : number]) for number in first]
    assert len(first) == 3
    assert all("# Wildcard: " in comment for comment in above)
