"""The network load balancer: its type, attributes, names and deletion, and target health that tests can set.

moto makes every balancer an application one, drops attributes, and holds every target healthy.
"""

from datetime import datetime
from typing import Any

from moto.core.utils import utcnow
from moto.elbv2 import models
from moto.elbv2.exceptions import ELBClientError

from fleet.localaws import control
from fleet.localaws.patching import extend

_health: dict[str, str] = {}  # instance id -> state, where a test has set one
_changes: dict[str, list[tuple[datetime, bool]]] = {}  # and since when it has been healthy, or not


@extend(models.FakeLoadBalancer, "create_from_cloudformation_json")
def create_balancer(original: Any, cls: Any, name: str, template: Any, account: str, region: str, **kwargs: Any) -> Any:
    """From the template, with type, security groups and attributes; a network balancer's ARN says net/."""
    properties = template["Properties"]
    balancer = original(cls, name, template, account, region, **kwargs)
    if properties.get("Type") == "network":
        balancers = models.elbv2_backends[account][region].load_balancers
        balancer = balancers.pop(balancer.arn)
        balancer.type, balancer.arn = "network", balancer.arn.replace(":loadbalancer/app/", ":loadbalancer/net/")
        balancers[balancer.arn] = balancer
    balancer.security_groups = properties.get("SecurityGroups") or []
    balancer.attrs.update({item["Key"]: item["Value"] for item in properties.get("LoadBalancerAttributes", [])})
    return balancer


@extend(models.FakeLoadBalancer, "get_cfn_attribute")
def balancer_attribute(original: Any, balancer: Any, name: str) -> Any:
    """The full name, which metrics use as a dimension."""
    return balancer.arn.split(":loadbalancer/", 1)[1] if name == "LoadBalancerFullName" else original(balancer, name)


@extend(models.FakeTargetGroup, "create_from_cloudformation_json")
def create_target_group(
    original: Any, cls: Any, name: str, template: Any, account: str, region: str, **kwargs: Any
) -> Any:
    """From the template, with attributes."""
    group = original(cls, name, template, account, region, **kwargs)
    attributes = template["Properties"].get("TargetGroupAttributes", [])
    group.attributes.update({item["Key"]: item["Value"] for item in attributes})
    return group


def _groups_of(listener: Any) -> set[str]:
    found = [action.data for action in listener.default_actions]
    return {group for data in found for group in models.ELBv2Backend._get_target_group_arns_from(None, data)}  # type: ignore[arg-type]


@extend(models.ELBv2Backend, "create_listener")
def create_listener(original: Any, backend: Any, load_balancer_arn: str, *args: Any, **kwargs: Any) -> Any:
    """A target group belongs to one balancer at a time (aws-behaviours: target-group-one-balancer)."""
    listener = original(backend, load_balancer_arn, *args, **kwargs)
    _keep_to_one_balancer(backend, listener)
    return listener


@extend(models.ELBv2Backend, "modify_listener")
def modify_listener(original: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
    """The same; moto does not tell the target group its balancer."""
    listener = original(backend, *args, **kwargs)
    _keep_to_one_balancer(backend, listener)
    for arn in _groups_of(listener):
        backend.target_groups[arn].load_balancer_arns = [listener.load_balancer_arn]
    return listener


def _keep_to_one_balancer(backend: Any, listener: Any) -> None:
    for balancer in backend.load_balancers.values():
        shared = {arn for other in balancer.listeners.values() for arn in _groups_of(other) & _groups_of(listener)}
        if shared and balancer.arn != listener.load_balancer_arn:
            backend.delete_listener(listener.arn)
            raise ELBClientError(
                "TargetGroupAssociationLimit",
                "The following target groups cannot be associated with more than one load balancer: "
                + ", ".join(sorted(shared)),
            )


def _target_group_attribute(group: Any, name: str) -> Any:
    return {"TargetGroupFullName": group.arn.split(":", 5)[5]}[name]


def _delete_listener(listener: Any, account: str, region: str) -> None:
    models.elbv2_backends[account][region].delete_listener(listener.arn)


def _delete_target_group(group: Any, account: str, region: str) -> None:
    group.load_balancer_arns.clear()
    models.elbv2_backends[account][region].delete_target_group(group.arn)


models.FakeTargetGroup.get_cfn_attribute = _target_group_attribute  # type: ignore[attr-defined]
setattr(models.FakeTargetGroup, "has_cfn_attr", classmethod(lambda cls, attr: True))  # noqa: B010  (mypy's rule)
models.FakeTargetGroup.delete = _delete_target_group  # type: ignore[attr-defined]
models.FakeListener.delete = _delete_listener  # type: ignore[attr-defined]


@extend(models.FakeTargetGroup, "health_for")
def health_for(original: Any, group: Any, target: dict[str, Any], ec2: Any) -> Any:
    """A registered target's health is what a test has set, else moto's `healthy`."""
    status = original(group, target, ec2)
    if target["Id"] in group.targets and target["Id"] in _health:
        status.status = _health[target["Id"]]
    return status


@extend(models.ELBv2Backend, "describe_target_health")
def describe_target_health(original: Any, backend: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """A box that was ended is no target any more: its group deregisters it (moto only where EC2 was told to)."""
    gone = {box.id for box in backend.ec2_backend.all_instances() if box._state.name in ("shutting-down", "terminated")}
    return [status for status in original(backend, *args, **kwargs) if status.instance_id not in gone]


@control.verb
def health(instance_id: str, state: str) -> None:
    """Set a target's health (healthy, initial, unhealthy, draining, unused, unavailable)."""
    _health[instance_id] = state
    _changes.setdefault(instance_id, []).append((utcnow(), state == "healthy"))


def healthy_at(instance_id: str, at: datetime) -> bool:
    """Whether a target was healthy at that time (UTC, without a zone, as moto's clock), where its box ran."""
    return next((healthy for since, healthy in reversed(_changes.get(instance_id, [])) if since <= at), True)
