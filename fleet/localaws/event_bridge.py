"""From an alarm's change of state to the function: EventBridge rules with Lambda targets, alarm actions.

moto changes an alarm's state and tells nobody. Here the state change becomes the event that AWS sends, rules match it,
and the deployed function runs, if its resource policy lets EventBridge call it.
"""

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.cloudwatch import models as cloudwatch
from moto.core.utils import utcnow
from moto.events import models as events
from moto.sns.models import sns_backends

from fleet.localaws import ACCOUNT, control
from fleet.localaws.lambdas import in_background
from fleet.localaws.patching import extend


def _invoke(arn: str, payload: str) -> None:
    """Start an asynchronous invocation, if the function's own policy admits EventBridge."""
    function = lambda_backends[ACCOUNT][arn.split(":")[3]].get_function(arn)
    admitted = {json.dumps(statement["Principal"]) for statement in function.policy.statements}
    if any("events.amazonaws.com" in text for text in admitted):
        in_background(lambda: function._invoke_lambda(payload))


@extend(events.Rule, "send_to_targets")
def send_to_targets(_original: Any, rule: Any, event: Any, **_: Any) -> None:
    """Every target is a function, which runs; a rule without a pattern is a schedule and matches no event."""
    pattern = rule.event_pattern
    if not pattern.get_pattern() or rule.state == "DISABLED" or not pattern.matches_event(event):
        return
    for target in rule.targets:
        _invoke(target["Arn"], target.get("Input") or json.dumps(event, default=str))


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "+0000"


@extend(cloudwatch.CloudWatchBackend, "set_alarm_state")
def set_alarm_state(
    original: Any, backend: Any, alarm_name: str, reason: str, reason_data: str, state_value: str
) -> None:
    """The state, the time of the transition, the event and the alarm's actions."""
    alarm = backend.alarms.get(alarm_name)
    before = alarm and (alarm.state_value, alarm.state_reason, alarm.state_updated_timestamp)
    original(backend, alarm_name, reason, reason_data, state_value)
    if alarm is None or before[0] == state_value:
        return
    alarm.state_updated_timestamp -= _backdated
    alarm.state_transitioned_timestamp = alarm.state_updated_timestamp
    detail = {
        "alarmName": alarm_name,
        "state": {"value": state_value, "reason": reason, "timestamp": _iso(alarm.state_updated_timestamp)},
        "previousState": {"value": before[0], "reason": before[1], "timestamp": _iso(before[2])},
        "configuration": {"description": alarm.description or ""},
    }
    deliver(
        {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "CloudWatch Alarm State Change",
            "source": "aws.cloudwatch",
            "account": ACCOUNT,
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": backend.region_name,
            "resources": [alarm.alarm_arn],
            "detail": detail,
        }
    )
    actions = {"ALARM": alarm.alarm_actions, "OK": alarm.ok_actions}.get(state_value) or []
    for arn in actions:
        if ":sns:" in arn:
            message = json.dumps({"AlarmName": alarm_name, "NewStateValue": state_value, "NewStateReason": reason})
            subject = f'{state_value}: "{alarm_name}"'
            sns_backends[ACCOUNT][backend.region_name].publish(message, arn=arn, subject=subject)


_backdated = timedelta()


@control.verb
def alarm(name: str, state: str, seconds_ago: float, region: str) -> None:
    """Change an alarm's state as of `seconds_ago`: the function that hears of it sees that time."""
    global _backdated
    _backdated = timedelta(seconds=seconds_ago)
    try:
        cloudwatch.cloudwatch_backends[ACCOUNT][region].set_alarm_state(name, "set by a test", "{}", state)
    finally:
        _backdated = timedelta()


class AlarmSinceItsState(cloudwatch.Alarm):
    """An alarm that tells when it entered its state; a new one has no data yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.state_value = "INSUFFICIENT_DATA"
        self.state_transitioned_timestamp = utcnow()


AlarmSinceItsState.__name__ = "Alarm"  # moto answers by the class's name
cloudwatch.Alarm = AlarmSinceItsState  # type: ignore[misc]


@control.verb
def deliver(event: dict[str, Any]) -> None:
    """Send an event, as AWS services send theirs, to the default bus of its region."""
    backend = events.events_backends[ACCOUNT][event["region"]]
    for rule in list(backend.event_buses["default"].rules.values()):
        rule.send_to_targets(event)  # type: ignore[arg-type]


@control.verb
def mails(region: str) -> list[dict[str, str]]:
    """Everything published to topics, in order: topic, subject, body."""
    return [
        {"topic": topic.name, "subject": subject or "", "body": message}
        for topic in sns_backends[ACCOUNT][region].topics.values()
        for _, message, subject, *_ in topic.sent_notifications
    ]
