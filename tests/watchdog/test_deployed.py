"""The function's own zip, role and environment on the synthesized stacks: what it asks of AWS and what it writes."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from fleet.core import names
from fleet.localaws.deployed import Deployed
from tests.embedded_fleet import act, fail_over_long_ago, lose_the_last_box_in_a_drought
from tests.watchdog.still_cloud import event

FLIP = "UpdateAutoScalingGroup"


def calls(live: Deployed) -> list[str]:
    """The watchdog's calls so far, in order."""
    role = live.role("group", "WatchdogRole")
    return [line["action"] for line in live.aws.requests() if line["principal"] == role]


def test_empty_group_is_flipped_after_five_reads_none_twice(live: Deployed) -> None:
    lose_the_last_box_in_a_drought(live)
    (run,) = live.decisions()
    assert run["result"]["action"] == "failover"
    reads = ["GetParameters", "DescribeAlarms", "DescribeAutoScalingGroups", "DescribeTargetHealth", "DescribeStacks"]
    assert calls(live) == [*reads, "PutParameter", "PutParameter", FLIP, "Publish", "PutParameter"]
    assert (live.lever(), live.percentage(), live.state()["mode"]) == ("100", 100, "on-demand-failover")
    assert [box.get("InstanceLifecycle", "on-demand") for box in live.boxes()] == ["on-demand"]


def test_alarm_on_a_young_box_is_declined_with_the_verbatim_line(live: Deployed) -> None:
    live.age_boxes(600)
    live.set_health("initial")
    live.set_alarm("ALARM", seconds_ago=2)
    (run,) = live.decisions()
    assert any(names.LINE_SKIPPED_YOUNG in line for line in run["log"])
    assert (live.percentage(), live.lever(), live.mails()) == (0, "0", [])


def test_host_that_a_stolen_box_registered_is_deregistered_whatever_its_port(live: Deployed) -> None:
    (target_group,) = live.group()["TargetGroupARNs"]
    elbv2, ec2 = live.aws.client("elbv2"), live.aws.client("ec2")
    subnet = live.group()["VPCZoneIdentifier"].split(",")[0]
    (stranger,) = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, SubnetId=subnet)["Instances"]
    elbv2.register_targets(TargetGroupArn=target_group, Targets=[{"Id": stranger["InstanceId"], "Port": 8080}])
    assert act(live, event("scan"))["detail"] == f"deregisters {stranger['InstanceId']}: no box of the group"
    found = elbv2.describe_target_health(TargetGroupArn=target_group)["TargetHealthDescriptions"]
    assert [raw["Target"]["Id"] for raw in found] == [box["InstanceId"] for box in live.boxes()]


def test_scan_of_a_fleet_that_stands_for_a_while_asks_the_metric_how_long_nothing_served(live: Deployed) -> None:
    live.age_group(900)  # past the metric's lag: five minutes to judge, too few to act on
    act(live, event("scan"))
    assert "GetMetricStatistics" in calls(live)
    assert live.lever() == "0"


def test_fleet_that_has_served_for_hours_is_not_dark_by_its_own_metric_and_one_that_has_not_is(live: Deployed) -> None:
    """The box of `make cloud`, left alone for a working day; then it stops answering, and a successor does too."""
    live.age_group(5 * 3600)
    live.age_boxes(5 * 3600)
    assert act(live, event("scan"))["action"] == "nothing"
    live.age_boxes(3600)  # the last hour of the metric's four: 40 minutes too many were dark
    live.set_alarm("OK")
    assert act(live, event("scan"))["action"] == "skipped"  # who answers now is left alone
    live.set_health("unhealthy")
    record = act(live, event("scan"))
    assert (record["action"], live.lever()) == ("failover", "100"), record
    assert "nothing served for 180 min of the last 240" in record["reason"]


def test_metric_of_the_balancer_counts_who_answered_in_each_minute(live: Deployed) -> None:
    live.age_boxes(600)
    found = served(live, minutes=20)
    assert found in ([1.0] * 9, [1.0] * 10)
    live.set_health("unhealthy")
    assert served(live, minutes=20) == found  # what was is not changed by what is
    live.reclaim()
    assert len(served(live, minutes=20)) >= len(found)


def served(live: Deployed, minutes: int) -> list[float]:
    """The metric of the last minutes, as the watchdog asks for it."""
    (alarm,) = live.aws.client("cloudwatch").describe_alarms(
        AlarmNames=[names.no_healthy_target_alarm(live.settings.fleet_name)]
    )["MetricAlarms"]
    now = datetime.now(UTC)
    points = live.aws.client("cloudwatch").get_metric_statistics(
        Namespace=alarm["Namespace"], MetricName=alarm["MetricName"], Dimensions=alarm["Dimensions"],
        StartTime=now - timedelta(minutes=minutes), EndTime=now, Period=60, Statistics=["Maximum"],
    )["Datapoints"]  # fmt: skip
    return [point["Maximum"] for point in sorted(points, key=lambda point: point["Timestamp"])]


def test_stuck_held_box_is_found_in_six_reads_and_ended_after_the_flip(live: Deployed) -> None:
    (box,) = live.boxes()
    live.aws.control("lifecycle", instance_id=box["InstanceId"], state="Pending:Wait")
    live.age_boxes(1000)
    live.age_group(86400)
    live.set_health("initial")
    live.set_alarm("ALARM", seconds_ago=2)
    assert live.decisions()[-1]["result"]["action"] == "failover"
    before, after = calls(live)[: calls(live).index(FLIP)], calls(live)[calls(live).index(FLIP) + 1 :]
    reads = [call for call in before if call != "PutParameter"]
    assert len(reads) == len(set(reads)) == 6
    assert after == ["CompleteLifecycleAction", "Publish", "PutParameter"]
    assert [new.get("InstanceLifecycle", "on-demand") for new in live.boxes()] == ["on-demand"]


@pytest.mark.parametrize("hook", [True, False], ids=["held", "its hook was deleted"])
def test_box_that_died_held_is_replaced_by_the_look_that_sees_it(live: Deployed, hook: bool) -> None:
    (box,) = live.boxes()
    live.aws.control("lifecycle", instance_id=box["InstanceId"], state="Pending:Wait")
    live.reclaim()
    assert [there["State"]["Name"] for there in live.boxes()] == ["terminated"]  # the group counts it all the same
    if not hook:
        live.aws.client("autoscaling").delete_lifecycle_hook(
            AutoScalingGroupName=live.group_name, LifecycleHookName=names.LAUNCH_HOOK
        )
    payload = event("box-ended" if hook else "scan")
    payload.get("detail", {})["instance-id"] = box["InstanceId"]
    assert act(live, payload)["detail"] == f"ends {box['InstanceId']}: held by the launch hook, and for nothing"
    ends = [call for call in calls(live) if "Lifecycle" in call or "Terminate" in call]
    assert ends == ["CompleteLifecycleAction", *([] if hook else ["TerminateInstanceInAutoScalingGroup"])]
    assert [there["State"]["Name"] for there in live.boxes()] == ["running"]


def test_flip_changes_the_percentage_and_nothing_else_of_the_group(live: Deployed) -> None:
    before = live.group()["MixedInstancesPolicy"]
    act(live, event("pin"))
    after = live.group()["MixedInstancesPolicy"]
    assert after["InstancesDistribution"].pop("OnDemandPercentageAboveBaseCapacity") == 100
    assert before["InstancesDistribution"].pop("OnDemandPercentageAboveBaseCapacity") == 0
    assert after == before


def test_rearm_asks_for_scores_rolls_launch_first_and_a_pin_cancels_it(live: Deployed) -> None:
    fail_over_long_ago(live)
    live.aws.control("score", value=3)
    record = act(live, event("scan"))
    assert record["action"] == "re-arm", record
    assert "refresh: roll 1 on-demand, launch first" in record["also"]
    assert {"DescribeAvailabilityZones", "GetSpotPlacementScores", "StartInstanceRefresh"} <= set(calls(live))
    assert "SuspendProcesses" in calls(live)
    assert (live.lever(), live.percentage()) == ("0", 0)
    refresh = live.aws.client("autoscaling").describe_instance_refreshes(AutoScalingGroupName=live.group_name)
    assert refresh["InstanceRefreshes"][0]["Preferences"] == {
        "MinHealthyPercentage": 100, "MaxHealthyPercentage": 200, "SkipMatching": False,
    }  # fmt: skip
    assert act(live, event("pin"))["action"] == "pinned"
    assert "CancelInstanceRefresh" in calls(live)
    assert (live.lever(), live.percentage(), live.state()["mode"]) == ("100", 100, "on-demand-pinned")


def test_probe_proves_that_the_role_can_and_changes_nothing(live: Deployed) -> None:
    before = (live.group(), live.state(), live.lever())
    assert act(live, event("probe"))["action"] == "probe"
    assert FLIP in calls(live)
    assert (live.group(), live.state(), live.lever()) == before


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("AccessDenied", "You are not authorized to use launch template: lt-0abc", "DeniedError"),
        ("ValidationError", "You are not authorized to use launch template: lt-0abc", "DeniedError"),
        ("ScalingActivityInProgress", "Activity is in progress and under cooldown", "BusyError"),
        ("ValidationError", "An active instance refresh with a desired configuration exists.", "RefreshActiveError"),
    ],
)
def test_flip_refused_by_aws_is_raised_and_finished_by_the_next_event(
    live: Deployed, code: str, message: str, kind: str
) -> None:
    live.aws.control("fault", service="autoscaling", action=FLIP, code=code, message=message)
    refused = live.wake(event("pin"))
    assert refused["error"]["errorType"] == kind, refused
    assert message in refused["error"]["errorMessage"]
    assert (live.lever(), live.percentage(), live.mails()) == ("100", 0, [])
    assert act(live, event("alarm-ok"))["also"][0].startswith("finish: finish pinned")
    assert (live.percentage(), len(live.mails())) == (100, 1)


def test_throttled_read_is_tried_again_within_the_same_invocation(live: Deployed) -> None:
    live.aws.control("fault", service="autoscaling", action="DescribeAutoScalingGroups", code="Throttling")
    assert act(live, event("pin"))["action"] == "pinned"


def test_decision_is_one_log_line_with_the_reason_and_one_line_of_metrics(live: Deployed) -> None:
    act(live, event("pin"))
    decision, metrics = (json.loads(line) for line in live.decisions()[-1]["log"])
    assert decision["message"] == "by ann: game day"
    assert decision["decision"]["action"] == "pinned"
    assert metrics["Fleet"] == live.settings.fleet_name
    assert (metrics[names.METRIC_MODE], metrics[names.METRIC_LEVER]) == ([2.0], [100.0])
