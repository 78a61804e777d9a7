"""Preflight checks of the next deploy itself: what the standing fleet cannot take, and whether now is a good time."""

from fleet.config import immutable
from fleet.config.settings import Settings
from fleet.core import names
from fleet.ops.checks import Finding, Ground, failed, passed, warned


def settings(ground: Ground) -> Finding:
    """Whether the settings are ones that the standing fleet can take."""
    if ground.function is None:
        return passed("a first deploy takes any")
    standing = Settings.from_json(ground.function["Environment"]["Variables"][names.ENV_SETTINGS])
    boxes = ground.group["Instances"] if ground.group else []
    problems = immutable.refused(standing, ground.settings, {box["AvailabilityZone"] for box in boxes})
    if problems:
        return failed("; ".join(map(str, problems)), "put these back in cdk.json, or do as the line says")
    return passed("the standing fleet can take them")


def alarm(ground: Ground) -> Finding:
    """Whether a deploy would run into a recovery."""
    name = names.no_healthy_target_alarm(ground.settings.fleet_name)
    found = ground.aws.call("cloudwatch", "DescribeAlarms", AlarmNames=[name])["MetricAlarms"]
    if found and found[0]["StateValue"] == "ALARM":
        return warned(
            "no target is healthy: a deploy now would hold the watchdog back, up to its skip cap",
            "deploy once `fleetctl status` shows a box that serves, unless the deploy is the repair",
        )
    return passed("not lit" if found else "a first deploy makes it")
