"""An end that the group plans: deregister, keep the gate open until the balancer has let go, then let streams end.

A balancer sends new connections to a deregistered target for about two minutes, and reports say up to five: a gate shut
before that refuses callers while another box serves (aws-behaviours: deregistered-routed).
"""

import threading
import time
from typing import Any, Callable, Optional

import drain
import gate
import paths
import streams
from aws import Aws
from config import Box
from log import say

SAMPLE_SECONDS = 0.2


def possible() -> bool:
    """Whether callers are served, or were until such an end shut the gate: neither a fault nor an unfinished boot."""
    if paths.WHY.exists() or not paths.OPENED.exists():
        return False
    return paths.LEAVING.exists() or gate.current() == gate.OPEN


def end(box: Box, aws: Aws, over: Callable[[], bool]) -> Optional[list[dict[str, Any]]]:
    """Leave as planned; returns the metrics. None where nothing was drained: it is `over` since a notice has come, or a
    fault has shut the gate.
    """
    why = "planned termination"
    say(f"PLANNED the gate stays open until the balancer has let go, at most {box.let_go_most_seconds:.0f} s")
    deregistering = drain.leave_balancer(box, aws, box.let_go_most_seconds)
    _until_let_go(box, deregistering, over)
    if over() or not possible():
        return None
    paths.mark(paths.LEAVING, why)
    refused = gate.attempt(gate.DRAINING, box.port)
    say(
        f"DRAIN {why}: {'new connections refused' if refused else 'THE GATE COULD NOT BE SHUT'}, "
        f"at most {box.planned_seconds:.0f} s"
    )
    return drain.let_streams_end(box, time.monotonic() + box.planned_seconds, over)


def _until_let_go(box: Box, deregistering: threading.Thread, over: Callable[[], bool]) -> None:
    """Until no new connection has come for a while. A probe carries no bytes, so it is none."""
    began = deregistered_at = came_at = time.monotonic()
    known = set[str]()
    while gate.current() == gate.OPEN and not over():
        now = time.monotonic()
        try:
            callers = streams.callers(box.port)
        except streams.StreamsError as error:
            say(f"streams: {error}")
            callers = {f"unknown at {now}"}
        if callers - known:
            came_at = now
        known = callers
        if deregistering.is_alive():
            deregistered_at = now
        waited = now - began
        quiet = now - deregistered_at >= box.let_go_least_seconds and now - came_at >= box.let_go_quiet_seconds
        if quiet or waited >= box.let_go_most_seconds:
            say(f"the balancer has let go: {waited:.0f} s, the last new connection {now - came_at:.0f} s ago")
            return
        time.sleep(SAMPLE_SECONDS)
