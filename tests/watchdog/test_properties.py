"""What must hold in any life of a fleet, driven by hypothesis through the real handler on the simulated cloud.

Random are: markets, boots, faults, events lost, doubled, late and reordered, deploys, operators, edits by hand.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet.config.settings import Policy
from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Behaviour, Boots, Events, Scores
from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from fleet.sim.markets.market import PLENTY, Market
from lambdas.watchdog.cloud import BusyError, CloudError, DeniedError, RefreshActiveError, ThrottledError
from lambdas.watchdog.handler import run
from lambdas.watchdog.mail import compose
from lambdas.watchdog.state import LIMIT_BYTES, OWED_MAILS, Kind, Mode, State, loads
from tests.watchdog.hostility import HOUR, POOLS, START, drawn
from tests.watchdog.still_cloud import SHIPPED as SETTINGS

pytestmark = pytest.mark.slow

DAYS = 3
SLACK = timedelta(seconds=120)  # event delivery and rounding
LIMITS = SETTINGS.watchdog
READS = [
    "parameters", "alarm", "group", "instances", "target_health", "stack_in_progress", "refreshes", "zone_ids",
    "scores",
]  # fmt: skip
TAKES_EFFECT = [
    "put_state", "put_lever", "flip", "suspend", "resume", "start_refresh", "cancel_refresh", "end_box", "abandon",
    "mail", "wake",
]  # fmt: skip


@dataclass
class Fault:
    """One API call that fails: `call` is the method's name. `after` it has taken effect, or instead."""

    call: str
    error: Exception
    times: int
    after: bool


class Failing(SimulatedCloud):
    """The simulated cloud, whose calls fail as planned."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self.faults: list[Fault] = []
        super().__init__(*args, **named)

    def strike(self, call: str, *, after: bool) -> None:
        for fault in self.faults:
            if (fault.call, fault.after) == (call, after) and fault.times > 0:
                fault.times -= 1
                raise fault.error


def _failing(call: str) -> Callable[..., Any]:
    def made(cloud: Failing, *args: Any, **named: Any) -> Any:
        cloud.strike(call, after=False)
        answer = getattr(SimulatedCloud, call)(cloud, *args, **named)
        cloud.strike(call, after=True)
        return answer

    return made


for _call in (*READS, *TAKES_EFFECT):
    setattr(Failing, _call, _failing(_call))


class Watched(Failing):
    """It tells a test what the watchdog does to it."""

    tell: Callable[[str, Any], None] = staticmethod(lambda call, what: None)

    def put_state(self, text: str) -> None:
        self.tell("put_state", text)
        super().put_state(text)

    def end_box(self, box_id: str) -> None:
        self.tell("end_box", box_id)
        super().end_box(box_id)

    def abandon(self, box_id: str) -> None:
        self.tell("end_box", box_id)
        super().abandon(box_id)


class Fleet(RuleBasedStateMachine):
    """One fleet's life. What the model remembers is what a sceptical onlooker would write down."""

    policy: Policy = "alarm"

    @initialize(
        supply=st.lists(st.tuples(st.floats(0.05, 9), st.sampled_from([0, 0, 1, PLENTY])), max_size=14),
        on_demand=st.lists(st.tuples(st.floats(0.5, 30), st.sampled_from([0, PLENTY])), max_size=4),
        lost=st.sampled_from([0.0, 0.0, 0.3]),
        stuck=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
        failed=st.sampled_from([0.0, 0.0, 0.5]),
        wrong=st.sampled_from([0.0, 0.3]),
        replaces=st.booleans(),
        size=st.sampled_from([1, 1, 1, 3]),
        seed=st.integers(0, 999),
    )
    def found(
        self, supply: list[tuple[float, int]], on_demand: list[tuple[float, int]], lost: float, stuck: float,
        failed: float, wrong: float, replaces: bool, size: int, seed: int,
    ) -> None:  # fmt: skip
        steps = drawn(supply, on_demand)
        market = Market("random", POOLS, START, START + DAYS * 24 * HOUR, lambda: iter(steps))
        behaviour = Behaviour(
            boots=Boots(stuck_share=stuck, failed_share=failed),
            events=Events(lost_share=lost, doubled_share=0.3, late_share=0.2),
            scores=Scores(wrong_share=wrong),
            replaces_wrong_kind=replaces,
        )
        self.settings = replace(
            SETTINGS, policy=self.policy, capacity=replace(SETTINGS.capacity, min=size, max=size + 1)
        )
        self.log: list[Event] = []
        self.cloud = Watched(
            market, settings=self.settings, behaviour=behaviour, seed=seed, emit=self._logged,
            state=State(Mode.ARMED).dumps(), serving="spot",
        )  # fmt: skip
        self.cloud.tell = self._told
        self.cloud.watch(self._invoke)
        self.cloud.on_health.append(self._health)
        self.began: Counter[tuple[str, str]] = Counter()  # transitions by subject and time
        self.mails: Counter[tuple[str, str]] = Counter()
        self.calm_since = self.now
        self.last_healthy = self.now
        self.cooling_from: datetime | None = None  # last failover or fall-back, unless a human armed since
        self.twice: set[tuple[str, str]] = set()  # mails that a fault may have kept from being written down
        self.mails_dropped = False
        self.told: list[dict[str, Any]] = []  # events, in the order of their first delivery
        self.heard: set[str] = set()  # boxes whose notice was handled while it was known whose they are
        self.command = ""
        self.state_now = loads(self.cloud.parameters()[0])

    # --- the onlooker -----------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.cloud.clock.utc()

    @property
    def disturbed(self) -> bool:
        return any(fault.times > 0 for fault in self.cloud.faults) or self.cloud.clock.now < self.cloud.deploying_until

    def _logged(self, event: Event) -> None:
        if event.kind == "mail":
            when = event.fields["body"].split("When: ")[1].split("\n")[0]
            self.mails[event.fields["subject"], when] += 1
        if event.kind == "box.unserving" and event.fields["why"] in {"replaced", "ended by the watchdog"}:
            others = [b for b in self.cloud.ec2.running.values() if b.healthy and b.id != event.fields["box"]]
            assert others, "a decision of ours ended the last serving box"

    def _health(self) -> None:
        if self.cloud.balancer.healthy:
            self.last_healthy = self.now

    def _told(self, call: str, what: str) -> None:
        if call == "end_box":
            box = self.cloud.autoscaling.boxes.get(what)
            assert box is None or not box.healthy, "a box that answers was ended"
            return
        assert len(what.encode()) <= LIMIT_BYTES
        new, old = loads(what), self.state_now
        if any(f.call == "put_state" and not f.after and f.times > 0 for f in self.cloud.faults):
            return  # this write will be refused
        self.state_now = new
        if new.unfinished and new.unfinished != old.unfinished:
            self._transition(new.unfinished.kind, new)
            if new.unfinished.kind in {Kind.FAILOVER, Kind.BRIDGED}:
                more = (new.part or 100) > (old.part or 100)  # boxes may be missing than before
                assert old.armed or more, "went to on-demand twice"
        self.mails_dropped |= len(new.owed) >= OWED_MAILS
        if old.mode is Mode.PINNED and new.mode is not Mode.PINNED:
            assert self.command == "arm", "pinned ended by itself"

    def _transition(self, kind: Kind, state: State) -> None:
        assert state.unfinished
        if kind is Kind.BOOT_LOOP:
            assert not self.heard & dict(state.abandoned).keys(), "reclaims count as a boot loop"
        if kind is Kind.REARM:
            waited = self.cooling_from is None or self.now - self.cooling_from >= timedelta(
                seconds=LIMITS.cooldown_seconds - 1
            )
            assert waited or self.policy == "bridge", "re-armed inside the cooldown"
            return
        if state.unfinished in state.owed:
            subject, _ = compose(state.unfinished, self.settings)
            self.began[subject, f"{state.unfinished.at:%Y-%m-%d %H:%M:%S} UTC"] += 1
        if kind in {Kind.FAILOVER, Kind.FELL_BACK}:
            self.cooling_from = self.now
        if kind is Kind.ARMED or (kind is Kind.TURNED and state.cooldown_from is None):
            self.cooling_from = None

    # --- invocations ------------------------------------------------------------------------------------------

    def _invoke(self, payload: dict[str, Any], now: datetime) -> dict[str, Any]:
        self.command = str(payload.get("command", ""))
        faults_before, mails_before = self._faults_left(), self.mails.copy()
        try:
            record = run(payload, cloud=self.cloud, settings=self.settings, now=now)
        except CloudError:
            self._note_mail_fault(faults_before, mails_before)
            raise
        struck = self._note_mail_fault(faults_before, mails_before)
        # a notice that comes after its box has gone and before its launch is told as abandoned is a stranger's
        ours = record["action"] != "ignored"
        if ours and payload.get("detail-type") == "EC2 Spot Instance Interruption Warning":
            self.heard.add(payload["detail"]["instance-id"])
        if "detail-type" in payload and payload not in self.told:
            self.told.append(payload)
        if self.command == "scan" and not struck and not self.disturbed:
            self._after_a_quiet_scan()
        if self.command != "scan" and not self.disturbed and not self._any_wake_acts():
            before = self._left()
            run(payload, cloud=self.cloud, settings=self.settings, now=now)
            assert self._left() == before, f"a redelivered event changed something: {payload}"
        return record

    def _left(self) -> tuple[State, str | None, Counter[tuple[str, str]]]:
        """What wakes have left behind.

        Since when boxes are seen to be missing is any look's to say; the notice of a box that has gone is forgotten
        when another comes, also one that comes again.
        """
        text, lever = self.cloud.parameters()
        state = loads(text)
        there = tuple(box for box in state.evidence.noticed if box in self.cloud.autoscaling.boxes)
        return (
            replace(state, evidence=replace(state.evidence, dark_at=None, noticed=there)),
            lever,
            self.mails.copy(),
        )

    def _any_wake_acts(self) -> bool:
        """A lit alarm past the skip cap and the turns of a dark fleet are judged by whatever wakes the watchdog.

        Its clock decides one thing after the other: a drought first, then the warning that waited meanwhile. A refusal
        that is told again asks the scores again, and these err.
        """
        seen = self.state_now.evidence
        waits = bool(seen.warned_at if self.command == "patience" else seen.drought_at)
        return waits or self.state_now.turns > 0 or (self.state_now.armed and self.cloud._alarm.live.state == "ALARM")

    def _faults_left(self) -> dict[str, int]:
        left: Counter[str] = Counter()
        for fault in self.cloud.faults:
            left[fault.call] += fault.times
        return dict(left)

    def _note_mail_fault(self, before: dict[str, int], mails_before: Counter[tuple[str, str]]) -> bool:
        """Whether a fault struck; remembers the mails that one may have kept from being written down as sent."""
        after = self._faults_left()
        struck = {call for call in before if after.get(call, 0) < before[call]}
        if struck & {"mail", "put_state"}:
            self.twice |= set(self.mails - mails_before)
        return bool(struck)

    def _after_a_quiet_scan(self) -> None:
        text, lever = self.cloud.parameters()
        state = loads(text)
        foreign = [r for r in self.cloud.refreshes() if r.active and r.id != state.refresh_id]
        if state.mode is Mode.PINNED or foreign:
            return
        live = self.cloud.group().on_demand_percentage
        assert (lever, live) == (str(state.expected_lever), state.expected_lever), "mode, parameter and group disagree"
        assert state.unfinished is None
        assert not state.owed
        assert "AZRebalance" in self.cloud.group().suspended

    # --- rules ------------------------------------------------------------------------------------------------

    @rule(minutes=st.sampled_from([1, 5, 13, 31, 47, 120, 400]))
    def time_passes(self, minutes: int) -> None:
        self.cloud.run(until=self.cloud.clock.now + minutes * 60)

    @rule(
        call=st.sampled_from([*READS, *TAKES_EFFECT]),
        times=st.integers(1, 4),
        after=st.booleans(),
        error=st.sampled_from([ThrottledError, DeniedError, BusyError, RefreshActiveError, CloudError]),
    )
    def aws_fails(self, call: str, times: int, after: bool, error: type[CloudError]) -> None:
        self.cloud.faults.append(Fault(call, error(f"{call} fails"), times, after=after and call in TAKES_EFFECT))

    @rule()
    def faults_clear(self) -> None:
        self.cloud.faults.clear()

    @rule(command=st.sampled_from(["pin", "arm", "arm", "scan", "probe"]))
    def operator(self, command: str) -> None:
        self.cloud.command(command)
        self.cloud.run(until=self.cloud.clock.now + 1)

    @rule(minutes=st.integers(1, 40), refresh=st.booleans())
    def deploy(self, minutes: int, refresh: bool) -> None:
        self.cloud.deploying_until = self.cloud.clock.now + minutes * 60
        if refresh and not self.cloud.autoscaling.refreshes.active:
            self.cloud.autoscaling.start_refresh(has_desired_configuration=True)

    @rule(lever=st.sampled_from(["0", "100", "50", "rubbish"]))
    def somebody_edits_the_parameter(self, lever: str) -> None:
        self.cloud._lever = lever

    @precondition(lambda self: not self.cloud.autoscaling.refreshes.active)
    @rule(percentage=st.sampled_from([0, 50, 100]))
    def somebody_edits_the_group(self, percentage: int) -> None:
        policy = self.cloud.autoscaling.policy
        distribution = {**policy["InstancesDistribution"], "OnDemandPercentageAboveBaseCapacity": percentage}
        self.cloud.autoscaling.flip({**policy, "InstancesDistribution": distribution})

    @rule()
    def a_box_wedges(self) -> None:
        for box in list(self.cloud.ec2.running.values())[:1]:
            self.cloud.wedge(box.id)

    @precondition(lambda self: self.policy == "alarm" and self.told)  # the other one acts on what events tell
    @rule(which=st.integers(0, 999))
    def an_old_event_comes_again(self, which: int) -> None:
        payload, state = self.told[which % len(self.told)], self.state_now
        busy = state.unfinished or state.owed or state.rearm_from  # whatever wakes it then goes on with that
        if self.disturbed or busy or self._any_wake_acts():
            return
        run({"command": "patience"}, cloud=self.cloud, settings=self.settings, now=self.now)  # what any look tells
        before = self._left()
        run(payload, cloud=self.cloud, settings=self.settings, now=self.now)
        assert self._left() == before, "an old event changed something"

    # --- invariants -------------------------------------------------------------------------------------------

    @invariant()
    def state_parses_and_is_what_was_written(self) -> None:
        assert loads(self.cloud._state) == self.state_now

    @invariant()
    def a_lit_alarm_ends_in_a_failover(self) -> None:
        if self.disturbed:
            self.calm_since = self.now
        alarm, state = self.cloud._alarm.live, loads(self.cloud._state)
        if state.mode is not Mode.ARMED or alarm.state != "ALARM" or self.cloud.balancer.healthy:
            return
        due = max(alarm.since, state.since or alarm.since, self.calm_since, self.last_healthy)
        due += timedelta(seconds=LIMITS.skip_cap_seconds + LIMITS.scan_seconds) + SLACK
        assert self.now <= due, "spot-armed under a lit alarm for too long"

    def teardown(self) -> None:
        if not hasattr(self, "cloud"):
            return
        self.cloud.faults.clear()
        self.cloud.deploying_until = 0
        # A deploy's refresh may hold a failover up to the skip cap, another flip up to its own end.
        self.cloud.run(until=self.cloud.clock.now + self.cloud.world.behaviour.refresh_timeout_seconds * 4)
        assert set(self.mails - self.began) <= self.twice, "more than one mail for a transition"
        assert self.mails_dropped or not self.began - self.mails, "a transition without its mail"


class Bridging(Fleet):
    """The same life under the bridge policy: whatever its events do, the alarm path holds and nothing is done twice."""

    policy = "bridge"


LIVES = settings(max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
Fleet.TestCase.settings = Bridging.TestCase.settings = LIVES
TestFleet = Fleet.TestCase
TestBridging = Bridging.TestCase
