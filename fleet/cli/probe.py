"""`fleetctl probe`: the one call that must work at 3 a.m.; with `--all`, every behaviour that is still to be probed."""

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

import click

from fleet.cli.context import Operator, folder, json_option, pass_operator, print_json
from fleet.cli.operate import invoke_watchdog
from fleet.core.errors import UserError
from fleet.core.terminal import say
from fleet.ops import commands, probing

WORDS = {True: "as the table says", False: "OTHERWISE", None: "not seen"}


@click.command("probe", help=commands.HELP["probe"])
@click.option("--why", required=True, help="The reason; it is recorded in the decision log and in the mail.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--all", "everything", is_flag=True, help="Look for every row of docs/aws-behaviours.md to be probed.")
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --all: write what was seen, and fill the table.",
)
@json_option
@pass_operator
def probe_command(
    operator: Operator, why: str, yes: bool, everything: bool, record: Path | None, as_json: bool
) -> None:
    if not everything:
        if record is not None:
            raise UserError("probe: --record without --all; allowed: both, or neither")
        invoke_watchdog(operator, "probe", why=why, yes=yes, as_json=as_json)
        return
    if record is not None:
        folder("probe", record.parent)
    who = commands.caller(operator.aws)
    if not yes:
        click.confirm(f"This {probing.TOUCHES}. Everything else reads. Go on?", abort=True, err=True)
    evidence = probing.Readings(operator.aws, operator.settings, who, why)
    page = probing.PAGE.read_text(encoding="utf-8")
    seen = []
    for each in probing.walk(evidence, probing.to_be_probed(page)):
        seen.append(each)
        if not as_json:
            say(f"{each.row}: {WORDS[each.held]}; {each.found}")
    rows = [dataclasses.asdict(each) for each in seen]
    if as_json:
        print_json(rows)
    if record is not None:
        told = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "region": operator.aws.region, "rows": rows}
        record.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        probing.PAGE.write_text(probing.filled(page, seen, _from_root(record)), encoding="utf-8")


def _from_root(record: Path) -> str:
    """As the table names it."""
    root = probing.PAGE.parents[1].resolve()
    path = record.resolve()
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
