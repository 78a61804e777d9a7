"""`fleetctl pin-ami`: one line of the settings file changes, every other byte stays."""

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.account.aws_errors import MissingError
from fleet.config import validation
from fleet.config.settings import Settings
from fleet.core.errors import UserError
from fleet.ops import pin_ami

OWN = Path(__file__).parents[1] / "cdk.json"
IMAGE = {
    "Architecture": "x86_64",
    "State": "available",
    "Name": "dlami 2026",
    "RootDeviceName": "/dev/xvda",
    "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 75}}],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    copy = tmp_path / "cdk.json"
    copy.write_text(OWN.read_text())
    return copy


def changed_lines(before: str, after: str) -> list[str]:
    return [line for line in after.splitlines() if line not in before.splitlines()]


def test_pinning_adds_one_line_and_changes_no_other(path: Path) -> None:
    assert pin_ami.write(path, "ami-0a1b2c3d") is None
    assert changed_lines(OWN.read_text(), path.read_text()) == ['      "ami_id": "ami-0a1b2c3d",']
    assert validation.load(path).ami_id == "ami-0a1b2c3d"


@pytest.mark.parametrize("before", ["null", '"ami-ffffffff"'])
def test_pinning_again_replaces_the_value_in_its_place(path: Path, before: str) -> None:
    path.write_text(path.read_text().replace('"region"', f'"ami_id":  {before},\n      "region"'))
    pin_ami.write(path, "ami-0a1b2c3d")
    assert '"ami_id":  "ami-0a1b2c3d",\n' in path.read_text()
    assert path.read_text().count("ami_id") == 1


def test_a_file_in_another_shape_is_left_alone_with_a_clear_message(path: Path) -> None:
    squeezed = json.dumps(json.loads(path.read_text()))
    path.write_text(squeezed)
    with pytest.raises(UserError, match='set it by hand to "ami-0a1b2c3d"'):
        pin_ami.write(path, "ami-0a1b2c3d")
    assert path.read_text() == squeezed


def scripted(answers: Any, **change: Any) -> Any:
    script = {
        "ssm GetParameter": {"Parameter": {"Value": "ami-0a1b2c3d"}},
        "ec2 DescribeImages": {"Images": [{**IMAGE, **change}]},
    }
    return answers(script)


def test_the_newest_image_is_chosen_unless_one_is_named(answers: Any, settings: Settings) -> None:
    assert pin_ami.choose(scripted(answers), settings, None).id == "ami-0a1b2c3d"
    assert pin_ami.choose(scripted(answers), settings, "ami-ffffffff").id == "ami-ffffffff"


@pytest.mark.parametrize("ami_id", ["ami-1", "x", "ami-XYZ12345", ""])
def test_an_id_that_is_none_is_refused_before_any_call(answers: Any, settings: Settings, ami_id: str) -> None:
    aws = scripted(answers)
    with pytest.raises(UserError, match="allowed: an id such as ami-0a1b2c3d"):
        pin_ami.choose(aws, settings, ami_id)
    assert aws.asked == []


def test_an_image_that_no_box_could_start_from_is_refused(answers: Any, settings: Settings) -> None:
    with pytest.raises(UserError, match="its architecture is arm64, the pools are x86_64"):
        pin_ami.choose(scripted(answers, Architecture="arm64"), settings, None)


def test_an_image_that_is_not_there_is_missing(answers: Any, settings: Settings) -> None:
    aws = scripted(answers)
    aws.answers["ec2 DescribeImages"] = {"Images": []}
    with pytest.raises(MissingError, match="ami-0a1b2c3d does not exist in us-east-2"):
        pin_ami.choose(aws, settings, None)
