"""`make bench-fleets`: fleets of 4 and 20 boxes, `bridge` and `alarm` held against the fallback.

Resumable: each drill is one line of the file of outcomes as soon as it is done. Right while no policy changes.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import click

from fleet.sim.drills.drill import default_settings
from fleet.sim.drills.scene import Scene
from fleet.sim.experiments import experiment
from fleet.sim.experiments.experiment import Job
from fleet.sim.markets import synthetic
from fleet.sim.policies.catalogue import without_valve

SIZES = {"4 boxes, base 1": (4, 1), "4 boxes": (4, 0), "20 boxes": (20, 0)}
FIRST_SEED = 801  # nothing was chosen on these
POLICIES = ("fallback", "alarm", "bridge")
BOUND = (0.7, 1.06)  # of `bridge`: at most so many of the fallback's minutes, and dollars
Task = tuple[str, str, str, int]
Outcomes = Mapping[Task, Mapping[str, float]]


def job(task: Task, days: float) -> Job:
    name, region, policy, seed = task
    size, base = SIZES[name]
    shipped = replace(default_settings(), region=region)
    capacity = replace(shipped.capacity, min=size, max=2 * size, on_demand_base=base)
    settings = without_valve(replace(shipped, capacity=capacity))
    return Job(Scene(region=region, days=days), policy, seed, settings, brisk=True)


def tasks(seeds: int) -> list[Task]:
    """Seed by seed, so that a run which is stopped has whole seeds of every case."""
    every = range(FIRST_SEED, FIRST_SEED + seeds)
    return [(n, region, p, seed) for seed in every for n in SIZES for region in synthetic.regions() for p in POLICIES]


def remembered(path: Path) -> dict[Task, dict[str, float]]:
    """What an earlier run wrote; a last line that was cut off is drilled again."""
    lines = path.read_text().splitlines() if path.exists() else []
    raw = [json.loads(line) for line in lines if line.endswith("}")]
    return {tuple(each.pop("task")): each for each in raw}


def table(done: Outcomes) -> Iterator[str]:
    """Each case and region: minutes (those without any box) and dollars, and both in parts of the fallback's."""
    yield "| fleet | policy | region | seeds | minutes (dark) @ USD | minutes, ratio | USD, ratio | |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in SIZES:
        for policy in POLICIES:
            ratios = []
            for region in synthetic.regions():
                seeds = [s for n, r, p, s in done if (n, r, p) == (name, region, policy)]
                seeds = [seed for seed in seeds if (name, region, "fallback", seed) in done]
                if not seeds:
                    continue
                mine, theirs = (
                    {
                        of: fmean(done[name, region, who, seed][of] for seed in seeds)
                        for of in ("minutes", "dark", "usd")
                    }
                    for who in (policy, "fallback")
                )
                ratios.append((mine["minutes"] / theirs["minutes"], mine["usd"] / theirs["usd"]))
                told = f"{mine['minutes']:.0f} ({mine['dark']:.0f}) @ {mine['usd']:.0f}"
                yield f"| {name} | {policy} | {region} | {len(seeds)} | {told} | {_cells(ratios[-1])} | |"
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
    done = remembered(path)
    left = [task for task in tasks(seeds) if task not in done]
    lived = experiment.run([job(task, days) for task in left], workers=workers, until=until)
    with path.open("a", encoding="utf-8") as file:
        for task, (_, result) in zip(left, lived, strict=False):
            measure = result.measure
            seen = (measure.degraded_minutes, measure.dark_minutes, measure.cost_usd)
            done[task] = dict(zip(("minutes", "dark", "usd"), seen, strict=True))
            file.write(json.dumps({"task": task, **done[task]}) + "\n")
            file.flush()
    click.echo("\n".join(table(done)))


if __name__ == "__main__":
    main()
