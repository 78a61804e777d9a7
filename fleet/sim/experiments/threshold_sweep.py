"""`make thresholds`: each threshold of a policy swept alone over common markets; the table and the picture of its page.

Run by hand when a default or a policy changes: it takes minutes on all cores and is part of no test.
"""

import dataclasses
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import click
from rich.progress import track

from fleet.config.settings import Policy, Settings
from fleet.eventlog.timeline import INK, picture
from fleet.sim.drills.drill import Result, default_settings
from fleet.sim.drills.scene import Scene
from fleet.sim.experiments.experiment import Job, Mean, Row, front, mean, run
from fleet.sim.policies.catalogue import without_valve

DOCS = Path(__file__).parents[3] / "docs"
BEGIN, END = "<!-- table -->", "<!-- /table -->"
REGION, SEEDS, DAYS = "us-east-2", 8, 45
DEFAULT = "the defaults"
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#777777", "#F0E442", "#882255")
NOT_DRAWN = "valve_failovers"  # so far from the rest that nothing else could be told apart beside it

PAGES: dict[Policy, str] = {"alarm": "thresholds", "bridge": "bridge-policy"}  # under docs/, and docs/pictures/
SWEPT: dict[Policy, dict[str, Sequence[int]]] = {
    "alarm": {
        "alarm_minutes": (6, 9, 15, 20),
        "grace_seconds": (300, 600, 1500),
        "skip_cap_seconds": (1200, 3600),
        "scan_seconds": (900, 3600),
        "rearm_score": (1, 5, 8),
        "rearm_streak": (1, 3, 4),
        "cooldown_seconds": (0, 3600, 21600, 43200),
        "rearm_timeout_seconds": (900, 5400),
        "valve_failovers": (2, 3, 5),  # off in all the others: 2 is the fleet as shipped
    },
    "bridge": {
        "patience_seconds": (0, 60, 130),
        "scan_seconds": (60, 300),
        "return_after_seconds": (900, 1800, 2700, 3300, 7200),
        "stale_event_seconds": (5, 60),
        "on_warning": (0,),
        "warning_settles_seconds": (1, 20),
        "false_warnings": (1, 100),
    },
}


def defaults(policy: Policy) -> Settings:
    """What every threshold is moved from: no value may look good by pinning."""
    return without_valve(dataclasses.replace(default_settings(), policy=policy))


def changed(base: Settings, key: str, value: int) -> Settings:
    """One threshold of the policy at another value."""
    other: dict[str, Any] = {key: value}
    if base.on_events:
        return dataclasses.replace(base, bridge=dataclasses.replace(base.bridge, **other))
    return dataclasses.replace(base, watchdog=dataclasses.replace(base.watchdog, **other))


@click.command()
@click.option("--policy", type=click.Choice(list(SWEPT)), default="alarm", show_default=True)
@click.option("--seeds", default=SEEDS, show_default=True)
@click.option("--days", default=float(DAYS), show_default=True)
def main(policy: Policy, seeds: int, days: float) -> None:
    """Sweep, write the table, draw the front."""
    base, swept = defaults(policy), SWEPT[policy]
    page = DOCS / f"{PAGES[policy]}.md"
    variants = {DEFAULT: base}
    variants |= {f"{key} {value}": changed(base, key, value) for key, values in swept.items() for value in values}
    scene = Scene(region=REGION, days=days)
    jobs = [
        Job(scene, policy, seed, settings, variant=name, brisk=True)
        for name, settings in variants.items()
        for seed in range(seeds)
    ]
    results: dict[str, list[Result]] = {}
    for job, result in track(run(jobs), total=len(jobs), description="drills"):
        results.setdefault(job.variant, []).append(result)
    rows = [Row(name, tuple(results[name])) for name in variants]
    replace_between(page, BEGIN, END, _table(rows, seeds, days))
    drawn = [row for row in rows if not row.name.startswith(NOT_DRAWN)]
    draw(drawn, base, DOCS / "pictures" / f"{PAGES[policy]}.svg")


def replace_between(page: Path, begin: str, end: str, text: str) -> None:
    """Put `text` between two marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def against(row: Row, base: Row, of: str) -> Mean:
    """Percent more or less than the defaults on the same markets, seed by seed."""
    return mean(
        100 * (getattr(mine.measure, of) / getattr(theirs.measure, of) - 1)
        for mine, theirs in zip(row.results, base.results, strict=True)
    )


def _table(rows: Sequence[Row], seeds: int, days: float) -> str:
    base, best = rows[0], {row.name for row in distinct_front(rows)}
    lines = [
        f"{REGION}, {seeds} markets of {days:g} days, valve off; ±: 95 % interval; differences are paired by market.",
        "",
        "| threshold | degraded min | USD | degraded, against the defaults | cost | on the front |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        degraded = "" if row is base else f"{_signed(against(row, base, 'degraded_seconds'))}"
        cost = "" if row is base else f"{_signed(against(row, base, 'cost_usd'))}"
        name = f"**{row.name}**" if row is base else _code(row.name)
        mark = "indistinguishable" if indistinguishable(row, base) else "yes" if row.name in best else ""
        lines.append(f"| {name} | {row.degraded_minutes} | {row.cost_usd} | {degraded} | {cost} | {mark} |")
    return "\n".join([*lines, "", first_market(base.results[0])])


def first_market(result: Result) -> str:
    """The line by which a test sees that the page is of this policy, this simulated cloud and these defaults."""
    measure = result.measure
    return f"The first of these markets, the defaults: {measure.degraded_minutes:.1f} min, ${measure.cost_usd:.2f}."


def indistinguishable(row: Row, base: Row) -> bool:
    """Whether the interval of both differences holds none at all."""
    changes = [against(row, base, of) for of in ("degraded_seconds", "cost_usd")]
    return row is not base and all(abs(change.value) <= change.half_width for change in changes)


def distinct_front(rows: Sequence[Row]) -> list[Row]:
    """The front of what can be told from the defaults, and the defaults themselves."""
    return front([row for row in rows if not indistinguishable(row, rows[0])])


def _code(name: str) -> str:
    key, _, value = name.partition(" ")
    return f"`{key}` {value}"


def _signed(change: Mean) -> str:
    return f"{change.value:+.1f} ± {change.half_width:.1f} %"


def draw(rows: Sequence[Row], settings: Settings, path: Path) -> Path:
    """Each threshold as a line of its values through the defaults, and the front."""
    base = rows[0]
    with picture(path, 9, 5.6, left_spine=True) as figure:
        axes = figure.add_subplot()
        axes.grid(color="#EEEEEE", linewidth=0.8)
        axes.set_axisbelow(True)
        default = vars(settings.bridge if settings.on_events else settings.watchdog)
        for color, key in zip(cycle(COLORS), SWEPT[settings.policy], strict=False):
            mine = [(int(row.name.rpartition(" ")[2]), row) for row in rows if row.name.rpartition(" ")[0] == key]
            if not mine:
                continue
            points = sorted([*mine, (default[key], base)], key=lambda point: point[0])
            xs = [row.cost_usd.value for _, row in points]
            ys = [row.degraded_minutes.value for _, row in points]
            axes.plot(xs, ys, "o-", color=color, label=key, markersize=5, linewidth=1.2)
            for value, row in mine:
                at = (row.cost_usd.value, row.degraded_minutes.value)
                axes.annotate(str(value), at, xytext=(4, 4), textcoords="offset points", fontsize=7.5, color=color)
        axes.plot(
            base.cost_usd.value, base.degraded_minutes.value, "*", color=INK, markersize=16, label=DEFAULT, zorder=5
        )
        best = distinct_front(rows)
        xs, ys = [row.cost_usd.value for row in best], [row.degraded_minutes.value for row in best]
        axes.step(xs, ys, where="post", color=INK, linestyle=":", linewidth=1.2, label="Pareto front")
        axes.set_xlabel(f"cost of {REGION}, USD: left is better")
        axes.set_ylabel("degraded minutes: low is better")
        axes.legend(frameon=False, fontsize=8)
        axes.set_title("Each threshold moved alone: what it costs, what it saves", loc="left", fontweight="bold")
    return path


if __name__ == "__main__":
    main()
