"""Runs the real CDK CLI from Python: for the demo and the end-to-end tests. `make` calls the CLI directly.

An assembly is synthesized once and then deployed, compared or destroyed as it is: no command synthesizes again.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Nothing on the screen or the wire but the command's own business.
QUIET = {"CDK_DISABLE_CLI_TELEMETRY": "1", "CDK_DISABLE_VERSION_CHECK": "1"}


def program() -> list[str]:
    """The locked CLI on the Node of the virtual environment."""
    return [str(ROOT / ".venv/bin/node"), str(ROOT / "node_modules/aws-cdk/bin/cdk")]


class CdkError(Exception):
    """A CLI command failed; the message holds the end of what it said."""


@dataclass(frozen=True)
class Cdk:
    """The CLI against one account. `environment` holds endpoint and credentials; output goes to `log`."""

    environment: Mapping[str, str]
    log: Path

    def bootstrap(self, account: str, region: str, empty_dir: Path) -> None:
        """Prepare the account. In a folder without cdk.json, or the CLI synthesizes the app for nothing."""
        empty_dir.mkdir(parents=True, exist_ok=True)
        self.run("bootstrap", f"aws://{account}/{region}", cwd=empty_dir)

    def synth(self, assembly: Path, *, app_dir: Path = ROOT) -> None:
        """Synthesize `app.py` with the settings of `app_dir`'s cdk.json."""
        self.run("list", "--output", str(assembly), cwd=app_dir)

    def deploy(self, assembly: Path, *stacks: str, tags: Mapping[str, str] | None = None) -> str:
        """Deploy these stacks, or all."""
        labels = [f"--tags={key}={value}" for key, value in (tags or {}).items()]
        direct = ("--method=direct", "--require-approval=never", "--concurrency=4", "--progress=events")
        return self.run("deploy", *_of(assembly, stacks), *direct, *labels)

    def diff(self, assembly: Path, *stacks: str) -> str:
        """What a deploy would change, by change sets: the only mode that sees the lever move."""
        return self.run("diff", *_of(assembly, stacks), "--method=change-set")

    def destroy(self, assembly: Path, *stacks: str) -> str:
        """Delete these stacks, or all."""
        return self.run("destroy", *_of(assembly, stacks), "--force")

    def run(self, *arguments: str, cwd: Path = ROOT) -> str:
        """One command; its output, or CdkError with the end of it."""
        environment = {
            **os.environ,
            **QUIET,
            "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            **self.environment,
        }
        done = subprocess.run(  # noqa: S603  (our own arguments)
            [*program(), *arguments, "--no-notices", "--no-color"],
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        with self.log.open("a") as log:
            log.write(f"$ cdk {' '.join(arguments)}\n{done.stdout}\n")
        if done.returncode:
            raise CdkError(f"cdk {arguments[0]} ended with {done.returncode}:\n{done.stdout[-3000:]}")
        return done.stdout


def with_settings(app_dir: Path, settings: Mapping[str, Any], cdk_json: Path = ROOT / "cdk.json") -> Path:
    """A folder from which the CLI runs this checkout's app with some settings replaced; `cdk.json` is all it holds."""
    document = json.loads(cdk_json.read_text())
    document["context"]["fleet"].update(settings)
    document["app"] = f"{ROOT / '.venv/bin/python'} {ROOT / 'app.py'}"
    app_dir.mkdir(parents=True, exist_ok=True)
    (app_dir / "cdk.json").write_text(json.dumps(document, indent=2))
    return app_dir


def anywhere(cdk_json: Path) -> dict[str, Any]:
    """Replacements for the settings that hold in one account or for one file only: image, key, network, checksums."""
    fleet = json.loads(cdk_json.read_text())["context"]["fleet"]
    artifacts = {name: {"key": fleet["model"][name]["key"]} for name in ("engine", "gguf", "modelfile")}
    own = ("vpc_id", "subnet_ids", "route_table_ids")
    return {
        "ami_id": None,
        "ebs_key_arn": None,
        "network": {key: value for key, value in fleet.get("network", {}).items() if key not in own},
        "model": {**fleet["model"], **artifacts},
    }


def _of(assembly: Path, stacks: Sequence[str]) -> list[str]:
    return ["--app", str(assembly), *(stacks or ["--all"])]
