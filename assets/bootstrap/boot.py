"""Boots the box: runs the declared stages as early as they can; exits non-zero if it cannot serve (fleet-boot.service).

A failure only writes down why: systemd then starts fleet-leave.service, as it does when this program dies.
"""

import os
import signal
import sys
import threading
import time
import traceback
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

import cache
import config
import disk
import engine
import gate
import graph
import line
import names
import paths
import readiness
import streamed
import telemetry
from aws import Aws, AwsError, DeniedError
from config import Box
from download import DamagedError, Item, download
from graph import Detail
from imds import Identity, Imds, identity
from log import say, uptime
from s3 import Bucket
from stages import STAGES, budget
from stream_state import DOWNLOADED, STREAMED
from systemctl import systemctl

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOST_BEFORE_KERNEL_SECONDS = 300.0  # launch to kernel takes 15 to 90 s; more is a wall clock that is off
ENGINE_ENVIRONMENT = paths.RUN / "engine.env"


class Boot:
    """One boot. Every declared stage is a method, which may return details of what it did."""

    def __init__(self, box: Box, imds: Imds, who: Identity) -> None:
        self._box, self._who = box, who
        self._aws = Aws(box, who.instance_id)
        self._bucket = Bucket(box.bucket, box.region, imds)
        self._plan: cache.Plan  # by the stage of that name, before all that need it
        self._warm = True
        self._cache_damaged = False
        self._imported = b""  # a cold boot's manifest
        self._model: Optional[Item] = None
        self._streamed: Optional[streamed.Streamed] = None
        self._tagging = threading.Lock()
        self._runs: list[graph.Run] = []
        self._told = 0  # of these runs, in metrics
        self._before_kernel = before_kernel_seconds(who.launched_at, datetime.now(timezone.utc), uptime())

    def deadline(self) -> float:
        """When the boot's budget ends, in uptime; the budget counts from the launch."""
        budget = self._box.warm_budget_seconds if self._warm else self._box.cold_budget_seconds
        return budget - self._before_kernel

    def gate(self) -> None:
        gate.set_state(gate.CLOSED, self._box.port)

    def agent(self) -> None:
        systemctl("start", "fleet-agent.service")

    def lane(self) -> None:
        line.start(self._box, self._who.instance_id)

    def telemetry(self) -> Detail:
        return telemetry.start_agent(self._box)

    def register(self) -> None:
        self._aws.register(budget("register"))

    def store(self) -> Detail:
        return {"how": disk.prepare().replace(" ", "-")}

    def plan(self) -> Detail:
        self._plan = cache.plan(self._box, self._bucket)
        if self._plan.why_cold:
            say(f"booting cold: {self._plan.why_cold}")
        self._turn(self._plan.warm)
        return {"boot": names.BOOT_WARM if self._warm else names.BOOT_COLD}

    def engine(self) -> Detail:
        artifact, tarball = self._box.engine, paths.ENGINE / "engine.tar"
        known = self._plan.artifacts[artifact.key]
        count = download(self._bucket, [Item(artifact.key, tarball, known.size, known.etag, artifact.sha256)])
        engine.unpack(tarball)
        return {"bytes": count}

    def start_engine(self) -> None:
        ENGINE_ENVIRONMENT.write_text("".join(f"{k}={v}\n" for k, v in engine.environment(self._box).items()))
        engine.start(self._box, budget("start_engine"))

    def restore(self) -> Detail:
        """All that the engine needs to load; where it can load while the model arrives, all but the model."""
        if not self._plan.warm:
            return self._sources()
        try:
            self._model = cache.model(self._box, self._plan)
            self._streamed = streamed.begin(self._box, self._bucket, self._model)
            cache.restore(self._box, self._bucket, self._plan, self._model)
            return {"how": STREAMED}
        except (streamed.StreamError, DamagedError) as error:
            return self._downloaded(error)

    def load(self) -> Detail:
        """Streamed: the engine loads the model while it arrives; what it was given must have the right digest."""
        if not self._streamed:
            return graph.SKIPPED
        try:
            return {"bytes": self._streamed.load(self._box, budget("warm_up")), "how": STREAMED}
        except (streamed.StreamError, DamagedError) as error:
            streamed.end(self._streamed.item)  # first: who hangs in a read of it can be ended by nobody
            systemctl("stop", engine.UNIT)  # it may hold what is not the model
            detail = self._downloaded(error)
            engine.start(self._box, budget("start_engine"))
            return detail

    def _downloaded(self, error: Exception) -> Detail:
        """The model is fetched before it is loaded; what it is made from where the store holds it damaged."""
        self._streamed = None
        say(f"WARNING the model does not load while it arrives: {error}")
        if self._model:
            streamed.end(self._model)
        try:
            if isinstance(error, DamagedError):
                raise error
            count = cache.restore(self._box, self._bucket, self._plan)
            return {"bytes": count, "how": DOWNLOADED, "why": str(error)}
        except DamagedError as damage:
            say(f"the cache is damaged, booting cold: {damage}")
            self._cache_damaged = True
            self._turn(warm=False)
            return self._sources()

    def _sources(self) -> Detail:
        return {"bytes": cache.fetch_sources(self._box, self._bucket, self._plan), "boot": names.BOOT_COLD}

    def import_(self) -> Detail:
        if self._warm:
            return graph.SKIPPED
        self._imported = engine.create(self._box, cache.source(self._box.modelfile.key))
        cache.check(self._box, self._plan, self._imported)
        return None

    def warm_up(self) -> None:
        readiness.warm_up(self._box, budget("warm_up"))

    def open(self) -> Detail:
        """Open, unless the engine has lost the model since the warm-up: then the agent proves it anew, and opens."""
        proved = readiness.running(self._box) == engine.Loaded()
        if proved:
            gate.set_state(gate.OPEN, self._box.port)
        paths.mark(paths.OPENED)
        return None if proved else {"left_to": "the-agent"}

    def healthy(self) -> None:
        while self._aws.target_state(budget("healthy")) != "healthy":
            time.sleep(self._box.health_poll_seconds)

    def complete(self) -> None:
        self._aws.complete_hook(names.LAUNCH_HOOK, "CONTINUE", budget("complete"))
        paths.mark(paths.COMPLETED)

    def upload_cache(self) -> Detail:
        if self._warm:
            return graph.SKIPPED
        found = self._plan
        trust = not (self._cache_damaged or found.released)  # a released cache that was not restored is not whole
        return {"bytes": cache.upload(self._bucket, self._aws, found, self._imported, trust=trust)}

    def run(self) -> None:
        """Boot; raises StageError. What was measured is told either way."""
        threading.Thread(target=self._heartbeat, daemon=True).start()
        bodies = {stage.name: getattr(self, stage.method) for stage in STAGES}
        try:
            for run in graph.run(STAGES, bodies, self.deadline):
                self._ended(run)
        finally:
            telemetry.report(self._runs)
            telemetry.put(self._aws, self._fresh_metrics())
        telemetry.ship(self._aws, names.box_log_stream(self._who.instance_id, names.STREAM_BOOT))

    def _ended(self, run: graph.Run) -> None:
        say(telemetry.bootstage(run))
        self._runs.append(run)
        if run.name == "complete":  # what comes after it may take minutes
            threading.Thread(target=telemetry.put, args=(self._aws, self._fresh_metrics()), daemon=True).start()

    def _fresh_metrics(self) -> list[dict[str, Any]]:
        """Of the stages that were done since the last time."""
        name, data = names.METRIC_BOOT_STAGE_SECONDS, []
        fresh, self._told = self._runs[self._told :], len(self._runs)
        for run in fresh:
            if run.outcome != graph.DONE:
                continue
            data.append(telemetry.metric(self._box, name, run.seconds, stage=run.name))
            if run.name == "complete":
                ready = run.ended + self._before_kernel
                telemetry.figure(names.SPOT_READY_LATENCY, ready)
                data.append(telemetry.metric(self._box, name, run.ended, stage=names.STAGE_TOTAL))
                data.append(telemetry.metric(self._box, names.METRIC_REPLACEMENT_READY_SECONDS, ready))
                if self._warm:
                    how = int(self._streamed is not None)
                    data.append(telemetry.metric(self._box, names.METRIC_BOOT_STREAMED, how, "None"))
        return data

    def _turn(self, warm: bool) -> None:
        """Decide warm or cold, and say so on the instance: the watchdog's patience depends on it."""
        self._warm = warm
        threading.Thread(target=self._tag, daemon=True).start()

    def _tag(self) -> None:
        with self._tagging:  # one at a time, each with what stands by then: a slow "warm" never overwrites a "cold"
            while not (paths.COMPLETED.exists() or paths.LEAVING.exists()):
                boot = names.BOOT_WARM if self._warm else names.BOOT_COLD
                try:
                    self._aws.tag_boot(boot, telemetry.PATIENCE_SECONDS)
                    break
                except DeniedError as error:
                    say(f"not tagged {boot}: {error}")
                    break
                except AwsError as error:
                    say(f"not tagged {boot}, tried again: {error}")
                    time.sleep(self._box.health_poll_seconds)

    def _heartbeat(self) -> None:
        while not paths.COMPLETED.exists():
            time.sleep(self._box.heartbeat_seconds)
            try:
                self._aws.heartbeat(names.LAUNCH_HOOK, telemetry.PATIENCE_SECONDS)
            except AwsError as error:
                say(f"no heartbeat: {error}")


def before_kernel_seconds(launched_at: Optional[datetime], now: datetime, up: float) -> float:
    """From launch to kernel, by the wall clock; 0 where that cannot be right."""
    if launched_at is None:
        return 0.0
    seconds = (now - launched_at).total_seconds() - up
    return seconds if 0 <= seconds <= MOST_BEFORE_KERNEL_SECONDS else 0.0


def second_start() -> Optional[str]:
    """Why this machine must not boot again; None at its first start, which it remembers."""
    current = BOOT_ID.read_text()
    if not paths.BOOT_ID.exists():
        paths.mark(paths.BOOT_ID, current)
        return None
    if paths.BOOT_ID.read_text() == current:
        return "the boot ran before and did not finish"
    return "rebooted: the instance store is empty"


def main() -> int:
    """Boot; returns the exit status."""
    signal.signal(signal.SIGTERM, _stopped)
    try:
        why = second_start()
        if why:
            raise graph.StageError(why)
        box, imds = config.load(), Imds()
        boot = Boot(box, imds, identity(imds))
        boot.run()
        return 0
    except graph.StageError as error:
        why = str(error)
    except Exception as error:
        say(traceback.format_exc())
        why = f"boot: {type(error).__name__}: {error}"
    if paths.serves():
        say(f"after the boot: {why}")
        return 0
    say(f"BOOT FAILED {why}")
    paths.mark(paths.WHY, why)
    return 1


def _stopped(number: int, frame: object) -> None:
    say("boot: ended by request")
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
