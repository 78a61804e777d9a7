"""The subcommands of `fleetctl` for the line at the boxes: `lane`, and `lane drop`."""

import dataclasses

import click
from rich.text import Text

from fleet.cli.context import Operator, json_option, pass_operator, print_json
from fleet.core.errors import EXIT_ATTENTION
from fleet.core.terminal import Terminal, plain_table, say
from fleet.core.untrusted import one_line
from fleet.ops import lane


@click.group("lane", invoke_without_command=True)
@json_option
@click.pass_context
def lane_group(context: click.Context, as_json: bool) -> None:
    """Show who is in line at the boxes that serve: caller, class, waited, expected; never a prompt.

    Through Run Command, by a document of the fleet's own that takes nothing. Ends with 3 if a box does not tell.

    \b
    Example:  fleetctl lane --json | jq '.[].line[] | select(.waited > 60)'
    """
    if context.invoked_subcommand is None:
        _show(context.ensure_object(Operator), as_json=as_json)


def _show(operator: Operator, *, as_json: bool) -> None:
    found = lane.lines(operator.aws, operator.settings.fleet_name)
    if as_json:
        print_json([dataclasses.asdict(line) for line in found])
    for line in () if as_json else found:
        if line.problem:
            Terminal().print(Text(f"{line.box}: {line.problem}", style="red"))
            continue
        leaving = ", leaving" if line.draining else ""
        say(f"{line.box}: {len(line.line)} in line, {line.expected_wait:.0f} s for who comes now{leaving}")
        table = plain_table("id", "caller", "class", "state", "waited s", "done in s", "tokens")
        for each in line.line:
            seconds = (f"{each.waited:.0f}", f"{each.expected:.0f}")
            words = (each.id, each.caller, each.kind, each.state)
            table.add_row(*map(Text, words), *seconds, f"{each.tokens} of {each.limit}")
        if line.line:
            Terminal().print(table)
    if any(line.problem for line in found):
        raise click.exceptions.Exit(EXIT_ATTENTION)


@lane_group.command("drop")
@click.argument("request_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_operator
def drop_command(operator: Operator, request_id: str, yes: bool) -> None:
    """End the request with this ID (`fleetctl lane`): its caller gets an error, the next one begins."""
    if not yes:
        click.confirm(f"The request {one_line(request_id)} will end with an error. Go on?", abort=True, err=True)
    box = lane.drop(operator.aws, operator.settings.fleet_name, request_id)
    say(f"{request_id} has ended on {box}")
