"""What the watchdog's own code costs at a cold start: `make bench-watchdog`.

Pairs, one after the other in one run: the real zip's import and first decision (an alarm that ends in a failover), and
a bare handler that imports boto3 and makes the same clients. Both are fresh processes against the same embedded AWS;
every real one acts on its own copy of the fleet. Prints medians of wall and processor time, the ratios (budget 1.25)
and the peak memory (budget 128 MB).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from fleet import localaws
from fleet.config import validation
from fleet.core import names
from fleet.localaws import assembly
from fleet.localaws.deployed import Deployed, fill_store
from stacks.package import WATCHDOG
from tests import synth
from tests.watchdog.still_cloud import event

CLIENTS = ["ssm", "cloudwatch", "autoscaling", "elbv2", "cloudformation", "sns"]  # of a failover from an empty group
MEASURE = """
import json, resource, sys, time
began = time.perf_counter(), time.process_time()
{body}
seconds = time.perf_counter() - began[0], time.process_time() - began[1]
print(json.dumps([*seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]), file=sys.stderr)
"""
REAL = """
from lambdas.watchdog.handler import handler
class Context:
    def get_remaining_time_in_millis(self): return 60000
result = handler(json.loads(sys.argv[1]), Context())
assert result["action"] == "failover", result
"""
BARE = f"""
import boto3
from botocore.config import Config
config = Config(connect_timeout=2, read_timeout=8, retries={{"mode": "standard", "total_max_attempts": 2}})
clients = [boto3.client(service, config=config) for service in {CLIENTS}]
"""


@dataclass(frozen=True)
class Run:
    """One fresh process; its interpreter's start-up is in no figure."""

    wall_seconds: float
    processor_seconds: float
    peak_megabytes: float


def measure(body: str, folder: str, environment: dict[str, str]) -> Run:
    """Run one half of a pair."""
    code = MEASURE.format(body=body)
    command = [sys.executable, "-c", code, json.dumps(event("alarm-lit"))]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise click.ClickException(run.stderr)
    return Run(*json.loads(run.stderr.splitlines()[-1]))


def environment(fleet: Deployed) -> dict[str, str]:
    """The function's own: role, settings, ARNs."""
    function = names.watchdog_function(fleet.settings.fleet_name)
    configured = fleet.aws.client("lambda").get_function_configuration(FunctionName=function)
    variables: dict[str, str] = configured["Environment"]["Variables"]
    return {"PATH": os.environ["PATH"], **fleet.aws.environment(role=configured["Role"]), **variables}


@click.command()
@click.option("--pairs", default=15, show_default=True)
def main(pairs: int) -> None:
    """Measure, and print what was measured."""
    runs: list[tuple[Run, Run]] = []
    with tempfile.TemporaryDirectory() as scratch, WATCHDOG.unpacked() as folder:
        synth.synth(Path(scratch, "synth"), {})
        out = Path(scratch, "synth", "cdk.out")
        with localaws.server(Path(scratch, "aws")) as aws:
            fleet = Deployed(aws, validation.load(synth.CDK_JSON))
            assembly.bootstrap(aws)
            for stack in assembly.stacks(out):
                if stack == names.stack(fleet.settings.fleet_name, "group"):
                    fill_store(fleet)
                assembly.deploy(aws, out, stack)
            fleet.market(spot=False)
            fleet.reclaim()
            fleet.age_group(86400)
            # The alarm is lit without its rule, or the deployed function would act first.
            rule = fleet.resource("group", "AWS::Events::Rule", "AlarmChanged")
            aws.client("events").disable_rule(Name=rule)
            fleet.set_alarm("ALARM", seconds_ago=2)
            aws.control("settle")
            for number in range(pairs + 1):  # the first pair fills the page cache and is not counted
                with aws.fork(Path(scratch, f"copy-{number}")) as copy:
                    variables = environment(fleet.on(copy))
                    pair = measure(REAL, folder, variables), measure(BARE, folder, variables)
                if number:
                    runs.append(pair)
    for what in ("wall_seconds", "processor_seconds"):
        real, bare = ([getattr(run, what) for run in side] for side in zip(*runs, strict=True))
        ratio = statistics.median(r / b for r, b in zip(real, bare, strict=True))
        click.echo(
            f"{what.replace('_', ' '):18} real zip, import and first decision {statistics.median(real):.3f}, "
            f"bare handler {statistics.median(bare):.3f}, ratio {ratio:.2f} (budget 1.25; median of {pairs} pairs)"
        )
    click.echo(f"peak memory        {max(real.peak_megabytes for real, _ in runs):.0f} MB (budget 128)")


if __name__ == "__main__":
    main()
