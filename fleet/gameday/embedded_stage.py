"""The stage inside this machine: the embedded AWS, where time is set back instead of waited for.

Stand-ins, named as such: the balancer (an HTTP server that answers while a target is healthy), the engine behind it
(an echo), and the group's rolling (the successor first, then the end of the old box, by the group's own API).
"""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from fleet.account.access import Aws
from fleet.core import names
from fleet.gameday.stage import StageError
from fleet.localaws.deployed import Deployed
from fleet.ops import fleet_view
from lambdas.watchdog.state import loads

HEALTH_SECONDS = 0.2  # how old the balancer's knowledge of its targets may be


class EmbeddedStage:
    """A deployed fleet on an embedded AWS."""

    rolled_by = "a stand-in (the embedded AWS leaves a refresh InProgress)"

    def __init__(self, deployed: Deployed, aws: Aws, endpoint: str) -> None:
        self._deployed, self.aws, self.endpoint = deployed, aws, endpoint
        self.settings = deployed.settings
        self._group = names.group(self.settings.fleet_name)

    def let_pass(self, seconds: float, why: str) -> None:
        """What the watchdog remembers, and every box's launch, moves back by `seconds`."""
        past = timedelta(seconds=seconds)
        name = names.state_parameter(self.settings.fleet_name)
        state = loads(self._deployed.parameter(name))
        moved = replace(
            state,
            failovers=tuple(at - past for at in state.failovers),
            parts=tuple((at - past, share) for at, share in state.parts),
            **{
                key: value - past
                for key in ("since", "cooldown_from", "scored_at", "rearm_from", "launched_at")
                if (value := getattr(state, key))
            },
        )
        self._deployed.aws.client("ssm").put_parameter(Name=name, Value=moved.dumps(), Type="String", Overwrite=True)
        self._deployed.age_group(86400)
        self._deployed.age_boxes(seconds)

    def go_dark(self, boxes: tuple[str, ...]) -> None:
        """Their targets are unhealthy."""
        for box in boxes:
            self._deployed.aws.control("health", instance_id=box, state="unhealthy")

    def lights_on(self) -> None:
        """New boxes are healthy as soon as they are in service."""

    def light_alarm(self) -> None:
        """Lit for a minute."""
        self._deployed.set_alarm("ALARM", seconds_ago=60)

    def calm_alarm(self) -> None:
        """OK again."""
        self._deployed.set_alarm("OK")

    def finish_roll(self, old: tuple[str, ...], left: int = 0) -> None:
        """Box by box the successor first, then the end of the old one; on-demand first, so that a base comes back."""
        scaling = self._deployed.aws.client("autoscaling")
        desired = int(self._deployed.group()["DesiredCapacity"])
        members = sorted(self._deployed.boxes(), key=lambda box: box.get("InstanceLifecycle") == "spot")
        still = [box["InstanceId"] for box in members if box["InstanceId"] in old]
        for box in still[: len(still) - left]:
            scaling.set_desired_capacity(AutoScalingGroupName=self._group, DesiredCapacity=desired + 1)
            scaling.terminate_instance_in_auto_scaling_group(InstanceId=box, ShouldDecrementDesiredCapacity=True)
        refreshes = scaling.describe_instance_refreshes(AutoScalingGroupName=self._group)["InstanceRefreshes"]
        if refreshes and refreshes[0]["Status"] == "InProgress":
            self._deployed.aws.control("refresh", group=self._group, status="Successful")
        if len(self._deployed.boxes()) < desired:
            raise StageError("the market sells no successor")

    def settled(self) -> None:
        """Asynchronous invocations are over."""
        self._deployed.aws.control("settle")


@contextmanager
def balancer_standin(aws: Aws, fleet: str) -> Iterator[str]:
    """A stand-in for the balancer and the engine behind it; its address."""
    balancer = _Balancer(("127.0.0.1", 0), _Answer)
    balancer.health = partial(fleet_view.target_health, aws, fleet)
    threading.Thread(target=balancer.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{balancer.server_port}"
    finally:
        balancer.shutdown()
        balancer.server_close()


class _Balancer(http.server.ThreadingHTTPServer):
    """Knows whether a target is healthy, as of a moment ago."""

    daemon_threads = True
    health: Callable[[], dict[str, str]]
    _known: tuple[float, bool] = (0.0, False)
    _lock = threading.Lock()

    def open(self) -> bool:
        """Whether a request has somewhere to go."""
        with self._lock:
            if time.monotonic() - self._known[0] > HEALTH_SECONDS:
                self._known = (time.monotonic(), "healthy" in self.health().values())
            return self._known[1]


class _Answer(http.server.BaseHTTPRequestHandler):
    """One request at the balancer."""

    server: _Balancer

    def do_POST(self) -> None:
        """Echo while a target is healthy; else the connection ends without an answer, as at a closed gate."""
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.server.open():
            self.close_connection = True
            return
        body = json.dumps({"response": f"(an echo, no model runs here) {question['prompt']}"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
