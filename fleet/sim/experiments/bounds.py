"""`make bench-policy`: every policy on the same markets, boots and luck; the bounds, held against paired intervals.

Resumable: each drill is one line in the file of outcomes as soon as it is done. Right while no policy changes.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import click
from rich.console import Console
from rich.progress import Progress

from fleet.sim.drills.drill import behaviour_assumed
from fleet.sim.experiments import benchmark_matrix, blinded
from fleet.sim.experiments.benchmark_matrix import CASES, OURS, PLAIN, POLICIES, TIMERS, Outcome, Task
from fleet.sim.experiments.experiment import Mean, run
from fleet.sim.experiments.ratios import Compared, minutes, usd
from fleet.sim.experiments.threshold_sweep import DOCS, replace_between

PAGE, PICTURE = DOCS / "bridge-policy.md", DOCS / "pictures" / "bridge-front.svg"
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
WANTED_HALF_WIDTH = 0.05
# Against each rival, in times of its degraded minutes and cost: the most in the mean, the most in the worst place.
Bound = tuple[tuple[float, float], tuple[float, float]]
BOUNDS: dict[str, Bound] = {"alarm": ((0.4, 1.0), (0.55, 1.01)), "fallback": ((0.65, 1.05), (0.9, math.inf))}
VALVE_BOUND: Bound = (1.05, 1.05), (1.05, 1.05)
TIMER_BOUND, TIMER_WORST = 1.0, 1.1  # minutes at equal cost
NO_VALVE = f"`{OURS}` without a valve"
CHECKED = Task("fitted", "us-east-2", OURS, benchmark_matrix.FIRST_SEED, 5)


def compared(done: dict[Task, Outcome], case: str, days: float) -> Compared:
    """The outcomes of one case, in each place over the seeds that every policy has lived through there."""
    seeds = sorted({task.seed for task in done if task.days == days})

    def lived(place: str) -> dict[str, list[Outcome]]:
        of = {policy: [Task(case, place, policy, seed, days).lived for seed in seeds] for policy in POLICIES}
        if CASES[case].valve:
            of[NO_VALVE] = [replace(task, case=PLAIN) for task in of[OURS]]
        whole = [i for i in range(len(seeds)) if all(tasks[i] in done for tasks in of.values())]
        return {policy: [done[tasks[i]] for i in whole] for policy, tasks in of.items()}

    return Compared({place: lived(place) for place in benchmark_matrix.places(case)})


def bounds_of(case: str) -> Mapping[str, Bound]:
    """Where the valve is as shipped, the policy is held against itself: the alarm watchdog pins, and buys minutes."""
    if not CASES[case].valve:
        return BOUNDS
    return {NO_VALVE: VALVE_BOUND, "fallback": BOUNDS["fallback"]}


# --- the table of the docs -------------------------------------------------------------------------------------------


def figure(value: Mean, digits: int = 2) -> str:
    if math.isnan(value.value):
        return "not comparable"
    spread = f" ± {value.half_width:.{digits}f}" if math.isfinite(value.half_width) else ""
    return f"{value.value:.{digits}f}{spread}"


def rows_of(case: str, found: Compared) -> list[str]:
    """Against the alarm watchdog, the fallback and the timers' front: each place, the mean, whether the bound holds."""
    places = list(found.outcomes)
    rows = []
    for against, (most, worst) in bounds_of(case).items():
        *pairs, mean = (
            (found.ratio(OURS, against, minutes, *chosen), found.ratio(OURS, against, usd, *chosen))
            for chosen in (*([place] for place in places), places)
        )
        held = all(value.value <= bound for value, bound in zip(mean, most, strict=True)) and all(
            value.value <= bound for pair in pairs for value, bound in zip(pair, worst, strict=True)
        )
        cells = [f"{figure(one)} @ {figure(cost, 3)}" for one, cost in (*pairs, mean)]
        rows.append(_row(case, against, cells, f"{most[0]} @ {most[1]}", held=held))
    fronts = [found.against_front(OURS, TIMERS, place) for place in places]
    mean_front = found.against_front(OURS, TIMERS, *places)
    held = mean_front.value <= TIMER_BOUND and all(value.value <= TIMER_WORST for value in fronts)
    rows.append(
        _row(case, "fixed timer, at equal cost", [figure(one) for one in (*fronts, mean_front)], "1", held=held)
    )
    return rows


def _row(case: str, against: str, cells: Sequence[str], bound: str, *, held: bool) -> str:
    blank = [""] * (3 - (len(cells) - 1))
    told = [*cells[:-1], *blank, cells[-1]]
    return f"| {case} | {against} | {' | '.join(told)} | {bound} | {'holds' if held else '**falls**'} |"


def page(done: dict[Task, Outcome], days: float) -> str:
    """The tables of the docs."""
    all_compared = {case: compared(done, case, days) for case in CASES}
    lived = {case: found for case, found in all_compared.items() if found.complete}
    said = "; ".join(
        f"{case}: {', '.join(map(str, map(found.seeds, found.outcomes)))}" for case, found in lived.items()
    )
    parts = [
        f"{days:g} days each, valve off but where the case says so, seeds from {benchmark_matrix.FIRST_SEED} on, "
        f"in each place as many as the intervals need: {said}. "
        f"{' '.join(f'{note}.' for note in behaviour_assumed())}",
    ]
    rows = [
        "| case | against | us-east-1 | us-east-2 | us-west-2 | mean | bound | |",
        "|---|---|---|---|---|---|---|---|",
        *(row for case, found in lived.items() for row in rows_of(case, found)),
    ]
    parts += [
        f"**`{OURS}`**, degraded minutes @ cost, both in times of the other's; of the traces, one file a column:",
        "\n".join(rows),
    ]
    parts += ["Failovers, in seconds after patience has run out:", _decisions(lived), _pinned(lived)]
    parts += [_wide(lived), _reach(lived, days), checked_line()]
    return "\n\n".join(parts)


def _decisions(lived: dict[str, Compared]) -> str:
    lines = [
        "| case | failovers | at once | latest | later than 20 s | at once though a pool sold | missed | bridges |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, found in lived.items():
        ours = [outcome for policies in found.outcomes.values() for outcome in policies[OURS]]
        late = [seconds for outcome in ours for seconds in outcome.late_seconds]
        sums = [sum(getattr(outcome, of) for outcome in ours) for of in ("early", "missed", "bridges")]
        worst = f"{max(late):.1f}" if late else ""
        told = [len(late), sum(seconds < 0 for seconds in late), worst, sum(seconds > 20 for seconds in late), *sums]
        lines.append(f"| {case} | {' | '.join(map(str, told))} |")
    return "\n".join(lines)


def _pinned(lived: dict[str, Compared]) -> str:
    """What the valve came to."""
    hours = {
        (case, name): fmean(outcome.pinned_hours for policies in found.outcomes.values() for outcome in policies[name])
        for case, found in lived.items()
        if CASES[case].valve
        for name in ("alarm", OURS)
    }
    said = "; ".join(f"{case}, `{name}`: {value:.0f}" for (case, name), value in hours.items())
    return f"Hours on on-demand for good, pinned by the valve, a market: {said or 'not drilled'}."


def _wide(lived: dict[str, Compared]) -> str:
    """Which ratios of minutes have an interval wider than wanted, and how many markets would narrow it."""
    lines = []
    for case, found in lived.items():
        for place in found.outcomes:
            of = {against: found.ratio(OURS, against, minutes, place) for against in bounds_of(case)}
            of["fixed timer"] = found.against_front(OURS, TIMERS, place)
            for against, value in of.items():
                if math.isfinite(value.half_width) and value.half_width > WANTED_HALF_WIDTH:
                    enough = math.ceil(found.seeds(place) * (value.half_width / WANTED_HALF_WIDTH) ** 2)
                    lines.append(f"| {case} | {place} | {against} | ±{value.half_width:.3f} | {enough} |")
    if not lines:
        return f"No interval of a ratio of minutes is wider than ±{WANTED_HALF_WIDTH}."
    head = [f"| wider than ±{WANTED_HALF_WIDTH} | place | against | interval | markets that would do |"]
    return "\n".join([*head, "|---|---|---|---|---|", *lines])


def _reach(lived: dict[str, Compared], days: float) -> str:
    """What could be reached without early warnings, in times of a timer of the bar's length, at its cost."""
    lines = ["| minutes at equal cost, in times of the timer's | `bridge`, drilled | sees all | knows what comes |"]
    lines.append("|---|---|---|---|")
    for case, found in lived.items():
        if CASES[case].variation != benchmark_matrix.UNWARNED:
            continue
        drills = [
            Task(case, place, OURS, benchmark_matrix.FIRST_SEED + number, days).job().drill()
            for place in found.outcomes
            for number in range(found.seeds(place))
        ]
        reached = zip(*(blinded.within_reach(one.market, one.physics) for one in drills), strict=True)
        ours = found.against_front(OURS, TIMERS, *found.outcomes)
        lines.append(f"| {case} | {figure(ours)} | {' | '.join(f'{fmean(values):.2f}' for values in reached)} |")
    return "\n".join(lines)


def checked_line() -> str:
    """The line by which a test sees that the page is of this policy, this simulated cloud and these defaults."""
    lived = CHECKED.job().run().measure
    return (
        f"The first {CHECKED.days:g} days of `{CHECKED.case}`, {CHECKED.place}, seed {CHECKED.seed}, under `{OURS}`: "
        f"{lived.degraded_minutes:.1f} min, ${lived.cost_usd:.2f}."
    )


# --- running ---------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--seeds", type=int, help="For every case; default: as many as its line in the matrix says.")
@click.option("--days", default=45.0, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--minutes", "limit", default=60.0, show_default=True, help="No drill is begun later; --resume goes on.")
@click.option("--case", "cases", type=click.Choice(list(CASES)), multiple=True, help="Repeatable. Default: all.")
@click.option("--policy", "names", type=click.Choice(POLICIES), multiple=True, help="Repeatable. Default: all.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench-policy"), show_default=True)
@click.option("--resume", is_flag=True, help="Go on with what --out holds: right while no policy has changed.")
@click.option("--page", "to_page", is_flag=True, help="Write the tables and the picture of docs/bridge-policy.md.")
def main(
    seeds: int | None,
    days: float,
    workers: int,
    limit: float,
    cases: tuple[str, ...],
    names: tuple[str, ...],
    out: Path,
    *,
    resume: bool,
    to_page: bool,
) -> None:
    """Drill the matrix, seed by seed; print the tables of all bounds."""
    console, until = Console(), time.monotonic() + limit * 60
    out.mkdir(parents=True, exist_ok=True)
    path = out / "outcomes.jsonl"
    if not resume:
        path.unlink(missing_ok=True)
    done = benchmark_matrix.remembered(path)
    left = [t for t in benchmark_matrix.tasks(cases or list(CASES), names or POLICIES, seeds, days) if t not in done]
    with path.open("a", encoding="utf-8") as file, Progress(console=console, transient=True) as progress:
        shown = progress.add_task("drills", total=len(left))
        lived = run([task.job() for task in left], workers=workers, until=until)
        for task, (_, result) in zip(left, lived, strict=False):
            done[task] = benchmark_matrix.outcome(task, result)
            file.write(benchmark_matrix.line(done[task]))
            file.flush()
            progress.advance(shown)
    written = page(done, days)
    (out / "tables.md").write_text(written + "\n", encoding="utf-8")
    console.print(written, highlight=False, soft_wrap=True, markup=False)
    if to_page:
        from fleet.sim.experiments import charts

        replace_between(PAGE, BEGIN, END, written)
        charts.fronts({case: compared(done, case, days) for case in ("fitted", "levels")}, PICTURE)


if __name__ == "__main__":
    main()
