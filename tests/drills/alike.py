"""`make bench-alike`: one box, drilled as here and as in another commit: no figure and no line of a log may move."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

HERE = Path(__file__).parents[2]
POLICIES = ("on-demand", "spot-only", "alarm", "bridge", "fallback")
DAYS, SEEDS = 8, (301, 302)


def drills() -> Iterator[tuple[str, str]]:
    """Every recorded history and some markets, under every policy: a name, and the digest of the whole log."""
    from fleet.sim.drills import replay
    from fleet.sim.drills.drill import default_settings
    from fleet.sim.drills.scene import Scene
    from fleet.sim.experiments.experiment import Job
    from fleet.sim.markets import synthetic
    from fleet.sim.policies.catalogue import without_valve

    shipped = default_settings()
    scenes = [(name, Scene(history=name), 0) for name in replay.names()]
    for region in synthetic.regions():
        for levels in (False, True):
            scenes += [(f"{region} {levels}", Scene(region=region, days=DAYS, levels=levels), seed) for seed in SEEDS]
    for name, scene, seed in scenes:
        for policy in POLICIES:
            for settings in (shipped, without_valve(shipped)) if policy in ("alarm", "bridge") else (shipped,):
                sized = settings
                if scene.history:
                    desired = json.loads((replay.FOLDER / f"{name}.json").read_text())["fleet"]["desired"]
                    capacity = replace(settings.capacity, min=desired, max=2 * desired)
                    sized = replace(settings, capacity=capacity)
                lived = Job(scene, policy, seed, sized, keeps_log=True).run()
                text = "\n".join(json.dumps([e.at.isoformat(), e.kind, e.fields], default=str) for e in lived.log)
                valve = "" if settings is shipped else ", valve off"
                yield f"{name}, seed {seed}, {policy}{valve}", hashlib.sha256(text.encode()).hexdigest()[:16]


def of(tree: Path) -> dict[str, str]:
    """The digests of one checkout."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, str(Path(__file__)), "--digests"]
    said = subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True, text=True).stdout
    digests: dict[str, str] = json.loads(said)
    return digests


def main(commit: str) -> int:
    """0: alike; 1: something moved."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder, "there")
        subprocess.run(["git", "worktree", "add", "--detach", "-q", str(there), commit], cwd=HERE, check=True)
        try:
            before = of(there)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(there)], cwd=HERE, check=True)
    after = of(HERE)
    moved = [name for name in before if before[name] != after.get(name)]
    for name in moved:
        click.echo(f"moved: {name}")
    click.echo(f"{len(before)} drills of one box against {commit}: {len(moved)} moved")
    return 1 if moved else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--digests"]:
        sys.path.insert(0, str(Path.cwd()))
        click.echo(json.dumps(dict(drills())))
        sys.exit()
    sys.exit(main(sys.argv[1] if sys.argv[1:] else "HEAD~1"))
