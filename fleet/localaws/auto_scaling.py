"""The Auto Scaling group: updated in place, with hooks, purchase options and a market that can be closed.

moto replaces a group on every update, knows no spot, drops hooks and rebalancing. Here a launch is spot or on-demand as
the distribution says, fails while that market is closed, and every attempt is a scaling activity. Launches happen when
something asks for them (a flip, a changed size, a lost box, an opened market): nothing here passes time.
"""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.autoscaling import models
from moto.autoscaling.exceptions import ValidationError

from fleet.localaws import ACCOUNT, control
from fleet.localaws.patching import extend

Group = models.FakeAutoScalingGroup

SPOT, ON_DEMAND = "spot", "on-demand"
_market = {SPOT: True, ON_DEMAND: True}
_hold = {"launches": False}
activities: dict[str, list[dict[str, Any]]] = {}  # group name -> newest first
refreshes: dict[str, list[dict[str, Any]]] = {}  # the same
ACTIVE = {"Pending", "InProgress", "Cancelling"}


# --- from the template ----------------------------------------------------------------------------------------


def _apply(group: Any, properties: dict[str, Any]) -> None:
    group.capacity_rebalance = str(properties.get("CapacityRebalance", "")).lower() == "true"
    group.default_instance_warmup = properties.get("DefaultInstanceWarmup")
    for hook in properties.get("LifecycleHookSpecificationList", []):
        group.autoscaling_backend.create_lifecycle_hook(
            name=hook["LifecycleHookName"],
            as_name=group.name,
            transition=hook["LifecycleTransition"],
            timeout=int(hook["HeartbeatTimeout"]) if "HeartbeatTimeout" in hook else None,
            result=hook.get("DefaultResult"),
        )


@extend(Group, "create_from_cloudformation_json")
def create(original: Any, cls: Any, name: str, template: Any, account: str, region: str, **kwargs: Any) -> Any:
    """A group with everything that its template says."""
    group = original(cls, name, template, account, region, **kwargs)
    _apply(group, template["Properties"])
    return group


@extend(Group, "update_from_cloudformation_json")
def update_from_template(
    _original: Any,
    _cls: Any,
    original_resource: Any,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> Any:
    """In place, every property that the template states; a changed launch template needs a successor to be had."""
    properties = cloudformation_json["Properties"]
    _require_successors(original_resource, properties)
    original_resource.update(
        availability_zones=[],
        desired_capacity=int(properties["DesiredCapacity"]) if "DesiredCapacity" in properties else None,
        max_size=int(properties["MaxSize"]),
        min_size=int(properties["MinSize"]),
        launch_config_name=None,
        launch_template=properties.get("LaunchTemplate") or {},
        vpc_zone_identifier=",".join(properties.get("VPCZoneIdentifier", [])),
        health_check_period=properties.get("HealthCheckGracePeriod"),
        health_check_type=properties.get("HealthCheckType"),
        mixed_instances_policy=properties.get("MixedInstancesPolicy"),
    )
    _apply(original_resource, properties)
    _attach(original_resource, properties.get("TargetGroupARNs", []))
    return original_resource


def _attach(group: Any, target_groups: list[str]) -> None:
    """The target groups that its boxes are registered in; what is left loses them."""
    backend = group.autoscaling_backend
    boxes = [{"Id": state.instance.id} for state in group.instance_states]
    for arn in set(group.target_group_arns) - set(target_groups):
        backend.elbv2_backend.deregister_targets(arn, boxes)
    group.target_group_arns = target_groups
    backend.update_attached_target_groups(group.name)


def _require_successors(group: Any, properties: dict[str, Any]) -> None:
    """The update policy's refresh, as far as a deploy sees it: where it cannot roll it fails and ends nothing."""
    wanted = properties.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {}).get("LaunchTemplateSpecification", {})
    if not wanted or str(wanted["Version"]) == str(group.launch_template_version):
        return
    if refreshing(group.name):
        raise ValidationError("An Instance Refresh is already in progress and blocks the execution of this one")
    purchase = _next_purchase(group)
    launches = "Launch" not in {process["ProcessName"] for process in group.suspended_processes}
    if not launches or not _market[purchase]:
        why = f"there is no {purchase} capacity to launch a successor from" if launches else "Launch is suspended"
        raise ValidationError(f"Instance refresh failed: {why}; no instance was terminated")


def refreshing(group_name: str) -> bool:
    """Whether an instance refresh is under way."""
    return any(refresh["Status"] in ACTIVE for refresh in refreshes.get(group_name, [])[:1])


@extend(models.AutoScalingBackend, "delete_auto_scaling_group")
def delete(original: Any, backend: Any, group_name: str) -> None:
    """Hooks go with their group."""
    original(backend, group_name)
    for hook in backend.describe_lifecycle_hooks(group_name):
        backend.delete_lifecycle_hook(group_name, hook.name)


# --- UpdateAutoScalingGroup -----------------------------------------------------------------------------------


@extend(Group, "update")
def update(original: Any, group: Any, **kwargs: Any) -> None:
    """What is left out stays as it is; then the group launches whatever it lacks, as it does after a flip."""
    policy = kwargs.get("mixed_instances_policy")
    if group.mixed_instances_policy and not kwargs.get("launch_template"):
        present = group.mixed_instances_policy
        present["LaunchTemplate"]["LaunchTemplateSpecification"].pop("LaunchTemplateName", None)
        policy = {**present, **(policy or {})}
    original(group, **{**kwargs, "mixed_instances_policy": policy})
    group.set_desired_capacity(group.desired_capacity)


# --- launches -------------------------------------------------------------------------------------------------


def _members(group: Any) -> list[Any]:
    """Boxes that count towards desired: held ones too, standby and terminating ones not."""
    return [state for state in group.instance_states if state.lifecycle_state in {"InService", "Pending:Wait"}]


def _next_purchase(group: Any) -> str:
    """What the distribution wants of the next launch, given the members."""
    distribution = (group.mixed_instances_policy or {}).get("InstancesDistribution", {})
    base = int(distribution.get("OnDemandBaseCapacity") or 0)
    share = int(distribution.get("OnDemandPercentageAboveBaseCapacity", 100))
    total = len(_members(group)) + 1
    wanted = min(total, base) + -(-max(0, total - base) * share // 100)  # aws-behaviours: percentage-rounds-up
    have = sum(state.instance.lifecycle != SPOT for state in _members(group))
    return ON_DEMAND if have < wanted else SPOT


def _record(group: Any, status: str, description: str, message: str = "") -> None:
    now = datetime.now(UTC)
    activities.setdefault(group.name, []).insert(
        0,
        {
            "ActivityId": str(uuid.uuid4()),
            "AutoScalingGroupName": group.name,
            "Description": description,
            "Cause": "The group was below its desired capacity.",
            "StartTime": now,
            "EndTime": now,
            "StatusCode": status,
            "StatusMessage": message,
            "Progress": 100,
        },
    )


@extend(Group, "replace_autoscaling_group_instances")
def launch(original: Any, group: Any, _count: int, tags: dict[str, str]) -> None:
    """Fill the group up to desired, one launch after the other, as far as the market sells."""
    while len(_members(group)) < int(group.desired_capacity or 0):
        purchase = _next_purchase(group)
        suspended = {process["ProcessName"] for process in group.suspended_processes}
        if not _market[purchase] or "Launch" in suspended:
            why = "Launch is suspended." if _market[purchase] else f"There is no {purchase} capacity for your request."
            _record(group, "Failed", "Launching a new EC2 instance.", why)
            return
        original(group, 1, tags)
        state = group.instance_states[-1]
        state.instance.lifecycle = SPOT if purchase == SPOT else None
        state.instance_type = state.instance.instance_type = _first_pool(group) or state.instance.instance_type
        state.version = group.launch_template_version
        if _hold["launches"]:
            state.lifecycle_state = "Pending:Wait"
        _record(group, "Successful", f"Launching a new EC2 instance: {state.instance.id}")


def _first_pool(group: Any) -> str | None:
    """The type that is launched: the first of the policy's overrides (moto knows only the template's own)."""
    overrides = ((group.mixed_instances_policy or {}).get("LaunchTemplate") or {}).get("Overrides") or [{}]
    found: str | None = overrides[0].get("InstanceType")
    return found


@extend(Group, "set_desired_capacity")
def set_desired_capacity(_original: Any, group: Any, new_capacity: int | None) -> None:
    """Launch what is missing, end what is too much."""
    group.desired_capacity = group.min_size if new_capacity is None else new_capacity
    surplus = len(_members(group)) - int(group.desired_capacity or 0)
    if surplus > 0:
        leaving = _members(group)[:surplus]
        group.instance_states = [state for state in group.instance_states if state not in leaving]
        group.autoscaling_backend.ec2_backend.terminate_instances([state.instance.id for state in leaving])
    elif surplus < 0:
        group.replace_autoscaling_group_instances(-surplus, group.get_propagated_tags())
    if group.name in group.autoscaling_backend.autoscaling_groups:
        group.autoscaling_backend.update_attached_target_groups(group.name)


@extend(models.FakeScalingPolicy, "execute")
def execute(original: Any, policy: Any) -> None:
    """A step policy by its first step, which is the one whose alarm is lit."""
    if policy.policy_type == "StepScaling":
        policy.scaling_adjustment = int(policy.step_adjustments[0]["ScalingAdjustment"])
    original(policy)


@extend(models.AutoScalingBackend, "change_capacity")
def change_capacity(_original: Any, backend: Any, group_name: str, scaling_adjustment: int) -> None:
    """What a scaling policy asks for, never below MinSize nor above MaxSize."""
    group = backend.autoscaling_groups[group_name]
    group.set_desired_capacity(min(max(group.desired_capacity + scaling_adjustment, group.min_size), group.max_size))


@extend(models.AutoScalingBackend, "terminate_instance")
def terminate_instance(original: Any, backend: Any, instance_id: str, should_decrement: bool) -> Any:
    """A box that no group has (any more), or that its launch hook holds, is a ValidationError."""
    try:
        state = find_state(instance_id)
    except KeyError:
        raise ValidationError(
            f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
        ) from None
    if held(state):  # aws-behaviours: held-ended-by-name
        raise ValidationError(f"The instance {instance_id} is in {state.lifecycle_state} and cannot be terminated")
    return original(backend, instance_id, should_decrement)


def held(state: Any) -> bool:
    """Whether a launch hook of its group holds the box."""
    group = state.auto_scaling_group
    hooks = group.autoscaling_backend.describe_lifecycle_hooks(group.name)
    launching = any(hook.lifecycle_transition == "autoscaling:EC2_INSTANCE_LAUNCHING" for hook in hooks)
    return bool(launching and state.lifecycle_state == "Pending:Wait")


@extend(models.AutoScalingBackend, "notify_terminate_instances")
def notify_terminate_instances(_original: Any, backend: Any, instance_ids: list[str]) -> None:
    """A box that is gone (reclaimed, ended by hand) is replaced, if the market sells one; one that is held stays."""
    for group in backend.autoscaling_groups.values():
        left = [state for state in group.instance_states if state.instance.id not in instance_ids or held(state)]
        if len(left) < len(group.instance_states):
            group.instance_states = left
            group.set_desired_capacity(group.desired_capacity)


def _launch_template(state: Any) -> dict[str, Any] | None:
    template = state.auto_scaling_group.ec2_launch_template
    return template and {
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "Version": str(getattr(state, "version", "")),
    }


models.InstanceState.launch_template = property(_launch_template)  # type: ignore[assignment,method-assign]


# --- switches -------------------------------------------------------------------------------------------------


def all_groups() -> list[Any]:
    """Every group of the account, in every region."""
    backends = models.autoscaling_backends[ACCOUNT].values()
    return [group for backend in backends for group in backend.autoscaling_groups.values()]


def find_state(instance_id: str) -> Any:
    """The group's record of a box; KeyError where it has none."""
    for group in all_groups():
        for state in group.instance_states:
            if state.instance.id == instance_id:
                return state
    raise KeyError(instance_id)


@control.verb
def market(spot: bool | None = None, on_demand: bool | None = None) -> None:
    """Open or close the markets; a group that lacks boxes tries again at once."""
    _market.update({kind: value for kind, value in ((SPOT, spot), (ON_DEMAND, on_demand)) if value is not None})
    for group in all_groups():
        group.set_desired_capacity(group.desired_capacity)


@control.verb
def hold_launches(on: bool) -> None:
    """Whether the launch hook holds new boxes (Pending:Wait) until CompleteLifecycleAction. Off: in service at once."""
    _hold["launches"] = on


@control.verb
def lifecycle(instance_id: str, state: str) -> None:
    """Set a box's lifecycle state."""
    find_state(instance_id).lifecycle_state = state


@control.verb
def age(seconds: float, instance_id: str = "", group: str = "") -> None:
    """Set a launch or a group's creation back to `seconds` ago."""
    then = datetime.now(UTC) - timedelta(seconds=seconds)
    if instance_id:
        find_state(instance_id).instance.launch_time = then.replace(tzinfo=None)  # moto's own clock has no zone
    for each in all_groups():
        if each.name == group:
            each.created_time = then.isoformat()
