"""The drain agent: polls instance metadata and acts on notices, for the whole life of the box (fleet-agent.service).

interruption notice        drain inside what is left of its two minutes, then leave (a successor launches at once)
rebalance recommendation   reported
scheduled stop or reboot   shortly before it, have the group replace the box: a planned end
target state Terminated    have the balancer let go, drain, complete the termination hook; a notice meanwhile takes over
"""

import os
import threading
import time
import traceback
from datetime import datetime, timezone
from typing import Optional

import config
import keeper
import lane_metrics
import leave
import names
import notices
import paths
import planned
import telemetry
from aws import HOOK_SECONDS, Aws, AwsError
from config import Box
from drain import drain
from imds import Imds, ImdsError, identity
from log import say

REPORT_SECONDS = 15.0  # in which a leaving box can tell CloudWatch why


class Agent:
    """What the agent remembers between two polls."""

    def __init__(self, box: Box, imds: Imds, aws: Aws) -> None:
        self._box, self._imds, self._aws = box, imds, aws
        self._clear_at: Optional[float] = None  # when metadata last said that there is no notice
        self._clock_offset: Optional[float] = None  # at the last poll
        self._troubled: set[str] = set()
        self._recommended: set[str] = set()
        self._noticed = threading.Event()
        self._planned: Optional[threading.Thread] = None
        self._terminated_at: Optional[float] = None
        self._ending = False  # the group was asked for it, because of a scheduled event
        self._hook_completed = False

    def poll(self) -> None:
        """One look at every path; none of them can hide another."""
        text = self._read(notices.INTERRUPTION)
        if text:
            self._interrupted(text)
        self._clock_offset = time.time() - time.monotonic()
        text = self._read(notices.SCHEDULED)
        if text:
            self._scheduled(text)
        text = self._read(notices.REBALANCE)
        if text:
            self._recommend(text)
        if self._read(notices.LIFECYCLE) == notices.TERMINATED:
            self._terminating()

    def _read(self, path: str) -> Optional[str]:
        try:
            text = self._imds.get(path)
        except ImdsError as error:
            if path not in self._troubled:
                say(f"{error}")
            self._troubled.add(path)
            return None
        if path in self._troubled:
            self._troubled.remove(path)
            say(f"metadata is back: {path}")
        if path == notices.INTERRUPTION and text is None:
            self._clear_at = time.monotonic()
        return text.strip() if text else None

    def _interrupted(self, text: str) -> None:
        if self._noticed.is_set():
            return None
        since_clear = None if self._clear_at is None else time.monotonic() - self._clear_at
        wall = time.time()
        holds = notices.clock_holds(wall, wall - time.monotonic(), self._clock_offset, self._imds.date)
        notice = notices.interruption(text, datetime.now(timezone.utc), since_clear, holds)
        if notice is None:
            return say("metadata: an interruption notice that is none")
        self._noticed.set()
        paths.mark(paths.NOTICE, notice.action)
        say(f"NOTICE {notice.action} in {notice.seconds_left:.0f} s")
        age = names.NOTICE_SECONDS - notice.seconds_left
        metrics = drain(self._box, self._aws, f"interruption notice ({notice.action})", notice.seconds_left, age)
        leave.request("interruption notice")
        return telemetry.put(self._aws, metrics)

    def _recommend(self, text: str) -> None:
        stamp = notices.recommended_at(text)
        if stamp is None or stamp in self._recommended:
            return
        self._recommended.add(stamp)
        say(f"REBALANCE recommended at {stamp}")  # EventBridge tells the watchdog, which counts it

    def _scheduled(self, text: str) -> None:
        """Planned, though at short notice: the group replaces the box, and hears its streams out."""
        box = self._box
        within = box.let_go_most_seconds + box.planned_seconds + box.safety_margin_seconds
        event = notices.scheduled(text, datetime.now(timezone.utc), within)
        if event is None or self._ending or paths.LEAVING.exists() or not paths.COMPLETED.exists():
            return
        self._ending = True
        say(f"SCHEDULED {event}: the group is asked to replace this box")
        threading.Thread(target=self._have_ended, daemon=True).start()

    def _have_ended(self) -> None:
        try:
            self._aws.terminate(leave.TERMINATE_SECONDS)
        except AwsError as error:
            say(f"not terminated through the group: {error}")
            self._ending = False  # asked again at the next poll

    def _terminating(self) -> None:
        self._terminated_at = self._terminated_at or time.monotonic()
        if self._planned is None and not self._noticed.is_set():
            say("NOTICE the group ends this box")
            paths.mark(paths.NOTICE, "planned")
            self._planned = threading.Thread(target=self._end_as_planned, daemon=True)
            self._planned.start()
        if self._hook_completed or (self._planned and self._planned.is_alive()):
            return
        reporting = paths.WHY.exists() and not paths.TOLD.exists()
        if reporting and time.monotonic() - self._terminated_at < REPORT_SECONDS:
            return  # the hook is all that keeps the box
        try:
            self._aws.complete_hook(names.TERMINATION_HOOK, "CONTINUE", HOOK_SECONDS)
            self._hook_completed = True
            say("termination hook completed")
        except AwsError as error:
            say(f"termination hook not completed: {error}")  # tried again at the next poll

    def _end_as_planned(self) -> None:
        """In the background: it takes minutes, and a notice that comes meanwhile must be heard."""
        box, over = self._box, self._noticed.is_set
        try:
            metrics = planned.end(box, self._aws, over) if planned.possible() else None
            if metrics is None and not over():
                until = box.drain_budget_seconds + box.safety_margin_seconds
                metrics = drain(box, self._aws, "termination", until, 0.0)
        except Exception:
            say(f"planned end: {traceback.format_exc()}")
            os._exit(1)  # the next agent ends what was begun: completing the hook now would cut streams
        threading.Thread(target=telemetry.put, args=(self._aws, metrics or []), daemon=True).start()


def _keep(box: Box, aws: Aws) -> None:
    """A keeper that fails takes the agent with it, unless that drains: systemd starts both again."""
    kept = keeper.Keeper(box, lambda data: telemetry.put(aws, data))
    try:
        while not paths.LEAVING.exists():
            kept.step()
            time.sleep(box.poll_seconds)
    except Exception:
        say(f"keeper: {traceback.format_exc()}")
        if not paths.LEAVING.exists():
            os._exit(1)


def _report_lane(box: Box, aws: Aws) -> None:
    """Of the lane, to the box's last breath; what fails here costs figures, not a box."""
    reporter = lane_metrics.Reporter(box, lambda data: telemetry.put(aws, data))
    while True:
        try:
            reporter.step(time.monotonic(), leaving=paths.LEAVING.exists())
        except Exception:
            say(f"lane's metrics: {traceback.format_exc()}")
        time.sleep(lane_metrics.LEAVING_SECONDS)


def main() -> None:
    """Poll until the box is gone."""
    box, imds = config.load(), Imds()
    while True:
        try:
            instance_id = identity(imds).instance_id
            break
        except ImdsError as error:
            say(f"{error}")
            time.sleep(box.poll_seconds)
    aws = Aws(box, instance_id)
    agent = Agent(box, imds, aws)
    for program in (_keep, _report_lane):
        threading.Thread(target=program, args=(box, aws), daemon=True).start()
    say("agent: watching for notices")
    while True:
        started = time.monotonic()
        agent.poll()
        time.sleep(max(0.0, started + box.poll_seconds - time.monotonic()))


if __name__ == "__main__":
    main()
