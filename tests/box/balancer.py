"""A small TCP balancer before boxes of the test world, as unkind as a network load balancer, times at 1:SCALE.

It goes on sending new connections to a deregistered target for two minutes and to an unhealthy one for up to 40 s;
where none is left it sends to all. A connection stays with its target.
"""

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.box import netns, world

SCALE = 40
PROBE_SECONDS, PROBES = 10 / SCALE, 2
DEREGISTERED_SECONDS = 120 / SCALE  # new connections go on for so long
UNHEALTHY_SECONDS = (30 / SCALE, 40 / SCALE)
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset


@dataclass
class Target:
    """One box, as the balancer knows it. `until` is how long new connections are sent to it, monotonic."""

    box: world.World
    registered: bool = False
    healthy: bool = False
    until: float = 0.0
    registered_at: float = 0.0  # when AWS last said so
    streak: int = 0  # probes running that say otherwise
    connections: int = 0

    def connect(self) -> socket.socket:
        with netns.inside(self.box.out):
            return socket.create_connection((netns.BOX_V4, world.PORT), timeout=5)


@dataclass
class Balancer:
    """The balancer; `port` is on this machine's loopback."""

    targets: list[Target]
    listening: socket.socket
    ended: threading.Event = field(default_factory=threading.Event)
    luck: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - which target, no secret

    @property
    def port(self) -> int:
        return int(self.listening.getsockname()[1])

    def watch(self) -> None:
        """Follow the registrations in AWS, and tell it what the probes say."""
        aws = self.targets[0].box.aws
        client, group = aws.client("elbv2"), (self.targets[0].box.here / "target-group").read_text()
        while not self.ended.wait(PROBE_SECONDS):
            now = time.monotonic()
            told = client.describe_target_health(TargetGroupArn=group)["TargetHealthDescriptions"]
            known = {each["Target"]["Id"] for each in told}
            for target in self.targets:
                if target.registered and target.box.instance_id not in known:
                    target.until = min(target.until, target.registered_at + DEREGISTERED_SECONDS)
                target.registered = target.box.instance_id in known
                target.registered_at = now if target.registered else target.registered_at
                if self.probe(target):
                    aws.control(
                        "health",
                        instance_id=target.box.instance_id,
                        state="healthy" if target.healthy else "unhealthy",
                    )

    def probe(self, target: Target) -> bool:
        """One probe; whether the target's health has changed."""
        try:
            target.connect().close()
            answers = True
        except OSError:
            answers = False
        target.streak = target.streak + 1 if answers != target.healthy else 0
        changed = target.streak >= PROBES
        if changed:
            target.healthy, target.streak = answers, 0
            if not answers:
                target.until = min(target.until, time.monotonic() + self.luck.uniform(*UNHEALTHY_SECONDS))
        if target.healthy and target.registered:
            target.until = float("inf")
        return changed

    def accept(self) -> None:
        """Send each new connection to a target."""
        while not self.ended.is_set():
            try:
                caller, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self.route, args=(caller,), daemon=True).start()

    def route(self, caller: socket.socket) -> None:
        now = time.monotonic()
        target = self.luck.choice([each for each in self.targets if now < each.until] or self.targets)
        target.connections += 1
        try:
            server = target.connect()
        except OSError:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return caller.close()
        server.settimeout(None)
        threading.Thread(target=pump, args=(caller, server), daemon=True).start()
        return pump(server, caller)


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Bytes one way; an end is passed on as an end, a reset as a reset."""
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                each.close()


@contextmanager
def before(*boxes: world.World) -> Iterator[Balancer]:
    """A balancer before these boxes, of which it knows what AWS knows."""
    made = Balancer([Target(box) for box in boxes], socket.create_server(("127.0.0.1", 0), backlog=128))
    threads = [threading.Thread(target=work, daemon=True) for work in (made.watch, made.accept)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        made.ended.set()
        made.listening.close()
        threads[0].join(10)
