"""`fleetctl worth`: is the fleet cheaper than paying the cloud model for everything? Table, curves, a sentence."""

import dataclasses
import json
import math
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import click

from fleet.cli import drill_arguments
from fleet.cli.context import Operator, folder, pass_operator
from fleet.config import prices
from fleet.config.settings import Settings
from fleet.core.errors import UserError
from fleet.core.terminal import Terminal, figure_table
from fleet.sim.callers import caller_options, recorded
from fleet.sim.callers.traffic import DAY_SECONDS, Traffic
from fleet.sim.experiments import worth_ways


@click.command("worth")
@click.option("--rate", type=click.FloatRange(0.001, 1_000_000), help="Requests a day; default: 300.")
@click.option("--ledger", type=click.Path(path_type=Path, dir_okay=False), help="Instead: a gateway's own history.")
@caller_options.TRAFFIC
@click.option("--cloud-input", type=click.FloatRange(0.0001, 1000), help="USD a million tokens; from the settings.")
@click.option("--cloud-output", type=click.FloatRange(0.0001, 1000), help="USD a million tokens; from the settings.")
@click.option("--days", type=click.FloatRange(1, 365), default=15, show_default=True, help="Of the drilled market.")
@click.option("--seeds", type=click.IntRange(1, 100), default=3, show_default=True, help="Markets that are drilled.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/worth"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@pass_operator
def worth_command(
    operator: Operator,
    /,
    rate: float | None,
    ledger: Path | None,
    traffic: tuple[str, ...],
    cloud_input: float | None,
    cloud_output: float | None,
    days: float,
    seeds: int,
    out: Path,
    as_json: bool,
) -> None:
    """Say whether the fleet is worth having: dollars a month beside the cloud model alone.

    Boxes are drilled on a seeded market under the settings' own policy; what they answer in time is drilled too,
    through the gateway's and the lane's decisions. It asks AWS nothing.

    \b
    Examples:
      fleetctl worth --rate 300
      fleetctl worth --rate 5000 --cloud-input 3 --cloud-output 15 --traffic tokens=600
    """
    from fleet.cli import worth_page
    from fleet.sim.callers.listener import ASSUMED

    if ledger and (rate or traffic):
        raise UserError("worth: --ledger says who asked; allowed: without --rate and --traffic")
    folder("worth", out)
    settings = drill_arguments.own_settings(operator)
    who = _history(ledger) if ledger else caller_options.traffic_of(traffic, rate or Traffic().a_day)
    gateway = settings.gateway or ASSUMED
    asked = {"dollars_per_million_input": cloud_input, "dollars_per_million_output": cloud_output}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    gateway = dataclasses.replace(gateway, fallback=dataclasses.replace(gateway.fallback, **given))
    settings = dataclasses.replace(settings, gateway=gateway)
    found = worth_page.Worth(
        who, gateway, worth_ways.options(settings, who, days, seeds), _notes(settings, who, days, seeds)
    )
    if as_json:
        click.echo(json.dumps(found.plain(), indent=1))
        return
    terminal = Terminal()
    for note in found.notes:
        terminal.print(f"- {note}", style="dim")
    terminal.print(figure_table(found.rows(), title=f"{who.a_day:g} requests a day, a month"))
    for line in found.moved():
        terminal.print(line)
    terminal.print(found.verdict(), style="bold")
    terminal.print(f"{worth_page.write(found, out)}  the curves", style="dim")


def _history(path: Path) -> Traffic:
    """The traffic of a ledger: its rate, its lengths, its shares."""
    asked = recorded.read(path, 0.0, recorded.LATEST)
    days = max(1.0, (asked[-1].at - asked[0].at) / DAY_SECONDS)
    logs = [math.log(each.tokens) for each in asked]
    return Traffic(
        a_day=len(asked) / days,
        keys=len({each.caller for each in asked}),
        streams=fmean(each.stream for each in asked),
        tokens=max(1, round(median(each.tokens for each in asked))),
        spread=min(2.0, stdev(logs)) if len(logs) > 1 else 0.0,
    )


def _notes(settings: Settings, traffic: Traffic, days: float, seeds: int) -> tuple[str, ...]:
    """Every assumption."""
    cloud = settings.gateway.fallback if settings.gateway else None
    assert cloud is not None  # noqa: S101  it was given one
    boxes = settings.capacity.min
    return (
        *traffic.assumptions,
        f"The cloud model: ${cloud.dollars_per_million_input:g} a million tokens in, "
        f"${cloud.dollars_per_million_output:g} out; its answers are taken to be as good as yours",
        f"{boxes} box{'es' if boxes > 1 else ''} of {settings.pools[0]}; the market is {worth_ways.market(settings)}, "
        f"{seeds} x {days:g} drilled days, the valve off",
        "Boxes are paid for whether anybody asks or not; tiers and daily limits of the gateway bind nobody here",
        *(f"Prices of {what}: {when}" for what, when in prices.AS_OF.items()),
    )
