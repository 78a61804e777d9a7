"""What a human sees and hears."""

import json

from fleet.config.settings import Settings
from fleet.core import names
from tests.infra.checks.shared import ALARM, alarm_of, at_once, check, healthy_hosts
from tests.infra.templates import Templates, properties, resources
from tests.synth import ROOT


@check
def function_failed_alarm_sees_the_first_error(t: Templates, s: Settings) -> None:
    alarm = alarm_of(t, s, "function-failed")
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("AWS/Lambda", "Errors", "Sum")
    assert alarm["Dimensions"] == [{"Name": "FunctionName", "Value": "<Watchdog>"}]
    assert at_once(alarm)


@check
def boot_failed_alarm_sees_the_first_failed_boot(t: Templates, s: Settings) -> None:
    alarm = alarm_of(t, s, "boot-failed")
    metric = (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"])
    assert metric == (names.METRIC_NAMESPACE, names.METRIC_BOOT_FAILED, "Sum")
    assert alarm["Dimensions"] == [{"Name": names.DIMENSION_FLEET, "Value": s.fleet_name}]
    assert at_once(alarm)


@check
def runaway_generation_alarm_sees_the_age_that_a_box_told_in_five_minutes(t: Templates, s: Settings) -> None:
    alarm = alarm_of(t, s, "runaway-generation")
    metric = (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"], alarm["Period"])
    assert metric == (names.METRIC_NAMESPACE, names.METRIC_RUNAWAY_GENERATION_SECONDS, "Maximum", 300)
    assert alarm["Dimensions"] == [{"Name": names.DIMENSION_FLEET, "Value": s.fleet_name}]
    assert at_once({**alarm, "Period": 60})


@check
def nothing_serves_alarm_waits_until_the_watchdog_had_its_time(t: Templates, s: Settings) -> None:
    alarm = alarm_of(t, s, "nothing-serves")
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/NetworkELB", "HealthyHostCount")
    assert healthy_hosts(alarm)
    assert (alarm["Statistic"], alarm["Period"], alarm["TreatMissingData"]) == ("Maximum", 60, "breaching")
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", s.capacity.min)
    assert alarm["EvaluationPeriods"] == s.watchdog.alarm_minutes + s.watchdog.skip_cap_seconds // 60


@check
def every_alarm_names_its_page_and_mails_both_ways(t: Templates, s: Settings) -> None:
    alarms = [alarm["Properties"] for alarm in resources(t["group"], ALARM)]
    assert len(alarms) == 5
    for alarm in alarms:
        page = alarm["AlarmName"].removeprefix(f"{s.fleet_name}-")
        assert alarm["AlarmDescription"].endswith(f"What to do: docs/runbook/{page}.md")
        assert (ROOT / "docs" / "runbook" / f"{page}.md").exists()
    mailed = [alarm for alarm in alarms if not alarm["AlarmName"].endswith("no-healthy-target")]  # wakes the watchdog
    assert len(mailed) == 4
    for alarm in mailed:
        assert alarm["AlarmActions"] == alarm["OKActions"] == ["<Mail>"]


@check
def dashboard_shows_health_mode_lever_boots_failed_launches_reclaims_and_the_line(t: Templates, s: Settings) -> None:
    dashboard = properties(t["group"], "AWS::CloudWatch::Dashboard")
    assert dashboard["DashboardName"] == s.fleet_name
    widgets = json.loads(dashboard["DashboardBody"])["widgets"]
    shown = json.dumps(widgets)
    metrics = (
        "HealthyHostCount",
        names.METRIC_MODE,
        names.METRIC_LEVER,
        names.METRIC_BOOT_STAGE_SECONDS,
        names.METRIC_LAUNCHES_FAILED,
        names.METRIC_INTERRUPTIONS,
        names.METRIC_REBALANCE_RECOMMENDATIONS,
        names.METRIC_LANE_DEPTH,
        names.METRIC_LANE_EXPECTED_WAIT_SECONDS,
        names.METRIC_LANE_WAIT_SECONDS,
        names.METRIC_LANE_REFUSALS,
        names.METRIC_LANE_WASTED_TOKENS,
    )
    assert all(f'"{name}"' in shown or f'\\"{name}\\"' in shown for name in metrics)
    assert len(widgets) == 8
