"""Takes the box out of service without cutting a stream: refuses new callers, deregisters, waits. The agent runs it.

On a notice the gate shuts first: a deregistered target gets new connections for about two minutes, and the box has no
more (aws-behaviours: deregistered-routed). An end that the group plans has the time (`planned.py`).
"""

import subprocess
import threading
import time
from typing import Any, Callable

import ending
import gate
import names
import paths
import telemetry
from aws import Aws, AwsError
from config import Box
from log import say

UNHEALTHY_SECONDS = 60.0  # a target that fails its probes got new connections for 30 to 40 s
ASK_SECONDS = 10.0  # patience with the balancer's answers meanwhile


def drain(box: Box, aws: Aws, why: str, seconds_left: float, notice_age_seconds: float) -> list[dict[str, Any]]:
    """Drain; returns its metrics. `seconds_left` until the box is taken; announced `notice_age_seconds` ago."""
    started = time.monotonic()
    paths.mark(paths.LEAVING, why)
    refused = gate.attempt(gate.DRAINING, box.port)
    removal = time.monotonic() - started
    budget = max(0.0, min(box.drain_budget_seconds, seconds_left - removal - box.safety_margin_seconds))
    how = f"new connections refused after {removal * 1000:.0f} ms" if refused else "THE GATE COULD NOT BE SHUT"
    say(f"DRAIN {why}: {how}, budget {budget:.1f} s")
    leave_balancer(box, aws, seconds_left, once_unhealthy=refused)
    if not refused:
        threading.Thread(target=_keep_refusing, args=(box, seconds_left), daemon=True).start()
    metrics = let_streams_end(box, started + removal + budget)
    if refused:
        seconds = notice_age_seconds + removal
        telemetry.figure(names.SPOT_NOTICE_TO_DRAINING, seconds)
        metrics.append(telemetry.metric(box, names.METRIC_NOTICE_TO_DRAINING_SECONDS, seconds))
    return metrics


def let_streams_end(box: Box, deadline: float, over: Callable[[], bool] = lambda: False) -> list[dict[str, Any]]:
    """Wait for the streams until then (monotonic); returns the metrics."""
    started = time.monotonic()
    ended = ending.wait(box, deadline, over)
    say(f"DRAINED {ended}, {time.monotonic() - started:.1f} s")
    return [
        telemetry.metric(box, names.METRIC_STREAMS_FINISHED, ended.finished, "Count"),
        telemetry.metric(box, names.METRIC_STREAMS_CUT, ended.cut, "Count"),
    ]


def _keep_refusing(box: Box, patience_seconds: float) -> None:
    """Until then the balancer is the only one to send callers away."""
    deadline = time.monotonic() + patience_seconds
    while not gate.attempt(gate.DRAINING, box.port) and time.monotonic() < deadline:
        time.sleep(1.0)


def leave_balancer(box: Box, aws: Aws, patience_seconds: float, *, once_unhealthy: bool = False) -> threading.Thread:
    """Deregister in the background, by this thread.

    `once_unhealthy`: where another target is healthy, the balancer sends new callers there sooner if this one fails its
    probes for a while than if it is deregistered at once. The group may not wait (aws-behaviours: notice-deregisters).
    """
    if not paths.COMPLETED.exists():
        _end_boot()  # before deregistering: a registration on its way must not land after it

    def deregister() -> None:
        try:
            if once_unhealthy:
                _until_unhealthy(box, aws)
            aws.deregister(patience_seconds)
            say("deregistered")
        except AwsError as error:
            say(f"not deregistered: {error}")

    thread = threading.Thread(target=deregister, daemon=True)
    thread.start()
    return thread


def _until_unhealthy(box: Box, aws: Aws) -> None:
    deadline = time.monotonic() + UNHEALTHY_SECONDS
    try:
        while aws.serves_beside_another(ASK_SECONDS) and time.monotonic() < deadline:
            time.sleep(box.health_poll_seconds)
    except AwsError as error:
        say(f"nobody can tell of the other targets: {error}")


def _end_boot() -> None:
    say("ending the boot")
    try:
        subprocess.run(["systemctl", "stop", "fleet-boot.service"], capture_output=True, timeout=30)
    except subprocess.TimeoutExpired as error:
        say(f"the boot has not ended: {error}")
