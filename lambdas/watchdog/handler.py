"""The watchdog: wakes on the alarm, on every scan and on the group's events, and moves the purchase lever.

Five steps: parse, observe, decide, act, report. Everything that failed is raised once it is reported, so that the
function's own alarm sees it.
"""

import functools
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fleet.config.settings import Settings
from fleet.core import names
from lambdas.watchdog.act import act
from lambdas.watchdog.aws import AwsCloud
from lambdas.watchdog.cloud import Cloud
from lambdas.watchdog.observe import observe
from lambdas.watchdog.policy import decide
from lambdas.watchdog.record import Record, Trace
from lambdas.watchdog.report import emit
from lambdas.watchdog.signals import parse


def run(
    event: Any, *, cloud: Cloud, settings: Settings, now: datetime, report: Callable[[Record], None] = lambda _: None
) -> Record:
    """One invocation. `report` gets the record in any case; what failed is raised after it."""
    signal, now = parse(event, settings.fleet_name), now.replace(microsecond=0)
    trace = Trace(signal)
    try:
        while True:
            state, world = observe(signal, cloud, settings, now)
            decision = decide(signal, world, state, settings, now)
            trace.add(world, state, decision)
            trace.state = act(decision, state, world, cloud, settings, now)
            if not decision.leads_on:
                break
    except Exception as error:
        trace.outcome = f"failed: {type(error).__name__}: {error}"
        raise
    finally:
        record = trace.record()
        report(record)
    return record


def handler(event: Any, context: Any) -> Record:
    """Lambda's entry: the same five steps on boto3, the clock and the environment of the function."""
    settings = _settings()
    cloud = AwsCloud(
        settings,
        topic_arn=os.environ[names.ENV_TOPIC_ARN],
        target_group_arn=os.environ[names.ENV_TARGET_GROUP_ARN],
        remaining_seconds=lambda: context.get_remaining_time_in_millis() / 1000,
    )
    report = functools.partial(emit, fleet=settings.fleet_name)
    return run(event, cloud=cloud, settings=settings, now=datetime.now(UTC), report=report)


@functools.cache
def _settings() -> Settings:
    return Settings.from_json(os.environ[names.ENV_SETTINGS])
