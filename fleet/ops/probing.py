"""Looks on an account for what docs/aws-behaviours.md holds "to be probed": reads, one harmless flip and one prompt.

A probe is a function from the evidence to what was seen. Rows without one need a hand: the page says how to see them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from fleet.account.access import Aws
from fleet.account.aws_errors import OperatorError
from fleet.config.settings import Settings
from fleet.core import names
from fleet.ops import ask, commands, fleet_view, live_history

PAGE = Path(__file__).parents[2] / "docs" / "aws-behaviours.md"
ROW = re.compile(r"^\| `(?P<name>[a-z0-9-]+)` (?P<behaviour>.+?) \| (?P<relies>.+?) \| (?P<known>.+) \|$", re.MULTILINE)
TO_BE_PROBED = "to be probed: "
DAYS = 7  # of logs that are read
FIELD = re.compile(r"\b([a-z_]{1,20})=([A-Za-z0-9._-]{1,20})(?=\s|$)")  # what a box writes is an outsider's text
HELD_SECONDS = 30.0  # an instance that runs counts within seconds where no hook holds it


@dataclass(frozen=True)
class Seen:
    """What came of one row. `held` is None where there was nothing to see, or where it needs a hand."""

    row: str
    held: bool | None
    found: str


class Readings:
    """What the account tells, each read once and when it is first needed."""

    def __init__(self, aws: Aws, settings: Settings, who: str, why: str) -> None:
        self.aws, self.settings, self._who, self._why = aws, settings, who, why
        self.since = datetime.now(UTC) - timedelta(days=DAYS)

    def distribution(self) -> dict[str, Any]:
        """The group's purchase options, read anew."""
        group = fleet_view.described(self.aws, self.settings.fleet_name)
        return dict(group["MixedInstancesPolicy"]["InstancesDistribution"])

    @cached_property
    def flip(self) -> tuple[dict[str, Any], dict[str, Any], str]:
        """The distribution before and after the watchdog has sent it again, and what the watchdog says of it."""
        before = self.distribution()
        record = commands.press(self.aws, self.settings.fleet_name, "probe", who=self._who, why=self._why)
        return before, self.distribution(), str(record.get("reason", record))

    @cached_property
    def stages(self) -> list[dict[str, str]]:
        """The boxes' BOOTSTAGE lines, oldest first, each as its fields."""
        log = live_history.box_log(self.aws, self.settings.fleet_name, self.since)
        return [dict(FIELD.findall(event["message"])) for event in log]

    def stage(self, name: str) -> dict[str, str] | None:
        """The newest line of one stage."""
        return next((fields for fields in reversed(self.stages) if fields.get("stage") == name), None)

    def ended(self, name: str) -> float | None:
        """When the newest run of a stage ended, seconds of the instance's uptime; None where the log does not tell."""
        try:
            return float((self.stage(name) or {})["end"])
        except (KeyError, ValueError):
            return None

    @cached_property
    def first_launch(self) -> float | None:
        """Seconds from the oldest launch that is remembered until its box was in service."""
        found = live_history.scaling_activities(self.aws, self.settings.fleet_name, datetime.min.replace(tzinfo=UTC))
        launches = [(e.ended - e.began).total_seconds() for e in found if e.launch and e.succeeded and e.ended]
        return launches[-1] if launches else None

    @cached_property
    def wakes(self) -> set[str]:
        """What has woken the watchdog."""
        records = fleet_view.decisions(self.aws, self.settings.fleet_name, self.since)
        return {str(decided.record.get("signal", {}).get("wake")) for decided in records}


Probe = Callable[[Readings], tuple[bool | None, str]]


def _hooks_before_first_box(e: Readings) -> tuple[bool | None, str]:
    if e.first_launch is None:
        return None, "no launch is remembered"
    return e.first_launch > HELD_SECONDS, f"{e.first_launch:.0f} s from the first launch to in service"


def _hooks_follow(e: Readings) -> tuple[bool | None, str]:
    group = names.group(e.settings.fleet_name)
    hooks = e.aws.call("autoscaling", "DescribeLifecycleHooks", AutoScalingGroupName=group)["LifecycleHooks"]
    found = {hook["LifecycleHookName"]: hook["HeartbeatTimeout"] for hook in hooks}
    wanted = {
        names.LAUNCH_HOOK: e.settings.boot.hook_heartbeat_seconds,
        names.TERMINATION_HOOK: e.settings.drain.termination_hook_seconds,
    }
    return found == wanted, f"heartbeats {found}, settings {wanted}"


def _held_registers(e: Readings) -> tuple[bool | None, str]:
    register, warm_up = e.ended("register"), e.ended("warm_up")
    if register is None or warm_up is None:
        return None, "no boot in the log"
    return register < warm_up, f"register ended at {register:.0f} s, warm_up at {warm_up:.0f} s"


def _registration_overlaps(e: Readings) -> tuple[bool | None, str]:
    opened, healthy = e.ended("open"), e.ended("healthy")
    if opened is None or healthy is None:
        return None, "no boot in the log"
    return healthy - opened < HELD_SECONDS, f"healthy {healthy - opened:.0f} s after the gate was open"


def _streamed(name: str) -> Probe:
    """Whether a stage's newest line says that the model loads while it arrives."""

    def probe(e: Readings) -> tuple[bool | None, str]:
        fields = e.stage(name) or {}
        if "how" not in fields:
            return None, f"no warm boot's stage {name} in the log"
        return fields["how"] == "streamed", f"stage {name}: {fields['how']} {fields.get('why', '')}".rstrip()

    return probe


def _stage(name: str, field: str) -> Probe:
    """What one field of one stage's newest line says: a figure, not a yes or no."""

    def probe(e: Readings) -> tuple[bool | None, str]:
        fields = e.stage(name)
        if fields is None or field not in fields:
            return None, f"no {field} of stage {name} in the log"
        return True, f"stage {name}: {field} {fields[field]}"

    return probe


def _group_events(e: Readings) -> tuple[bool | None, str]:
    wanted = {"launched", "refresh-ended"}
    return (True if wanted <= e.wakes else None), f"woken by {', '.join(sorted(e.wakes)) or 'nothing yet'}"


def _concurrency(e: Readings) -> tuple[bool | None, str]:
    limit = e.aws.call("lambda", "GetAccountSettings")["AccountLimit"]["ConcurrentExecutions"]
    return int(limit) == 10, f"{limit} concurrent executions in this account"


def _whole_distribution(e: Readings) -> tuple[bool | None, str]:
    before, after, _ = e.flip
    return before == after, f"before {before}, after {after}"


def _bare_template(e: Readings) -> tuple[bool | None, str]:
    return True, f"the watchdog's role may: {e.flip[2]}"


def _run_command(e: Readings) -> tuple[bool | None, str]:
    answer = ask.ask(e.aws, e.settings.fleet_name, "hello")
    return True, f"a box answered in {answer.seconds:.1f} s"


PROBES: Mapping[str, Probe] = {
    "hooks-before-first-box": _hooks_before_first_box,
    "hooks-follow": _hooks_follow,
    "held-registers": _held_registers,
    "registration-overlaps": _registration_overlaps,
    "image-mounts-store": _stage("store", "outcome"),
    "store-write-rate": _stage("restore", "mb_per_s"),
    "burst-lasts": _stage("load", "mb_per_s"),
    "fuse-module": _streamed("restore"),
    "mounts-reach-units": _streamed("load"),
    "store-read-rate": _stage("warm_up", "end"),
    "group-events": _group_events,
    "new-account-concurrency": _concurrency,
    "flip-whole-distribution": _whole_distribution,
    "bare-template-type": _bare_template,
    "run-command-channel": _run_command,
}
TOUCHES = "invokes the watchdog, which sends the group's own distribution again, and puts one prompt to a box"


def to_be_probed(page: str) -> dict[str, str]:
    """Rows that only an account can settle: name to how it is seen."""
    found = {row["name"]: row["known"] for row in ROW.finditer(page)}
    return {name: known.removeprefix(TO_BE_PROBED) for name, known in found.items() if known.startswith(TO_BE_PROBED)}


def walk(evidence: Readings, rows: Mapping[str, str]) -> Iterator[Seen]:
    """Every row, in the order of the page; a probe that AWS refuses says so and the next goes on."""
    for row, how in rows.items():
        probe = PROBES.get(row)
        if probe is None:
            yield Seen(row, None, f"by hand: {how}")
            continue
        try:
            yield Seen(row, *probe(evidence))
        except OperatorError as error:
            yield Seen(row, None, f"could not be probed: {error.message}")


def filled(page: str, seen: list[Seen], record: str) -> str:
    """The page with the rows that were seen measured in `record`, a path from the repository's root."""
    known = {each.row: each for each in seen if each.held is not None}

    def cell(row: re.Match[str]) -> str:
        if (each := known.get(row["name"])) is None:
            return row[0]
        words = "" if each.held else "**otherwise**: "
        return row[0].replace(row["known"], f"measured: `{record}`: {words}{each.found.replace('|', '/')}")

    return ROW.sub(cell, page)
