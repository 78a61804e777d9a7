"""`fleetctl drill` and `fleetctl sweep`: arguments in, drills lived through, a table and a page out."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from fleet.cli import drill_arguments
from fleet.cli.context import Operator, pass_operator
from fleet.config.settings import Settings
from fleet.core.errors import UserError
from fleet.core.terminal import Terminal, figure_table
from fleet.eventlog import events
from fleet.eventlog.events import Event
from fleet.sim.callers.caller_options import TRAFFIC
from fleet.sim.cloud.virtual_clock import utc
from fleet.sim.drills import narration, scene
from fleet.sim.drills.scene import Scene
from fleet.sim.experiments.experiment import Job, Row, front, quantile, run
from fleet.sim.policies import catalogue

if TYPE_CHECKING:
    from fleet.sim.callers.listener import Plan

NIGHT = "2026-07-27-seven-reclaims-in-21-hours"
LONGEST_PAUSE_SECONDS = 1.5
PIPE_COLUMNS = 160  # a comparison of fleets of twenty boxes with their intervals
UNWARNED = "The same without early warnings: no loss is announced ahead of its notice"
CALLERS = "What callers met"
CAPTION = "degraded minutes, windows of them and their lengths (median / 90 % / longest, min); ±: 95 % interval"


@click.command("drill")
@click.argument("what", nargs=-1)
@click.option("--policy", "names", multiple=True, metavar="NAME", help=f"{catalogue.known()}; default: the first six.")
@click.option("--live", is_flag=True, help="Print the first policy's events as they happen.")
@click.option(
    "--speed",
    type=click.FloatRange(1),
    default=300,
    show_default=True,
    help="Playback speed of --live; 60: an hour in a minute.",
)
@click.option("--list", "list_known", is_flag=True, help="Name the histories and regions, and end.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/drill"), show_default=True)
@drill_arguments.scene_options
@click.option("--callers", metavar="RATE|FILE", help="Requests a day, a CSV of them, or a gateway's ledger.")
@TRAFFIC
@click.option("--no-lane", is_flag=True, help="Callers meet the engine's own strict line.")
@click.option("--no-cloud", is_flag=True, help="Callers have no cloud model to fall back to.")
@pass_operator
def drill_command(
    operator: Operator,
    /,
    what: tuple[str, ...],
    names: tuple[str, ...],
    live: bool,
    speed: float,
    list_known: bool,
    out: Path,
    callers: str | None,
    traffic: tuple[str, ...],
    no_lane: bool,
    no_cloud: bool,
    **options: Any,
) -> None:
    """Live through a history or a market in seconds, under one policy or several.

    WHAT is a recorded history (any unique part of its name), a region of the published statistics, or market files:
    .market (hand-written), .json (availability) or .csv (nodes added and removed). Without it: the night of 28 July.

    \b
    Examples:
      fleetctl drill                                  the night of 28 July, every policy
      fleetctl drill 07-21 --policy alarm --live      four reclaims in 48 hours, told as they happen
      fleetctl drill us-west-2 --seeds 20             45 days, 20 markets, all policies
      fleetctl drill my.market --boots 2 --set watchdog.grace_seconds=1200
      fleetctl drill 07-21 --callers 300 --traffic streams=0.8   what callers met meanwhile
    """
    if list_known:
        click.echo("\n".join(scene.known()))
        return
    console = _console()
    words = what or (NIGHT,)
    console.print(f"drill: {' '.join(words)}", style="bold")
    place = scene.named(words, days=options["days"], supply=options["supply"])
    settings = drill_arguments.settings_of(operator, place, options)
    chosen = tuple(dict.fromkeys(catalogue.resolved(name, settings) for name in names or catalogue.COMPARED))
    base = Job(place, chosen[0], 0, settings, drill_arguments.variation_of(options))
    first = base.drill()  # reads and checks every file before anything else
    if callers is not None:
        from fleet.sim.experiments import callers_told

        span = first.market.start, first.market.end
        plan = callers_told.plan_of(callers, traffic, span, lane=not no_lane, cloud=not no_cloud)
        base = dataclasses.replace(base, callers=plan)
    elif traffic or no_lane or no_cloud:
        raise UserError("--traffic, --no-lane and --no-cloud: of callers; allowed: with --callers")
    if live:
        _play(base, speed, console)
        return
    seeds = range(drill_arguments.seeds_of(place, options))
    jobs = [dataclasses.replace(base, policy=name, seed=seed, keeps_log=seed == 0) for name in chosen for seed in seeds]
    rows = _rows(jobs, options["workers"], console, _label)
    notes = [*first.assumptions, *_pinned(rows)]
    if base.callers is not None:
        notes += callers_told.notes(base.callers, settings)
    for note in notes:
        console.print(f"- {note}", style="dim")
    title = f"{' '.join(words)}, {_markets(place, len(seeds))}" if len(seeds) > 1 else first.market.name
    _table(rows, console, title)
    people = _callers(rows, base.callers, settings, notes, console) if base.callers is not None else []
    unwarned: list[Row] = []
    if first.physics.recommendation_ahead_share:
        variation = dataclasses.replace(base.variation, warned_share=0)
        again = [dataclasses.replace(job, variation=variation, keeps_log=False, callers=None) for job in jobs]
        unwarned = _rows(again, options["workers"], console, _label)
        _table(unwarned, console, UNWARNED)
    path = _page(base.settings, chosen, rows, unwarned, notes, out, people, title=title)
    console.print(Text.assemble((str(path), "bold"), "  pictures, windows, every decision; events-*.jsonl beside it"))


@click.command("sweep")
@click.argument("key")
@click.argument("values", nargs=-1, required=True)
@click.option("--on", "what", multiple=True, default=("us-east-2",), help="History, region or files, as for `drill`.")
@click.option("--policy", "name", default="watchdog", show_default=True, metavar="NAME")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/sweep"), show_default=True)
@drill_arguments.scene_options
@pass_operator
def sweep_command(
    operator: Operator,
    /,
    key: str,
    values: tuple[str, ...],
    what: tuple[str, ...],
    name: str,
    out: Path,
    **options: Any,
) -> None:
    """Try a setting at several values, on the same markets, and draw which of them pay.

    \b
    Example:  fleetctl sweep watchdog.cooldown_seconds 0 3600 10800 21600 --on us-east-2 --seeds 20 --no-valve
    """
    from fleet.sim.experiments import charts

    console = _console()
    console.print(f"sweep: {key} on {' '.join(what)}", style="bold")
    place = scene.named(what, days=options["days"], supply=options["supply"])
    variants = {}
    for value in values:
        changed = {**options, "changes": (*options["changes"], f"{key}={value}")}
        variants[value] = drill_arguments.settings_of(operator, place, changed)
    settings = next(iter(variants.values()))
    name = catalogue.resolved(name, settings)
    base = Job(place, name, 0, settings, drill_arguments.variation_of(options))
    for note in base.drill().assumptions:
        console.print(f"- {note}", style="dim")
    jobs = [
        dataclasses.replace(base, settings=settings, seed=seed, variant=value)
        for value, settings in variants.items()
        for seed in range(drill_arguments.seeds_of(place, options))
    ]
    rows = _rows(jobs, options["workers"], console, lambda job: job.variant)
    label = catalogue.POLICIES[name].name
    title = f"{key} on {' '.join(what)}, {label}, {_markets(place, len(jobs) // len(variants))}"
    _table(rows, console, title)
    best = ", ".join(row.name for row in front(rows))
    console.print(f"not beaten in both cost and degraded minutes: {best}")
    out.mkdir(parents=True, exist_ok=True)
    path = charts.cost_against_degraded(rows, out / f"{key}.svg", title=title, with_front=True)
    console.print(str(path), style="bold")


def _callers(
    rows: Sequence[Row], plan: "Plan", settings: Settings, notes: list[str], console: Console
) -> list[dict[str, str]]:
    """What callers met, a line for each policy; noted, beside a ledger, how far that is off."""
    from fleet.sim.experiments import callers_told

    lines = callers_told.lines(rows, plan.ledger)
    console.print(figure_table(lines, title=CALLERS, caption=callers_told.CAPTION))
    if off := callers_told.off(rows, plan, settings):
        console.print(off, style="bold")
        notes.append(off)
    return lines


def _label(job: Job) -> str:
    return catalogue.POLICIES[job.policy].name


def _markets(place: Scene, seeds: int) -> str:
    """Another seed is another market of a region, and other luck on the one market of a file."""
    many = "s" if seeds > 1 else ""
    return f"{seeds} market{many}" if place.seeded else f"1 market, {seeds} random seed{many}"


def _console() -> Console:
    """A terminal as wide as it is; a file or a pipe as wide as the table."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=PIPE_COLUMNS)


# --- running ---------------------------------------------------------------------------------------------------------


def _rows(jobs: Sequence[Job], workers: int | None, console: Console, key: Callable[[Job], str]) -> list[Row]:
    found: dict[str, list[Any]] = {}
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("drills", total=len(jobs))
        for job, result in run(jobs, workers=workers):
            found.setdefault(key(job), []).append(result)
            progress.advance(task)
    return [Row(name, tuple(results)) for name, results in found.items()]


def _play(job: Job, speed: float, console: Console) -> None:
    """The drill at `speed` times real time; quiet hours pass in a moment."""
    last: list[float] = []

    def emit(event: Event) -> None:
        sentence = narration.sentence(event)
        if sentence is None:
            return
        at = event.at.timestamp()
        if last:
            time.sleep(min((at - last[0]) / speed, LONGEST_PAUSE_SECONDS))
        last[:] = [at]
        loud = sentence[:5].isupper()
        console.print(f"{utc(at):%d %b %H:%M:%S}  {sentence}", style="bold" if loud else None)

    catalogue.POLICIES[job.policy](job.drill(emit))


def _pinned(rows: Sequence[Row]) -> list[str]:
    """A policy that gave up pays on-demand prices for peace; a reader must know."""
    notes = []
    for row in rows:
        pinned = sum(result.measure.counts["mode on-demand-pinned"] > 0 for result in row.results)
        if pinned:
            of = f"{pinned} of {len(row.results)} markets"
            notes.append(f"{row.name}: pinned itself to on-demand in {of} (give-up valve); --no-valve compares without")
    return notes


def _cells(row: Row) -> dict[str, str]:
    lengths = row.window_minutes
    several = {"degraded box-min": str(row.box_minutes), "none serves, min": str(row.dark_minutes)}
    return {
        "policy": row.name,
        **(several if row.desired > 1 else {"degraded min": str(row.degraded_minutes)}),
        "windows": f"{len(lengths) / len(row.results):.1f}",
        "p50 / p90 / max": " / ".join(f"{quantile(lengths, share):.0f}" for share in (0.5, 0.9, 1.0))
        if lengths
        else "-",
        "USD": str(row.cost_usd),
        "on-dem.": f"{row.on_demand_share:.0%}",
        "failovers": str(row.failovers),
        "bridged": str(row.bridges),
    }


def _table(rows: Sequence[Row], console: Console, title: str) -> None:
    console.print(figure_table([_cells(row) for row in rows], title=title, caption=CAPTION))


def _page(
    settings: Settings,
    chosen: Sequence[str],
    rows: Sequence[Row],
    unwarned: Sequence[Row],
    notes: list[str],
    out: Path,
    people: Sequence[dict[str, str]],
    *,
    title: str,
) -> Path:
    """The first seed of every policy in pictures, all seeds in charts."""
    from fleet.eventlog import html_report, spans
    from fleet.sim.experiments import charts

    out.mkdir(parents=True, exist_ok=True)
    logs = {name: row.results[0].log for name, row in zip(chosen, rows, strict=True)}
    for name, log in logs.items():
        events.write(log, out / f"events-{name}.jsonl")
    zooms = next(filter(None, (html_report.longest_windows(spans.read(log)) for log in logs.values())), [])
    chapters = [
        html_report.chapter(log, out, title=catalogue.POLICIES[name].name, prefix=f"timeline-{name}", zooms=zooms)
        for name, log in logs.items()
    ]
    drawn = [
        html_report.Picture(
            "cost against degraded minutes",
            charts.cost_against_degraded(
                rows, out / "cost.svg", title="Cost against degraded minutes: left and low is better"
            ),
        ),
        html_report.Picture(
            "windows",
            charts.windows(
                rows,
                out / "windows.svg",
                title="How long callers were degraded",
                alarm_minutes=settings.watchdog.alarm_minutes,
            ),
        ),
    ]
    tables = {"": [_cells(row) for row in rows]}
    if people:
        from fleet.sim.experiments import callers_told

        tables[CALLERS] = list(people)
        tallies = {row.name: row.results[0].callers for row in rows if row.results[0].callers is not None}
        end = rows[0].results[0].measure.end
        drawn.insert(0, html_report.Picture(CALLERS, callers_told.draw(tallies, end, out / "callers.svg", title=title)))
    if unwarned:
        tables[UNWARNED] = [_cells(row) for row in unwarned]
    return html_report.page(out, title=f"Drill: {title}", chapters=chapters, tables=tables, charts=drawn, notes=notes)
