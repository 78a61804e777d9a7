"""`make bench-fleets`: fleets of 4 and 20 boxes, held against the commit before shares and against the fallback.

Resumable: each drill is one line of the file of outcomes as soon as it is done. Right while no policy changes.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

HERE = Path(__file__).parents[2]
SCRIPT = Path(__file__).resolve()
BEFORE = "18d4655"  # the alarm asks for no healthy target, and the lever is a switch
HOMES = (
    ("fleet.sim.drills.drill", "default_settings"),
    ("fleet.sim.drills.scene", "Scene"),
    ("fleet.sim.experiments.experiment", "Job"),
    ("fleet.sim.policies.catalogue", "without_valve"),
)
HOMES_BEFORE = (
    ("fleet.drills.drill", "default_settings"),
    ("fleet.drills.scene", "Scene"),
    ("fleet.drills.experiment", "Job"),
    ("fleet.drills.policies", "without_valve"),
)
SIZES = {"4 boxes, base 1": (4, 1), "4 boxes": (4, 0), "20 boxes": (20, 0)}
FIRST_SEED = 801  # nothing was chosen on these
DAYS = 45.0
RIVALS = (("alarm", "before", 0.5, 1.05), ("bridge", "fallback", 0.7, 1.06))  # at most so many minutes, and dollars


def drilled(name: str, region: str, policy: str, seed: int, days: float) -> dict[str, Any]:
    """One drill in what the bounds need, by whichever checkout is imported."""
    from dataclasses import replace

    here = Path("fleet/sim").is_dir()
    homes = HOMES if here else HOMES_BEFORE
    default_settings, scene, job_of, without_valve = (
        getattr(importlib.import_module(home), name) for home, name in homes
    )
    size, base = SIZES[name]
    shipped = replace(default_settings(), region=region)
    capacity = replace(shipped.capacity, min=size, max=2 * size, on_demand_base=base)
    settings = without_valve(replace(shipped, capacity=capacity))
    brisk = {"brisk": True} if here else {}  # the same figures
    lived = job_of(scene(region=region, days=days), policy, seed, settings, keeps_log=True, **brisk).run()
    measure = lived.measure
    return {
        "minutes": measure.degraded_minutes,
        "usd": measure.cost_usd,
        "failovers": measure.counts["action failover"],
        "dark": dark_minutes(lived.log),
    }


def dark_minutes(log: Sequence[Any]) -> float:
    """Minutes without any box; the commit before does not measure them."""
    serving: set[str] = set()
    seconds, at = 0.0, log[0].at
    for event in log:
        if not serving:
            seconds += (event.at - at).total_seconds()
        at = event.at
        if event.kind == "box.serving":
            serving.add(event.fields["box"])
        elif event.kind == "box.unserving":
            serving.discard(event.fields["box"])
    return seconds / 60


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Another commit's tree, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder, "there")
        subprocess.run(["git", "worktree", "add", "--detach", "-q", str(there), commit], cwd=HERE, check=True)
        try:
            yield there
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(there)], cwd=HERE, check=True)


def tasks(seeds: int) -> Iterator[tuple[str, str, str, int]]:
    """Seed by seed, so that a run which is stopped has whole seeds of every case."""
    from fleet.sim.markets import synthetic

    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for name in SIZES:
            for region in synthetic.regions():
                for policy in ("before", "fallback", "alarm", "bridge"):
                    yield name, region, policy, seed


def remembered(path: Path) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """What an earlier run wrote; a last line that was cut off is drilled again."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.endswith("}"):
            raw = json.loads(line)
            found[tuple(raw.pop("task"))] = raw
    return found


def worker(tree: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, str(SCRIPT), "--worker"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=tree, env=environment, stdin=pipe, stdout=pipe, text=True)


def table(done: dict[tuple[str, str, str, int], dict[str, Any]]) -> str:
    """Each case and region: the ratio of the means, over the seeds that all have lived through."""
    rows = ["| fleet | policy | against | region | seeds | minutes | minutes, ratio | USD, ratio | bound | |"]
    rows.append("|---|---|---|---|---|---|---|---|---|---|")
    by = defaultdict(dict)
    for (name, region, policy, seed), outcome in done.items():
        by[name, region, policy][seed] = outcome
    regions = sorted({region for _, region, _, _ in done})
    for name in SIZES:
        for policy, rival, most_minutes, most_usd in RIVALS:
            ratios = []
            for region in regions:
                mine, theirs = by[name, region, policy], by[name, region, rival]
                seeds = sorted(mine.keys() & theirs.keys())
                if not seeds:
                    continue
                sums = [[sum(o[s][of] for s in seeds) for of in ("minutes", "usd")] for o in (mine, theirs)]
                ratio = [mine_sum / theirs_sum for mine_sum, theirs_sum in zip(*sums, strict=True)]
                ratios.append(ratio)
                told = f"{sums[0][0] / len(seeds):.0f} ({sums[1][0] / len(seeds):.0f})"
                cells = [name, policy, rival, region, len(seeds), told, f"{ratio[0]:.2f}", f"{ratio[1]:.2f}", "", ""]
                rows.append(f"| {' | '.join(map(str, cells))} |")
            if ratios:
                mean = [sum(values) / len(ratios) for values in zip(*ratios, strict=True)]
                held = "holds" if mean[0] <= most_minutes and mean[1] <= most_usd else "**falls**"
                bound = f"{most_minutes} @ {most_usd}"
                cells = [name, policy, rival, "mean", "", "", f"{mean[0]:.2f}", f"{mean[1]:.2f}", bound, held]
                rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


@click.command()
@click.option("--seeds", default=20, show_default=True)
@click.option("--days", default=DAYS, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--minutes", "limit", default=60.0, show_default=True, help="No drill is begun later; --resume goes on.")
@click.option("--before", default=BEFORE, show_default=True, help="The commit to hold `alarm` against.")
@click.option("--out", type=click.Path(path_type=Path), default=HERE / "out/bench-fleets", show_default=False)
@click.option("--resume", is_flag=True, help="Go on with what --out holds: right while no policy has changed.")
@click.option("--policy", "only", multiple=True, help="Repeatable: before, fallback, alarm, bridge. All unless given.")
def main(
    seeds: int, days: float, workers: int, limit: float, before: str, out: Path, only: Sequence[str], *, resume: bool
) -> None:
    """Drill, seed by seed; print the table of the bounds."""
    out.mkdir(parents=True, exist_ok=True)
    path, until = out / "outcomes.jsonl", time.monotonic() + limit * 60
    if not resume:
        path.unlink(missing_ok=True)
    done = remembered(path)
    left = [task for task in tasks(seeds) if task not in done and (not only or task[2] in only)]
    with checkout(before) as there, path.open("a", encoding="utf-8") as file:
        pools = {place: [worker(tree) for _ in range(workers)] for place, tree in (("before", there), ("here", HERE))}
        idle, busy = {place: list(each) for place, each in pools.items()}, []
        while (left and time.monotonic() < until) or busy:
            while left and len(busy) < workers and time.monotonic() < until:
                task = left.pop(0)
                place = "before" if task[2] == "before" else "here"
                process = idle[place].pop()
                asked = [*task[:2], "alarm" if place == "before" else task[2], task[3], days]
                process.stdin.write(json.dumps(asked) + "\n")
                process.stdin.flush()
                busy.append((task, place, process))
            task, place, process = busy.pop(0)
            done[task] = json.loads(process.stdout.readline())
            idle[place].append(process)
            file.write(json.dumps({"task": task, **done[task]}) + "\n")
            file.flush()
        for process in (process for each in pools.values() for process in each):
            process.stdin.close()
            process.wait()
    click.echo(table(done))


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        sys.path.insert(0, str(Path.cwd()))
        for line in sys.stdin:
            click.echo(json.dumps(drilled(*json.loads(line))))
        sys.exit()
    main()
