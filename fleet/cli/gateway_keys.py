"""The subcommands of `fleetctl` for the gateway's callers: `key add | list | revoke | usage`, and `requests`."""

import dataclasses
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from fleet.cli.context import Operator, json_option, pass_operator, print_json
from fleet.core.errors import UserError
from fleet.core.terminal import Terminal, plain_table, say
from fleet.core.untrusted import one_line
from fleet.ops import gateway_table
from fleet.ops.gateway_table import GatewayTable, Key, Line


@click.group("key")
def key_group() -> None:
    """Make, list, revoke and count the API keys of the gateway's callers.

    A key is shown once, when it is made; the table holds its SHA-256. Reads need dynamodb:Query and
    dynamodb:BatchGetItem on the gateway's table, `add` dynamodb:PutItem, `revoke` dynamodb:UpdateItem.
    """


@key_group.command("add")
@click.option("--name", required=True, help="Whose it is; shown in lists.")
@click.option("--tier", type=click.Choice(gateway_table.TIERS), default="free", show_default=True, help="Its caps.")
@click.option(
    "--class",
    "kind",
    type=click.Choice(gateway_table.CLASSES),
    default="interactive",
    show_default=True,
    help="Whether somebody waits for its answers.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="Until it expires.")
@json_option
@pass_operator
def add_command(operator: Operator, name: str, tier: str, kind: Any, days: int, as_json: bool) -> None:
    """Make a key and show it, this once.

    \b
    Example:  fleetctl key add --name "ann's notebook" --tier pro --days 90
    """
    name = one_line(name, 80)
    if not name:
        raise UserError("key add: --name is blank; allowed: whose it is, in words")
    expires = (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
    secret, key = _table(operator).add(name=name, tier=tier, kind=kind, expires=expires)
    if as_json:
        print_json({"key": secret, **_told(key)})
        return
    say(secret)
    say(f"({key.id}: {key.name}, {key.tier}, {key.kind}, until {expires:%Y-%m-%d}; it is not shown again)", err=True)


@key_group.command("list")
@json_option
@pass_operator
def list_command(operator: Operator, as_json: bool) -> None:
    """List all keys, by name; never the keys themselves."""
    keys = [_told(key) for key in _table(operator).listed()]
    if as_json:
        print_json(keys)
    else:
        _print(("id", "name", "tier", "class", "expires", "state"), keys)


@key_group.command("revoke")
@click.argument("key_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_operator
def revoke_command(operator: Operator, key_id: str, yes: bool) -> None:
    """Revoke the key with this ID (`fleetctl key list`).

    What it asks is refused half a minute later at the latest; what is being answered goes on. For good: make a new one.
    """
    table = _table(operator)
    if not yes:
        click.confirm(
            f"Requests with the key {one_line(key_id)} will be refused, for good. Go on?", abort=True, err=True
        )
    table.revoke(key_id)
    say(f"{key_id} is revoked; gateways know within 30 s")


@key_group.command("usage")
@click.argument("key_id", metavar="[ID]", required=False)
@click.option("--days", type=click.IntRange(1, 30), default=7, show_default=True, help="How far to look back.")
@json_option
@pass_operator
def usage_command(operator: Operator, key_id: str | None, days: int, as_json: bool) -> None:
    """Requests and fallbacks of each key (or of the one with this ID), by UTC day; what the fallback cost today."""
    table, now = _table(operator), datetime.now(UTC)
    keys = {f"key:{key.id}": key for key in table.listed() if key_id in (None, key.id)}
    if key_id and not keys:
        raise UserError(f"key usage: there is no key {key_id}; allowed: an ID that `fleetctl key list` shows")
    uses = [
        {"day": use.day, "id": key.id, "name": key.name, "requests": use.requests, "fallbacks": use.fallbacks}
        for use in table.usage(keys, gateway_table.days(now, days))
        for key in [keys[use.caller]]
    ]
    dollars = table.dollars(f"{now:%Y-%m-%d}")
    if as_json:
        print_json({"uses": uses, "fallback_dollars_today": dollars})
        return
    _print(("day", "id", "name", "requests", "fallbacks"), uses)
    say(f"The fallback today, all callers: ${dollars:.4f}, what is under way at its most", err=True)


@click.command("requests")
@click.argument("request_id", metavar="[ID]", required=False)
@click.option("--last", type=click.IntRange(1, 1000), default=20, show_default=True, help="Without ID: so many.")
@click.option(
    "--export", type=click.Path(path_type=Path, dir_okay=False), help="Write the whole ledger there, for the drills."
)
@json_option
@pass_operator
def requests_command(operator: Operator, request_id: str | None, last: int, export: Path | None, as_json: bool) -> None:
    """Look up one request of the gateway by its x-request-id, or list the last that failed over to the fallback.

    The ledger holds who asked, who answered, tokens, cost, and why it ended or went to the cloud; no prompt and no
    answer. Reads only: dynamodb:Query and dynamodb:BatchGetItem on the gateway's table; --export reads all of it
    (dynamodb:Scan) and writes a line of JSON a request, which `fleetctl drill --callers` and `fleetctl worth --ledger`
    read.

    \b
    Example:  fleetctl requests --last 5 --json | jq '.[].why'
    """
    table = _table(operator)
    if export:
        ledger = sorted(table.lines(), key=lambda line: (line.began, line.id))
        try:
            export.write_text("".join(json.dumps(line.plain()) + "\n" for line in ledger), encoding="utf-8")
        except OSError as error:
            raise UserError(f"requests: --export is {export}; allowed: a file that can be written ({error})") from None
        say(f"{export}: {len(ledger)} requests")
        return
    if request_id:
        line = _line(table.line(request_id))
        if as_json:
            print_json(line)
        else:
            _print(("", " "), [{"": name, " ": value} for name, value in line.items()])
        return
    lines = [_line(line) for line in table.failed_over(last, datetime.now(UTC))]
    if as_json:
        print_json(lines)
    else:
        _print(("began", "id", "caller", "state", "tokens", "dollars", "why"), lines)


def _table(operator: Operator) -> GatewayTable:
    return GatewayTable(operator.aws, operator.settings)


def _told(key: Key) -> dict[str, Any]:
    now = datetime.now(UTC)
    state = "revoked" if key.revoked else "expired" if key.expires and now >= key.expires else "valid"
    return {
        "id": key.id,
        "name": key.name,
        "tier": key.tier,
        "class": key.kind,
        "expires": f"{key.expires:%Y-%m-%d}" if key.expires else "never",
        "state": state,
    }


def _line(line: Line) -> dict[str, Any]:
    told = dataclasses.asdict(line)
    began = datetime.fromtimestamp(line.began, UTC).isoformat()
    del told["until"]
    return {**told, "began": began, "state": str(line.seen(time.time())), "dollars": line.micro_dollars / 1e6}


def _print(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    table = plain_table(*columns)
    for row in rows:
        table.add_row(*(one_line(row[column]) for column in columns))
    Terminal().print(table if rows else "none")
