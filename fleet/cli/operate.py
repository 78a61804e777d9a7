"""The subcommands of `fleetctl` that read and press: arguments in, one call into this package, a table or JSON out."""

import dataclasses
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Group
from rich.live import Live

from fleet.account.aws_errors import OperatorError
from fleet.cli import tables
from fleet.cli.context import Operator, folder, json_option, pass_operator, print_json
from fleet.core.errors import EXIT_ATTENTION, UserError
from fleet.core.terminal import Terminal, say
from fleet.core.untrusted import one_line
from fleet.ops import ask as asking
from fleet.ops import commands, deployed_stacks, fleet_view, pin_ami, preflight, review, status
from fleet.ops.checks import Ground, Level


@click.command("preflight")
@json_option
@pass_operator
def preflight_command(operator: Operator, as_json: bool) -> None:
    """Check everything that would fail a deploy or a failover.

    Each line is pass, warn or fail, with its remedy. Reads only. Run it before a deploy and before `arm`, the first
    deploy too. Ends with 0 if nothing fails, 3 otherwise.

    \b
    Example:  fleetctl preflight --json | jq '.[] | select(.level == "fail")'
    """
    found = preflight.run(preflight.checks(operator.settings), Ground(operator.settings, operator.aws))
    if as_json:
        print_json([{"check": check, **dataclasses.asdict(finding)} for check, finding in found.items()])
    else:
        tables.preflight(found)
    if any(finding.level is Level.FAIL for finding in found.values()):
        raise click.exceptions.Exit(EXIT_ATTENTION)


WATCH_SECONDS = 10.0


@click.command("status")
@click.option("--watch", is_flag=True, help=f"Look again every {WATCH_SECONDS:.0f} s, until interrupted.")
@json_option
@pass_operator
def status_command(operator: Operator, watch: bool, as_json: bool) -> None:
    """Say whether the fleet is all right, and what the watchdog last decided and why.

    Mode, lever (parameter and group), boxes, targets, alarm, decisions, dollars per day. A dozen calls, reads only.
    Ends with 0 if all is right, 3 if something needs you.

    \b
    Example:  fleetctl status --json | jq .problems
    """
    if watch and as_json:
        raise UserError("status: --watch draws on the terminal; allowed: --watch or --json, not both")
    found = _look(operator)
    if watch:
        with Live(tables.status(found), console=Terminal(), screen=False) as live:
            while True:  # until interrupted; a look that fails is shown beside the last that did not
                time.sleep(WATCH_SECONDS)
                try:
                    shown: Any = tables.status(_look(operator))
                except OperatorError as error:
                    shown = Group(tables.status(found), f"{datetime.now(UTC):%H:%M:%S} {error}")
                live.update(shown, refresh=True)
    if as_json:
        print_json({**dataclasses.asdict(found), "serving": found.serving, "agreed": found.lever.agreed})
    else:
        Terminal().print(tables.status(found))
    if found.problems:
        raise click.exceptions.Exit(EXIT_ATTENTION)


def _look(operator: Operator) -> status.Status:
    return status.judge(fleet_view.look(operator.settings, operator.aws), operator.settings, datetime.now(UTC))


@click.command("ask")
@click.argument("prompt")
@json_option
@pass_operator
def ask_command(operator: Operator, prompt: str, as_json: bool) -> None:
    """Put one PROMPT to the model, through Run Command.

    Needs no network set-up: the prompt travels as base64 to a document of the fleet's own, which asks the engine on a
    box that serves. Answers with up to 64 tokens.

    \b
    Example:  fleetctl ask "hello"
    """
    answer = asking.ask(operator.aws, operator.settings.fleet_name, prompt)
    if as_json:
        print_json(dataclasses.asdict(answer))
    else:
        say(answer.text.strip())
        say(f"({answer.model} on {answer.box}, {answer.seconds:.1f} s)", err=True)


@click.command("pin-ami")
@click.option("--ami", "ami_id", help="Pin this image instead of the newest deep-learning image.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_operator
def pin_ami_command(operator: Operator, ami_id: str | None, yes: bool) -> None:
    """Pin the machine image in the settings file.

    An image that is not pinned rolls the fleet by itself whenever a new one appears. Changes one line of the file; the
    next deploy then rolls the boxes, launch-first, if the image differs from theirs.
    """
    image = pin_ami.choose(operator.aws, operator.settings, ami_id)
    if operator.settings.ami_id == image.id:
        say(f"ami_id is {image.id} already ({image.name})")
        return
    question = (
        f'Set "ami_id" in {operator.settings_path} to {image.id} ({one_line(image.name)}, root {image.root_gib} GiB)?'
    )
    if not yes:
        click.confirm(question, abort=True)
    before = pin_ami.write(operator.settings_path, image.id)
    say(f"{operator.settings_path}: ami_id {before or 'null'} -> {image.id}. Next: make diff")


def _operator_command(name: str) -> click.Command:
    """One of the commands that invoke the watchdog."""

    @click.command(name, help=commands.HELP[name])
    @click.option("--why", required=True, help="The reason; it is recorded in the decision log and in the mail.")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @json_option
    @pass_operator
    def command(operator: Operator, why: str, yes: bool, as_json: bool) -> None:
        invoke_watchdog(operator, name, why=why, yes=yes, as_json=as_json)

    return command


def invoke_watchdog(operator: Operator, name: str, *, why: str, yes: bool, as_json: bool) -> None:
    """Ask, invoke the watchdog, show its record."""
    why = one_line(why)
    if not why:
        raise UserError(f"{name}: --why is blank; allowed: a reason in words, for whoever reads the log later")
    fleet = operator.settings.fleet_name
    who = commands.caller(operator.aws)
    if not yes:
        say(f"{name} {fleet} ({operator.settings.region}), as {who}", err=True)
        click.confirm(f"This {commands.EFFECT[name]}. Go on?", abort=True, err=True)
    record = commands.press(operator.aws, fleet, name, who=who, why=why)
    if as_json:
        print_json(record)
    else:
        tables.record(record)


pin_command, arm_command, resume_command, scan_command = map(_operator_command, ("pin", "arm", "resume", "scan"))


@click.command("review")
@click.option(
    "--assembly",
    type=click.Path(path_type=Path),
    default=Path("cdk.out"),
    show_default=True,
    help="What `make synth` made.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the comment here as well.")
@json_option
@pass_operator
def review_command(operator: Operator, assembly: Path, out: Path | None, as_json: bool) -> None:
    """Say what a deploy of this checkout would change, as a comment for a pull request.

    Compares the synthesized templates with the deployed ones: what changes, does it roll boxes (and launch-first), is
    anything destructive. Reads stacks and their inputs, nothing else.
    """
    if out is not None:
        folder("review", out.parent)
    result = review.review(
        deployed_stacks.observed(operator.aws, operator.settings.fleet_name, deployed_stacks.synthesized(assembly))
    )
    text = review.markdown(result)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if as_json:
        print_json(dataclasses.asdict(result))
    else:
        say(text.rstrip("\n"))
