"""Generated hostility: markets, lifetimes, boots, refusals and events as unkind as AWS, through the real handler.

Each life is drawn by hypothesis and lived on the simulated cloud; an onlooker who knows the truth holds the watchdog to
what must hold in every one (`Onlooker`). The tests live through 10,000 invocations, `make hostility` through a million.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import click
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fleet.config.settings import Policy
from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Behaviour, Boots, Events, Scores
from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from fleet.sim.cloud.simulation import SimulatedBox
from fleet.sim.markets.market import PLENTY, Market, Purchase, Step, pool
from lambdas.watchdog.failures import read
from lambdas.watchdog.handler import run
from lambdas.watchdog.mail import TEXTS
from lambdas.watchdog.state import LIMIT_BYTES, Kind, Mode, State, loads
from tests.watchdog.still_cloud import SHIPPED as SETTINGS

START = 1_785_000_000.0 // 60 * 60
HOUR = 3600.0
HOURS = 30
POOLS = (pool("g6.xlarge"), pool("g5.xlarge", "us-east-2b"))
WATCHDOG = SETTINGS.watchdog
BOOT_SECONDS = 90 + 355 + 20 + 10  # the slowest drawn: to the kernel, to the gate, the probes, the hook's answer
BALANCER_SECONDS = 90 + 40 + 300 + 20 + 10  # or the registration, if that is slower
WAY_OUT_SECONDS = 60 + 120 + 5  # warm-up, deregistration, last words
SLACK_SECONDS = 180  # flips, retries, the way of events
# Under the alarm policy: the window, its alignment and lag, the skip cap, one scan, one boot.
DARK_SECONDS: dict[Policy, float] = {
    "bridge": 40 * 60,
    "alarm": WATCHDOG.alarm_minutes * 60
    + 60
    + 540
    + WATCHDOG.skip_cap_seconds
    + WATCHDOG.scan_seconds
    + BOOT_SECONDS
    + SLACK_SECONDS,
}
REFUSALS = ["MaxSpotInstanceCountExceeded", "UnauthorizedOperation", "InvalidAMIID.NotFound", "BrandNewError"]
KINDS: tuple[Purchase, Purchase] = ("spot", "on-demand")
Changes = Sequence[tuple[float, int]]  # hours since the change before, boxes that each pool carries


@dataclass(frozen=True)
class Life:
    """What is drawn: everything else follows from it."""

    policy: Policy
    spot: Changes
    on_demand: Changes
    first_notice_after: float  # seconds: the boxes that serve from the start are taken
    notice_after_launch: int | None  # seconds: spot boxes are taken while they boot
    notice_after_serving: int | None
    recommends: bool  # and does not take
    behaviour: Behaviour
    size: int
    seed: int
    base: int = 0  # of them, always on-demand


supplies = st.sampled_from([0, 0, 1, PLENTY])
changes = st.lists(st.tuples(st.floats(0.02, 6), supplies), max_size=10).map(tuple)
shares = st.sampled_from([0.0, 0.0, 0.2, 0.6])


def drawn(spot: Changes, on_demand: Changes) -> list[Step]:
    """What the pools carry, from plenty of both kinds on."""
    steps = [Step(START, p.label, PLENTY) for p in POOLS]
    for purchase, changes in zip(KINDS, (spot, on_demand), strict=True):
        at = START
        for hours, amount in changes:
            at += hours * HOUR
            steps += [Step(at, p.label, amount, purchase=purchase) for p in POOLS]
    return sorted(steps, key=lambda step: step.at)


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """Mostly one kind of trouble at a time, sometimes all of it."""
    code = st.sampled_from([*[""] * 16, *REFUSALS])
    boots = draw(st.sampled_from([*["good"] * 6, "failed", "stuck", "cancelled", "died"]))
    share = draw(st.sampled_from([0.3, 1.0]))
    behaviour = Behaviour(
        boots=Boots(
            failed_share=share if boots == "failed" else 0.0,
            stuck_share=share if boots == "stuck" else 0.0,
            cancelled_share=share if boots == "cancelled" else 0.0,
            cancelled_with=draw(st.sampled_from(["Client.InternalError", "Server.InternalError"])),
            dies_first=4 if boots == "died" else 0,
        ),
        events=Events(lost_share=draw(shares), doubled_share=draw(shares), late_share=draw(shares)),
        scores=Scores(wrong_share=draw(st.sampled_from([0.05, 0.5])), sells=draw(st.sampled_from([(3, 9), (2, 2)]))),
        replaces_wrong_kind=draw(st.booleans()),
        judges_held=draw(st.booleans()),
        terminates_held=draw(st.booleans()),
        spot_refused_with=draw(code),
        on_demand_refused_with=draw(code),
    )
    size = draw(st.sampled_from([1, 1, 1, 2, 3, 4, 7, 20]))
    taken = st.none() | st.sampled_from([20, 60, 150, 300])
    return Life(
        policy=draw(st.sampled_from(["alarm", "bridge"])),
        spot=draw(changes),
        on_demand=draw(changes),
        first_notice_after=draw(st.sampled_from([100.0, 3600.0])),
        notice_after_launch=draw(taken),
        notice_after_serving=draw(st.none() | st.sampled_from([60, 240, 600, 7200])),
        recommends=draw(st.booleans()),
        behaviour=behaviour,
        size=size,
        seed=draw(st.integers(0, 999)),
        base=draw(st.sampled_from([0, 0, min(1, size - 1), size // 2, size])),
    )


@dataclass
class Onlooker:
    """Knows the truth of one life, and what must hold of it."""

    life: Life
    cloud: SimulatedCloud = field(init=False)
    sells: dict[Purchase, float | None] = field(default_factory=dict)  # to boxes that outlive their boot, since when
    dark_from: float | None = None
    short_from: float | None = None  # boxes are missing
    held_back_until: float = START  # pinned, or Launch suspended: only a human ends that
    refused: dict[Purchase, float] = field(default_factory=dict)  # when that kind last could not be had
    recommended: list[float] = field(default_factory=list)
    healed: bool = False
    invocations: int = 0
    wanted: set[str] = field(default_factory=set)

    # --- what happens -------------------------------------------------------------------------------------------

    def lived(self) -> int:
        """Live it; the number of invocations."""
        settings = replace(SETTINGS, policy=self.life.policy)
        size = self.life.size
        capacity = replace(settings.capacity, min=size, max=2 * size, on_demand_base=self.life.base)
        self.settings = replace(settings, capacity=capacity)
        end = START + HOURS * HOUR
        kind_again = [Step(end, p.label, PLENTY, purchase=kind) for kind in KINDS for p in POOLS]
        steps = [step for step in drawn(self.life.spot, self.life.on_demand) if step.at <= end]
        self.cloud = SimulatedCloud(
            Market("hostile", POOLS, START, end + 8 * HOUR, lambda: iter([*steps, *kind_again])),
            settings=self.settings,
            behaviour=self.life.behaviour,
            seed=self.life.seed,
            emit=self._see,
            state=State(Mode.ARMED).dumps(),
            serving="spot",
        )
        self._spoil()
        self.cloud.watch(self._invoke)
        self.cloud.run(until=end)
        self._heal()
        self.cloud.run(until=end + 8 * HOUR)
        self._check_end()
        return self.invocations

    def _spoil(self) -> None:
        ec2, clock, life = self.cloud.ec2, self.cloud.clock, self.life
        start, original = ec2.start, self.cloud.put_state

        def launched(purchase: Purchase, where: Any) -> SimulatedBox:
            box = start(purchase, where)
            if purchase == "spot" and life.notice_after_launch is not None:
                clock.after(life.notice_after_launch, self._take, box)
            return box

        def written(text: str) -> None:
            self._check_state(loads(text), len(text.encode()))
            original(text)

        for box in list(ec2.running.values()):
            clock.after(life.first_notice_after, self._take, box)
        ec2.start = launched  # type: ignore[method-assign]
        self.cloud.put_state = written  # type: ignore[method-assign]

    def _take(self, box: SimulatedBox) -> None:
        if box.ended_at is None and not self.healed:
            self.cloud.ec2.notice(box)

    def _heal(self) -> None:
        """From here on AWS is kind: both kinds sell, events come, boots serve."""
        self.healed = True
        self.cloud.world.behaviour = replace(
            self.life.behaviour, boots=Boots(), events=Events(), spot_refused_with="", on_demand_refused_with=""
        )

    def _invoke(self, payload: dict[str, Any], now: datetime) -> dict[str, Any]:
        self.invocations += 1
        record = run(payload, cloud=self.cloud, settings=self.settings, now=now)
        self._check_time()
        return record

    def _see(self, event: Event) -> None:
        if not hasattr(self, "cloud"):
            return
        now, fields = event.at.timestamp(), event.fields
        match event.kind:
            case "launch.failed" if fields["pool"] is None:
                self.refused[fields["purchase"]] = now
            case "rebalance":
                self.recommended.append(now)
            case "box.serving" if self.cloud.ec2.running[fields["box"]].purchase == "spot" and not self.healed:
                box, life = self.cloud.ec2.running[fields["box"]], self.life
                if life.notice_after_serving is not None:
                    do = self.cloud.ec2.recommend if life.recommends else self._take
                    self.cloud.clock.after(life.notice_after_serving, do, box)
            case "mail":
                self._check_mail(fields["subject"].removeprefix("[llm] "), fields["body"], now)

    # --- what must hold -----------------------------------------------------------------------------------------

    def _outlives(self, purchase: Purchase) -> bool:
        """Whether that kind sells now, plenty, to boxes that outlive their boot."""
        behaviour, life = self.cloud.world.behaviour, self.life
        boots = behaviour.boots
        if boots.failed_share or boots.stuck_share or boots.cancelled_share or boots.dies_first:
            return False
        if purchase == "spot" and life.notice_after_launch is not None and not self.healed:
            return False
        if purchase == "spot" and life.base and not self._outlives("on-demand"):
            return False  # a base comes first, and no lever moves it
        code = behaviour.spot_refused_with if purchase == "spot" else behaviour.on_demand_refused_with
        return not code and all(amount >= PLENTY for amount in self.cloud.ec2._supply[purchase].values())

    def _check_time(self) -> None:
        """Never dark for long while one and the same kind sells, nor short where its boxes last."""
        now = self.cloud.clock.now
        for kind in KINDS:
            since = self.sells.get(kind)
            self.sells[kind] = (now if since is None else since) if self._outlives(kind) else None
        healthy, size = self.cloud.balancer.healthy, self.life.size
        self.dark_from = None if healthy else (self.dark_from or now)
        self.short_from = None if healthy >= size else (self.short_from or now)
        state = loads(self.cloud.parameters()[0])
        if state.mode is Mode.PINNED or "Launch" in self.cloud.group().suspended:
            self.held_back_until = now
        for kind, since in self.sells.items():
            if self.dark_from is not None and since is not None:
                dark = now - max(self.dark_from, since, self.held_back_until)
                assert dark <= DARK_SECONDS[self.life.policy], f"dark for {dark:.0f} s while {kind} sells"
            if self.short_from is not None and since is not None and self._lasts():
                short = now - max(self.short_from, since, self.held_back_until)
                assert short <= self._short_seconds(), (
                    f"{size - healthy} of {size} missing for {short:.0f} s, {kind} sells"
                )
        self._check_two_kinds(now)

    def _lasts(self) -> bool:
        """Whether no box is taken for anything but a lack of supply."""
        life = self.life
        return self.healed or (
            life.notice_after_launch is None and (life.notice_after_serving is None or life.recommends)
        )

    def _short_seconds(self) -> float:
        """What comes in the middle of a drought may have to be bought a second time."""
        return DARK_SECONDS[self.life.policy] * (1 if self.life.size == 1 else 2)

    def _check_two_kinds(self, now: float) -> None:
        """No spot box beside an on-demand one for longer than a boot and the way out (a hung boot leaves no other)."""
        boots = self.life.behaviour.boots  # as drawn: a boot that hung before AWS was kind hangs on
        if boots.stuck_share or boots.dies_first or self.life.size > 1:
            return
        running = self.cloud.ec2.running.values()
        newest = [max((b.launched_at for b in running if b.purchase == kind), default=None) for kind in KINDS]
        if None in newest:
            return
        both = now - max(at for at in newest if at is not None)
        limit = max(BOOT_SECONDS, BALANCER_SECONDS) + WAY_OUT_SECONDS + self.settings.scan_seconds + SLACK_SECONDS
        assert both <= limit, f"two kinds for {both:.0f} s"

    def _check_state(self, state: State, size: int) -> None:
        assert size <= LIMIT_BYTES
        if state.unfinished and state.unfinished.kind is Kind.BOOT_LOOP:
            for box_id, at in state.abandoned:
                box = self.cloud.ec2.known(box_id)
                assert box is None or self._failed(box, at.timestamp()), f"{box_id} did not fail in its boot"

    def _failed(self, box: SimulatedBox, at: float) -> bool:
        faulty = box.state_reason not in {"Server.SpotInstanceTermination", "Client.UserInitiatedShutdown", ""}
        return box.failed or faulty or at - box.launched_at >= self.settings.boot.warm_budget_seconds

    def _check_mail(self, subject: str, body: str, now: float) -> None:
        """No mail that contradicts its evidence."""
        headline = subject.partition(": ")[2]
        late = 900 + 700  # an event is late by ten minutes, and tried for fifteen
        running = self.cloud.ec2.running.values()
        match next(kind for kind, text in TEXTS.items() if subject.partition(": ")[0] == text.subject):
            case Kind.DRY:
                assert now - self.refused.get("on-demand", 0) <= late
                assert not self.life.behaviour.on_demand_refused_with or self.healed, "a refusal was called a drought"
            case Kind.REFUSED:
                codes = {self.life.behaviour.spot_refused_with, self.life.behaviour.on_demand_refused_with} - {""}
                assert headline in {read(code).headline for code in codes}
            case Kind.REARMED:
                assert any(box.healthy and box.purchase == "spot" for box in running)
            case Kind.FAILOVER:
                serving = [box for box in running if box.healthy and box.noticed_at is None]
                assert len(serving) < self.life.size
            case Kind.REPLACED:
                assert len([at for at in self.recommended if now - at <= 86400 + late]) > self._replacements()
            case Kind.REMINDED:
                assert loads(self.cloud.parameters()[0]).mode is not Mode.ARMED
            case _:
                pass
        assert "docs/runbook/mail-" in body

    def _replacements(self) -> int:
        return WATCHDOG.replacements_per_day * self.life.size

    def _check_end(self) -> None:
        """Every life ends in a state that a scan can leave: it serves, or a human was asked."""
        state = loads(self.cloud.parameters()[0])
        asked = "Launch" in self.cloud.group().suspended
        healthy = self.cloud.balancer.healthy
        assert asked or healthy >= self.life.size, f"{healthy} of {self.life.size} serve at the end, {state}"
        assert state.unfinished is None
        assert not state.owed
        assert state.turns == 0 or asked


def hostile(examples: int, number: int, count: Callable[[int], None]) -> Callable[[], None]:
    """A test of so many lives, others for each number."""

    def life_holds(life: Life) -> None:
        count(Onlooker(life).lived())

    quiet = settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    test: Callable[[], None] = seed(number)(quiet(given(life=lives())(life_holds)))
    return test


def lived_through(steps: int, first: int, at_a_time: int) -> Iterator[str]:
    """So many lives after so many, until the watchdog has been woken so often."""
    done, number = 0, first

    def count(invocations: int) -> None:
        nonlocal done
        done += invocations

    while done < steps:
        hostile(at_a_time, number, count)()
        number += 1
        yield f"{done} invocations, seeds {first} to {number - 1}: every rule held"


@click.command()
@click.option("--steps", default=1_000_000, show_default=True, help="Invocations of the watchdog.")
@click.option("--seed", "first", default=1, show_default=True)
def main(steps: int, first: int) -> None:
    """Live through generated hostility until the watchdog has been woken so often; a broken rule is shown small."""
    for told in lived_through(steps, first, 200):
        click.echo(told)


if __name__ == "__main__":
    main()
