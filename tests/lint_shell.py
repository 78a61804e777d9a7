"""Shellcheck and shfmt over every shell script of the repository and the rendered user data. Part of `make lint`."""

import subprocess
import sys
import tempfile
from pathlib import Path

from fleet.config import box_config, validation

ROOT = Path(__file__).parent.parent
SHEBANGS = (b"#!/bin/bash", b"#!/usr/bin/env bash", b"#!/bin/sh")


def scripts() -> list[Path]:
    """Tracked files that a shell runs; templates are judged as rendered."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name and not name.endswith(".j2")]
    return [path for path in paths if path.is_file() and path.read_bytes().startswith(SHEBANGS)]


def user_data() -> str:
    """The user data of the repository's own settings, with plausible names in place of the stack's tokens."""
    arn = "arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/llm-g-Targe-0A1B2C/0a1b2c3d4e5f6071"
    config = box_config.box_config(validation.load(ROOT / "cdk.json"), bucket="llm-store-bucket", target_group_arn=arn)
    return box_config.user_data(config, bundle_bucket="cdk-assets", bundle_key=f"{'0' * 64}.zip")


def main() -> int:
    """0 if both are content."""
    with tempfile.TemporaryDirectory() as folder:
        rendered = Path(folder, "user_data.sh")
        rendered.write_text(user_data())
        files = [*scripts(), rendered]
        codes = [
            subprocess.run([*command, *files], check=False).returncode
            for command in (["shellcheck"], ["shfmt", "-d", "-i", "2"])
        ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
