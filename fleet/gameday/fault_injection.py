"""Single faults on an account, by AWS's own fault injection: a notice, one in a prefill, a dry market, cut clients.

`make chaos` plays the same four on one machine. The experiments' templates are a stack of their own (`make faults`).
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fleet.config.failover_bound import dark_seconds
from fleet.config.settings import Settings
from fleet.core import names
from fleet.gameday.scenario import Day, Step
from fleet.gameday.stage import StageError, until

STARTS_SECONDS = 300
LONG_PROMPT = "word " * 4096  # 4096 tokens at least


@dataclass(frozen=True)
class Scenario:
    """One of the four: which fault, under which callers."""

    fault: str
    threads: int
    prompts: tuple[str, ...]
    callers: str


SCENARIOS = {
    1: Scenario(names.FAULT_NOTICE, 50, ("hello",), "fifty callers with short requests"),
    2: Scenario(names.FAULT_NOTICE, 1, (LONG_PROMPT,), "one caller with prompts of 4096 tokens"),
    3: Scenario(names.FAULT_DRY, 2, ("hello",), "two callers"),
    4: Scenario(names.FAULT_NOTICE, 50, ("Count from one to two hundred, in words.",), "fifty callers"),
}


def steps(settings: Settings, number: int) -> tuple[tuple[str, str, Step], ...]:
    """Of one scenario, for `scenario.play`."""
    chosen = SCENARIOS[number]
    dark, boot = dark_seconds(settings), settings.boot.warm_budget_seconds
    if chosen.fault == names.FAULT_NOTICE:
        fault = Fault(chosen.fault, names.NOTICE_SECONDS + boot)
        last: tuple[str, str, Step] = (
            "successor",
            f"the box that had the notice is gone and another serves within {fault.seconds} s",
            fault.replaced,
        )
    else:
        fault = Fault(chosen.fault, names.NOTICE_SECONDS + dark + boot)
        last = (
            "on-demand",
            f"the watchdog failed over within {dark} s of the dark; on-demand serves {boot} s later",
            fault.failed_over,
        )
    return (
        ("serving", "a spot box serves, and the experiment's template is there", fault.look),
        ("fault", f"AWS carries it out, under {chosen.callers}", fault.inject),
        last,
        ("callers", "with a gateway, every request was answered", answered),
    )


class Fault:
    """One fault's steps, and what they hand on: the template, the boxes that were there, when it began."""

    def __init__(self, name: str, seconds: int) -> None:
        """`seconds`: by when the fleet has helped itself."""
        self.name, self.seconds = name, seconds
        self.template = ""
        self.boxes: tuple[str, ...] = ()
        self.began = datetime.now(UTC)

    def look(self, day: Day) -> tuple[bool, str]:
        """A known start."""
        self.template = template(day, self.name)
        world = day.look().world
        spot = [box.id for box in world.alive if box.id in world.instances and world.instances[box.id].spot]
        self.boxes = tuple(spot)
        return bool(spot and world.healthy), f"{len(world.healthy)} box serves, {len(spot)} of them on spot"

    def inject(self, day: Day) -> tuple[bool, str]:
        """Start the experiment; it runs on while the next step looks. Nothing of it is left where it did not start."""
        self.began = datetime.now(UTC)
        tags = {names.TAG_FLEET: day.fleet}
        begun = day.stage.aws.call("fis", "StartExperiment", experimentTemplateId=self.template, tags=tags)
        id = str(begun["experiment"]["id"])

        def state() -> Any:
            found = day.stage.aws.call("fis", "GetExperiment", id=id)["experiment"]["state"]
            return found if found["status"] not in ("pending", "initiating") else None

        found = until("the experiment has begun", state, STARTS_SECONDS)
        held = found["status"] in ("running", "completing", "completed")
        return held, f"experiment {id}: {found['status']} {found.get('reason', '')}".strip()

    def replaced(self, day: Day) -> tuple[bool, str]:
        """Somebody else serves."""

        def fresh() -> Any:
            world = day.look().world
            gone = set(self.boxes) - {box.id for box in world.alive}
            return gone and set(world.healthy) - set(self.boxes) and sorted(gone)

        gone = until("another box serves", fresh, self.seconds)
        return True, f"{', '.join(gone)} is gone, another serves"

    def failed_over(self, day: Day) -> tuple[bool, str]:
        """On-demand serves, by the watchdog's own decision."""

        def serves() -> Any:
            world = day.look().world
            boxes = (world.instances.get(id) for id in world.healthy)
            return any(box is not None and not box.spot for box in boxes)

        until("an on-demand box serves", serves, self.seconds)
        made = [each for each in day.look().decisions if each.record.get("action") == "failover"]
        mine = [each for each in made if each.at >= self.began]
        if not mine:
            return False, "on-demand serves, and no failover of the watchdog's stands in its log"
        day.last = mine[0].record
        after = (mine[0].at - self.began).total_seconds() - names.NOTICE_SECONDS
        held = after <= dark_seconds(day.stage.settings)
        return held, f"failover {after:.0f} s after the boxes went; on-demand serves"


def template(day: Day, fault: str) -> str:
    """The id of this fleet's template of that fault; StageError where there is none."""
    answer = day.stage.aws.find("fis", "ListExperimentTemplates", maxResults=100)
    found = answer["experimentTemplates"] if answer else []
    wanted = {names.TAG_FLEET: day.fleet, names.TAG_FAULT: fault}.items()
    mine = [each["id"] for each in found if wanted <= each.get("tags", {}).items()]
    if not mine:
        raise StageError(f"no experiment template {fault} of {day.fleet}: `make faults` makes it")
    return str(mine[0])


def answered(day: Day) -> tuple[bool, str]:
    """Of the whole day's requests. Without a gateway a notice refuses some, and that is no miss."""
    if day.load is None or not day.load.requests:
        return day.load is None, "no requests were made"
    met = day.load.summary(float("-inf"), float("inf"))
    held = not met.failed or day.stage.settings.gateway is None
    return held, f"{met.requests} requests, {met.failed} failed{': ' if met.errors else ''}{', '.join(met.errors)}"
