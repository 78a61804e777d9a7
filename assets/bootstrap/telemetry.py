"""What the box tells about itself: BOOTSTAGE lines, metrics, its log in CloudWatch. Never on the way to serving.

BOOTSTAGE stage=load outcome=done start=44.50 end=106.60 seconds=62.10 bytes=18200000000 how=streamed mb_per_s=293.1
BOOTGRAPH gate 20.1 +0.1 | store 20.2 +1.0 | ...    every stage with its start and its length, in uptime seconds
BOOTPATH gate > store > engine > start_engine > load > import > warm_up > open > healthy > complete = 108.7 s of 108.9 s
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import graph
import names
import paths
from aws import Aws, AwsError
from config import Box
from log import say
from stages import STAGES

PATIENCE_SECONDS = 30.0  # a box in trouble does not wait longer for its own telemetry
AGENT = Path("/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl")
AGENT_CONFIG = paths.RUN / "cloudwatch-agent.json"


def bootstage(run: graph.Run) -> str:
    """The line of one stage."""
    fields: dict[str, Any] = {
        "stage": run.name,
        "outcome": run.outcome.replace(" ", "-"),
        "start": f"{run.started:.2f}",
        "end": f"{run.ended:.2f}",
        "seconds": f"{run.seconds:.2f}",
        **run.detail,
    }
    if run.detail.get("bytes"):
        fields["mb_per_s"] = f"{run.detail['bytes'] / 1e6 / max(run.seconds, 1e-3):.1f}"
    why = fields.pop("why", None)
    line = f"{names.LINE_BOOTSTAGE} " + " ".join(f"{key}={value}" for key, value in fields.items())
    return f"{line} why={json.dumps(why)}" if why else line


def report(runs: Sequence[graph.Run]) -> None:
    """Close the log with the measured graph and its critical path, beside the time until the box served."""
    ordered = sorted(runs, key=lambda run: run.started)
    say("BOOTGRAPH " + " | ".join(f"{run.name} {run.started:.1f} +{run.seconds:.1f}" for run in ordered))
    path, seconds = graph.critical_path(STAGES, runs)
    ends = [run.ended for run in runs if run.name == "complete"] or [run.ended for run in runs]
    say(f"BOOTPATH {' > '.join(path)} = {seconds:.1f} s of {max(ends) - ordered[0].started:.1f} s")


def metric(
    box: Box, name: str, value: float, unit: str = "Seconds", stage: str = "", reason: str = ""
) -> dict[str, Any]:
    """One datum in CloudWatch's shape."""
    dimensions = [{"Name": names.DIMENSION_FLEET, "Value": box.fleet}]
    for dimension, said in ((names.DIMENSION_STAGE, stage), (names.DIMENSION_REASON, reason)):
        if said:
            dimensions.append({"Name": dimension, "Value": said})
    return {"MetricName": name, "Value": round(value, 3), "Unit": unit, "Dimensions": dimensions}


def put(aws: Aws, data: Sequence[dict[str, Any]]) -> None:
    """Send metrics, where there are any; a failure is logged, nothing more."""
    if not data:
        return
    try:
        aws.put_metrics(data, PATIENCE_SECONDS)
    except AwsError as error:
        say(f"metrics not sent: {error}")


def figure(name: str, seconds: float) -> None:
    """A figure of this box, for its Prometheus text; a failure is logged, nothing more."""
    try:
        paths.mark(paths.FIGURES / name, f"{seconds:.3f}")
    except OSError as error:
        say(f"{name} not told: {error}")


def ship(aws: Aws, stream: str) -> None:
    """Send the box's log so far, its end where it is long; a failure is logged, nothing more."""
    try:
        aws.ship_log(stream, paths.LOG.read_text(errors="replace").splitlines(), PATIENCE_SECONDS)
    except (AwsError, OSError) as error:
        say(f"log not shipped: {error}")


def start_agent(box: Box) -> graph.Detail:
    """Start CloudWatch's agent where the image has one: GPU and memory metrics, and this log as it grows."""
    if not AGENT.exists():
        return graph.SKIPPED
    AGENT_CONFIG.write_text(json.dumps(agent_config(box)))
    command = [str(AGENT), "-a", "fetch-config", "-m", "ec2", "-s", "-c", f"file:{AGENT_CONFIG}"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return None


def agent_config(box: Box) -> dict[str, Any]:
    """What CloudWatch's agent collects."""
    log_file = {
        "file_path": str(paths.LOG),
        "log_group_name": names.box_log_group(box.fleet),
        "log_stream_name": names.box_log_stream("{instance_id}", names.STREAM_LIVE),
    }
    return {
        "metrics": {
            "namespace": names.METRIC_NAMESPACE,
            "metrics_collected": {
                "nvidia_gpu": {"measurement": ["utilization_gpu", "memory_used"]},
                "mem": {"measurement": ["used_percent"]},
            },
            "append_dimensions": {"InstanceId": "${aws:InstanceId}"},
        },
        "logs": {"logs_collected": {"files": {"collect_list": [log_file]}}},
    }
