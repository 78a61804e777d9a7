"""The lane's own routes, on loopback alone: the line, drops, drain, readiness, metrics."""

import contextlib
import json
import os

import names
import paths
from aiohttp import web

from lane.config import Config
from lane.line import Why
from lane.service import Lane

REFUSALS = [why.value for why in Why]
DRAIN_MOST_SECONDS = 7200.0  # as long as a termination hook may hold a box


class Admin:
    """What only the box itself reaches."""

    def __init__(self, config: Config, lane: Lane) -> None:
        self._config, self._lane = config, lane

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.router.add_get("/line", self._line)
        app.router.add_delete("/line/{id}", self._drop)
        app.router.add_post("/drain", self._drain)
        app.router.add_delete("/drain", self._stay)
        app.router.add_get("/ready", self._ready)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def _line(self, request: web.Request) -> web.Response:
        return self._told()

    def _told(self) -> web.Response:
        lane = self._lane
        return web.json_response(
            {
                "box": self._config.box,
                "streams": lane.streams,
                "draining": lane.line.leaves_at is not None,
                "expected_wait_seconds": round(lane.expected_wait(), 1),
                "token_seconds": round(lane.line.estimates.token_seconds, 4),
                "slices": {None: "not proved yet", True: "exact", False: "none"}[lane.exact],
                "wasted_tokens": lane.metrics.wasted,
                "waits": {"count": lane.metrics.wait.count, "seconds": round(lane.metrics.wait.total, 3)},
                "cut": lane.metrics.aborted,
                "counts": dict(lane.line.counts),
                "refusals": {why: lane.line.counts[why] for why in REFUSALS},
                "pid": os.getpid(),  # another one: every count began anew
                "line": lane.listed(),
            }
        )

    async def _drop(self, request: web.Request) -> web.Response:
        dropped = self._lane.drop(request.match_info["id"])
        return web.json_response({"dropped": dropped}, status=200 if dropped else 404)

    async def _drain(self, request: web.Request) -> web.Response:
        try:
            seconds = float(json.loads(await request.read() or b"{}").get("seconds", self._config.drain_seconds))
        except (ValueError, TypeError, AttributeError):
            return web.json_response({"error": "`seconds` must be a number"}, status=400)
        if not 0 <= seconds <= DRAIN_MOST_SECONDS:
            return web.json_response({"error": f"`seconds` must be 0 to {DRAIN_MOST_SECONDS:g}"}, status=400)
        self._lane.leave(seconds)
        return self._told()

    async def _stay(self, request: web.Request) -> web.Response:
        self._lane.stay()
        return web.json_response({"draining": False})

    async def _ready(self, request: web.Request) -> web.Response:
        why = await self._lane.engine.unready()
        return web.json_response({"ready": not why, "why": why}, status=503 if why else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        lane = self._lane
        text = lane.metrics.text(
            depth=len(lane.line.waiting) + (lane.line.running is not None),
            expected_seconds=lane.expected_wait(),
            refusals={why: lane.line.counts[why] for why in REFUSALS},
            box=_box_figures(),
        )
        return web.Response(text=text, content_type="text/plain", charset="utf-8")


def _box_figures() -> dict[str, float]:
    """What the box's other programs told of its boot and of its notice; nothing where they did not, or not yet."""
    found = {}
    for name in (names.SPOT_READY_LATENCY, names.SPOT_NOTICE_TO_DRAINING):
        with contextlib.suppress(OSError, ValueError):
            found[name] = float((paths.FIGURES / name).read_text())
    return found
