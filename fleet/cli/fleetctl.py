"""`fleetctl`, the one command line: its group, its exit codes, and the one place where a failure becomes a message."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from fleet.account.aws_errors import OperatorError
from fleet.cli.context import Operator
from fleet.core.errors import EXIT_INTERNAL, EXIT_USAGE, UserError
from fleet.core.terminal import say, take_every_letter
from fleet.core.untrusted import printable

EXIT_CODES = """\b
Exit codes:
  0  done, and all is right
  1  internal or AWS error: a bug, a throttle, no answer
  2  usage error: a setting, an argument, a file, a permission, credentials, a question answered with no
  3  answered, and something needs attention (status, preflight, game-day)
"""


# Where each command lives: imported when it is asked for, since some draw pictures and `status` should not wait.
HOMES = {
    "status": "fleet.cli.operate",
    "preflight": "fleet.cli.operate",
    "ask": "fleet.cli.operate",
    "pin": "fleet.cli.operate",
    "arm": "fleet.cli.operate",
    "resume": "fleet.cli.operate",
    "scan": "fleet.cli.operate",
    "probe": "fleet.cli.probe",
    "pin-ami": "fleet.cli.operate",
    "review": "fleet.cli.operate",
    "history": "fleet.cli.look_back",
    "game-day": "fleet.cli.look_back",
    "publish": "fleet.cli.publish",
    "key": "fleet.cli.gateway_keys",
    "requests": "fleet.cli.gateway_keys",
    "lane": "fleet.cli.lane_line",
    "drill": "fleet.cli.drill_and_sweep",
    "sweep": "fleet.cli.drill_and_sweep",
    "worth": "fleet.cli.worth_command",
}


class FleetGroup(click.Group):
    """Turns every failure into one message and its exit code; FLEETCTL_TRACEBACK=1 shows where it came from."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = dict.fromkeys(HOMES, click.Command(None))  # their names, for "did you mean"

    def list_commands(self, context: click.Context) -> list[str]:
        """All of them, as the table has them."""
        return list(HOMES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """One of them, from its module."""
        if name not in HOMES:
            return None
        found = vars(importlib.import_module(HOMES[name])).values()
        return next(command for command in found if isinstance(command, click.Command) and command.name == name)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the words before the subcommand."""
        take_every_letter()
        with _printable_refusals():
            return super().make_context(*args, **kwargs)

    def invoke(self, context: click.Context) -> Any:
        """Run a subcommand."""
        try:
            with _printable_refusals():
                return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):  # the last: `| head` has read enough
            raise
        except click.Abort:  # only questions abort, and they stand before whatever they ask about
            click.echo("fleetctl: nothing was done", err=True)
            context.exit(EXIT_USAGE)
        except Exception as error:  # the last line of defence: nobody is shown a traceback unasked
            if os.environ.get("FLEETCTL_TRACEBACK"):
                raise
            sys.stdout.flush()
            message, code = _told(error)
            say(message, err=True)
            context.exit(code)


@contextmanager
def _printable_refusals() -> Iterator[None]:
    """click quotes the words that it does not take."""
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = printable(error.message)
        raise


def _told(error: Exception) -> tuple[str, int]:
    """The message, and the exit code."""
    if isinstance(error, UserError):
        return str(error), EXIT_USAGE
    if isinstance(error, OperatorError):
        return str(error), error.code
    remedy = "run again with FLEETCTL_TRACEBACK=1 and report it"
    return f"fleetctl: internal error: {type(error).__name__}: {error}\n  remedy: {remedy}", EXIT_INTERNAL


@click.group(cls=FleetGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.option(
    "--settings",
    "settings_path",
    type=click.Path(path_type=Path),
    default=Path("cdk.json"),
    show_default=True,
    help="The file with the fleet's settings.",
)
@click.pass_context
def main(context: click.Context, settings_path: Path) -> None:
    """Operate the spot GPU fleet.

    \b
    Is it all right?          fleetctl status
    Would it fail?            fleetctl preflight
    Does it answer?           fleetctl ask "hello"
    Stop deciding for me:     fleetctl pin --why "..."
    Decide again:             fleetctl arm --why "..."
    Launch again:             fleetctl resume --why "..."
    """
    context.obj = Operator(settings_path)
