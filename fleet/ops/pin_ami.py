"""Pins the machine image in cdk.json: the newest deep-learning image, or the one that is named. Touches one line."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from fleet.account.access import Aws
from fleet.account.aws_errors import MissingError, RefusedError
from fleet.config import validation
from fleet.config.settings import Settings
from fleet.core import names
from fleet.core.errors import UserError

_KEY = re.compile(r'("ami_id"\s*:\s*)(null|"[^"]*")')
_ANCHOR = re.compile(r'^(\s*)("region"\s*:\s*"[^"]*"),?\s*$', re.MULTILINE)


@dataclass(frozen=True)
class Image:
    """What EC2 says of an image. Sizes in GiB."""

    id: str
    name: str
    architecture: str
    state: str
    root_gib: int

    def problems(self, settings: Settings) -> list[str]:
        """Why a box could not start from it."""
        found = []
        if self.state != "available":
            found.append(f"its state is {self.state}, needed available")
        if self.architecture != "x86_64":
            found.append(f"its architecture is {self.architecture}, the pools are x86_64")
        if self.root_gib > settings.root_volume_gib:
            found.append(f"its root volume needs {self.root_gib} GiB, root_volume_gib is {settings.root_volume_gib}")
        return found


def newest(aws: Aws) -> str:
    """The id behind the deep-learning image's public parameter."""
    return str(aws.call("ssm", "GetParameter", Name=names.DLAMI_PARAMETER)["Parameter"]["Value"])


def describe(aws: Aws, ami_id: str) -> Image:
    """One image; MissingError where it is not in this region or not ours to see."""
    try:
        (image,) = aws.call("ec2", "DescribeImages", ImageIds=[ami_id])["Images"]
    except (MissingError, RefusedError, ValueError):  # the last: EC2 knows it and tells of none
        raise MissingError(
            f"{ami_id} does not exist in {aws.region}, or this account may not use it",
            "images belong to one region: `fleetctl pin-ami` finds this region's newest",
        ) from None
    root = image.get("RootDeviceName")
    sizes = [
        m["Ebs"].get("VolumeSize", 0)
        for m in image.get("BlockDeviceMappings", [])
        if m.get("DeviceName") == root and "Ebs" in m
    ]
    return Image(ami_id, image.get("Name", ""), image["Architecture"], image["State"], max(sizes, default=0))


def choose(aws: Aws, settings: Settings, ami_id: str | None) -> Image:
    """The image to pin; UserError where no box could start from it."""
    if ami_id is not None and not re.fullmatch(r"ami-[0-9a-f]{8,17}", ami_id):
        raise UserError(f"pin-ami: --ami is {ami_id!r}; allowed: an id such as ami-0a1b2c3d")
    image = describe(aws, ami_id or newest(aws))
    if problems := image.problems(settings):
        raise UserError(f"pin-ami: {image.id} will not do: {'; '.join(problems)}")
    return image


def write(path: Path, ami_id: str) -> str | None:
    """Set `ami_id` in the settings file, every other byte as it was; returns what stood there before."""
    text = path.read_text(encoding="utf-8")
    before = json.loads(text)["context"]["fleet"].get("ami_id")
    changed, count = _KEY.subn(rf'\g<1>"{ami_id}"', text)
    if count == 0:
        changed, count = _ANCHOR.subn(rf'\g<1>\g<2>,\n\g<1>"ami_id": "{ami_id}",', text)
    if count != 1:
        raise UserError(f'{path}: found {count} places for "ami_id"; set it by hand to "{ami_id}"')
    path.write_text(changed, encoding="utf-8")
    validation.load(path)
    return None if before is None else str(before)
