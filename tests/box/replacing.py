"""Planned replacements under load: two real boxes, a balancer as unkind as AWS's, callers who must notice nothing.

Each caller makes a connection of his own, at half the rate that one box's engine serves; a third of the answers stream.
A box that has left is put back as its own successor, or every replacement would cost a boot.
"""

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.box import balancer, world

LIFECYCLE = "meta-data/autoscaling/target-lifecycle-state"
# A request's time on the engine here, about: what is asked for, and a tenth for the rest.
PLAIN, STREAM = (2, {"prompt_seconds": 0.15}), (6, {"pace_seconds": 0.1, "prompt_seconds": 0})
SERVES_A_SECOND = 1 / ((2 * 0.25 + 0.75) / 3)
TIMINGS: dict[str, Any] = {
    "let_go_least_seconds": 120 / balancer.SCALE,
    "let_go_quiet_seconds": 30 / balancer.SCALE,
    "let_go_most_seconds": 300 / balancer.SCALE,
    "planned_seconds": 30,
    # the callers' load is not what these are for
    "wedge_stuck_seconds": 120.0,
    "wedge_silent_seconds": 30.0,
    "token_seconds": 20.0,
}


@dataclass
class Load:
    """Callers at random moments; what became of each."""

    port: int
    luck: random.Random = field(default_factory=lambda: random.Random(11))  # noqa: S311 - moments, no secret
    outcomes: Counter[str] = field(default_factory=Counter)
    ended: threading.Event = field(default_factory=threading.Event)
    callers: list[threading.Thread] = field(default_factory=list)

    def run(self) -> None:
        """Start callers until it ends, then wait for the last."""
        number = 0
        while not self.ended.wait(self.luck.expovariate(SERVES_A_SECOND / 2)):
            number += 1
            self.callers.append(threading.Thread(target=self.call, args=(number % 3 == 0,), daemon=True))
            self.callers[-1].start()
        for caller in self.callers:
            caller.join(60)

    def call(self, stream: bool) -> None:
        """One request on a connection of its own."""
        tokens, played = STREAM if stream else PLAIN
        prompt = f"Hello {json.dumps(played)}"
        body = {"model": "tiny", "prompt": prompt, "stream": stream, "options": {"num_predict": tokens}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        kind = "stream" if stream else "request"
        try:
            connection.request("POST", "/api/generate", json.dumps(body))
            answer = connection.getresponse().read()
            whole = json.loads(answer.splitlines()[-1])["done"] is True
            self.outcomes[f"{kind} {'answered' if whole else 'cut'}"] += 1
        except (OSError, http.client.HTTPException, ValueError, IndexError) as error:
            self.outcomes[f"{kind} failed: {type(error).__name__}"] += 1
        finally:
            connection.close()


@contextmanager
def load(port: int) -> Iterator[Load]:
    """Callers meanwhile; in the end everybody has his answer or has none."""
    made = Load(port)
    running = threading.Thread(target=made.run, daemon=True)
    running.start()
    try:
        yield made
    finally:
        made.ended.set()
        running.join(90)


def replace(box: world.World, target: balancer.Target) -> None:
    """The group ends this box as planned; it comes back as its successor would."""
    drained = box.log().count("DRAINED")
    box.metadata.paths[LIFECYCLE] = "Terminated"
    world.wait(lambda: box.log().count("DRAINED") > drained, why=box.log)
    assert box.systemctl("stop", "fleet-agent.service") == 0
    del box.metadata.paths[LIFECYCLE]
    for mark in ("leaving", "notice", "why"):
        box.inside(f"/run/fleet/{mark}").unlink(missing_ok=True)
    for unit in ("lane", "agent"):
        box.systemctl("stop", f"fleet-{unit}.service")
        assert box.systemctl("start", f"fleet-{unit}.service") == 0
    box.gate("open")
    group = (box.here / "target-group").read_text()
    box.aws.client("elbv2").register_targets(TargetGroupArn=group, Targets=[{"Id": box.instance_id}])
    world.wait(lambda: target.healthy and target.registered, why=box.log)


def planned(boxes: list[world.World], count: int) -> Counter[str]:
    """So many planned replacements, in turn; what became of the callers."""
    with balancer.before(*boxes) as front:
        world.wait(lambda: all(target.healthy and target.registered for target in front.targets))
        with load(front.port) as callers:
            time.sleep(0.5)
            for number in range(count):
                turn = number % len(boxes)
                replace(boxes[turn], front.targets[turn])
    return callers.outcomes
