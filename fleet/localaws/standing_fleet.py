"""A fleet in service on an embedded AWS within seconds: synthesized from `cdk.json`, deployed without the CDK CLI.

For the game day and the measures of the operator's commands; the demo and the end-to-end tests use the real CLI.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet import localaws
from fleet.config import validation
from fleet.core import cdk_cli, names
from fleet.localaws import EmbeddedError, assembly
from fleet.localaws.deployed import Deployed, fill_store

ROOT = Path(__file__).parents[2]
ROOM_VCPUS = 1000  # of either kind: whether the operator's own account has room is its preflight's question


@contextmanager
def standing(folder: Path, settings_path: Path = ROOT / "cdk.json") -> Iterator[Deployed]:
    """Synthesize, start, deploy, without what only the operator's own account has; the fleet ends with the block."""
    app = cdk_cli.with_settings(folder / "app", cdk_cli.anywhere(settings_path), settings_path)
    settings, out = validation.load(app / "cdk.json"), folder / "cdk.out"
    environment = {
        **os.environ,
        "CDK_OUTDIR": str(out),
        "CDK_DEFAULT_ACCOUNT": localaws.ACCOUNT,
        "PYTHONPATH": str(ROOT),
    }
    run = subprocess.run(  # noqa: S603  (our own app)
        [sys.executable, str(ROOT / "app.py")],
        cwd=app,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise EmbeddedError(f"synth failed:\n{run.stderr[-3000:]}")
    with localaws.server(folder / "aws", settings.region) as aws:
        fleet = Deployed(aws, settings)
        assembly.bootstrap(aws)
        for code in (names.QUOTA_SPOT, names.QUOTA_ON_DEMAND):
            aws.control("quota", code=code, vcpus=ROOM_VCPUS)
        for stack in assembly.stacks(out):
            if stack == names.stack(settings.fleet_name, "group"):
                fill_store(fleet)
            assembly.deploy(aws, out, stack)
        aws.control("settle")
        yield fleet
