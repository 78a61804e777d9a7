"""Publishes the demo's tiny model with the operator's own command, `fleetctl publish`."""

import os
import subprocess
import sys
from pathlib import Path

from fleet.core import cdk_cli
from fleet.demo.acts import DemoError
from fleet.localaws import artifacts
from fleet.localaws.deployed import Deployed


def publish(fleet: Deployed, cdk_json: Path, folder: Path) -> None:
    """Run the command in a process of its own, as an operator does."""
    files = [text for name, path in artifacts.write(folder).items() for text in (f"--{name}", str(path))]
    command = [
        sys.executable,
        "-c",
        "from fleet.cli.fleetctl import main; main()",
        "--settings",
        str(cdk_json),
        "publish",
        *files,
    ]
    environment = {**os.environ, **fleet.aws.environment()}
    done = subprocess.run(  # noqa: S603  (our own command)
        command, cwd=cdk_cli.ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DemoError(f"fleetctl publish ended with {done.returncode}:\n{done.stderr}")
