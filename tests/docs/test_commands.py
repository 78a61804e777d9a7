"""Every command in README and docs is run: on the embedded AWS where it asks AWS, by its own parser where a test of its
own runs it, as a dry run where it is a make verb whose run is another test. What no test runs says why.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
from botocore import xform_name
from click.testing import CliRunner

from fleet.cli.fleetctl import main
from fleet.core import names
from fleet.core.untrusted import one_line
from fleet.localaws.deployed import Deployed
from fleet.ops.commands import EFFECT
from fleet.sim.drills import scene
from tests.docs.commands import FENCE, ROOT, Shown, shown, told
from tests.e2e import walk

SHOWN = shown()
# fleetctl's verbs that another test runs whole; here their arguments are parsed.
RUN_ELSEWHERE = {
    "game-day": "tests/ops/test_game_day.py",
    "drill": "tests/drills/test_cli.py",
    "sweep": "tests/drills/test_cli.py",
    "worth": "tests/drills/test_worth.py",
    "publish": "tests/unit/test_publish.py",
    "pin-ami": "tests/ops/test_embedded.py",
    "review": "tests/ops/test_deploys.py",
    "key": "tests/ops/test_gateway_verbs.py",
    "requests": "tests/ops/test_gateway_verbs.py",
    "lane": "tests/ops/test_embedded.py",
}
# make verbs that another test carries out, beside those of the README's walk (tests/e2e/test_cdk_cli.py types them).
MADE_ELSEWHERE = {
    "fuzz": "tests/hostile/test_hostile_inputs.py",
    "demo": "tests/e2e/test_demo.py",
    "drill": "tests/drills/test_cli.py",
    "game-day": "tests/ops/test_game_day.py",
    "hostility": "tests/watchdog/test_hostility.py",
    "mutants": "tests/watchdog/test_mutants.py",
    "reference": "tests/unit/test_reference.py",
    "synth": "tests/synth.py",
    "thresholds": "tests/drills/test_rivals.py",
}
NOT_MADE = {
    "pictures": "draws what the pages show",
    "bench": "every measure",
    "bench-alike": "compares with another commit",
    "bench-boot": "a measure",
    "bench-fleets": "a measure of hours",
    "bench-leave": "a measure",
    "bench-callers": "a measure",
    "bench-changes": "a measure",
    "bench-drills": "a measure",
    "bench-gateway": "a measure",
    "bench-lane": "a measure",
    "chaos": "a measure of ten minutes",
    "faults": "deploys what an account alone can carry out; its templates: tests/infra/test_faults.py",
    "bench-policy": "a measure of an hour",
    "bench-receipts": "a measure",
    "bench-reclaim": "a measure",
    "bench-watchdog": "a measure",
    "check": "a part of `make test`",
    "lint": "a part of `make test`",
    "lock": "asks the package index",
    "help": "prints the Makefile",
    "setup": "has run before any test can",
    "setup-dev": "the same",
    "test": "this",
    "test-deploys": "deploys by the CDK CLI what other tests deploy without it",
}
# aws operations that neither moto nor a machine without the service can carry out: their parameters are checked.
ONLY_CHECKED = {"start-session", "request-service-quota-increase", "continue-update-rollback", "create-grant"}
ONLY_CHECKED |= {
    "delete-table",
    "describe-services",
    "describe-table",
    "filter-log-events",
}  # of a gateway, which the tests' own fleet has not
ELSEWHERE = {
    ("aws", "sso", "login"),
    ("aws", "s3", "cp"),
    ("aws", "s3api", "delete-objects"),
    ("aws", "s3api", "delete-bucket"),
}  # a person's browser; the peer that tests/box measures against; the teardown page, run whole below


def of(program: str, commands: list[Shown] = SHOWN) -> list[Shown]:
    return [command for command in commands if command.words[0] == program]


def make_verbs() -> set[str]:
    return {word for command in of("make", [*SHOWN, *told()]) for word in command.words[1:] if "=" not in word}


def test_the_docs_show_commands_of_every_kind() -> None:
    assert {command.words[0] for command in SHOWN} >= {"make", "fleetctl", "aws"}
    assert len(SHOWN) > 40


def test_help_loads_nothing_that_draws() -> None:
    program = (
        "import sys; from fleet.cli.fleetctl import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "history" in told
    assert not {"matplotlib", "aws_cdk", "moto"} & set(told.split())


def test_every_make_verb_that_is_shown_exists_and_is_named_in_the_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    verbs = make_verbs()
    assert len(verbs) > 6
    for verb in verbs:
        assert re.search(rf"^{re.escape(verb)}:.*## ", makefile, re.MULTILINE), verb
    dry = subprocess.run(["make", "-n", *sorted(verbs)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert dry.returncode == 0, dry.stderr


def test_every_make_verb_that_is_shown_is_carried_out_by_a_test_or_says_why_not() -> None:
    first, lines = walk.lines()
    walked = {line.split()[1] for line in [first, *lines] if line.startswith("make ")}
    assert make_verbs() - walked == {*MADE_ELSEWHERE, *NOT_MADE}
    assert [path for path in MADE_ELSEWHERE.values() if not (ROOT / path).exists()] == []


def test_every_fleetctl_command_that_a_message_tells_exists_with_its_options() -> None:
    assert len(of("fleetctl", told())) > 6
    for command in of("fleetctl", told()):
        verb = main.get_command(click.Context(main), command.words[1])
        assert verb is not None, command
        known = {option for parameter in verb.params for option in parameter.opts}
        assert {word for word in command.words[2:] if word.startswith("--")} <= known, command


def test_every_aws_command_that_a_message_tells_has_the_apis_own_parameters(live: Deployed) -> None:
    assert len(of("aws", told())) > 4
    for command in of("aws", told()):
        if command.words[:3] not in ELSEWHERE:
            request(command, live)


DRILLS = [
    shlex.split(word[5:])
    for command in of("make")
    if "drill" in command.words
    for word in command.words
    if word[:5] == "ARGS="
]


@pytest.mark.parametrize("arguments", DRILLS, ids=" ".join)
def test_every_drill_that_is_shown_is_understood(arguments: list[str], tmp_path: Path) -> None:
    own = tmp_path / "my.market"
    own.write_text((ROOT / "fleet/sim/traces/drought.market").read_text())
    words = [str(own) if word == own.name else str(ROOT / word) if "/" in word else word for word in arguments]
    command = main.get_command(click.Context(main), "drill")
    assert command is not None
    given = command.make_context("drill", words).params
    assert scene.named(given["what"], days=given["days"], supply=given["supply"])


def test_the_docs_show_drills_with_arguments() -> None:
    assert len(DRILLS) >= 4


def test_the_teardown_page_empties_the_store_and_deletes_it(live: Deployed) -> None:
    """The page's own shell, run by the real AWS CLI."""
    bucket = live.output("store", names.OUTPUT_BUCKET)
    s3 = live.aws.client("s3")
    for key in ("cache/blobs/sha256-1", live.settings.model.gguf.key):
        s3.put_object(Bucket=bucket, Key=key, Body=b"again")
    s3.delete_object(Bucket=bucket, Key="cache/blobs/sha256-1")
    (script,) = [block for block in FENCE.findall((ROOT / "docs/teardown.md").read_text()) if "delete-bucket" in block]
    told = 'aws() { command aws --endpoint-url "$AWS_ENDPOINT_URL" "$@"; }\n'  # Debian's is older than it
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", told + script.replace("BUCKET", bucket)],
        env={**os.environ, **live.aws.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert bucket not in [found["Name"] for found in s3.list_buckets()["Buckets"]]


def typed(command: Shown) -> tuple[str, ...]:
    """Its arguments, with what a page leaves out; one reason stands for all, and one look for a watch."""
    words = [word for word in command.words[1:] if word != "--watch"]
    if words and words[0] in EFFECT:
        if "--why" in words:
            del words[words.index("--why") : words.index("--why") + 2]
        words = [word for word in words if word != "--yes"] + ["--why", "as the page says", "--yes"]
    return tuple(words)


# The first that shows it, of those that come to the same.
RUN = list({typed(command): command for command in reversed(of("fleetctl"))}.values())


def test_every_reason_that_is_shown_is_in_words() -> None:
    reasons = [reason for command in of("fleetctl") for before, reason in pairwise(command.words) if before == "--why"]
    assert len(reasons) > 20
    assert [reason for reason in reasons if not one_line(reason) or reason.startswith("-")] == []
    assert [command for command in of("fleetctl") if command.words[-1] == "--why"] == []


@pytest.mark.parametrize("command", RUN, ids=str)
def test_every_fleetctl_command_that_is_shown_runs(command: Shown, live: Deployed, tmp_path: Path) -> None:
    arguments = list(typed(command))
    verb = next((word for word in arguments if not word.startswith("-")), "--help")
    if verb in RUN_ELSEWHERE and len(arguments) == 1:
        arguments.append("--help")  # named in passing, without what it needs
    elif verb in RUN_ELSEWHERE:
        assert (ROOT / RUN_ELSEWHERE[verb]).exists()
        context = click.Context(main)
        found = main.get_command(context, verb)
        assert found is not None
        files = [
            str(tmp_path / word) if re.search(r"\.(tgz|gguf|json)$|^Modelfile$", word) else word
            for word in arguments[1:]
        ]
        for word in files:
            if word.startswith(str(tmp_path)):
                Path(word).parent.mkdir(parents=True, exist_ok=True)
                Path(word).write_text("{}")
        found.make_context(verb, files)
        return
    if verb == "history":
        arguments += ["--out", str(tmp_path)]
    done = CliRunner().invoke(main, arguments, env=live.aws.environment())
    assert done.exit_code in (0, 3), done.output


def request(command: Shown, live: Deployed) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The API call that an AWS CLI command is, with its parameters as the service's model has them."""
    service, operation, *rest = command.words[1:]
    client = live.aws.client({"s3api": "s3"}.get(service, service))
    methods = {xform_name(name, "-"): method for method, name in client.meta.method_to_api_mapping.items()}
    assert operation in methods, command
    model = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[methods[operation]])
    arguments = parsed(rest, model.input_shape, live) if model.input_shape else {}
    missing = set(model.input_shape.required_members if model.input_shape else ()) - arguments.keys()
    assert not missing, f"{command}: {missing}"
    return getattr(client, methods[operation]), arguments


def parsed(words: list[str], shape: Any, live: Deployed) -> dict[str, Any]:
    """`--kebab-case value ...` to the API's parameters; placeholders in capitals become things that exist."""
    found: dict[str, Any] = {}
    members = {xform_name(name, "-"): (name, member) for name, member in shape.members.items()}
    flags: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            flags.append([word[2:]])
        else:
            flags[-1].append(word)
    for flag, *values in flags:
        if flag in ("region", "query"):  # the CLI's own
            continue
        assert flag in members, f"--{flag}: known are {sorted(members)}"
        name, member = members[flag]
        filled = [_filled(value, live) for value in values]
        match member.type_name:
            case "boolean":
                found[name] = True
            case "list" if filled and "=" in filled[0]:
                found[name] = [dict(pair.split("=", 1) for pair in value.split(",")) for value in filled]
            case "list":
                found[name] = filled
            case "map" | "structure":
                pairs = (pair.split("=", 1) for value in filled for pair in value.split(","))
                found[name] = {key: [value] for key, value in pairs}
            case "integer" | "long" | "double":
                found[name] = float(filled[0])
            case _:
                found[name] = " ".join(filled)
    return found


def _filled(value: str, live: Deployed) -> str:
    if value.startswith("file://"):
        return (ROOT / value.removeprefix("file://")).read_text()
    known = {
        "BUCKET": lambda: live.output("store", names.OUTPUT_BUCKET),
        "INSTANCE_ID": lambda: live.boxes()[0]["InstanceId"],
        "OWNER/NAME": lambda: "owner/name",
        "NAME": lambda: "llm-group",
    }
    for placeholder, found in known.items():
        value = value.replace(placeholder, found()) if placeholder in value else value
    return value


def test_programs_beyond_these_are_a_handful() -> None:
    """`cdk`, `git` and `source` appear in passing; anything else would be a command that nobody runs."""
    for program in ("cdk", "git", "source"):
        for command in of(program):
            assert shlex.join(command.words).split()[:2] in (
                ["cdk", "bootstrap"],
                ["cdk", "deploy"],
                ["cdk", "diff"],
                ["git", "pull"],
                ["git", "clone"],
                ["source", "out/cloud/env"],
            ), command
