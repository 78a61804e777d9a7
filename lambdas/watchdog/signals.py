"""Step 1, parse: turns what woke the watchdog (EventBridge event, schedule, operator) into one Signal; never raises."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from fleet.core import names
from fleet.core.untrusted import one_line
from lambdas.watchdog import failures


class Wake(StrEnum):
    """Why the watchdog was woken."""

    ALARM_LIT = "alarm-lit"
    ALARM_OK = "alarm-ok"
    SCAN = "scan"
    LAUNCHED = "launched"
    LAUNCH_FAILED = "launch-failed"
    TERMINATED = "terminated"
    REFRESH_ENDED = "refresh-ended"
    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"
    BOX_ENDED = "box-ended"
    PIN = "pin"
    ARM = "arm"
    RESUME = "resume"
    PROBE = "probe"
    PATIENCE = "patience"
    IGNORED = "ignored"


@dataclass(frozen=True)
class Signal:
    """One wake-up. `at` is the event's own time; `began` the start of a launch that failed."""

    wake: Wake
    detail: str = ""  # the event's words: why ignored, why a launch failed, how a refresh ended, an operator's why
    at: datetime | None = None
    began: datetime | None = None
    box: str = ""  # instance id, where the event names one
    who: str = ""  # operator

    @property
    def refused(self) -> bool:
        """A launch that got no box; one that did has its box named, which then never came into service."""
        # aws-behaviours: abandon-told
        return self.wake is Wake.LAUNCH_FAILED and (not self.box or failures.read(self.detail).refuses)


COMMANDS = {
    "scan": Wake.SCAN,
    "pin": Wake.PIN,
    "arm": Wake.ARM,
    "resume": Wake.RESUME,
    "probe": Wake.PROBE,
    names.COMMAND_PATIENCE: Wake.PATIENCE,
}

GROUP_EVENTS = {  # aws-behaviours: group-events
    "EC2 Instance Launch Successful": Wake.LAUNCHED,
    "EC2 Instance Launch Unsuccessful": Wake.LAUNCH_FAILED,
    "EC2 Instance Terminate Successful": Wake.TERMINATED,
    "EC2 Auto Scaling Instance Refresh Succeeded": Wake.REFRESH_ENDED,
    "EC2 Auto Scaling Instance Refresh Failed": Wake.REFRESH_ENDED,
    "EC2 Auto Scaling Instance Refresh Cancelled": Wake.REFRESH_ENDED,
}

BOX_EVENTS = {
    "EC2 Spot Instance Interruption Warning": Wake.INTERRUPTION,
    "EC2 Instance Rebalance Recommendation": Wake.REBALANCE,
}

STATE_EVENT = "EC2 Instance State-change Notification"
ENDING = ("shutting-down", "stopping")  # the first that is told of an end, however it came (aws-behaviours: end-told)
ID = re.compile(r"(i-[0-9A-Za-z]{1,30})?")


def parse(event: Any, fleet: str) -> Signal:
    """The signal in `event` for the fleet of that name; whatever is not understood is IGNORED with its reason."""
    try:
        if "command" in event:
            return _command(event)
        if "alarmData" in event:
            return _ignored("a CloudWatch alarm's own call of the function: the rule on its state changes wakes it")
        return _event(event["source"], event["detail-type"], event["detail"], event, fleet)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return _ignored(f"not an event of a known shape ({type(error).__name__}: {error})")


def _command(event: dict[str, Any]) -> Signal:
    wake = COMMANDS.get(event["command"])
    if wake is None:
        return _ignored(f"unknown command {event['command']!r}; known: {', '.join(COMMANDS)}")
    return Signal(wake, detail=one_line(event.get("why", "")), who=one_line(event.get("who", "")))


def _event(source: str, kind: str, detail: dict[str, Any], event: dict[str, Any], fleet: str) -> Signal:
    at = _time(event["time"])
    if source == "aws.cloudwatch" and kind == "CloudWatch Alarm State Change":
        if detail["alarmName"] != names.no_healthy_target_alarm(fleet):
            return _ignored(f"alarm {detail['alarmName']} is not this fleet's")
        match detail["state"]["value"]:
            case "ALARM":
                return Signal(Wake.ALARM_LIT, at=at)
            case "OK":
                return Signal(Wake.ALARM_OK, at=at)
            case value:
                return _ignored(f"alarm state {value}")
    if source == "aws.autoscaling" and kind in GROUP_EVENTS:
        if detail["AutoScalingGroupName"] != names.group(fleet):
            return _ignored(f"group {detail['AutoScalingGroupName']} is not this fleet's")
        wake = GROUP_EVENTS[kind]
        began = _time(detail["StartTime"]) if wake is Wake.LAUNCH_FAILED else None
        words = kind if wake is Wake.REFRESH_ENDED else failures.with_code_first(str(detail.get("StatusMessage") or ""))
        return Signal(wake, detail=one_line(words), at=at, began=began, box=_id(detail.get("EC2InstanceId") or ""))
    if source == "aws.ec2" and kind in BOX_EVENTS:
        return Signal(BOX_EVENTS[kind], at=at, box=_id(detail["instance-id"]))
    if source == "aws.ec2" and kind == STATE_EVENT:
        if detail["state"] not in ENDING:
            return _ignored(f"instance state {detail['state']}")
        return Signal(Wake.BOX_ENDED, at=at, box=_id(detail["instance-id"]))
    return _ignored(f"{source} / {kind}")


def _id(text: Any) -> str:
    """An instance id, or none: it is remembered, and asked of AWS. Raises ValueError."""
    if not isinstance(text, str) or not ID.fullmatch(text):
        raise ValueError(f"{text!r} is no instance id")
    return text


def _ignored(why: str) -> Signal:
    return Signal(Wake.IGNORED, detail=one_line(why))


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
