"""The subcommands of `fleetctl` that look back and play ahead: `history` and `game-day`."""

import dataclasses
import json
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from fleet.account.access import Aws, stack_output
from fleet.cli import tables
from fleet.cli.context import Operator, folder, json_option, pass_operator, print_json
from fleet.core import names
from fleet.core.errors import EXIT_ATTENTION, UserError
from fleet.core.terminal import Terminal, say
from fleet.eventlog import events
from fleet.gameday import fault_injection
from fleet.gameday import scenario as day_scenario
from fleet.ops import live_history, receipt

_out = partial(click.option, "--out", type=click.Path(path_type=Path, file_okay=False), show_default=True)


@click.command("history")
@click.option("--days", type=click.IntRange(1, 42), default=7, show_default=True, help="How far to look back.")
@_out(default=Path("out/history"), help="Where the event log, the drawn page and the receipt go.")
@json_option
@pass_operator
def history_command(operator: Operator, days: int, out: Path, as_json: bool) -> None:
    """Draw what happened to the fleet, and export it for the drills.

    Reclaims, boots by stage, transitions: read from the watchdog's log, the group's activities, the alarm and the log
    of the boxes. Writes events.jsonl, report.html and receipt.json; the receipt replays in the drills. Reads only.

    \b
    Example:  fleetctl history --days 14 && fleetctl drill out/history/receipt.json
    """
    from fleet.eventlog import html_report

    settings, until = operator.settings, datetime.now(UTC)
    folder("history", out)
    sources = live_history.read(settings, operator.aws, until - timedelta(days=days), until)
    log = live_history.events(sources, settings)
    boxes = live_history.lives(sources, settings)
    events.write(log, out / "events.jsonl")
    written = receipt.receipt(log, settings, boots=receipt.boots(boxes, sources.since))
    (out / "receipt.json").write_text(written.dumps(), encoding="utf-8")
    page = html_report.render(log, out, title=f"{settings.fleet_name}, the last {days} days")
    if as_json:
        stages = {
            box: [dataclasses.asdict(stage) for stage in life.stages] for box, life in boxes.items() if life.stages
        }
        told = json.loads(written.dumps())
        print_json({**told, "boots_by_stage": stages, "lines_skipped": sources.lines_skipped})
    else:
        Terminal().print(tables.history(log, boxes, page, lines=sources.lines_skipped))


LIVE_DAY = "Boxes end, the fleet is dark for minutes, it takes about 5 hours"


@click.command("game-day")
@click.option("--live", is_flag=True, help="On the account of your credentials: real boxes, real money, hours.")
@click.option(
    "--scenario",
    type=click.IntRange(1, len(fault_injection.SCENARIOS)),
    help="On a live account, one fault instead of the day: 1 a notice under fifty short requests, 2 a notice in a long "
    "prefill, 3 a dry market, 4 a notice under fifty streams. Needs `make faults`.",
)
@click.option("--endpoint", help="Where the load goes on a live account (default: the fleet's own endpoint).")
@click.option("--no-load", is_flag=True, help="Play without load: the endpoint cannot be reached from here.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_out(default=Path("out/game-day"), help="Where receipts, event log and page go.")
@json_option
@pass_operator
def game_day_command(
    operator: Operator,
    live: bool,
    scenario: int | None,
    endpoint: str | None,
    no_load: bool,
    yes: bool,
    out: Path,
    as_json: bool,
) -> None:
    """Lead the fleet through a bad day on purpose, with a receipt for each step.

    Arm through the real gate, a planned roll under load, a false alarm, a real one, a real terminate, a scan that must
    refuse, the valve. On the embedded AWS unless --live is given, where the first step that does not hold ends the day.
    --live --scenario N plays a single fault, by AWS's fault injection, and leaves mode and lever alone.
    Ends with 0 if every step held, 3 otherwise. The fleet is left pinned: `fleetctl arm` ends the day.
    """
    if endpoint and not live:
        raise UserError("game-day: --endpoint is for a live account; allowed: --live --endpoint URL")
    if endpoint and (urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname):
        raise UserError(f"game-day: --endpoint is {endpoint}; allowed: an address such as http://HOST:11434")
    if scenario and not live:
        raise UserError("game-day: --scenario is for a live account; allowed: --live --scenario N (here: `make chaos`)")
    gateway = operator.settings.gateway
    if live and not (endpoint or no_load) and gateway and gateway.certificate_arn:
        raise UserError(
            "game-day: gateway.certificate_arn is set, and no certificate holds the balancer's own name; allowed: "
            "--live --endpoint https://NAME/v1, a NAME of yours that it holds and that leads there, or --no-load"
        )
    if not scenario and (wrong := day_scenario.unplayable(operator.settings)):
        raise UserError("\n".join(f"game-day: {line}" for line in wrong))
    folder("game-day", out)
    if live and not yes:
        click.echo(f"game-day on {operator.settings.fleet_name} in {operator.settings.region}, live:", err=True)
        what = f"Scenario {scenario}: a box ends, callers may notice" if scenario else LIVE_DAY
        click.confirm(f"{what}. Go on?", abort=True, err=True)
    receipts, page = _play(operator, live=live, number=scenario, endpoint=endpoint, with_load=not no_load, out=out)
    if as_json:
        click.echo((out / "receipts.json").read_text())
    else:
        tables.game_day(receipts, page)
    if not all(step.held for step in receipts):
        raise click.exceptions.Exit(EXIT_ATTENTION)


def _play(
    operator: Operator, *, live: bool, number: int | None, endpoint: str | None, with_load: bool, out: Path
) -> Any:
    from fleet.gameday import day_report
    from fleet.gameday.live_stage import LiveStage
    from fleet.gameday.load import Load

    settings = operator.settings

    def narrate(line: str) -> None:
        say(line, err=True)

    with ExitStack() as stack:
        if live:
            stage: Any = LiveStage(settings, operator.aws, endpoint or _endpoint(operator), narrate=narrate)
            stack.callback(stage.lights_on)  # wherever the day ended
        else:
            from fleet.gameday.embedded_stage import EmbeddedStage, balancer_standin
            from fleet.localaws.standing_fleet import standing  # moto and the app: only where they are played with

            narrate("an AWS inside this machine, the fleet deployed on it ...")
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            fleet = stack.enter_context(standing(folder, operator.settings_path))
            aws = Aws(settings.region, environment=fleet.aws.environment())
            stage = EmbeddedStage(fleet, aws, stack.enter_context(balancer_standin(aws, settings.fleet_name)))
        steps, load = day_scenario.steps(settings), Load(stage.endpoint, settings.model.name)
        if number:
            steps, chosen = fault_injection.steps(settings, number), fault_injection.SCENARIOS[number]
            load = dataclasses.replace(load, threads=chosen.threads, prompts=chosen.prompts)
        day = day_scenario.Day(stage, stack.enter_context(load) if with_load else None)
        began = datetime.now(UTC)
        receipts = list(day_scenario.play(day, steps, narrate, to_the_end=not live))
        return receipts, day_report.write(day, receipts, began, out)


def _endpoint(operator: Operator) -> str:
    suffix = names.STACK_GATEWAY if operator.settings.gateway else "group"  # with one, nobody else may call the fleet's
    return stack_output(operator.aws, operator.settings.fleet_name, suffix, names.OUTPUT_ENDPOINT)
