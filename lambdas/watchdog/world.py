"""What the watchdog sees of AWS at one moment, as plain data; what was not read for a signal stays at its default."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from fleet.config.settings import Settings
from fleet.core import names
from lambdas.watchdog.cloud import Alarm, Box, Group, Instance, Refresh

LAUNCHING = {"Pending", "Pending:Wait", "Pending:Proceed"}
ALIVE = LAUNCHING | {"InService"}
HELD = "Pending:Wait"


ROUTED = {"initial", "healthy", "unhealthy"}  # unhealthy: where nothing else is there, the balancer fails open


@dataclass
class World:
    """One look at the fleet: `observe` fills it in, and nothing changes it afterwards."""

    lever: str | None = None
    alarm: Alarm | None = None
    group: Group | None = None
    instances: dict[str, Instance] = field(default_factory=dict)
    health: dict[str, str] = field(default_factory=dict)
    dark_seconds: int = 0  # times the missing share, in the served share's window and since the lever last moved
    deploying: bool = False
    refreshes: tuple[Refresh, ...] = ()
    scores: dict[str, int] = field(default_factory=dict)  # per zone id of the group
    unread: str = ""  # why deploys, refreshes or scores could not be read: no failover waits for that past the skip cap

    @property
    def seen_group(self) -> Group:
        """The group, where the signal needs it; a LookupError is a mistake of ours in `observe`."""
        if self.group is None:
            raise LookupError("the group was not read for this signal")
        return self.group

    @property
    def lit(self) -> bool:
        """Whether the alarm is really lit now."""
        return self.alarm is not None and self.alarm.state == "ALARM"

    def capped(self, settings: Settings, now: datetime) -> bool:
        """Whether the alarm has been lit for the skip cap."""
        if self.alarm is None or not self.lit:
            return False
        return now - self.alarm.since >= timedelta(seconds=settings.watchdog.skip_cap_seconds)

    def churns(self, settings: Settings) -> bool:
        """Whether too little of the window was served, however short each gap was."""
        limits = settings.watchdog
        return bool(limits.served_percent) and self.dark_seconds >= limits.dark_seconds_allowed

    @property
    def alive(self) -> tuple[Box, ...]:
        """Boxes that launch or serve; those on their way out are left aside, and those that EC2 has seen end."""
        members = self.group.boxes if self.group else ()
        return tuple([box for box in members if box.lifecycle in ALIVE and not self._ended(box)])

    @property
    def held(self) -> list[Box]:
        """Boxes that the launch hook holds."""
        return [box for box in self.group.boxes if box.lifecycle == HELD] if self.group else []

    @property
    def died_held(self) -> tuple[str, ...]:
        """Boxes that ended while their launch hook held them: each keeps its place until the hook is given back."""
        return tuple(box.id for box in self.held if self._ended(box))

    def holds(self, box_id: str) -> bool:
        """Whether the launch hook holds that box."""
        return box_id in [box.id for box in self.held]

    @property
    def alive_by_purchase(self) -> tuple[list[Box], list[Box]]:
        """Spot, on-demand; a box that EC2 does not know yet is neither."""
        known = [(box, self.instances[box.id].spot) for box in self.alive if box.id in self.instances]
        return [box for box, spot in known if spot], [box for box, spot in known if not spot]

    @property
    def healthy(self) -> tuple[str, ...]:
        """Targets that answer now, and are boxes."""
        return tuple([id_ for id_, health in self.health.items() if health == "healthy" and self._ours(id_)])

    @property
    def strangers(self) -> tuple[str, ...]:
        """Targets that get connections and are no member of the group: a box's role may have registered them."""
        return tuple(id_ for id_, health in self.health.items() if health in ROUTED and not self._ours(id_))

    def _ours(self, target: str) -> bool:
        return self.group is None or target in [box.id for box in self.group.boxes]

    @property
    def percentage(self) -> int | None:
        """The group's live on-demand percentage."""
        return self.group.on_demand_percentage if self.group else None

    def agrees(self, expected_lever: int) -> bool:
        """Whether parameter and group both show what the state expects."""
        return self.lever == str(expected_lever) and self.percentage == expected_lever

    def busy(self, *, ours: str | None = None) -> str:
        """What else changes the group now, or may: a deploy, or an instance refresh that is not ours."""
        if self.unread or self.deploying:
            return self.unread or "a deploy is in progress"
        return next((f"instance refresh {r.id} is {r.status}" for r in self.refreshes if r.active and r.id != ours), "")

    def young(self, settings: Settings, now: datetime) -> dict[str, str]:
        """Which boxes are a recovery in progress, each with why (definitions: docs/watchdog.md)."""
        found = {}
        for box in self.alive:
            instance = self.instances.get(box.id)
            if instance is None:
                found[box.id] = f"{box.id} is too new for EC2 to know it"
                continue
            budget = _budget_seconds(box, instance, settings)
            age = (now - instance.launched_at).total_seconds()
            if age < budget:
                found[box.id] = f"{box.id} is {age:.0f} s old, grace {budget} s"
        return found

    def newborn(self, settings: Settings, now: datetime, *, ever_launched: bool) -> str:
        """Why the whole group is a recovery in progress; empty if it has served, or should have by now."""
        if self.group and not ever_launched:
            age, budget = (now - self.group.created_at).total_seconds(), settings.boot.cold_budget_seconds
            if age < budget:
                return f"the group never served and is {age:.0f} s old, cold boot {budget} s"
        return ""

    def coming(self, noticed: tuple[str, ...], settings: Settings, now: datetime) -> set[str]:
        """Boxes on their way: launching, without a notice and not held for longer than their boot may take."""
        lost = {*noticed, *self.overdue(settings, now)}
        return {box.id for box in self.alive if box.lifecycle in LAUNCHING and box.id not in lost}

    def spot_among(self, boxes: Collection[str]) -> set[str]:
        """Which of them stay on spot; one that EC2 does not know yet is taken for one."""
        known = self.instances
        return {box.id for box in self.alive if box.id in boxes and (box.id not in known or known[box.id].spot)}

    def overdue(self, settings: Settings, now: datetime) -> tuple[str, ...]:
        """Boxes that do not answer, held for longer than their boot may take; past the skip cap, than grace."""
        grace = settings.watchdog.grace_seconds if self.capped(settings, now) else None
        return tuple(
            box.id
            for box in self.alive
            if box.lifecycle == HELD
            and box.id not in self.healthy
            and (instance := self.instances.get(box.id))
            and (now - instance.launched_at).total_seconds() >= (grace or _budget_seconds(box, instance, settings))
        )

    def hung_spot(self, settings: Settings, now: datetime) -> tuple[str, ...]:
        """Spot boxes among them: they count as capacity, so a flip to on-demand would be inert."""
        return tuple(box.id for box in self.alive_by_purchase[0] if box.id in self.overdue(settings, now))

    def summary(self) -> dict[str, Any]:
        """For the decision record: only what was read."""
        raw = {
            "lever": self.lever,
            "alarm": self.alarm and self.alarm.summary,
            "percentage": self.percentage,
            "boxes": {box.id: self._describe(box) for box in self.group.boxes} if self.group else None,
            "healthy": list(self.healthy) if self.health else None,
            "dark_seconds": self.dark_seconds or None,
            "deploying": self.deploying or None,
            "refresh": self.refreshes[0].status if self.refreshes else None,
            "unread": self.unread or None,
        }
        return {key: value for key, value in raw.items() if value is not None}

    def _ended(self, box: Box) -> bool:
        instance = self.instances.get(box.id)
        return instance is not None and instance.ended

    def _describe(self, box: Box) -> dict[str, str]:
        instance = self.instances.get(box.id)
        raw = {
            "lifecycle": box.lifecycle,
            "purchase": ("spot" if instance.spot else "on-demand") if instance else "",
            "pool": box.instance_type,
            "state": instance.state if instance and instance.ended else "",
            "health": self.health.get(box.id, ""),
        }
        return {key: value for key, value in raw.items() if value}


def _budget_seconds(box: Box, instance: Instance, settings: Settings) -> int:
    if box.lifecycle != HELD:
        return settings.watchdog.grace_seconds
    return boot_budget_seconds(instance, settings)


def boot_budget_seconds(instance: Instance, settings: Settings) -> int:
    """From launch to serving, for a boot of its kind."""
    return settings.boot.cold_budget_seconds if instance.boot == names.BOOT_COLD else settings.boot.warm_budget_seconds
