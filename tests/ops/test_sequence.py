"""`make deploy` asks where the CLI can ask; `make destroy` goes on where an earlier one stopped."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fleet.account.aws_errors import MissingError
from fleet.config import validation
from fleet.config.settings import Settings
from fleet.core.errors import UserError
from fleet.ops import deploy
from tests.synth import CDK_JSON


@pytest.fixture
def account(answers: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An account in which these stacks stand after the CLI has ended, whatever it was answered; what it was asked."""

    def make(*standing: str, buckets: Iterable[str] = ("llm-store-bucket83-x1",)) -> Any:
        stands = list(standing)

        def described(StackName: str) -> dict[str, Any]:
            if StackName not in stands:
                raise MissingError(f"Stack {StackName} does not exist", "make deploy makes it")
            return {"Stacks": [{"StackStatus": "DELETE_FAILED"}]}

        script = {
            "cloudformation DescribeStacks": described,
            "cloudformation DeleteStack": lambda StackName: stands.remove(StackName),
            "s3 ListBuckets": {"Buckets": [{"Name": name} for name in buckets]},
            "s3 ListObjectVersions": {"Versions": [{"Size": 10_000_000_000}, {"Size": 8_000_000_000}]},
            "ssm GetParameters": {"Parameters": [{"Name": "/llm/on-demand-percentage"}]},
        }
        aws = answers(script)
        monkeypatch.setattr(deploy, "Aws", lambda *_: aws)
        aws.commands = []
        monkeypatch.setattr(deploy, "_cdk", lambda *words: aws.commands.append(words))
        return aws

    return make


def test_a_destroy_that_was_answered_with_no_lists_nothing_as_kept(
    account: Any, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    account("llm-lever", "llm-store")
    with pytest.raises(UserError, match="Still standing: llm-store, llm-lever"):
        deploy.destroy(settings, [])
    assert capsys.readouterr().out == ""


def test_the_faults_of_a_game_day_go_first_where_they_stand_and_are_named_where_they_stay(
    account: Any, settings: Settings
) -> None:
    aws = account("llm-faults")
    with pytest.raises(UserError, match="Still standing: llm-faults"):
        deploy.destroy(settings, ["--force"])
    assert aws.commands == [("destroy", *deploy.FAULTS, "--force"), ("destroy", "--all", "--force")]


def test_a_store_of_a_half_done_destroy_is_listed_although_its_stack_is_gone(
    account: Any, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    account(buckets=("llm-store-bucket83-x1", "llm-store-bucket83-x2", "llm-store-bucketed-store-bucket83-x3"))
    deploy.destroy(settings, [])
    told = capsys.readouterr().out
    assert told.startswith("Kept on purpose:\n  s3://llm-store-bucket83-x1: 18.0 GB, about $0.41 a month")
    assert "s3://llm-store-bucket83-x2" in told
    assert "other-store" not in told
    assert "/llm/on-demand-percentage: free" in told


@pytest.fixture
def commands(account: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What a deploy whose model is published asks of the CDK CLI."""
    aws = account()
    monkeypatch.setattr(deploy.upload, "store_bucket", lambda *_: "store")
    monkeypatch.setattr(deploy.upload, "missing", lambda *_: [])
    monkeypatch.setattr(deploy.checks_deploy, "require_clear", lambda _: None)
    found: list[tuple[str, ...]] = aws.commands
    return found


@pytest.mark.parametrize(
    ("arguments", "together"),
    [((), False), (("--require-approval", "never"), True), (("--require-approval=never",), True)],
)
def test_stacks_are_deployed_side_by_side_only_where_no_question_is_asked(
    arguments: tuple[str, ...],
    together: bool,
    settings: Settings,
    commands: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(deploy.release, "awaits_release", lambda *_: not together)
    deploy.deploy(settings, arguments)
    assert ("fleetctl publish --built" in capsys.readouterr().out) is not together
    assert [words[0] for words in commands] == ["list", "deploy", "deploy"]
    assert commands[-1][3:] == (*(("--all", "--concurrency=4") if together else ("--all",)), *arguments)


def test_templates_are_made_with_the_profile_that_deploys_them(
    settings: Settings, commands: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy.release, "awaits_release", lambda *_: False)
    deploy.deploy(settings, ("--profile", "other"))
    assert commands[0] == ("list", "--output", deploy.ASSEMBLY, "--profile", "other")


@pytest.mark.parametrize(
    ("arguments", "said", "deleted"),
    [((), "y", True), ((), "n", False), ((), None, False), (("--require-approval=never",), None, True)],
    ids=["yes", "no", "nobody to ask", "told not to ask"],
)
def test_a_gateway_that_was_taken_out_is_deleted_before_the_fleet_changes_after_asking(
    arguments: tuple[str, ...],
    said: str | None,
    deleted: bool,
    account: Any,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    aws = account("llm-gateway")

    def answer(_: str) -> str:
        if said is None:
            raise EOFError
        return said

    monkeypatch.setattr("builtins.input", answer)
    if deleted:
        deploy.end_gateway(aws, settings, arguments)
    else:
        with pytest.raises(UserError, match="llm-gateway stands: put the section back"):
            deploy.end_gateway(aws, settings, arguments)
    assert ("cloudformation DeleteStack" in dict(aws.asked)) is deleted
    assert "the table llm-gateway with keys, caps and ledger is kept" in capsys.readouterr().out


def test_a_gateway_that_cannot_be_deleted_is_told_and_nothing_is_deployed(
    account: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws = account("llm-gateway")
    aws.answers["cloudformation DeleteStack"] = {}
    with pytest.raises(UserError, match="still stands: its events in CloudFormation say why"):
        deploy.end_gateway(aws, settings, ["--force"])


def test_without_a_gateway_nobody_is_asked(account: Any, settings: Settings) -> None:
    aws = account()
    deploy.end_gateway(aws, settings, [])
    assert [name for name, _ in aws.asked] == ["cloudformation DescribeStacks"]


def test_the_gateways_table_is_listed_as_kept(
    account: Any, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    aws = account()
    aws.answers["dynamodb DescribeTable"] = {"Table": {"TableSizeBytes": 2_000_000_000}}
    deploy.destroy(settings, [])
    assert "table llm-gateway: 2.0 GB, about $0.90 a month; a gateway that comes back" in capsys.readouterr().out


def test_a_deploy_is_refused_before_anything_runs_while_launching_is_suspended_and_a_roll_is_under_way(
    account: Any, settings: Settings
) -> None:
    aws = account("llm-group")
    suspended = [{"ProcessName": "Launch", "SuspensionReason": "User suspended"}]
    aws.answers |= {
        "autoscaling DescribeAutoScalingGroups": {"AutoScalingGroups": [{"SuspendedProcesses": suspended}]},
        "autoscaling DescribeInstanceRefreshes": {
            "InstanceRefreshes": [{"InstanceRefreshId": "r-1", "Status": "InProgress"}]
        },
        "ssm GetParameters": {"Parameters": []},
    }
    with pytest.raises(UserError) as refused:
        deploy.deploy(settings, [])
    assert str(refused.value).splitlines() == [
        "Nothing was deployed:",
        "Launch is suspended (User suspended): a refresh would replace nothing and roll back",
        '  mend the cause, then `fleetctl resume --why "mended"`, then deploy: docs/runbook/mail-boot-loop.md',
        "instance refresh r-1 is InProgress",
        "  wait for its end: `fleetctl status` shows it",
    ]


@pytest.mark.parametrize("arguments", [("--profile", "other"), ("--require-approval=never", "--profile=other")])
def test_the_profile_that_the_cli_is_given_is_the_one_that_our_own_calls_use(
    arguments: tuple[str, ...], settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text("[other]\naws_access_key_id = FROMTHEPROFILE\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "FROMTHEENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    signer = deploy._account(settings, arguments).client("sts")._request_signer
    assert signer._credentials.access_key == "FROMTHEPROFILE"
    plain = deploy._account(settings, arguments[:-2]).client("sts")._request_signer
    assert plain._credentials.access_key == "FROMTHEENVIRONMENT"


@pytest.mark.parametrize("verb", ["deploy", "destroy"])
def test_an_interrupted_verb_says_that_cloudformation_goes_on_and_shows_no_traceback(
    verb: str, account: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: str) -> None:
        raise KeyboardInterrupt

    account()
    monkeypatch.setattr(deploy, "_cdk", interrupted)
    monkeypatch.setattr(deploy.checks_deploy, "require_clear", lambda _: None)
    settings = validation.load(CDK_JSON)
    monkeypatch.setattr(deploy.validation, "load", lambda: settings)
    monkeypatch.setattr("sys.argv", ["deploy", verb])
    with pytest.raises(SystemExit) as left:
        deploy.main()
    assert left.value.code == 130
    told = capsys.readouterr().err
    assert told.startswith(f"\n{verb}: interrupted; what CloudFormation has begun goes on")
    assert "Traceback" not in told
