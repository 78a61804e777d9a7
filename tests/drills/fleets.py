"""`make bench-fleets`: fleets of 4 and 20 boxes, `bridge` and `alarm` held against the fallback.

Resumable: each drill is one line of the file of outcomes as soon as it is done. Right while no policy changes.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean

import click

from fleet.sim.drills.drill import default_settings
from fleet.sim.drills.scene import Scene
from fleet.sim.experiments import experiment
from fleet.sim.experiments.benchmark_matrix import Outcome, Task, line, outcome, remembered
from fleet.sim.experiments.experiment import Job
from fleet.sim.markets import synthetic
from fleet.sim.policies.catalogue import without_valve

SIZES = {"4 boxes, base 1": (4, 1), "4 boxes": (4, 0), "20 boxes": (20, 0)}
FIRST_SEED = 801  # nothing was chosen on these
POLICIES = ("fallback", "alarm", "bridge")
FIGURES = ("degraded_minutes", "dark_minutes", "cost_usd")
BOUND = (0.7, 1.06)  # of `bridge`: at most so many of the fallback's minutes, and dollars
Outcomes = Mapping[Task, Outcome]


def job(task: Task) -> Job:
    size, base = SIZES[task.case]
    shipped = replace(default_settings(), region=task.place)
    capacity = replace(shipped.capacity, min=size, max=2 * size, on_demand_base=base)
    settings = without_valve(replace(shipped, capacity=capacity))
    return Job(Scene(region=task.place, days=task.days), task.policy, task.seed, settings, brisk=True)


def tasks(seeds: int, days: float) -> list[Task]:
    """Seed by seed, so that a run which is stopped has whole seeds of every case."""
    every = product(range(FIRST_SEED, FIRST_SEED + seeds), SIZES, synthetic.regions(), POLICIES)
    return [Task(name, region, policy, seed, days) for seed, name, region, policy in every]


def table(done: Outcomes) -> Iterator[str]:
    """Each case and region: minutes (those without any box) and dollars, and both in parts of the fallback's."""
    yield "| fleet | policy | region | seeds | minutes (dark) @ USD | minutes, ratio | USD, ratio | |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in SIZES:
        for policy in POLICIES:
            ratios = []
            for region in synthetic.regions():
                here = [task for task in done if (task.case, task.place, task.policy) == (name, region, policy)]
                pairs = {task: replace(task, policy="fallback") for task in here}
                pairs = {task: rival for task, rival in pairs.items() if rival in done}
                if not pairs:
                    continue
                mine, theirs = (
                    [fmean(getattr(done[task], of) for task in lived) for of in FIGURES]
                    for lived in (pairs.keys(), pairs.values())
                )
                minutes, dark, usd = mine
                ratios.append((minutes / theirs[0], usd / theirs[2]))
                told = f"{minutes:.0f} ({dark:.0f}) @ {usd:.0f}"
                yield f"| {name} | {policy} | {region} | {len(pairs)} | {told} | {_cells(ratios[-1])} | |"
            if ratios and policy == "bridge":
                mean = tuple(map(fmean, zip(*ratios, strict=True)))
                held = all(value <= bound for value, bound in zip(mean, BOUND, strict=True))
                yield f"| {name} | bridge | mean | | | {_cells(mean)} | {'holds' if held else '**falls**'} |"


def _cells(ratios: Sequence[float]) -> str:
    return " | ".join(f"{ratio:.2f}" for ratio in ratios)


@click.command()
@click.option("--seeds", default=20, show_default=True)
@click.option("--days", default=45.0, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--minutes", "limit", default=60.0, show_default=True, help="No drill is begun later; --resume goes on.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench-fleets"), show_default=True)
@click.option("--resume", is_flag=True, help="Go on with what --out holds: right while no policy has changed.")
def main(seeds: int, days: float, workers: int, limit: float, out: Path, *, resume: bool) -> None:
    """Drill, seed by seed; print the table of the bounds."""
    out.mkdir(parents=True, exist_ok=True)
    path, until = out / "outcomes.jsonl", time.monotonic() + limit * 60
    if not resume:
        path.unlink(missing_ok=True)
    done = {task: found for task, found in remembered(path).items() if task.days == days}
    left = [task for task in tasks(seeds, days) if task not in done]
    lived = experiment.run([job(task) for task in left], workers=workers, until=until)
    with path.open("a", encoding="utf-8") as file:
        for task, (_, result) in zip(left, lived, strict=False):
            done[task] = outcome(task, result)
            file.write(line(done[task]))
            file.flush()
    click.echo("\n".join(table(done)))


if __name__ == "__main__":
    main()
