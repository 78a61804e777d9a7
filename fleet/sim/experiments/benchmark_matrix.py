"""What `make bench-policy` drills: every case by name, the policies in it, and one drill in what the bounds need."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fleet.sim.drills.drill import Result, default_settings
from fleet.sim.drills.scene import Scene
from fleet.sim.experiments.experiment import Job, Variation
from fleet.sim.markets import synthetic
from fleet.sim.policies.catalogue import TIMER_MINUTES, without_valve

FIRST_SEED = 1001  # no constant was chosen on these
OURS = "bridge"
TIMERS = tuple(f"timer-{minutes}" for minutes in TIMER_MINUTES)
POLICIES = ("alarm", OURS, "fallback", *TIMERS)
TRACES = tuple(sorted(synthetic.FOLDER.glob("*-trace.csv")))


MEASURED = Variation()
PLAIN = "fitted"  # the case of which the others vary one thing


@dataclass(frozen=True)
class Case:
    """Markets of one build under one behaviour, and with how many seeds they are drilled."""

    scene: Scene
    variation: Variation = MEASURED
    seeds: int = 8
    rare: Mapping[str, int] = field(default_factory=dict)  # more seeds, where a place has few losses to tell from
    valve: bool = False
    blind: Sequence[str] = ()  # policies that see nothing of what is varied: they live as in the plain case

    def seeds_in(self, place: str) -> int:
        return self.rare.get(place, self.seeds)


UNWARNED = Variation(warned_share=0)
_FITTED, _LEVELS = Scene(), Scene(levels=True)
_RARE = {"us-west-2": 24}
_SEES_NO_SCORES = ("fallback", *TIMERS)
CASES: dict[str, Case] = {
    PLAIN: Case(_FITTED, rare=_RARE),
    "fitted, no early warnings": Case(_FITTED, UNWARNED, rare=_RARE),
    "levels": Case(_LEVELS),
    "levels, no early warnings": Case(_LEVELS, UNWARNED),
    "boots twice as slow": Case(_FITTED, Variation(boots_factor=2), rare=_RARE),
    "boots twice as fast": Case(_FITTED, Variation(boots_factor=0.5), rare=_RARE),
    "a fifth of the events lost": Case(_FITTED, Variation(events_lost_share=0.2), rare=_RARE, blind=("fallback",)),
    "a fifth of the scores wrong": Case(_FITTED, Variation(scores_wrong_share=0.2), rare=_RARE, blind=_SEES_NO_SCORES),
    "scores ten minutes late": Case(_FITTED, Variation(scores_late_seconds=600), rare=_RARE, blind=_SEES_NO_SCORES),
    "the valve as shipped": Case(_FITTED, rare=_RARE, valve=True, blind=_SEES_NO_SCORES),
    "droughts and supply half as long": Case(replace(_FITTED, up=0.5, down=0.5), rare=_RARE),
    "droughts and supply twice as long": Case(replace(_FITTED, up=2, down=2), seeds=12, rare=_RARE),
    "shipped traces": Case(Scene(files=TRACES), seeds=20),
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

    @property
    def lived(self) -> "Task":
        """The drill that tells of this one: its own, or the plain case's where that is the same life."""
        return replace(self, case=PLAIN) if self.policy in CASES[self.case].blind else self


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
    dark_minutes: float = 0.0


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
        measure.dark_minutes,
    )


def places(case: str) -> list[str]:
    return [path.stem for path in TRACES] if CASES[case].scene.files else synthetic.regions()


def tasks(cases: Sequence[str], policies: Sequence[str], seeds: int | None, days: float) -> Iterator[Task]:
    """Seed by seed, so that a run which is stopped has whole seeds of every case; each life once."""
    wanted = {(case, place): seeds or CASES[case].seeds_in(place) for case in cases for place in places(case)}
    every = (
        Task(case, place, policy, FIRST_SEED + number, days).lived
        for number in range(max(wanted.values(), default=0))
        for (case, place), most in wanted.items()
        if number < most
        for policy in policies
    )
    yield from dict.fromkeys(every)


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
