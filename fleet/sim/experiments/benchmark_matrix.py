"""What `make bench-policy` drills: every case by name, the policies in it, and one drill in what the bounds need."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fleet.sim.drills.drill import Result, default_settings
from fleet.sim.drills.scene import Scene
from fleet.sim.experiments.experiment import Job, Variation
from fleet.sim.markets import synthetic
from fleet.sim.policies.catalogue import TIMER_MINUTES, without_valve

FIRST_SEED = 1001  # no constant was chosen on these
OURS = ("bridge",)
TIMERS = tuple(f"timer-{minutes}" for minutes in TIMER_MINUTES)
POLICIES = ("alarm", *OURS, "fallback", *TIMERS)
TRACES = tuple(sorted(synthetic.FOLDER.glob("*-trace.csv")))


MEASURED = Variation()


@dataclass(frozen=True)
class Case:
    """Markets of one build under one behaviour, and with how many seeds they are drilled."""

    scene: Scene
    variation: Variation = MEASURED
    seeds: int = 16
    valve: bool = False


UNWARNED = Variation(warned_share=0)
_FITTED, _LEVELS = Scene(), Scene(levels=True)
CASES: dict[str, Case] = {
    "fitted": Case(_FITTED),
    "fitted, no early warnings": Case(_FITTED, UNWARNED),
    "levels": Case(_LEVELS),
    "levels, no early warnings": Case(_LEVELS, UNWARNED),
    "boots twice as slow": Case(_FITTED, Variation(boots_factor=2)),
    "boots twice as fast": Case(_FITTED, Variation(boots_factor=0.5)),
    "a fifth of the events lost": Case(_FITTED, Variation(events_lost_share=0.2)),
    "a fifth of the scores wrong": Case(_FITTED, Variation(scores_wrong_share=0.2)),
    "scores ten minutes late": Case(_FITTED, Variation(scores_late_seconds=600)),
    "the valve as shipped": Case(_FITTED, valve=True),
    "droughts and supply half as long": Case(replace(_FITTED, up=0.5, down=0.5)),
    "droughts and supply twice as long": Case(replace(_FITTED, up=2, down=2)),
    "shipped traces": Case(Scene(files=TRACES)),
}


@dataclass(frozen=True)
class Task:
    """One drill by name. `place` is a region, or the trace's file."""

    case: str
    place: str
    policy: str
    seed: int
    days: float

    def job(self) -> Job:
        case = CASES[self.case]
        here = {"files": tuple(path for path in TRACES if path.stem == self.place)}
        scene = replace(case.scene, days=self.days, **(here if case.scene.files else {"region": self.place}))
        settings = replace(default_settings(), region=scene.region or "us-east-2")
        settings = settings if case.valve else without_valve(settings)
        return Job(scene, self.policy, self.seed, settings, case.variation, brisk=True)


@dataclass(frozen=True)
class Outcome:
    """One drill, in what the bounds need."""

    task: Task
    degraded_minutes: float
    cost_usd: float
    late_seconds: Sequence[float] = field(default_factory=tuple)
    early: int = 0
    answered: int = 0
    missed: int = 0
    bridges: int = 0
    pinned_hours: float = 0.0


def outcome(task: Task, result: Result) -> Outcome:
    measure, judged = result.measure, result.droughts
    return Outcome(
        task,
        measure.degraded_minutes,
        measure.cost_usd,
        tuple(judged.late_seconds),
        judged.early,
        judged.answered,
        judged.missed,
        judged.bridges,
        measure.pinned_seconds / 3600,
    )


def places(case: str) -> list[str]:
    return [path.stem for path in TRACES] if CASES[case].scene.files else synthetic.regions()


def tasks(cases: Sequence[str], policies: Sequence[str], seeds: int | None, days: float) -> Iterator[Task]:
    """Seed by seed, so that a run which is stopped has whole seeds of every case."""
    wanted = {case: seeds or CASES[case].seeds for case in cases}
    for number in range(max(wanted.values(), default=0)):
        for case in cases:
            if number < wanted[case]:
                for place in places(case):
                    yield from (Task(case, place, policy, FIRST_SEED + number, days) for policy in policies)


def remembered(path: Path) -> dict[Task, Outcome]:
    """What an earlier run wrote; a last line that was cut off is drilled again."""
    found: dict[Task, Outcome] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.endswith("}"):
            raw: dict[str, Any] = json.loads(line)
            task = Task(**raw.pop("task"))
            found[task] = Outcome(task, **raw)
    return found


def line(done: Outcome) -> str:
    return json.dumps(asdict(done)) + "\n"
