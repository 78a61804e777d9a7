"""How answers look in a terminal: tables by rich; nothing is decided here."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from fleet.core.terminal import Terminal, plain_table
from fleet.eventlog.events import Event
from fleet.gameday.scenario import StepReceipt
from fleet.ops.checks import Finding, Level
from fleet.ops.live_history import BoxRecord
from fleet.ops.status import BoxStatus, Status

BOXES_NAMED = 8  # in a larger fleet, boxes alike share a line of the status
_COLOUR = {Level.PASS: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def preflight(findings: Mapping[str, Finding]) -> None:
    """One line a check, its remedy below, and the count at the end."""
    table = plain_table("", "", "")
    for check, finding in findings.items():
        table.add_row(Text(finding.level, _COLOUR[finding.level]), check, finding.found)
        if finding.remedy:
            table.add_row("", "", Text.assemble(("remedy: ", "dim"), finding.remedy))
    counts = Counter(finding.level for finding in findings.values())
    out = Terminal()
    out.print(table)
    out.print(", ".join(f"{counts[level]} {level}" for level in Level))


def status(found: Status) -> Group:
    """The answer on one screen."""
    right = not found.problems
    head = Text.assemble(
        (f"{found.fleet} ({found.region}) ", "bold"),
        ("all right", "bold green") if right else ("needs you", "bold red"),
        f"   {found.at:%Y-%m-%d %H:%M:%S} UTC",
    )
    lever = found.lever
    agreed = "agreed" if lever.agreed else f"DISAGREE, expected {lever.expected}"
    facts = plain_table("", "")
    facts.add_row("mode", f"{found.mode or 'unknown'}{', ' + found.doing if found.doing else ''}")
    facts.add_row("lever", f"parameter {lever.parameter}, group {lever.group}: {agreed}")
    facts.add_row("serving", f"{found.serving} of {found.desired}")
    if found.desired > 1 and found.on_demand_asked is not None:
        facts.add_row("on-demand", f"{found.on_demand_asked} of {found.desired} boxes asked for")
    facts.add_row(
        "alarm", found.alarm + (f" for {_span(found.alarm_seconds)}" if found.alarm_seconds is not None else "")
    )
    if found.last_warm_boot:
        slower = ", which takes a minute longer: docs/box.md" if found.last_warm_boot == "downloaded" else ""
        facts.add_row("last warm boot", f"the model was {found.last_warm_boot}{slower}")
    if found.gateway:
        facts.add_row("gateway", found.gateway)
    if found.line:
        facts.add_row("line", found.line)
    facts.add_row("failovers", f"{found.failovers_counted:g} in {found.valve_window_hours} h that the valve counts")
    facts.add_row("cost", f"${found.usd_per_day:.2f} a day now, ${found.usd_per_day_on_demand:.2f} all on-demand")
    boxes = plain_table("box", "kind", "pool", "zone", "age", "state", "target", "boot", "$/h")
    for alike in _alike(found.boxes):
        box = alike[0]
        ages = sorted(each.age_seconds for each in alike if each.age_seconds is not None)
        age = " to ".join(dict.fromkeys(map(_span, (ages[0], ages[-1])))) if ages else "?"
        price = f"{box.usd_per_hour:.4f}" if box.usd_per_hour is not None else "?"
        name = box.id if len(alike) == 1 else f"{len(alike)} boxes"
        boxes.add_row(name, box.purchase, box.pool, box.zone, age, box.lifecycle, box.health, box.boot, price)
    decisions = plain_table("decided at", "woken by", "action", "reason")
    for line in found.decisions:
        words = (str(line[key]) for key in ("signal", "action", "reason"))
        decisions.add_row(f"{line['at']:%m-%d %H:%M:%S}", *words)
    if not found.decisions_complete:
        decisions.add_row("", "", "", "log not read to its end: decisions may be missing")
    problems = [Text(f"! {problem}", style="red") for problem in found.problems]
    return Group(head, facts, Text(), boxes, Text(), decisions, *problems)


def _alike(boxes: Sequence[BoxStatus]) -> list[list[BoxStatus]]:
    """What stands on one line each: every box, or in a large fleet those that serve and differ in their age alone."""
    if len(boxes) <= BOXES_NAMED:
        return [[box] for box in boxes]
    lines: dict[BoxStatus, list[BoxStatus]] = {}
    for box in boxes:
        serves = box.serving and box.lifecycle == "InService"
        lines.setdefault(replace(box, id="", age_seconds=None) if serves else box, []).append(box)
    return sorted(lines.values(), key=lambda alike: alike[0].serving)


def _span(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds} s"


SHOWN_TRANSITIONS = {"notice", "launch.failed", "alarm", "mode", "lever", "mail"}


def history(log: Sequence[Event], boxes: Mapping[str, BoxRecord], page: Path, *, lines: int) -> Group:
    """Transitions in order, boots by stage, lines that were skipped, where the page is."""
    told = plain_table("at", "what", "")
    for event in log:
        if event.kind in SHOWN_TRANSITIONS:
            words = ", ".join(str(value).split("\n")[0] for value in event.fields.values())
            told.add_row(f"{event.at:%m-%d %H:%M:%S}", event.kind, words)
    boots = plain_table("box", "kind", "pool", "launched", "stages, seconds")
    for box, life in sorted(boxes.items(), key=lambda item: str(item[1].launched)):
        stages = ", ".join(f"{stage.name} {stage.end - stage.start:.0f}" for stage in life.stages)
        boots.add_row(box, life.purchase, life.pool, f"{life.launched:%m-%d %H:%M:%S}", stages or "not logged")
    skipped = [f"{lines} lines of the boxes' log were skipped: no stage of a boot is told so"] if lines else []
    return Group(told, Text(), boots, Text(), *skipped, f"drawn in {page}")


def game_day(receipts: Sequence[StepReceipt], page: Path) -> None:
    """One line a step."""
    table = plain_table("", "step", "expected", "seen", "s", "requests", "failed", "outage s")
    for step in receipts:
        verdict = Text("held", "green") if step.held else Text("FAILED", "bold red")
        met = step.load
        numbers = (str(met.requests), str(met.failed), f"{met.longest_outage_seconds:.1f}") if met else ("", "", "")
        table.add_row(verdict, step.step, step.expected, step.seen, f"{step.seconds:.0f}", *numbers)
    held = sum(step.held for step in receipts)
    Terminal().print(Group(table, Text(f"{held} of {len(receipts)} steps held; receipts beside {page}")))


def record(found: dict[str, Any]) -> None:
    """The watchdog's decision, as an operator wants to read it."""
    out = Terminal()
    out.print(Text.assemble((str(found.get("action", "?")), "bold"), f": {found.get('reason', '')}"))
    if outcome := found.get("outcome"):
        out.print(f"outcome: {outcome}")
