"""Auto Scaling calls that moto lacks: hook completion, heartbeats, instance refresh, scaling activities.

Answers have the shape of recorded ones; their effect is the least that a caller can see. A refresh stays InProgress
until a test says how it went (`refresh`).
"""

import uuid
from datetime import UTC, datetime
from typing import Any

from fleet.localaws import control
from fleet.localaws.auto_scaling import ACTIVE, activities, all_groups, find_state, refreshes, refreshing
from fleet.localaws.calls import Call
from fleet.localaws.missing import ApiError, operation


def _group(call: Call) -> Any:
    for group in all_groups():
        if group.name == call.parameters["AutoScalingGroupName"]:
            return group
    raise ApiError("ValidationError", "AutoScalingGroup name not found - null")


@operation("autoscaling", "CompleteLifecycleAction")
def complete_lifecycle_action(call: Call) -> None:
    """CONTINUE puts a held box into service, ABANDON ends it."""
    group = _group(call)
    hooks = {hook.name for hook in group.autoscaling_backend.describe_lifecycle_hooks(group.name)}
    held = [
        state
        for state in group.instance_states
        if state.instance.id == call.parameters.get("InstanceId") and state.lifecycle_state.endswith(":Wait")
    ]
    if not held or call.parameters["LifecycleHookName"] not in hooks:
        raise ApiError(
            "ValidationError", f"No active Lifecycle Action found with instance ID {call.parameters.get('InstanceId')}"
        )
    if call.parameters["LifecycleActionResult"] == "CONTINUE" and held[0].lifecycle_state == "Pending:Wait":
        held[0].lifecycle_state = "InService"
    else:
        held[0].lifecycle_state = "Terminating"
        group.autoscaling_backend.terminate_instance(held[0].instance.id, False)


@operation("autoscaling", "RecordLifecycleActionHeartbeat")
def record_lifecycle_action_heartbeat(call: Call) -> None:
    """Accepted for a held box only."""
    _group(call)
    try:
        state = find_state(call.parameters.get("InstanceId", "")).lifecycle_state
    except KeyError:
        state = "absent"
    if not state.endswith(":Wait"):
        raise ApiError("ValidationError", f"No active Lifecycle Action found: the instance is {state}")


@operation("autoscaling", "StartInstanceRefresh")
def start_instance_refresh(call: Call) -> dict[str, Any]:
    """One at a time."""
    name = _group(call).name
    history = refreshes.setdefault(name, [])
    if refreshing(name):
        raise ApiError("InstanceRefreshInProgress", "An Instance Refresh is already in progress.")
    refresh_id = str(uuid.uuid4())
    history.insert(
        0,
        {
            "InstanceRefreshId": refresh_id,
            "AutoScalingGroupName": call.parameters["AutoScalingGroupName"],
            "Status": "InProgress",
            "StartTime": datetime.now(UTC),
            "PercentageComplete": 0,
            "InstancesToUpdate": 1,
            **{key: call.parameters[key] for key in ("Preferences", "DesiredConfiguration") if key in call.parameters},
        },
    )
    return {"InstanceRefreshId": refresh_id}


@operation("autoscaling", "CancelInstanceRefresh")
def cancel_instance_refresh(call: Call) -> dict[str, Any]:
    """Cancelled at once."""
    history = refreshes.get(_group(call).name, [])
    if not history or history[0]["Status"] not in ACTIVE:
        raise ApiError("ActiveInstanceRefreshNotFound", "No in progress or pending Instance Refresh found.")
    history[0]["Status"] = "Cancelled"
    return {"InstanceRefreshId": history[0]["InstanceRefreshId"]}


@operation("autoscaling", "DescribeInstanceRefreshes")
def describe_instance_refreshes(call: Call) -> dict[str, Any]:
    """Newest first."""
    return {"InstanceRefreshes": refreshes.get(_group(call).name, [])}


@operation("autoscaling", "DescribeScalingActivities")
def describe_scaling_activities(call: Call) -> dict[str, Any]:
    """Newest first."""
    return {"Activities": activities.get(call.parameters.get("AutoScalingGroupName", ""), [])}


@control.verb
def refresh(group: str, status: str) -> None:
    """How the newest refresh of a group stands: InProgress, Successful, Failed, Cancelled."""
    refreshes[group][0]["Status"] = status
