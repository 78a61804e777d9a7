"""`fleetctl drill` and `fleetctl sweep`: arguments in, drills lived through, a table and a page out."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fleet import events, validation
from fleet.drills import policies, scene, tell
from fleet.drills.clock import utc
from fleet.drills.compare import Job, Row, Twist, front, quantile, run
from fleet.drills.scene import Scene
from fleet.errors import UserError
from fleet.events import Event
from fleet.ops.context import Operator, pass_operator
from fleet.settings import Settings

NIGHT = "2026-07-27-seven-reclaims-in-21-hours"
SEEDS = 5
LONGEST_PAUSE_SECONDS = 1.5
PIPE_COLUMNS = 110
CAPTION = "degraded minutes, spells of them and their lengths (median / 90 % / longest, min); ±: 95 % interval"
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def scene_options(command: Callable[..., None]) -> Callable[..., None]:
    """What both commands ask for."""
    options: Sequence[Decorator] = (
        click.option("--days", type=click.FloatRange(0.01, 3650), default=45, show_default=True, help="Of a region."),
        click.option("--seeds", type=click.IntRange(1, 10_000), help=f"Markets of a region; {SEEDS} unless given."),
        click.option("--desired", type=click.IntRange(1, 20), help="Boxes that should serve; from the settings."),
        click.option("--on-demand-base", type=click.IntRange(0, 20), help="Boxes of those that are always on-demand."),
        click.option("--supply", type=click.IntRange(1), help="Boxes a region's pool carries; plenty unless given."),
        click.option("--boots", type=click.FloatRange(0.1, 10), default=1, help="2: boots twice as slow."),
        click.option("--lost", type=click.FloatRange(0, 1), default=0, help="Share of events that never arrive."),
        click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting, as in cdk.json."),
        click.option("--no-valve", is_flag=True, help="Never give up on spot, however many failovers."),
        click.option("--workers", type=click.IntRange(1), help="Processes; all cores unless given."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("drill")
@click.argument("what", nargs=-1)
@click.option(
    "--policy", "names", multiple=True, metavar="NAME", help=f"{', '.join(policies.POLICIES)}; all by default."
)
@click.option("--live", is_flag=True, help="Tell the first policy's story as it happens.")
@click.option("--speed", type=click.FloatRange(1), default=300, show_default=True, help="Of --live, times real time.")
@click.option("--list", "list_known", is_flag=True, help="Name the histories and regions, and end.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/drill"), show_default=True)
@scene_options
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
    **options: Any,
) -> None:
    """Live through a history or a market in seconds, under one policy or several.

    WHAT is a recorded history (any unique part of its name), a region of the published statistics, or market files:
    .market (hand-written), .json (availability) or .csv (nodes added and removed). Without it: the night of 28 July.

    \b
    Examples:
      fleetctl drill                                  the night of 28 July, every policy
      fleetctl drill 07-21 --policy watchdog --live   four reclaims in 48 hours, told as they happen
      fleetctl drill us-west-2 --seeds 20             45 days, 20 markets, all policies
      fleetctl drill my.market --boots 2 --set watchdog.grace_seconds=1200
    """
    if list_known:
        click.echo("\n".join(scene.known()))
        return
    console = _console()
    words = what or (NIGHT,)
    console.print(f"drill: {' '.join(words)}", style="bold")
    chosen = names or tuple(policies.POLICIES)
    for name in chosen:
        policies.named(name)
    place = _scene(words, options)
    base = Job(place, chosen[0], 0, _settings(operator, options), _twist(options))
    first = base.drill()  # reads and checks every file before anything else
    if live:
        _tell(base, speed, console)
        return
    seeds = range(_seeds(place, options))
    jobs = [dataclasses.replace(base, policy=name, seed=seed) for name in chosen for seed in seeds]
    rows = _rows(jobs, options["workers"], console, lambda job: policies.named(job.policy).name)
    for note in (*first.assumptions, *_pinned(rows)):
        console.print(f"- {note}", style="dim", highlight=False)
    _table(rows, console, first.market.name if len(seeds) == 1 else f"{' '.join(words)}, {len(seeds)} markets")
    path = _page(base, chosen, rows, [*first.assumptions, *_pinned(rows)], out)
    console.print(f"[bold]{path}[/bold]  pictures, windows, every decision; events-*.jsonl beside it")


@click.command("sweep")
@click.argument("key")
@click.argument("values", nargs=-1, required=True)
@click.option("--on", "what", multiple=True, default=("us-east-2",), help="History, region or files, as for `drill`.")
@click.option("--policy", "name", default="watchdog", show_default=True, metavar="NAME")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/sweep"), show_default=True)
@scene_options
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
    from fleet.drills import charts

    console = _console()
    console.print(f"sweep: {key} on {' '.join(what)}", style="bold")
    policies.named(name)
    place = _scene(what, options)
    variants = {}
    for value in values:
        changed = {**options, "changes": (*options["changes"], f"{key}={value}")}
        variants[value] = _settings(operator, changed)
    base = Job(place, name, 0, next(iter(variants.values())), _twist(options))
    base.drill()
    jobs = [
        dataclasses.replace(base, settings=settings, seed=seed, variant=value)
        for value, settings in variants.items()
        for seed in range(_seeds(place, options))
    ]
    rows = _rows(jobs, options["workers"], console, lambda job: job.variant)
    title = f"{key} on {' '.join(what)}, {name}, {len(jobs) // len(variants)} markets"
    _table(rows, console, title)
    best = ", ".join(row.name for row in front(rows))
    console.print(f"not beaten in both cost and degraded minutes: {best}")
    out.mkdir(parents=True, exist_ok=True)
    path = charts.cost_against_degraded(rows, out / f"{key}.svg", title=title, with_front=True)
    console.print(f"[bold]{path}[/bold]")


# --- arguments -------------------------------------------------------------------------------------------------------


def _scene(words: Sequence[str], options: dict[str, Any]) -> Scene:
    supply = {} if options["supply"] is None else {"supply": options["supply"]}
    return scene.named(words, days=options["days"], **supply)


def _seeds(place: Scene, options: dict[str, Any]) -> int:
    given: int | None = options["seeds"]
    if given is not None and given > 1 and not place.seeded:
        raise UserError("--seeds: a history or a file is one market; only a region has more")
    return given or (SEEDS if place.seeded else 1)


def _twist(options: dict[str, Any]) -> Twist:
    return Twist(boots_factor=options["boots"], events_lost_share=options["lost"])


def _settings(operator: Operator, options: dict[str, Any]) -> Settings:
    """The fleet's own settings with what the command line changes, checked as `cdk.json` is."""
    raw = dataclasses.asdict(operator.settings)
    raw["initial_mode"] = "spot-armed"  # a history says how it began
    capacity = raw["capacity"]
    if options["desired"] is not None:
        capacity["max"] = max(2 * options["desired"], capacity["max"])
        capacity["min"] = options["desired"]
    if options["on_demand_base"] is not None:
        capacity["on_demand_base"] = options["on_demand_base"]
    for change in options["changes"]:
        key, equals, text = change.partition("=")
        section: Any = raw
        *path, last = key.split(".")
        for part in path:
            section = section.get(part) if isinstance(section, dict) else None
        if not equals or not isinstance(section, dict) or last not in section:
            raise UserError(f"--set {change}: expected KEY=VALUE with a key of cdk.json, as watchdog.grace_seconds=900")
        section[last] = _value(text)
    settings = validation.check(raw, "--set")
    return policies.without_valve(settings) if options["no_valve"] else settings


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _console() -> Console:
    """A terminal as wide as it is; a file or a pipe as wide as the table."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_COLUMNS)


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


def _tell(job: Job, speed: float, console: Console) -> None:
    """The story at `speed` times real time; quiet hours pass in a moment."""
    last: list[float] = []

    def emit(event: Event) -> None:
        sentence = tell.sentence(event)
        if sentence is None:
            return
        at = event.at.timestamp()
        if last:
            time.sleep(min((at - last[0]) / speed, LONGEST_PAUSE_SECONDS))
        last[:] = [at]
        loud = sentence[:5].isupper()
        console.print(f"{utc(at):%d %b %H:%M:%S}  {sentence}", style="bold" if loud else None, highlight=False)

    policies.named(job.policy).live(job.drill(emit))


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
    return {
        "policy": row.name,
        "degraded min": str(row.degraded_minutes),
        "spells": f"{len(lengths) / len(row.results):.1f}",
        "p50 / p90 / max": " / ".join(f"{quantile(lengths, share):.0f}" for share in (0.5, 0.9, 1.0))
        if lengths
        else "-",
        "USD": str(row.cost_usd),
        "on-dem.": f"{row.on_demand_share:.0%}",
        "failovers": str(row.failovers),
    }


def _table(rows: Sequence[Row], console: Console, title: str) -> None:
    table = Table(title=title, title_justify="left", caption=CAPTION, caption_justify="left")
    for column in _cells(rows[0]):
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row).values())
    console.print(table)


def _page(base: Job, chosen: Sequence[str], rows: Sequence[Row], notes: list[str], out: Path) -> Path:
    """The first seed of every policy in pictures, all seeds in charts."""
    from fleet import report
    from fleet.drills import charts

    out.mkdir(parents=True, exist_ok=True)
    chapters = []
    for name in chosen:
        log: list[Event] = []
        policy = policies.named(name)
        policy.live(dataclasses.replace(base, policy=name).drill(log.append))
        with (out / f"events-{name}.jsonl").open("w", encoding="utf-8") as file:
            events.write(log, file)
        chapters.append(report.chapter(log, out, title=policy.name, prefix=f"timeline-{name}"))
    title = f"Drill: {rows[0].results[0].market}"
    drawn = [
        report.Picture(
            "cost against degraded minutes",
            charts.cost_against_degraded(
                rows, out / "cost.svg", title="Cost against degraded minutes: left and low is better"
            ),
        ),
        report.Picture("windows", charts.windows(rows, out / "windows.svg", title="How long callers were degraded")),
    ]
    return report.page(
        out, title=title, chapters=chapters, table=[_cells(row) for row in rows], charts=drawn, notes=notes
    )
