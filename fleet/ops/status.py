"""Answers "is it all right?": mode, lever, boxes, alarm, last decisions and dollars, and what needs a human. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from fleet.config.pools import POOLS
from fleet.config.settings import Settings
from fleet.core import names
from fleet.ops.fleet_view import Decided, View
from lambdas.watchdog import failures, shares, suspension
from lambdas.watchdog.cloud import Box
from lambdas.watchdog.state import Mode

SHOWN_DECISIONS = 5
HOURS_PER_DAY = 24
ON_DEMAND_DRY = f"on-demand {failures.CAPACITY.name}"  # among the refusals that the state holds


@dataclass(frozen=True)
class BoxStatus:
    """One member of the group."""

    id: str
    purchase: str  # spot, on-demand, or ? while EC2 does not know it yet
    pool: str
    zone: str
    age_seconds: int | None
    lifecycle: str
    health: str  # the balancer's word; "not registered" without one
    boot: str  # warm, cold or ?
    usd_per_hour: float | None  # None: no table knows the type

    @property
    def serving(self) -> bool:
        """Whether the balancer routes to it."""
        return self.health == "healthy"


@dataclass(frozen=True)
class Lever:
    """The on-demand percentage in its three places."""

    parameter: str | None
    group: int | None
    expected: int | None

    @property
    def agreed(self) -> bool:
        """Whether all three are the same."""
        return self.parameter == str(self.expected) and self.group == self.expected


@dataclass(frozen=True)
class Status:
    """The answer. `problems` is empty when all is right; the rest is what it was judged on."""

    at: datetime
    fleet: str
    region: str
    mode: str | None
    doing: str  # a transition or a re-arm under way, a deploy, a refresh
    lever: Lever
    boxes: tuple[BoxStatus, ...]
    desired: int
    alarm: str
    alarm_seconds: int | None
    on_demand_asked: int | None  # boxes, base and lever together; None: the state does not say
    failovers_counted: float  # by the valve, each as the share of the fleet that it bought; `arm` empties the count
    valve_window_hours: int
    decisions: tuple[dict[str, Any], ...]
    decisions_complete: bool  # else newer ones may be missing
    last_warm_boot: str  # streamed, or downloaded: it loaded the model only once it was there; "" where none told
    usd_per_day: float
    usd_per_day_on_demand: float
    gateway: str  # its tasks; empty: the settings have none
    line: str  # at the box with the longest; empty: no lane told of one in the last minutes
    problems: tuple[str, ...]

    @property
    def serving(self) -> int:
        """Boxes that callers reach."""
        return sum(box.serving for box in self.boxes)


def judge(view: View, settings: Settings, now: datetime) -> Status:
    """From one look to the answer."""
    world, state = view.world, view.state
    boxes = tuple(_boxes(view, settings, now))
    lever = Lever(world.lever, world.percentage, state.expected_lever if state else None)
    desired = world.group.desired if world.group else 0
    status = Status(
        at=now,
        fleet=settings.fleet_name,
        region=settings.region,
        mode=str(state.mode) if state else None,
        doing=_doing(view),
        lever=lever,
        boxes=boxes,
        desired=desired,
        alarm=world.alarm.state if world.alarm else "absent",
        alarm_seconds=int((now - world.alarm.since).total_seconds()) if world.alarm else None,
        on_demand_asked=_asked(view, settings, desired),
        failovers_counted=state.fleets_bought(settings, now) if state else 0,
        valve_window_hours=settings.watchdog.valve_window_seconds // 3600,
        decisions=tuple(_line(decided) for decided in view.decisions[-SHOWN_DECISIONS:]),
        decisions_complete=view.decisions_complete,
        last_warm_boot={None: "", True: "streamed", False: "downloaded"}[view.streamed],
        usd_per_day=round(sum(box.usd_per_hour or 0 for box in boxes) * HOURS_PER_DAY, 2),
        usd_per_day_on_demand=round(_all_on_demand(desired, settings), 2),
        gateway=_gateway(view),
        line=_line_at_boxes(view),
        problems=(),
    )
    return _with_problems(status, view, settings)


def _boxes(view: View, settings: Settings, now: datetime) -> Iterator[BoxStatus]:
    for box in view.world.group.boxes if view.world.group else ():
        instance = view.world.instances.get(box.id)
        purchase = "?" if instance is None else "spot" if instance.spot else "on-demand"
        yield BoxStatus(
            id=box.id,
            purchase=purchase,
            pool=box.instance_type,
            zone=box.zone,
            age_seconds=int((now - instance.launched_at).total_seconds()) if instance else None,
            lifecycle=box.lifecycle,
            health=view.world.health.get(box.id, "not registered"),
            boot=(instance and instance.boot) or "?",
            usd_per_hour=_price(box, purchase, view, settings),
        )


def _price(box: Box, purchase: str, view: View, settings: Settings) -> float | None:
    """USD per hour: spot as of now in its zone, on-demand from the table; None for a type that no table knows."""
    if purchase == "spot" and (now := view.spot_usd.get((box.instance_type, box.zone))):
        return now
    if box.instance_type not in (*settings.pools, *POOLS):
        return None
    pool = settings.pool(box.instance_type)
    return pool.spot_usd if purchase == "spot" else pool.on_demand_usd


def _asked(view: View, settings: Settings, desired: int) -> int | None:
    """Boxes that should be on-demand now, of a grown group as well."""
    if view.state is None:
        return None
    return shares.base(settings) + shares.bought(view.state.expected_lever, settings, desired)


def _all_on_demand(desired: int, settings: Settings) -> float:
    """What the fleet would cost if it never used spot: its first pool, the cheapest that on-demand would launch."""
    return settings.pool(settings.pools[0]).on_demand_usd * HOURS_PER_DAY * desired


def _doing(view: View) -> str:
    state, world = view.state, view.world
    words = []
    if state and state.unfinished:
        words.append(f"{state.unfinished.kind} unfinished since {state.unfinished.at:%H:%M:%S}")
    if state and state.rearm_from:
        words.append(f"re-arming since {state.rearm_from:%H:%M:%S}")
    if world.deploying:
        words.append("a deploy is in progress")
    words += [f"instance refresh {refresh.status}" for refresh in world.refreshes[:1] if refresh.active]
    return ", ".join(words)


def _gateway(view: View) -> str:
    found = view.gateway
    if found is None:
        return ""
    if not found.desired:
        return "not deployed"
    return f"{found.running} of {found.desired} tasks" + (", rolling" if found.rollout == "IN_PROGRESS" else "")


def _line_at_boxes(view: View) -> str:
    told = view.told
    if told.in_line is None or told.wait_seconds is None:
        return ""
    return f"{told.in_line} in it, {told.wait_seconds:.0f} s for who comes now"


def _line(decided: Decided) -> dict[str, Any]:
    record = decided.record
    return {
        "at": decided.at,
        "signal": record.get("signal", {}).get("wake"),
        "action": record.get("action"),
        "reason": record.get("reason"),
        "outcome": record.get("outcome"),
    }


def _with_problems(status: Status, view: View, settings: Settings) -> Status:
    found = []
    if view.state is None:
        found.append(f"{view.state_problem}: docs/runbook/state-unreadable.md")
    elif not status.lever.agreed and not view.state.unfinished:
        lever = status.lever
        pinned = view.state.mode is Mode.PINNED
        repair = "pinned repairs nothing: fleetctl pin, or arm" if pinned else "the next scan repairs it"
        said = f"parameter {lever.parameter}, group {lever.group}, expected {lever.expected}"
        found.append(f"lever disagrees: {said}; {repair}")
    should = min(status.desired, settings.capacity.min)  # what grows beyond it is no problem yet
    if status.serving < should:
        found.append(f"{status.serving} of {should} boxes serve: docs/runbook/no-healthy-target.md")
    if status.desired > settings.capacity.min and not settings.capacity.grow_to:  # it was taken away from a grown group
        size = (
            f"--auto-scaling-group-name {names.group(settings.fleet_name)} --desired-capacity {settings.capacity.min}"
        )
        said = (
            f"the group wants {status.desired} boxes, capacity.min is {settings.capacity.min}, and nothing shrinks it"
        )
        found.append(f"{said}: aws autoscaling set-desired-capacity {size}")
    if status.alarm in ("ALARM", "absent"):  # a new alarm has insufficient data until its first minutes are over
        found.append(f"alarm is {status.alarm}: docs/runbook/no-healthy-target.md")
    if view.state and view.state.dry_at:
        dry = view.state.refused in ((), (ON_DEMAND_DRY,))
        said = "on-demand has been dry" if dry else f"{', '.join(view.state.refused)} has been refused"
        page = "mail-on-demand-dry" if dry else "mail-launch-refused"
        found.append(f"{said} since {view.state.dry_at:%H:%M:%S}: docs/runbook/{page}.md")
    if view.state and view.state.owed:
        found.append(f"{len(view.state.owed)} mail not sent yet: docs/runbook/function-failed.md")
    if view.world.group and (said := suspension.words(view.world.group)):
        page = "mail-unsuspended" if suspension.by_aws(view.world.group) else "mail-suspended"
        found.append(f"{said}: docs/runbook/{page}.md")
    if view.told.runaway_seconds is not None:
        age = f"{view.told.runaway_seconds / 60:.0f} min"
        found.append(f"a generation has run for {age} and does not end: docs/runbook/runaway-generation.md")
    if status.decisions and str(status.decisions[-1]["outcome"]).startswith("failed"):
        found.append(f"the last decision failed: {status.decisions[-1]['outcome']}: docs/runbook/function-failed.md")
    if view.world.refreshes and view.world.refreshes[0].failed:
        found.append(f"the last instance refresh is {view.world.refreshes[0].status}: docs/runbook/deploy-failed.md")
    if gateway := view.gateway:
        if not gateway.desired:
            found.append("the gateway is not deployed: make deploy")
        elif gateway.running < gateway.desired:
            found.append(f"{status.gateway} of the gateway run: docs/runbook/gateway-down.md")
        found += [f"alarm {page} is lit: docs/runbook/{page}.md" for page in gateway.lit]
    return replace(status, problems=tuple(found))
