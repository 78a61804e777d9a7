"""`make bench-synth`: `cdk synth` of this app against an empty one-stack Python CDK app, in pairs, alternating."""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
BUDGET_RATIO = 2.0
EMPTY_APP = """
import aws_cdk as cdk
app = cdk.App()
cdk.Stack(app, "Empty", env=cdk.Environment(region="us-east-2"))
app.synth()
"""


def measure(folder: Path, app: str, out: Path) -> tuple[float, float]:
    """Wall and processor seconds of one synth."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = ["cdk", "synth", "--quiet", "--app", f"{sys.executable} {app}", "--output", str(out)]
    env = {"CDK_DISABLE_CLI_TELEMETRY": "1", "PYTHONPATH": str(ROOT), "AWS_EC2_METADATA_DISABLED": "true", **os.environ}
    run = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode:
        raise click.ClickException(run.stdout + run.stderr)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command()
@click.option("--pairs", default=5, show_default=True, help="Synths of each app; one more pair warms up.")
def main(pairs: int) -> None:
    """Print both medians and the median of the pairs' ratios; budgets are reported, not enforced."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty")
        empty.mkdir()
        (empty / "app.py").write_text(EMPTY_APP)
        rows = []
        for pair in range(pairs + 1):
            one = measure(empty, "app.py", Path(folder, f"empty.{pair}"))
            other = measure(ROOT, "app.py", Path(folder, f"fleet.{pair}"))
            rows.append((one, other))
            click.echo(f"pair {pair}: empty {one[0]:.1f} s, fleet {other[0]:.1f} s", err=True)
    result: dict[str, object] = {"pairs": pairs, "budget_ratio": BUDGET_RATIO}
    for index, clock in enumerate(("wall", "processor")):
        empties, fleets = ([row[side][index] for row in rows[1:]] for side in (0, 1))
        result[clock] = {
            "empty_median_seconds": round(statistics.median(empties), 2),
            "fleet_median_seconds": round(statistics.median(fleets), 2),
            "ratio_median": round(statistics.median(b / a for a, b in zip(empties, fleets, strict=True)), 2),
        }
    click.echo(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
