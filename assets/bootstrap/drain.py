"""Takes the box out of service without cutting a stream: refuses new callers, deregisters, waits. The agent runs it."""

import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Any

import gate
import names
import paths
import streams
import telemetry
from aws import Aws, AwsError
from config import Box
from log import say

SAMPLE_SECONDS = 0.2
QUIET_SECONDS = 2.0  # who connected just before the gate shut has sent a request by then


@dataclass(frozen=True)
class Drained:
    """How a drain ended."""

    finished: int
    cut: int


def budget_seconds(left: float, removal: float, margin: float, cap: float) -> float:
    """How long streams may live on: time left on the notice, less what removal took, less the margin; at most `cap`."""
    return max(0.0, min(cap, left - removal - margin))


def drain(box: Box, aws: Aws, why: str, seconds_left: float, notice_age_seconds: float) -> list[dict[str, Any]]:
    """Drain; returns its metrics. `seconds_left` until the box is taken; announced `notice_age_seconds` ago."""
    started = time.monotonic()
    paths.mark(paths.LEAVING, why)
    refused = _refuse(box)
    removal = time.monotonic() - started
    budget = budget_seconds(seconds_left, removal, box.safety_margin_seconds, box.drain_budget_seconds)
    how = f"new connections refused after {removal * 1000:.0f} ms" if refused else "THE GATE COULD NOT BE SHUT"
    say(f"DRAIN {why}: {how}, budget {budget:.1f} s")
    if not paths.COMPLETED.exists():
        _end_boot()  # before deregistering: a registration on its way must not land after it
    threading.Thread(target=_deregister, args=(aws, seconds_left), daemon=True).start()
    if not refused:
        threading.Thread(target=_keep_refusing, args=(box, seconds_left), daemon=True).start()
    ended = wait(box, started + removal + budget)
    say(f"DRAINED {ended.finished} streams finished, {ended.cut} cut, {time.monotonic() - started:.1f} s")
    metrics = [
        telemetry.metric(box, names.METRIC_STREAMS_FINISHED, ended.finished, "Count"),
        telemetry.metric(box, names.METRIC_STREAMS_CUT, ended.cut, "Count"),
    ]
    if refused:
        seconds = notice_age_seconds + removal
        metrics.append(telemetry.metric(box, names.METRIC_NOTICE_TO_DRAINING_SECONDS, seconds))
    return metrics


def wait(box: Box, deadline: float) -> Drained:
    """Wait while streams live or may yet begin, at most until `deadline` (monotonic); counts those ended and cut."""
    known: set[str] = set()
    quiet_since = time.monotonic()
    while True:
        try:
            found = streams.connections(box.port)
            live, connected = {each.peer for each in found if each.stream}, bool(found)
        except streams.StreamsError as error:
            say(f"streams: {error}")  # unknown is not none: whoever is there keeps the whole budget
            live, connected = known or {"unknown"}, True
        known |= live
        now = time.monotonic()
        if live:
            quiet_since = now
        quiet = not connected or now - quiet_since >= QUIET_SECONDS
        if (quiet and not live) or now >= deadline:
            return Drained(finished=len(known - live), cut=len(live))
        time.sleep(SAMPLE_SECONDS)


def _refuse(box: Box) -> bool:
    try:
        gate.set_state(gate.DRAINING, box.port)
    except gate.GateError as error:
        say(f"gate: {error}")
        return False
    return True


def _keep_refusing(box: Box, patience_seconds: float) -> None:
    """Until then the balancer is the only one to send callers away."""
    deadline = time.monotonic() + patience_seconds
    while not _refuse(box) and time.monotonic() < deadline:
        time.sleep(1.0)


def _end_boot() -> None:
    say("ending the boot")
    try:
        subprocess.run(["systemctl", "stop", "fleet-boot.service"], capture_output=True, timeout=30)
    except subprocess.TimeoutExpired as error:
        say(f"the boot has not ended: {error}")


def _deregister(aws: Aws, patience_seconds: float) -> None:
    try:
        aws.deregister(patience_seconds)
        say("deregistered")
    except AwsError as error:
        say(f"not deregistered: {error}")
