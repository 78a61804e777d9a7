"""Synthesizes the app as the CDK CLI does, without the CLI: no account, no credentials, no network."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fleet.config import validation

ROOT = Path(__file__).parent.parent
# CDK's own validation of templates, which is most of a synth; tests/infra/test_linters.py sees to what it finds.
NOT_VALIDATED = {"CDK_VALIDATION": "false"}
CDK_JSON = ROOT / "tests" / "cdk.json"  # as the repository was first published: an operator edits the other one


def synth(out: Path, settings: dict[str, Any] | None = None, cdk_json: Path = CDK_JSON) -> Path:
    """Run app.py into `out` with the settings of `cdk_json`, some of them replaced; returns the cloud assembly."""
    document = json.loads(cdk_json.read_text())
    fleet = {**document["context"]["fleet"], **(settings or {})}
    out.mkdir(parents=True, exist_ok=True)
    (out / "cdk.json").write_text(json.dumps({**document, "context": {**document["context"], "fleet": fleet}}))
    assembly = out / "cdk.out"
    run = subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        cwd=out,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))},
            "PYTHONPATH": str(ROOT),
            "CDK_OUTDIR": str(assembly),
            "CDK_CONTEXT_JSON": json.dumps(document["context"]),
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return assembly


def in_process(out: Path, settings: dict[str, Any]) -> Path:
    """The same without a process of its own and CDK's own validation."""
    synthesized(out / "cdk.out", settings)
    return out / "cdk.out"


def synthesized(assembly: Path, settings: dict[str, Any], build: Any = None, *, nag: bool = False) -> Any:
    """The CDK app that was synthesized into `assembly`, by `build` or whole; with cdk-nag's findings in its report."""
    import aws_cdk as cdk  # seconds that most tests do without
    import cdk_nag

    from app import build as whole

    context = json.loads(CDK_JSON.read_text())["context"]
    app = cdk.App(outdir=str(assembly), context=context, builtin_cloud_formation_validation=False)
    (build or whole)(app, validation.check({**context["fleet"], **settings}))
    if nag:
        cdk.Validations.of(app).add_plugins(cdk_nag.AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError as error:
        if not nag or "ValidationFailed" not in str(error):  # findings are read from the report
            raise
    return app


def change_user_data(assembly: Path) -> None:
    """Other user data in a cloud assembly, as a new bundle would make it."""
    path = assembly / "llm-group.template.json"
    template = json.loads(path.read_text())
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::EC2::LaunchTemplate":
            resource["Properties"]["LaunchTemplateData"]["UserData"] = {"Fn::Base64": "#!/bin/bash\n: another bundle\n"}
    path.write_text(json.dumps(template))
