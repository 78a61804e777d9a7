"""A pull request cannot write its own review: what runs with credentials is the default branch's, and reads data."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from fleet.cli.fleetctl import main
from fleet.localaws import iam_policies
from fleet.localaws.deployed import Deployed
from tests.synth import ROOT

WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text().replace("\non:", "\n'on':"))
    for path in (ROOT / ".github/workflows").glob("*.yml")
}
OF_A_PULL_REQUEST = {"pull_request", "pull_request_target"}
MAY_DO_NO_HARM = {"contents": "read"}
EVIL = "x` |\n- **Rolls boxes:** no\n<!-- fleet review --> @everyone [here](http://evil) <img src=x> ``` \u202e\x1b[2J"


def wakes(workflow: dict[str, Any]) -> set[str]:
    on = workflow["on"]
    return {on} if isinstance(on, str) else set(on)


def jobs() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for workflow in WORKFLOWS.values():
        for name, job in workflow["jobs"].items():
            yield name, workflow, job


def test_no_job_that_runs_a_pull_requests_code_or_workflow_has_more_than_leave_to_read() -> None:
    """GitHub runs the workflow file of the pull request itself, however it was changed: its job must have nothing."""
    seen = 0
    for name, workflow, job in jobs():
        assert workflow["permissions"] == {}
        if wakes(workflow) & OF_A_PULL_REQUEST:
            seen += 1
            assert job["permissions"] == MAY_DO_NO_HARM, name
            assert "secrets." not in json.dumps(job), name
            assert "role-to-assume" not in json.dumps(job), name
    assert seen == 2


def test_what_may_sign_in_or_write_runs_the_default_branchs_workflow_and_code() -> None:
    mighty = [(name, workflow, job) for name, workflow, job in jobs() if job["permissions"] != MAY_DO_NO_HARM]
    assert [name for name, _, _ in mighty] == ["review", "comment"]
    for _, workflow, job in mighty:
        assert wakes(workflow) == {"workflow_run"}
        for step in job["steps"]:
            assert "checkout" not in step.get("uses", "") or "ref" not in step["with"]
            assert "${{" not in step.get("run", "")  # nothing of an event becomes a script
    comment = mighty[1][2]
    assert not any("checkout" in step.get("uses", "") for step in comment["steps"])


def test_every_action_is_pinned_to_a_commit() -> None:
    used = [step["uses"] for _, _, job in jobs() for step in job["steps"] if "uses" in step]
    assert len(used) >= 6
    assert [action for action in used if len(action.partition("@")[2]) != 40] == []


def test_the_review_role_is_taken_by_the_default_branch_and_by_no_pull_request() -> None:
    text = (ROOT / ".github/review-role.yaml").read_text().replace("!", "")
    (trust,) = yaml.safe_load(text)["Resources"]["Role"]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    wanted = {key: value.removeprefix("Sub ") for key, value in trust["Condition"]["StringEquals"].items()}
    filled = {key: value.replace("${Repository}", "o/n").replace("${Branch}", "main") for key, value in wanted.items()}
    statement = {"Effect": "Allow", "Action": trust["Action"], "Condition": {"StringEquals": filled}}

    def may(subject: str) -> bool:
        issuer = "token.actions.githubusercontent.com"
        context = {f"{issuer}:aud": ["sts.amazonaws.com"], f"{issuer}:sub": [subject]}
        return iam_policies.allowed([statement], "sts:AssumeRoleWithWebIdentity", "*", context)

    assert may("repo:o/n:ref:refs/heads/main")
    for other in ("pull_request", "ref:refs/heads/evil", "ref:refs/pull/7/merge", "environment:main"):
        assert not may(f"repo:o/n:{other}")
    assert not may("repo:other/n:ref:refs/heads/main")


# --- the review's own step, on what a hostile pull request left -------------------------------------------------


@pytest.fixture
def proposed(assembly: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the assembly with one stack's template changed by a function."""

    def make(change: Callable[[dict[str, Any]], None], stack: str = "llm-group") -> Path:
        out = tmp_path / "assembly"
        out.mkdir()
        for path in [assembly / "manifest.json", *assembly.glob("*.template.json")]:
            shutil.copy(path, out)
        path = out / f"{stack}.template.json"
        template = json.loads(path.read_text())
        change(template)
        path.write_text(json.dumps(template))
        return out

    return make


def launch_template(template: dict[str, Any]) -> dict[str, Any]:
    kinds = {body["Type"]: body for body in template["Resources"].values()}
    found: dict[str, Any] = kinds["AWS::EC2::LaunchTemplate"]["Properties"]
    return found


def review(live: Deployed, assembly: Path) -> str:
    done = CliRunner().invoke(main, ["review", "--assembly", str(assembly)], env=live.aws.environment(), color=True)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_reviews_step_runs_this_checkouts_code_on_the_pull_requests_templates(
    live: Deployed, proposed: Callable[..., Path], tmp_path: Path
) -> None:
    def roll(template: dict[str, Any]) -> None:
        launch_template(template)["LaunchTemplateData"]["UserData"] = "evil"

    assembly = proposed(roll)
    for name in ("fleet/ops/review.py", "app.py", "cdk.json"):  # code that the artifact may hold as well
        (assembly / name).parent.mkdir(parents=True, exist_ok=True)
        (assembly / name).write_text("raise SystemExit('ran')")
    (script,) = [s["run"] for s in WORKFLOWS["review"]["jobs"]["review"]["steps"] if "fleetctl" in s.get("run", "")]
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for entry in (".venv", "fleet", "lambdas", "stacks", "assets"):
        (checkout / entry).symlink_to(ROOT / entry)
    shutil.copy("cdk.json", checkout)
    environment = {**os.environ, **live.aws.environment(), "RUNNER_TEMP": str(assembly.parent)}
    subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=checkout, env=environment, check=True)
    said = (checkout / "out/review.md").read_text()
    assert said.count("**Rolls boxes:**") == 1
    assert "- **Rolls boxes:** yes, launch-first" in said


def test_names_in_the_templates_are_code_in_the_comment_and_nothing_else(
    live: Deployed, proposed: Callable[..., Path]
) -> None:
    def poison(template: dict[str, Any]) -> None:
        launch_template(template)["LaunchTemplateData"][EVIL] = "x"
        template["Resources"]["Evil"] = {"Type": EVIL, "Properties": {EVIL: 1}}
        template["Resources"]["Opened"] = {"Type": "AWS::IAM::" + EVIL}

    said = review(live, proposed(poison))
    assert all(char.isprintable() or char == "\n" for char in said)
    assert [line for line in said.splitlines() if "Rolls boxes:" in line and line.startswith("- ")] == [
        "- **Rolls boxes:** yes, launch-first (a successor serves before its predecessor ends)"
    ]
    for line in said.splitlines()[1:]:
        outside = "".join(line.split("`")[::2])  # what stands in no code span
        assert line.count("`") % 2 == 0
        assert not any(sign in outside for sign in ("@", "<", "[", "evil")), line


def test_a_comment_full_of_names_keeps_its_answers_and_githubs_limit(
    live: Deployed, proposed: Callable[..., Path]
) -> None:
    def flood(template: dict[str, Any]) -> None:
        launch_template(template)["LaunchTemplateData"]["UserData"] = "evil"
        for number in range(3000):
            template["Resources"][f"R{number}"] = {"Type": "AWS::IAM::Role" + "x" * 200}

    said = review(live, proposed(flood))
    assert len(said) < 65_536
    assert "- **Rolls boxes:** yes" in said
    assert said.endswith("and more\n")


def test_a_stack_that_is_left_out_is_said_and_one_of_another_name_refused(
    live: Deployed, proposed: Callable[..., Path]
) -> None:
    out = proposed(lambda template: None)
    manifest = json.loads((out / "manifest.json").read_text())
    group = manifest["artifacts"].pop("llm-group")
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert "`llm-group is not synthesized: a deploy of all stacks leaves it as it stands`" in review(live, out)
    manifest["artifacts"]["other-group"] = {**group, "properties": {**group["properties"], "stackName": "other-group"}}
    (out / "manifest.json").write_text(json.dumps(manifest))
    done = CliRunner().invoke(main, ["review", "--assembly", str(out)], env=live.aws.environment())
    assert done.exit_code == 2
    assert done.output.startswith(
        "review: other-group: no stack of fleet llm; allowed: llm-store, llm-lever, llm-group, llm-gateway\n"
    )


@pytest.mark.parametrize(
    "template",
    [
        [],
        {"Resources": []},
        {"Resources": {"A": {}}},
        {"Resources": {"A": {"Type": 1}}},
        {"Resources": {"A-b": {"Type": "x"}}},
        {"Resources": {"A": {"Type": "x", "Properties": []}}},
        {"Parameters": {"A": "x"}},
    ],
)
def test_an_assembly_of_another_shape_is_refused_in_one_message(proposed: Callable[..., Path], template: Any) -> None:
    out = proposed(lambda template: None)
    (out / "llm-group.template.json").write_text(json.dumps(template))
    refused(out)


@pytest.mark.parametrize("name", ["../secret.json", "/etc/hostname", "sub/x.json", "link.json"])
def test_no_file_beside_the_assembly_is_read(proposed: Callable[..., Path], name: str) -> None:
    out = proposed(lambda template: None)
    (out / "sub").mkdir()
    for path in (out.parent / "secret.json", out / "sub/x.json"):
        path.write_text('{"Resources": {"A": {"Type": "x", "Properties": {"secret": 1}}}}')
    (out / "link.json").symlink_to(out.parent / "secret.json")
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["artifacts"]["llm-group"]["properties"]["templateFile"] = name
    (out / "manifest.json").write_text(json.dumps(manifest))
    refused(out)


def test_a_template_as_deep_as_a_well_is_refused(proposed: Callable[..., Path]) -> None:
    out = proposed(lambda template: None)
    deep = '{"Resources": {"A": {"Type": "x", "Properties": ' + '{"a":' * 500 + "1" + "}" * 500 + "}}}"
    (out / "llm-group.template.json").write_text(deep)
    refused(out)


def refused(out: Path) -> None:
    done = CliRunner().invoke(main, ["review", "--assembly", str(out)])
    assert done.exit_code == 2, done.output
    assert "not a cloud assembly" in done.output
    assert "secret" not in done.output.replace("secret.json", "")
