"""The lane's own routes, on loopback alone: the line, drops, drain, readiness, metrics."""

import contextlib
import json
import os

import names
import paths

from lane.config import Config
from lane.line import Why
from lane.service import Lane
from relay.http_server import Request, Response, json_response
from relay.refusal import Refusal

REFUSALS = [why.value for why in Why]
BODY_SECONDS = 5.0
DRAIN_MOST_SECONDS = 7200.0  # as long as a termination hook may hold a box


class Admin:
    """What only the box itself reaches."""

    def __init__(self, config: Config, lane: Lane) -> None:
        self._config, self._lane = config, lane

    async def answer(self, request: Request) -> Response:
        """To any request: what its path says."""
        asked, lane = (request.method, request.path), self._lane
        if asked == ("GET", "/line"):
            return self._told()
        if request.method == "DELETE" and request.path.startswith("/line/"):
            dropped = lane.drop(request.path[len("/line/") :])
            return json_response(200 if dropped else 404, {"dropped": dropped})
        if asked == ("POST", "/drain"):
            return await self._drain(request)
        if asked == ("DELETE", "/drain"):
            lane.line.resumed()
            return json_response(200, {"draining": False})
        if asked == ("GET", "/ready"):
            why = await lane.engine.unready()
            return json_response(503 if why else 200, {"ready": not why, "why": why})
        if asked == ("GET", "/metrics"):
            return self._metrics()
        return Response(404)

    def _told(self) -> Response:
        lane = self._lane
        return json_response(
            200,
            {
                "streams": lane.streams,
                "draining": lane.line.leaves_at is not None,
                "expected_wait_seconds": round(lane.expected_wait(), 1),
                "wasted_tokens": lane.metrics.wasted,
                "waits": {"count": lane.metrics.begun, "seconds": round(lane.metrics.wait_seconds, 3)},
                "cut": lane.metrics.aborted,
                "counts": dict(lane.line.counts),
                "refusals": {why: lane.line.counts[why] for why in REFUSALS},
                "pid": os.getpid(),  # another one: every count began anew
                "line": lane.listed(),
            },
        )

    async def _drain(self, request: Request) -> Response:
        try:
            seconds = float(
                json.loads(await request.read(BODY_SECONDS) or b"{}").get("seconds", self._config.drain_seconds)
            )
        except (ValueError, TypeError, AttributeError, Refusal):
            return json_response(400, {"error": "`seconds` must be a number"})
        if not 0 <= seconds <= DRAIN_MOST_SECONDS:
            return json_response(400, {"error": f"`seconds` must be 0 to {DRAIN_MOST_SECONDS:g}"})
        self._lane.leave(seconds)
        return self._told()

    def _metrics(self) -> Response:
        """As Prometheus text: few enough to be written without a library."""
        lane, line, counted = self._lane, self._lane.line, self._lane.metrics
        lines = [
            *_metric(names.LANE_DEPTH, "gauge", len(line.waiting) + (line.running is not None)),
            *_metric(names.LANE_EXPECTED_WAIT, "gauge", round(lane.expected_wait(), 3)),
            f"# TYPE {names.LANE_WAIT} summary",
            f"{names.LANE_WAIT}_count {counted.begun}",
            f"{names.LANE_WAIT}_sum {counted.wait_seconds:.3f}",
            f"# TYPE {names.LANE_REFUSALS}_total counter",
            *(f'{names.LANE_REFUSALS}_total{{reason="{why}"}} {line.counts[why]}' for why in REFUSALS),
            *_metric(f"{names.LANE_TOKENS}_total", "counter", counted.tokens),
            *_metric(names.SPOT_WASTED_TOKENS, "counter", counted.wasted),
            *_metric(names.SPOT_ABORTED_RATIO, "gauge", round(counted.aborted / max(1, counted.begun), 4)),
            *(each for name, value in _box_figures().items() for each in _metric(name, "gauge", value)),
        ]
        text = "\n".join(lines) + "\n"
        return Response(body=text.encode(), content_type="text/plain; charset=utf-8")


def _metric(name: str, kind: str, value: float) -> list[str]:
    return [f"# TYPE {name} {kind}", f"{name} {value}"]


def _box_figures() -> dict[str, float]:
    """What the box's other programs told of its boot and of its notice; nothing where they did not, or not yet."""
    found = {}
    for name in (names.SPOT_READY_LATENCY, names.SPOT_NOTICE_TO_DRAINING):
        with contextlib.suppress(OSError, ValueError):
            found[name] = float((paths.FIGURES / name).read_text())
    return found
