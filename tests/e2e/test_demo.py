"""The demo from its first act to its last word, on its own embedded AWS; the CDK CLI's part is done without the CLI.

What the CLI does of it is in `test_cdk_cli`.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet import cdk_cli, embedded
from fleet.demo import __main__ as demo
from fleet.embedded import assembly as cloud_assembly
from tests.synth import CDK_JSON, change_user_data


def test_the_demo_tells_its_story_to_the_end(
    assembly: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class WithoutCli:
        """The CLI's verbs on the synthesized templates."""

        def __init__(self, environment: Mapping[str, str], _: Path) -> None:
            self.aws = embedded.Aws(environment["AWS_ENDPOINT_URL"], demo.OUT / "aws", environment["AWS_REGION"])

        def bootstrap(self, *_: Any) -> None:
            cloud_assembly.bootstrap(self.aws)

        def synth(self, out: Path, *, app_dir: Path) -> None:
            shutil.copytree(assembly, out)
            if app_dir.name == "morning":
                change_user_data(out)

        def deploy(self, out: Path, *stacks: str) -> None:
            for stack in stacks or cloud_assembly.stacks(out):
                cloud_assembly.deploy(self.aws, out, stack)

        def destroy(self, out: Path) -> None:
            for stack in reversed(cloud_assembly.stacks(out)):
                self.aws.client("cloudformation").delete_stack(StackName=stack)

    monkeypatch.setattr(demo, "OUT", tmp_path / "demo")
    monkeypatch.setattr(demo, "Cdk", WithoutCli)
    monkeypatch.setattr(cdk_cli, "ROOT", tmp_path)  # paths are told from there
    ended = demo.main(CDK_JSON)
    said = " ".join(capsys.readouterr().out.split())
    assert ended == 0, said
    for words in (
        "Without a watchdog: 4 h 37 min",
        "The lever stays 100",
        "degraded minutes in",
        "all of it on purpose",
    ):
        assert words in said
    assert (tmp_path / "demo" / "report.html").exists()
