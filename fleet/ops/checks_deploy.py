"""Preflight checks of the next deploy: what the standing fleet cannot take, what a roll would run into, a bad moment.

What stands in the way of a roll, `make deploy` asks as well.
"""

from fleet.config import immutable
from fleet.config.settings import Settings
from fleet.core import names
from fleet.core.errors import UserError
from fleet.ops.checks import Check, Finding, Ground, Level, failed, not_deployed, passed, warned
from lambdas.watchdog.aws import refresh_of
from lambdas.watchdog.state import StateError, loads

OURS = {"AZRebalance"}  # kept suspended by every scan


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


def launching(ground: Ground) -> Finding:
    """Whether the group may launch: else a refresh replaces nothing for an hour, and a lost box has no successor."""
    if ground.group is None:
        return not_deployed("the group launches as soon as it stands")
    suspended = {each["ProcessName"]: each.get("SuspensionReason", "") for each in ground.group["SuspendedProcesses"]}
    if "Launch" in suspended:  # aws-behaviours: refresh-without-launch
        return failed(
            f"Launch is suspended ({suspended['Launch']}): a refresh would replace nothing and roll back",
            'mend the cause, then `fleetctl resume --why "mended"`, then deploy: docs/runbook/mail-boot-loop.md',
        )
    if others := sorted(suspended.keys() - OURS):
        return warned(
            f"suspended, and not by the watchdog: {', '.join(others)}",
            f"aws autoscaling resume-processes --auto-scaling-group-name {names.group(ground.settings.fleet_name)} "
            f"--scaling-processes {' '.join(others)}",
        )
    return passed("nothing is suspended that should not be")


def rolling(ground: Ground) -> Finding:
    """Whether something rolls the group already: it holds one instance refresh, and a deploy's would fail on it."""
    if ground.group is None:
        return not_deployed("nothing rolls yet")
    text = ground.parameters.get(names.state_parameter(ground.settings.fleet_name))
    try:
        since = loads(text).rearm_from
    except StateError:
        since = None  # the line of lever and mode says so
    if since:
        limit = ground.settings.watchdog.rearm_timeout_seconds // 60
        return failed(
            f"a re-arm is under way since {since:%H:%M} UTC, for {limit} min at most: it rolls the group itself",
            "wait until `fleetctl status` shows its end, or `fleetctl pin` ends it",
        )
    found = ground.aws.call(
        "autoscaling",
        "DescribeInstanceRefreshes",
        AutoScalingGroupName=names.group(ground.settings.fleet_name),
        MaxRecords=10,
    )["InstanceRefreshes"]
    for refresh in map(refresh_of, found):
        if refresh.active:
            return failed(
                f"instance refresh {refresh.id} is {refresh.status}",
                "wait for its end: `fleetctl status` shows it",
            )
    return passed("no re-arm and no instance refresh is under way")


IN_THE_WAY: dict[str, Check] = {"settings": settings, "launching": launching, "rolling": rolling}


def require_clear(ground: Ground) -> None:
    """Raises UserError with what was found and the way out, all of it together."""
    found = [check(ground) for check in IN_THE_WAY.values()]
    if bad := [f"{each.found}\n  {each.remedy}" for each in found if each.level is Level.FAIL]:
        raise UserError("\n".join(["Nothing was deployed:", *bad]))
