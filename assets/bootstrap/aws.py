"""Every AWS call that the box makes through the CLI, in one thin place; `box_config.ACTIONS` lists the grants.

AwsError         a call that failed; says which and why
  DeniedError    the role lacks a grant: waiting does not help
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Optional

import names
from config import Box

ATTEMPT_SECONDS = 30.0  # one CLI run, its own three attempts included
HOOK_SECONDS = 20.0  # patience with a hook's completion: on the way out there is no more
PAUSE_SECONDS = 1.0  # doubled after every failed run

DENIED = re.compile(r"\((AccessDenied|AccessDeniedException|UnauthorizedOperation|403)\)")
REFUSED = re.compile(r"\((ValidationError|ValidationException)\)")  # asked again, the answer is the same


# Linux takes 128 KiB in one argument, CloudWatch more in one call.
MOST_BYTES = 100_000
MOST_LINE_CHARACTERS = 10_000


class AwsError(Exception):
    """A call that failed."""


class DeniedError(AwsError):
    """The role lacks a permission."""


class Aws:
    """The box's calls. `patience_seconds` bounds a call with its retries; the last failure is raised."""

    def __init__(self, box: Box, instance_id: str) -> None:
        self._box, self._id = box, instance_id
        self._env = {
            **os.environ,
            "AWS_DEFAULT_REGION": box.region,
            "AWS_RETRY_MODE": "standard",
            "AWS_MAX_ATTEMPTS": "3",
            "AWS_PAGER": "",
        }

    def register(self, patience_seconds: float) -> None:
        """Make this box a target, long before it can serve: balancers take minutes to begin their checks."""
        self._call(patience_seconds, "elbv2", "register-targets", *self._target())

    def deregister(self, patience_seconds: float) -> None:
        """Take this box from the balancer. Repeating it is harmless."""
        self._call(patience_seconds, "elbv2", "deregister-targets", *self._target())

    def target_state(self, patience_seconds: float) -> str:
        """What the balancer thinks of this box: initial, healthy, unhealthy, draining, unused."""
        answer = self._call(patience_seconds, "elbv2", "describe-target-health", *self._target())
        return str(answer["TargetHealthDescriptions"][0]["TargetHealth"]["State"])

    def serves_beside_another(self, patience_seconds: float) -> bool:
        """Whether the balancer takes this box for healthy, and another one too."""
        answer = self._call(patience_seconds, "elbv2", "describe-target-health", *self._target()[:2])
        states = {each["Target"]["Id"]: each["TargetHealth"]["State"] for each in answer["TargetHealthDescriptions"]}
        return states.pop(self._id, "") == "healthy" and "healthy" in states.values()

    def complete_hook(self, hook: str, result: str, patience_seconds: float) -> None:
        """Complete a lifecycle hook with CONTINUE or ABANDON.

        A launch hook that waits no more is done: the answer was lost. A termination hook may not wait yet: the group
        deregisters first.
        """
        verb = ("autoscaling", "complete-lifecycle-action", "--lifecycle-action-result", result)
        tolerate = "No active Lifecycle Action found" if hook == names.LAUNCH_HOOK else None
        self._call(patience_seconds, *verb, *self._hook(hook), tolerate=tolerate)

    def heartbeat(self, hook: str, patience_seconds: float) -> None:
        """Restart a lifecycle hook's timeout."""
        self._call(patience_seconds, "autoscaling", "record-lifecycle-action-heartbeat", *self._hook(hook))

    def terminate(self, patience_seconds: float) -> None:
        """Have the group end this box and launch another."""
        verb = ("autoscaling", "terminate-instance-in-auto-scaling-group", "--no-should-decrement-desired-capacity")
        self._call(patience_seconds, *verb, "--instance-id", self._id)

    def tag_boot(self, boot: str, patience_seconds: float) -> None:
        """Say on the instance whether this boot is warm or cold, or has failed."""
        tag = f"Key={names.TAG_BOOT},Value={boot}"
        self._call(patience_seconds, "ec2", "create-tags", "--resources", self._id, "--tags", tag)

    def put_metrics(self, data: Sequence[dict[str, Any]], patience_seconds: float) -> None:
        """Metrics in CloudWatch's own shape."""
        text = json.dumps(data)
        space = ("--namespace", names.METRIC_NAMESPACE)
        self._call(patience_seconds, "cloudwatch", "put-metric-data", *space, "--metric-data", text)

    def ship_log(self, stream: str, lines: Sequence[str], patience_seconds: float) -> None:
        """Put the last lines, as many as one call takes, into a new stream of the box's log group."""
        target = ("--log-group-name", names.box_log_group(self._box.fleet), "--log-stream-name", stream)
        self._call(patience_seconds, "logs", "create-log-stream", *target, tolerate="ResourceAlreadyExistsException")
        self._call(patience_seconds, "logs", "put-log-events", *target, "--log-events", log_events(lines, time.time()))

    def upload(self, path: str, key: str, patience_seconds: float) -> None:
        """Put one file into the store; it appears whole or not at all."""
        url = f"s3://{self._box.bucket}/{key}"
        self._call(patience_seconds, "s3", "cp", "--only-show-errors", path, url, attempt_seconds=patience_seconds)

    def _target(self) -> tuple[str, ...]:
        return ("--target-group-arn", self._box.target_group_arn, "--targets", f"Id={self._id}")

    def _hook(self, hook: str) -> tuple[str, ...]:
        group = ("--auto-scaling-group-name", names.group(self._box.fleet))
        return ("--lifecycle-hook-name", hook, *group, "--instance-id", self._id)

    def _call(
        self,
        patience_seconds: float,
        service: str,
        verb: str,
        *args: str,
        tolerate: Optional[str] = None,
        attempt_seconds: float = ATTEMPT_SECONDS,
    ) -> Any:
        deadline, pause = time.monotonic() + patience_seconds, PAUSE_SECONDS
        command = ["aws", service, verb, *args]
        if service != "s3":
            command += ["--output", "json", "--cli-connect-timeout", "5", "--cli-read-timeout", "10"]
        while True:
            left = max(1.0, min(attempt_seconds, deadline - time.monotonic()))
            try:
                done = subprocess.run(
                    command, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=left
                )
                if done.returncode == 0:
                    return json.loads(done.stdout) if done.stdout.strip() else {}
                why = " ".join(done.stderr.split())[-400:]
            except (OSError, subprocess.TimeoutExpired) as error:
                why = str(error) if isinstance(error, OSError) else f"no answer in {left:.0f} s"
            if tolerate and tolerate in why:
                return {}
            if DENIED.search(why):
                raise DeniedError(f"{service} {verb}: {why}")
            if REFUSED.search(why) or time.monotonic() + pause >= deadline:
                raise AwsError(f"{service} {verb}: {why}")
            time.sleep(pause)
            pause *= 2


def log_events(lines: Sequence[str], now: float) -> str:
    """The last lines that fit into one call, in CloudWatch's shape; a very long line loses its end."""
    events: list[str] = []
    size = 0
    for line in filter(None, reversed(lines)):
        events.append(json.dumps({"timestamp": int(now * 1000), "message": line[:MOST_LINE_CHARACTERS]}))
        size += len(events[-1]) + 1
        if size > MOST_BYTES:
            events.pop()
            break
    return f"[{','.join(reversed(events))}]"
