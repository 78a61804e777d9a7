"""What the gateway's image is built from: repository files under their own paths, and the packages of `make setup`.

The Dockerfile runs nothing, so any builder makes the arm64 image, on a machine of any kind.
"""

import sys
import tempfile
from pathlib import Path

from aws_cdk import SymlinkFollowMode
from aws_cdk import aws_ecr_assets as ecr_assets
from constructs import Construct

from fleet.core.errors import UserError
from stacks.package import ROOT

PACKAGES = Path(sys.prefix, "gateway-image")  # installed for the image's platform and Python: see the Makefile
DOCKERFILE = ROOT / "assets" / "gateway.Dockerfile"
CODE = (
    "assets/gateway",
    "assets/relay",
    "fleet/__init__.py",
    "fleet/config/__init__.py",
    "fleet/config/gateway_settings.py",
    "fleet/config/pools.py",
    "fleet/config/section.py",
    "fleet/config/settings.py",
    "fleet/core/__init__.py",
    "fleet/core/errors.py",
    "fleet/core/names.py",
    "fleet/core/untrusted.py",
    "fleet/modelstore/__init__.py",
    "fleet/modelstore/modelfile.py",
)


class ImageMissingError(UserError):
    """The packages of the image are not installed."""


def gateway_image(scope: Construct) -> ecr_assets.DockerImageAsset:
    """The image of this checkout; the same files make the same digest."""
    if not PACKAGES.is_dir():
        raise ImageMissingError("The gateway's packages are not installed: run `make setup`")
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        for path in CODE:
            link = context / "app" / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(ROOT / path)
        (context / "packages").symlink_to(PACKAGES)
        (context / "Dockerfile").symlink_to(DOCKERFILE)
        return ecr_assets.DockerImageAsset(
            scope,
            "Image",
            directory=folder,
            platform=ecr_assets.Platform.LINUX_ARM64,
            follow_symlinks=SymlinkFollowMode.ALWAYS,
            exclude=["**/__pycache__"],
        )
