"""The day, step by step: each says what it does, what must be seen, and what was. Played on a `Stage`."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fleet.config.settings import Settings
from fleet.core import names
from fleet.gameday.load import Load, Summary
from fleet.gameday.stage import Stage, StageError
from fleet.ops import commands, fleet_view, preflight
from fleet.ops.checks import Ground, Level
from fleet.ops.fleet_view import View
from lambdas.watchdog import shares
from lambdas.watchdog.state import Mode

WHO = "fleetctl game-day"
MARGIN_SECONDS = 60


@dataclass(frozen=True)
class StepReceipt:
    """One step as it went. `decision` is the watchdog's own record, where one was asked for."""

    step: str
    expected: str
    seen: str
    held: bool
    seconds: float
    load: Summary | None = None
    decision: dict[str, Any] = field(default_factory=dict)


@dataclass
class Day:
    """What the steps share."""

    stage: Stage
    load: Load | None = None
    last: dict[str, Any] = field(default_factory=dict)  # the last decision record
    dark: list[tuple[datetime, tuple[str, ...]]] = field(default_factory=list)  # whose targets were taken out, and when

    @property
    def fleet(self) -> str:
        return self.stage.settings.fleet_name

    def press(self, command: str, why: str) -> dict[str, Any]:
        """One of the operator commands; its decision record."""
        self.last = commands.press(self.stage.aws, self.fleet, command, who=WHO, why=why)
        return self.last

    def look(self) -> View:
        """The fleet now."""
        return fleet_view.look(self.stage.settings, self.stage.aws)

    def mode(self) -> str:
        """The watchdog's mode now."""
        state = self.look().state
        return str(state.mode) if state else "unreadable"

    def boxes(self) -> tuple[str, ...]:
        """The group's boxes now."""
        return tuple(box.id for box in self.look().world.alive)

    def on_demand_asked(self) -> int:
        """How many boxes the group's lever, as it stands, has on-demand; the base is among them."""
        settings = self.stage.settings
        return shares.base(settings) + shares.bought(self.look().world.percentage or 0, settings)

    def newest_decision(self) -> dict[str, Any]:
        """What the watchdog last decided, whoever woke it."""
        self.stage.settled()
        found = self.look().decisions
        self.last = found[-1].record if found else {}
        return self.last


Step = Callable[[Day], tuple[bool, str]]


def play(
    day: Day, steps: tuple[tuple[str, str, Step], ...], narrate: Callable[[str], None], *, to_the_end: bool = True
) -> Iterator[StepReceipt]:
    """Every step in order, up to one that could not be played or, unless `to_the_end`, that did not hold."""
    for name, expected, step in steps:
        narrate(f"{name}: {expected}")
        began, day.last = time.monotonic(), {}
        try:
            held, seen = step(day)
        except StageError as error:
            yield StepReceipt(name, expected, f"could not be played: {error}", False, time.monotonic() - began)
            return
        load = day.load.summary(began, time.monotonic()) if day.load else None
        yield StepReceipt(name, expected, seen, held, round(time.monotonic() - began, 1), load, day.last)
        if not held and not to_the_end:
            return


# --- steps -----------------------------------------------------------------------------------------------------


def ready(day: Day) -> tuple[bool, str]:
    """Nothing that a failover needs is missing."""
    found = preflight.run(preflight.CHECKS, Ground(day.stage.settings, day.stage.aws))
    bad = [f"{check}: {finding.found}" for check, finding in found.items() if finding.level is Level.FAIL]
    serving = day.look().world.healthy
    return not bad and bool(serving), "; ".join(bad) or f"{len(found)} checks, serving: {len(serving)}"


def pinned(day: Day) -> tuple[bool, str]:
    """A known start: pinned to on-demand."""
    record = day.press("pin", "a known start")
    return day.mode() == Mode.PINNED, f"{record['action']}: {record['reason']}"


def armed_through_the_gate(day: Day) -> tuple[bool, str]:
    """Arming never flips by itself; two good scores half an hour apart do, and then the return is launch-first."""
    day.press("arm", "the day begins")
    if day.look().world.percentage != 100:
        return False, "arm moved the lever by itself"
    return _rearmed(day)


def _rearmed(day: Day) -> tuple[bool, str]:
    limits = day.stage.settings.watchdog
    old = tuple(box.id for box in day.look().world.alive_by_purchase[1])
    for turn in range(limits.rearm_streak):
        if turn:
            day.stage.let_pass(limits.scan_seconds, "the next scan of the streak")
        record = day.press("scan", f"score {turn + 1} of {limits.rearm_streak}")
    if record["action"] != "re-arm":
        return False, f"the gate did not open: {record['reason']}"
    while record["action"] == "re-arm":  # of several: again for each box
        day.stage.finish_roll(old, day.on_demand_asked())
        record = day.press("scan", "the successor serves")
    kept = day.mode() == Mode.ARMED
    return kept, f"{record['action']}: {record['reason']}; rolled by {day.stage.rolled_by}"


def rolled_under_load(day: Day) -> tuple[bool, str]:
    """A planned roll, launch-first. That no caller noticed is said where callers called."""
    old, began = day.boxes(), time.monotonic()
    day.stage.aws.call(
        "autoscaling",
        "StartInstanceRefresh",
        AutoScalingGroupName=names.group(day.fleet),
        Strategy="Rolling",
        Preferences={
            "MinHealthyPercentage": names.MIN_HEALTHY_PERCENT,
            "MaxHealthyPercentage": names.MAX_HEALTHY_PERCENT,
            "SkipMatching": False,
        },
    )
    day.stage.finish_roll(old)
    met = day.load.summary(began, time.monotonic()) if day.load else None
    fresh = not set(old) & set(day.boxes())
    counted = f"{met.requests} requests, {met.failed} failed" if met and met.requests else "no requests were made"
    seen = f"replaced by {day.stage.rolled_by}: {len(old)}; {counted}"
    return fresh and (met is None or (met.requests > 0 and met.failed == 0)), seen


def declined_while_it_answers(day: Day) -> tuple[bool, str]:
    """An alarm that lights while a box answers (a false one) must not flip."""
    day.stage.let_pass(day.stage.settings.watchdog.grace_seconds, "no box is young")
    day.stage.light_alarm()
    record = day.newest_decision()
    day.stage.calm_alarm()
    return record.get("action") == "skipped" and day.look().world.percentage == 0, str(record.get("reason"))


def failed_over(day: Day) -> tuple[bool, str]:
    """All dark, and the alarm lit: the flip, one mail."""
    return _dark(day, day.boxes(), shares.WHOLE)


def failed_over_by_a_share(day: Day) -> tuple[bool, str]:
    """Half of what the lever divides is dark: that much is bought."""
    settings = day.stage.settings
    half = shares.above_base(settings) // 2
    spot = tuple(box.id for box in day.look().world.alive_by_purchase[0])
    return _dark(day, spot[:half], shares.lever(half, settings))


def _dark(day: Day, boxes: tuple[str, ...], lever: int) -> tuple[bool, str]:
    day.stage.let_pass(day.stage.settings.watchdog.grace_seconds, "no box is young")
    day.dark.append((datetime.now(UTC), boxes))
    day.stage.go_dark(boxes)
    day.stage.light_alarm()
    record = day.newest_decision()
    world = day.look().world
    seen = f"{record.get('reason')}; group {world.percentage}"
    return record.get("action") == "failover" and world.agrees(lever), seen


def replaced_after_a_real_end(day: Day) -> tuple[bool, str]:
    """What is dark really ends; on-demand boxes take over and serve."""
    _, old = day.dark[-1]
    day.stage.aws.call("ec2", "TerminateInstances", InstanceIds=list(old))
    day.stage.lights_on()
    day.stage.finish_roll(old)
    day.stage.calm_alarm()
    world = day.look().world
    bought, should = len(world.alive_by_purchase[1]), day.stage.settings.capacity.min
    held = bought == day.on_demand_asked() and len(world.healthy) >= should
    return held, f"serving: {len(world.healthy)} of {should}; on-demand: {bought}"


def refused_inside_the_cooldown(day: Day) -> tuple[bool, str]:
    """A scan right after a failover must refuse, with its numbers."""
    record = day.press("scan", "too early on purpose")
    held = record["action"] == "refused" and "cooldown" in record["reason"]
    return held and day.look().world.percentage == 100, str(record["reason"])


def rearmed_after_the_cooldown(day: Day) -> tuple[bool, str]:
    """Once the cooldown is over the scores may bring spot back."""
    day.stage.let_pass(day.stage.settings.watchdog.cooldown_seconds + MARGIN_SECONDS, "the cooldown")
    return _rearmed(day)


def gave_up(day: Day) -> tuple[bool, str]:
    """The valve: enough failovers in its window, and a scan pins."""
    settings, state = day.stage.settings, day.look().state
    if state and (bought := state.fleets_bought(settings, datetime.now(UTC))) < settings.watchdog.valve_failovers:
        return False, f"{bought:g} failovers so far: the valve needs more"
    record = day.press("scan", "the valve")
    return day.mode() == Mode.PINNED, f"{record['action']}: {record['reason']}"


STEPS: tuple[tuple[str, str, Step], ...] = (
    ("ready", "preflight fails nothing and a box serves", ready),
    ("pin", "on-demand-pinned, a known start", pinned),
    (
        "arm through the gate",
        "the scores open it, the roll is launch-first, spot-armed at its end",
        armed_through_the_gate,
    ),
    ("planned roll under load", "every box replaced; of the requests that were made, none failed", rolled_under_load),
    ("false alarm", "declined: a box answers", declined_while_it_answers),
    ("alarm in the dark", "failover: lever 100 in parameter and group", failed_over),
    ("real terminate", "the successor is on-demand and serves", replaced_after_a_real_end),
    ("scan inside the cooldown", "refused, with the seconds", refused_inside_the_cooldown),
    ("after the cooldown", "re-armed through the same gate", rearmed_after_the_cooldown),
    ("second alarm in the dark", "failover again", failed_over),
    ("real terminate again", "the successor is on-demand and serves", replaced_after_a_real_end),
    ("valve", "gives up: pinned until a human arms", gave_up),
)
OF_A_SHARE: tuple[tuple[str, str, Step], ...] = (
    ("a share in the dark", "failover: the lever at that share, in parameter and group", failed_over_by_a_share),
    ("real terminate of the share", "its successors are on-demand and serve", replaced_after_a_real_end),
    ("the share goes back", "after the cooldown, through the same gate, box by box", rearmed_after_the_cooldown),
)
BEFORE_THE_DARK = 5
FAILOVERS = sum(step is failed_over for _, _, step in STEPS)


def steps(settings: Settings) -> tuple[tuple[str, str, Step], ...]:
    """Of this fleet's day: where the lever divides several boxes, a share of them is lost before all are."""
    of_a_share = OF_A_SHARE if shares.above_base(settings) > 1 else ()
    return (*STEPS[:BEFORE_THE_DARK], *of_a_share, *STEPS[BEFORE_THE_DARK:])


def unplayable(settings: Settings) -> list[str]:
    """The settings with which these steps cannot hold: each with its value and what is allowed."""
    wrong = []
    if settings.on_events:
        wrong.append(f'policy is "{settings.policy}"; allowed: "alarm"')
    if settings.watchdog.valve_failovers != FAILOVERS:
        wrong.append(f"watchdog.valve_failovers is {settings.watchdog.valve_failovers}; allowed: {FAILOVERS}")
    if (base := settings.capacity.on_demand_base) == settings.capacity.min:
        wrong.append(f"capacity.on_demand_base is {base}; allowed: less than capacity.min, so that a box is on spot")
    return wrong
