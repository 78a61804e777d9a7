"""The live account's past as one event log (`events`): read from AWS, then put in order by plain functions.

The watchdog's log says what was seen and decided, the scaling activities when boxes came and went, the alarm has
its own history, and the boxes' log has the boots by stage.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from fleet.account.access import Aws
from fleet.config.pools import POOLS
from fleet.config.settings import Settings
from fleet.core import boot_length, names
from fleet.eventlog.events import Event
from fleet.ops import fleet_view
from lambdas.watchdog.mail import TEXTS
from lambdas.watchdog.state import Kind

_ACTIVITY = re.compile(r"^(Launching a new|Terminating) EC2 instance(?:: (i-[0-9a-f]+))?")
_ENDED = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:UTC|GMT)\)")
STREAMS = (names.STREAM_BOOT, names.STREAM_LIVE, names.STREAM_LEAVING)
# A box writes this, so a stolen one may write anything: what is not of this form is no stage.
_STAGE = re.compile(
    rf"[0-9]+\.[0-9]+ {names.LINE_BOOTSTAGE}"
    r" stage=([a-z][a-z0-9_-]{0,39}) outcome=([a-z-]{1,20})"
    r" start=([0-9]{1,7}\.[0-9]{1,3}) end=([0-9]{1,7}\.[0-9]{1,3})(?: |$)"
)
_BOX_STREAM = re.compile(
    r"(?P<box>i-[0-9a-f]{8,17})/(" + "|".join(STREAMS) + ")"
)  # of one box, each with its whole log
STAGES_AT_MOST = 40  # of one box: a boot has 15
LINES_AT_MOST = 50_000  # of the boxes' log: 42 days of 60 boots a day
# Actions of the decision log by what they make of the lever; an old log may hold words that this version never writes.
_TO_ON_DEMAND = ("failover", "bridged", "gave-up", "pinned", "fell-back")
_TO_SPOT = ("re-arm", "on-demand-limit")
_EITHER_WAY = ("turned", "repaired")


@dataclass(frozen=True)
class Activity:
    """One scaling activity. `box` is "" for a launch that got none."""

    launch: bool
    box: str
    began: datetime
    ended: datetime | None
    succeeded: bool
    why: str


@dataclass(frozen=True)
class BootStage:
    """One stage of one boot; times in seconds of the instance's own uptime."""

    box: str
    name: str
    start: float
    end: float
    outcome: str


@dataclass
class BoxRecord:
    """What is known of one box."""

    purchase: str = ""
    pool: str = ""
    launched: datetime | None = None
    serving: datetime | None = None
    in_service: datetime | None = None  # the group counts it: its launch hook was completed
    noticed: datetime | None = None
    ended: datetime | None = None
    ended_why: str = ""
    stages: list[BootStage] = field(default_factory=list)


@dataclass(frozen=True)
class Sources:
    """What AWS remembers, parsed."""

    since: datetime
    until: datetime
    decisions: tuple[fleet_view.Decided, ...]
    activities: tuple[Activity, ...]
    alarms: tuple[tuple[datetime, str], ...]
    stages: tuple[BootStage, ...]
    living: Mapping[str, BoxRecord]  # by box, as far as EC2 still remembers it
    lines_skipped: int = 0  # of the boxes' log: they tell no stage of a boot


# --- read ------------------------------------------------------------------------------------------------------


def read(settings: Settings, aws: Aws, since: datetime, until: datetime) -> Sources:
    """Everything since a time, to the last page."""
    fleet = settings.fleet_name
    decided, activities, alarms, (stages, skipped), living = aws.together(
        lambda: fleet_view.decisions(aws, fleet, since),
        lambda: tuple(scaling_activities(aws, fleet, since)),
        lambda: tuple(_alarms(aws, fleet, since, until)),
        lambda: stages_of(islice(box_log(aws, fleet, since), LINES_AT_MOST)),
        lambda: dict(_living(aws, fleet)),
    )
    return Sources(since, until, decided, activities, alarms, stages, living, skipped)


def scaling_activities(aws: Aws, fleet: str, since: datetime) -> Iterator[Activity]:
    """The group's scaling activities, the newest first."""
    for raw in aws.items(
        "autoscaling", "DescribeScalingActivities", "Activities", AutoScalingGroupName=names.group(fleet)
    ):
        found = _ACTIVITY.match(raw.get("Description", ""))
        if found and raw["StartTime"] >= since:
            yield Activity(
                launch=found[1].startswith("Launching"),
                box=found[2] or "",
                began=raw["StartTime"],
                ended=raw.get("EndTime"),
                succeeded=raw["StatusCode"] == "Successful",
                why=raw.get("StatusMessage") or raw.get("Cause", ""),
            )


def _alarms(aws: Aws, fleet: str, since: datetime, until: datetime) -> Iterator[tuple[datetime, str]]:
    for raw in aws.items(
        "cloudwatch",
        "DescribeAlarmHistory",
        "AlarmHistoryItems",
        AlarmName=names.no_healthy_target_alarm(fleet),
        HistoryItemType="StateUpdate",
        StartDate=since,
        EndDate=until,
    ):
        at = raw["Timestamp"].astimezone(UTC)  # botocore tells CloudWatch's times in the zone of this machine
        yield at, json.loads(raw["HistoryData"])["newState"]["stateValue"]


def box_log(aws: Aws, fleet: str, since: datetime) -> Iterator[dict[str, Any]]:
    """The lines of the boxes' log that tell a stage of a boot, the oldest first."""
    return aws.items(
        "logs",
        "FilterLogEvents",
        "events",
        logGroupName=names.box_log_group(fleet),
        startTime=int(since.timestamp() * 1000),
        filterPattern=f'"{names.LINE_BOOTSTAGE}"',
    )


def stages_of(lines: Iterable[Mapping[str, Any]]) -> tuple[tuple[BootStage, ...], int]:
    """The stages that the boxes' log tells, and how many of its lines tell none."""
    found: dict[str, dict[BootStage, None]] = defaultdict(dict)  # by box, in the order of the log
    skipped = 0
    for raw in lines:
        stream, told = _BOX_STREAM.fullmatch(raw["logStreamName"]), _STAGE.match(raw["message"])
        stage = stream and told and BootStage(stream["box"], told[1], float(told[3]), float(told[4]), told[2])
        if not stage or stage.end < stage.start or len(found[stage.box]) == STAGES_AT_MOST:
            skipped += 1
        else:
            found[stage.box][stage] = None
    return tuple(stage for stages in found.values() for stage in stages), skipped


def _living(aws: Aws, fleet: str) -> Iterator[tuple[str, BoxRecord]]:
    """Boxes that EC2 remembers: those that run, and those that ended within the hour."""
    ours = [{"Name": "tag:aws:autoscaling:groupName", "Values": [names.group(fleet)]}]
    for reservation in aws.items("ec2", "DescribeInstances", "Reservations", Filters=ours):
        for raw in reservation["Instances"]:
            purchase = "spot" if raw.get("InstanceLifecycle") == "spot" else "on-demand"
            gone = _ENDED.search(raw.get("StateTransitionReason", ""))
            ended = datetime.fromisoformat(f"{gone[1]}+00:00") if gone else None
            yield raw["InstanceId"], BoxRecord(purchase, raw["InstanceType"], raw["LaunchTime"], ended=ended)


# --- put in order ----------------------------------------------------------------------------------------------


def lives(sources: Sources, settings: Settings) -> dict[str, BoxRecord]:
    """Every box by id, from whichever source knows it; an unknown kind is taken for spot."""
    found = {box: replace(remembered, stages=[]) for box, remembered in sources.living.items()}

    def life(box: str) -> BoxRecord:
        return found.setdefault(box, BoxRecord())

    for activity in sources.activities:
        if activity.box and activity.launch:
            known = life(activity.box)
            known.launched = activity.began
            known.in_service = activity.ended if activity.succeeded else None
            known.serving = known.serving or known.in_service
        elif activity.box:
            known = life(activity.box)
            known.ended, known.ended_why = activity.ended or activity.began, activity.why
    for decided in sources.decisions:
        _learn(decided, life)
    for stage in sources.stages:
        life(stage.box).stages.append(stage)
    for known in found.values():
        if known.noticed and not known.ended:
            known.ended, known.ended_why = known.noticed + timedelta(seconds=names.NOTICE_SECONDS), "reclaimed"
        known.purchase = known.purchase or "spot"
        known.pool = known.pool or settings.pools[0]
    return {box: known for box, known in found.items() if known.launched}


def _learn(decided: fleet_view.Decided, life: Any) -> None:
    """What one decision record says of the boxes in it."""
    for box, seen in (decided.record.get("world", {}).get("boxes") or {}).items():
        known = life(box)
        known.launched = known.launched or decided.at
        if seen.keys() >= {"purchase", "pool"}:
            known.purchase, known.pool = seen["purchase"], seen["pool"]
        if seen.get("health") == "healthy":
            known.serving = known.serving or decided.at
    signal = decided.record.get("signal", {})
    if not (box := signal.get("box")):
        return
    at = datetime.fromisoformat(signal["at"]) if "at" in signal else decided.at
    match signal.get("wake"):
        case "interruption":
            life(box).noticed = at
        case "launched":
            known = life(box)
            known.launched, known.serving = known.launched or at, known.serving or at
        case "terminated":
            life(box).ended = life(box).ended or at


def events(sources: Sources, settings: Settings) -> list[Event]:
    """The event log, in order of time."""
    found = [
        *_box_events(lives(sources, settings), settings, sources),
        *_decision_events(sources.decisions),
        *(Event(at, "alarm", {"state": state}) for at, state in sources.alarms),
    ]
    levers = [event for event in found if event.kind == "lever"]
    found += _failed_launches(sources.activities, levers)
    inside = [event for event in found if sources.since <= event.at <= sources.until]
    fleet = {"name": settings.fleet_name, "desired": settings.capacity.min}
    start, end = Event(sources.since, "start", fleet), Event(sources.until, "end", fleet)
    return [start, *sorted(inside, key=lambda event: event.at), end]


def _box_events(boxes: Mapping[str, BoxRecord], settings: Settings, sources: Sources) -> Iterator[Event]:
    for box, life in boxes.items():
        if life.launched is None or (life.ended and life.ended < sources.since):
            continue
        known = life.pool in (*settings.pools, *POOLS)  # a type that no table has any more costs as the first pool
        pool = settings.pool(life.pool if known else settings.pools[0])
        price = pool.spot_usd if life.purchase == "spot" else pool.on_demand_usd
        launched = max(life.launched, sources.since)  # it ran before the window: its bill in the window begins there
        kind = {"purchase": life.purchase, "pool": life.pool, "usd_per_hour": price}
        yield Event(launched, "box.launched", {"box": box, **kind})
        if life.serving:
            # A box that outlived any boot before the window, and serves in it, served all along.
            old = life.launched < sources.since - timedelta(seconds=settings.boot.cold_budget_seconds)
            yield Event(launched if old else max(life.serving, launched), "box.serving", {"box": box})
        if life.in_service and life.in_service >= launched:
            yield Event(life.in_service, "box.in_service", {"box": box})
        for stage in life.stages:
            # Its own clock began with its kernel; where that was not seen, as long after the launch as usual.
            ended = life.launched + timedelta(seconds=boot_length.LAUNCH_TO_KERNEL_SECONDS + stage.end)
            told = {"stage": stage.name, "start": stage.start, "end": stage.end, "outcome": stage.outcome}
            yield Event(ended, "boot.stage", {"box": box, **told})
        if life.noticed:
            yield Event(life.noticed, "notice", {"box": box})
        if life.ended:
            if life.serving:
                gone = max(min(life.noticed or life.ended, life.ended), launched)  # a notice from before the window
                yield Event(gone, "box.unserving", {"box": box, "why": "notice" if life.noticed else life.ended_why})
            yield Event(life.ended, "box.ended", {"box": box, "why": life.ended_why or "terminated"})


def _failed_launches(activities: Iterable[Activity], levers: Sequence[Event]) -> Iterator[Event]:
    """An activity without a box does not say what it asked for: the lever of its moment does, or else AWS's words."""
    for activity in activities:
        if activity.launch and not activity.succeeded and activity.ended:
            moved = [event.fields["percentage"] for event in levers if event.at <= activity.began]
            lever = moved[-1] if moved else 0
            spot = lever == 0 or (lever < 100 and "spot" in activity.why.lower())
            purchase = "spot" if spot else "on-demand"
            at, which = (activity.ended, {"box": activity.box}) if activity.box else (activity.began, {})
            yield Event(at, "launch.failed", {"purchase": purchase, "pool": None, "why": activity.why, **which})


def _decision_events(decisions: Iterable[fleet_view.Decided]) -> Iterator[Event]:
    mode = lever = None
    for decided in decisions:
        record, at = decided.record, decided.at
        yield Event(at, "decision", record)
        wake, box = record.get("signal", {}).get("wake"), record.get("signal", {}).get("box", "")
        if wake == "rebalance":
            yield Event(at, "rebalance", {"box": box})
        if record.get("mode") and record["mode"] != mode:
            mode = record["mode"]
            yield Event(at, "mode", {"mode": mode})
        moved = _moved(record)
        if moved is not None and moved != lever:
            lever = moved
            yield Event(at, "lever", {"percentage": lever})
        if record.get("action") in {str(kind) for kind in TEXTS}:
            subject = TEXTS[Kind(record["action"])].subject
            yield Event(at, "mail", {"subject": subject, "body": record.get("reason", "")})


def _told(record: dict[str, Any], otherwise: int) -> int:
    """The lever that the record names: a part of the fleet is one between the two ends."""
    told = record.get("lever")
    return told if isinstance(told, int) and 0 <= told <= 100 else otherwise


def _moved(record: dict[str, Any]) -> int | None:
    """The group's percentage after this decision, as far as it tells."""
    if record.get("action") in _TO_ON_DEMAND and record.get("outcome") == "done":
        return _told(record, 100)
    if record.get("action") in _TO_SPOT:
        return _told(record, 0)
    seen = record.get("world", {}).get("percentage")
    if seen is not None and record.get("action") in _EITHER_WAY and record.get("outcome") == "done":
        return _told(record, seen)
    return None if seen is None else int(seen)
