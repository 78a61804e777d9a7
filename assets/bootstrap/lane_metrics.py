"""Tells CloudWatch of the lane: depth, waits, estimate, refusals and wasted tokens, from its own list, every minute."""

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import engine
import names
import telemetry
from config import Box

EVERY_SECONDS = 60.0  # a metric has a resolution of a minute
LEAVING_SECONDS = 10.0  # the last word must get out before the box does
LOOK_SECONDS = 2.0
FRESH = {"pid": 0, "refusals": {}, "wasted_tokens": 0, "waits": {"count": 0, "seconds": 0.0}}
Line = Mapping[str, Any]


def data(box: Box, line: Line, before: Optional[Line]) -> list[dict[str, Any]]:
    """What the lane says now, in CloudWatch's shape. Its counts are those since `before`, or since it was started."""
    was: Line = before if before and before["pid"] == line["pid"] else FRESH
    found = [telemetry.metric(box, names.METRIC_LANE_DEPTH, len(line["line"]), "Count")]
    if not line["draining"]:  # nobody comes to a box that leaves
        found.append(telemetry.metric(box, names.METRIC_LANE_EXPECTED_WAIT_SECONDS, line["expected_wait_seconds"]))
    began = line["waits"]["count"] - was["waits"]["count"]
    if began:
        mean = (line["waits"]["seconds"] - was["waits"]["seconds"]) / began
        found.append(telemetry.metric(box, names.METRIC_LANE_WAIT_SECONDS, mean))
    for reason, count in line["refusals"].items():
        refused = count - was["refusals"].get(reason, 0)
        if refused:
            found.append(telemetry.metric(box, names.METRIC_LANE_REFUSALS, refused, "Count", reason=reason))
    wasted = line["wasted_tokens"] - was["wasted_tokens"]
    if wasted:
        found.append(telemetry.metric(box, names.METRIC_LANE_WASTED_TOKENS, wasted, "Count"))
    return found


def look(port: int = names.LANE_ADMIN_PORT) -> Optional[Line]:
    """What the lane says; None where it does not answer."""
    try:
        return engine.answer(engine.connect(LOOK_SECONDS, port), "GET", "/line")
    except engine.EngineError:
        return None


class Reporter:
    """What was told last, and when."""

    def __init__(self, box: Box, put: Callable[[Sequence[dict[str, Any]]], None]) -> None:
        self._box, self._put = box, put
        self._before: Optional[Line] = None
        self._told_at = float("-inf")

    def step(self, now: float, *, leaving: bool) -> None:
        """Tell, once it is time; `now` on the monotonic clock."""
        if now - self._told_at < (LEAVING_SECONDS if leaving else EVERY_SECONDS):
            return
        self._told_at, found = now, look()
        if found is not None:
            self._put(data(self._box, found, self._before))
            self._before = found
