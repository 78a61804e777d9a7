"""A cloud that stands still: a fleet frozen at one moment, for tests of single decisions.

What happens over time is the simulated cloud's business. This one lists the calls made to it, and a test may have an
error strike before or after any of them.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fleet.config.settings import Artifact, Model, Settings
from lambdas.watchdog.cloud import Alarm, Box, CloudError, GoneError, Group, Instance, Refresh, RefreshActiveError
from lambdas.watchdog.handler import run
from lambdas.watchdog.record import Record
from lambdas.watchdog.state import Mode, State, loads
from lambdas.watchdog.world import HELD

NOW = datetime(2026, 7, 22, 0, 35, 43, tzinfo=UTC)
_ARTIFACT = Artifact(key="engine.tgz", sha256="0" * 64)
_MODEL = Model(name="m", engine_version="0.1.2", engine=_ARTIFACT, gguf=_ARTIFACT, modelfile=_ARTIFACT)
SHIPPED = Settings(fleet_name="llm", region="us-east-2", zones=("us-east-2a", "us-east-2b"), model=_MODEL)
# Single decisions are tested on numbers of their own: a default that moves breaks none of them.
SETTINGS = Settings.from_json(Path(__file__).with_name("settings.json").read_text(encoding="utf-8"))


EVENTS = Path(__file__).parents[1] / "events"


def event(name: str) -> dict[str, Any]:
    """A real payload by its file's name, without .json."""
    raw: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return raw


def group_event(name: str, *, at: datetime, box: str | None = None) -> dict[str, Any]:
    """The same at another time, about another box."""
    raw = event(name)
    raw["time"] = raw["detail"]["StartTime"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    if box is not None:
        raw["detail"]["EC2InstanceId"] = box
    return raw


def wake(cloud: "StillCloud", payload: str | dict[str, Any], *, now: datetime | None = None) -> Record:
    """One invocation of the real handler."""
    raw = event(payload) if isinstance(payload, str) else payload
    return run(raw, cloud=cloud, settings=cloud.settings, now=now or NOW)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


LIT = Alarm("ALARM", ago(2))
EMPTY = Group(
    created_at=ago(864000),
    desired=1,
    on_demand_percentage=0,
    boxes=(),
    zones=("us-east-2a", "us-east-2b"),
    suspended={"AZRebalance": "User suspended"},
    policy={},
)


@dataclass
class StillCloud:
    """Every field is what AWS would answer."""

    settings: Settings = SETTINGS
    state: str | None = State(Mode.ARMED, launched_at=ago(86400)).dumps()
    lever: str | None = "0"
    live_alarm: Alarm | None = LIT
    live_group: Group = EMPTY
    known: dict[str, Instance] = field(default_factory=dict)
    health: dict[str, str] = field(default_factory=dict)
    deploying: bool = False
    refreshed: tuple[Refresh, ...] = ()
    dark: int = 0  # minutes, whatever the window
    scored: dict[str, int] = field(default_factory=dict)
    mails: list[tuple[str, str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    templates_sent: list[bool] = field(default_factory=list)
    before: Callable[[str, int], None] = lambda call, number: None  # may raise; number counts from 1
    after: Callable[[str, int], None] = lambda call, number: None

    def put_box(
        self,
        box: str = "i-0aaaaaaaaaaaaaaa1",
        *,
        age: float,
        lifecycle: str = "InService",
        spot: bool = True,
        boot: str | None = None,
        health: str | None = None,
        state: str = "running",
        reason: str = "",
    ) -> None:
        """A member of the group."""
        boxes = (*self.live_group.boxes, Box(box, lifecycle, "us-east-2a", "g6.xlarge"))
        self.live_group = replace(self.live_group, boxes=boxes)
        self.known[box] = Instance(ago(age), spot, boot, state, reason=reason)
        if health:
            self.health[box] = health

    @classmethod
    def on_demand(cls, **state: Any) -> "StillCloud":
        """Failed over at 00:35:43 minus what the state says; an on-demand box serves, the alarm is OK."""
        values = {"failovers": (ago(20000),), "cooldown_from": ago(20000), "launched_at": ago(19000), **state}
        cloud = cls(lever="100", live_alarm=Alarm("OK", ago(18000)))
        cloud.set_state(State(Mode.FAILOVER, **values))
        cloud.live_group = replace(cloud.live_group, on_demand_percentage=100)
        cloud.put_box("i-0demand", age=19400, spot=False, health="healthy")
        return cloud

    def fail(self, call: str, error: CloudError) -> None:
        """From now on a call that begins so fails, before it takes effect."""

        def refuse(called: str, number: int) -> None:
            if called.startswith(call):
                raise error

        self.before = refuse

    def block_flips(self) -> None:
        """An AWS that refuses updates while any refresh is active, with a desired configuration or not."""

        def refuse(called: str, number: int) -> None:
            if called.startswith("flip") and any(refresh.active for refresh in self.refreshed):
                raise RefreshActiveError("An active instance refresh with a desired configuration exists")

        self.before = refuse

    @property
    def parsed(self) -> State:
        return loads(self.state)

    def set_state(self, state: State) -> None:
        self.state = state.dumps()

    def _did(self, call: str, do: Callable[[], Any]) -> Any:
        self.calls.append(call)
        number = len(self.calls)
        self.before(call, number)
        answer = do()
        self.after(call, number)
        return answer

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def _regroup(self, **values: Any) -> None:
        self.live_group = replace(self.live_group, **values)

    # --- the Cloud protocol -----------------------------------------------------------------------------------

    def parameters(self) -> tuple[str | None, str | None]:
        return self._did("parameters", lambda: (self.state, self.lever))

    def put_state(self, text: str) -> None:
        self._did("put_state", lambda: self._set(state=text))

    def put_lever(self, percentage: int) -> None:
        self._did(f"put_lever {percentage}", lambda: self._set(lever=str(percentage)))

    def alarm(self) -> Alarm | None:
        return self._did("alarm", lambda: self.live_alarm)

    def dark_minutes(self, start: datetime, end: datetime) -> int:
        return self._did(f"dark_minutes {start:%H:%M}-{end:%H:%M}", lambda: self.dark)

    def group(self) -> Group:
        return self._did("group", lambda: self.live_group)

    def instances(self, ids: tuple[str, ...]) -> dict[str, Instance]:
        return self._did("instances", lambda: {box: self.known[box] for box in ids if box in self.known})

    def target_health(self) -> dict[str, str]:
        return self._did("target_health", lambda: dict(self.health))

    def deregister(self, targets: tuple[str, ...]) -> None:
        rest = {target: health for target, health in self.health.items() if target not in targets}
        self._did(f"deregister {' '.join(targets)}", lambda: self._set(health=rest))

    def stack_in_progress(self) -> bool:
        return self._did("stack_in_progress", lambda: self.deploying)

    def refreshes(self) -> tuple[Refresh, ...]:
        return self._did("refreshes", lambda: self.refreshed)

    def zone_ids(self) -> dict[str, str]:
        return self._did("zone_ids", lambda: {f"us-east-2{z}": f"use2-az{n}" for n, z in enumerate("abc", 1)})

    def scores(self) -> dict[str, int]:
        return self._did("scores", lambda: dict(self.scored))

    def flip(self, group: Group, percentage: int, *, send_template: bool) -> None:
        self.templates_sent.append(send_template)
        self._did(f"flip {percentage}", lambda: self._regroup(on_demand_percentage=percentage))

    def suspend(self, process: str) -> None:
        self._did(
            f"suspend {process}",
            lambda: self._regroup(suspended=self.live_group.suspended | {process: "User suspended"}),
        )

    def resume(self, process: str) -> None:
        rest = {each: why for each, why in self.live_group.suspended.items() if each != process}
        self._did(f"resume {process}", lambda: self._regroup(suspended=rest))

    def start_refresh(self) -> str:
        new = Refresh(f"refresh-{len(self.refreshed) + 1}", "InProgress", NOW, like_ours=True)
        self._did("start_refresh", lambda: self._set(refreshed=(new, *self.refreshed)))
        return new.id

    def cancel_refresh(self) -> None:
        if not any(refresh.active for refresh in self.refreshed):
            raise GoneError("no active refresh")
        cancelled = tuple(replace(r, status="Cancelled") if r.active else r for r in self.refreshed)
        self._did("cancel_refresh", lambda: self._set(refreshed=cancelled))

    def abandon(self, box_id: str) -> None:
        if box_id not in {box.id for box in self.live_group.boxes if box.lifecycle == HELD}:
            raise GoneError(f"no active Lifecycle Action of {box_id}")
        rest = tuple(box for box in self.live_group.boxes if box.id != box_id)
        self._did(f"abandon {box_id}", lambda: self._regroup(boxes=rest))

    def end_box(self, box_id: str) -> None:
        if box_id not in {box.id for box in self.live_group.boxes}:
            raise GoneError(f"{box_id} is gone")
        rest = tuple(box for box in self.live_group.boxes if box.id != box_id)
        self._did(f"end_box {box_id}", lambda: self._regroup(boxes=rest))

    def wake(self, at: datetime) -> None:
        self._did(f"wake {at:%H:%M:%S}", lambda: None)

    def mail(self, subject: str, body: str) -> None:
        self._did("mail", lambda: self.mails.append((subject, body)))
