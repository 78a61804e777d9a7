"""Who is drilled against whom: markets, behaviours and policies by name, and one drill in what the bounds need.

The valve is off for all. Seeds from 101 on: thresholds were chosen on lower ones.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from fleet.drills import levels, synthetic
from fleet.drills.behaviour import Behaviour
from fleet.drills.drill import Drill, Policy, default_settings, run
from fleet.drills.droughts import Droughts
from fleet.drills.knobs import FixedKnobs
from fleet.drills.market import Market
from fleet.drills.policies import DynamicFallback, Watchdog, without_valve
from fleet.settings import Settings

# The bridge policy's own front beside its defaults, and the point that holds every bound with less patience.
VARIANTS: dict[str, dict[str, Any]] = {
    "bridge 30 min": {"bar_seconds": 1800},
    "bridge 45 min": {"bar_seconds": 2700},
    "bridge 90 min": {"bar_seconds": 5400},
    "bridge 40 min, patience 60 s": {"bar_seconds": 2400, "patience_seconds": 60},
}
KNOB_SECONDS = (600, 1800, 3600, 7200, 14400)

MARKETS: dict[str, Callable[[str, int, float], Market]] = {
    "fitted": lambda region, seed, days: synthetic.market(synthetic.region(region), seed, days=days),
    "short": lambda region, seed, days: synthetic.market(
        synthetic.stretched(synthetic.region(region), up=0.5, down=0.5), seed, days=days
    ),
    "long": lambda region, seed, days: synthetic.market(
        synthetic.stretched(synthetic.region(region), up=2, down=2), seed, days=days
    ),
    "levels": lambda region, seed, days: levels.market(region, seed, days=days),
}

_BASE = Behaviour()
BEHAVIOURS: dict[str, Behaviour] = {
    "as measured": _BASE,
    "boots x0.5": replace(_BASE, boots=replace(_BASE.boots, factor=0.5)),
    "boots x2": replace(_BASE, boots=replace(_BASE.boots, factor=2.0)),
    "a fifth of events lost": replace(_BASE, events=replace(_BASE.events, lost_share=0.2)),
}

BASELINES = ("alarm", "fallback")
KNOBS = "knobs"


def _bridge(settings: Settings, **limits: Any) -> Settings:
    return without_valve(replace(settings, policy="bridge", bridge=replace(settings.bridge, **limits)))


POLICIES: dict[str, tuple[Callable[[], Policy], Callable[[Settings], Settings]]] = {
    "alarm": (Watchdog, without_valve),
    "fallback": (DynamicFallback, without_valve),
    "bridge": (Watchdog, _bridge),
    **{name: (Watchdog, partial(_bridge, **limits)) for name, limits in VARIANTS.items()},
    **{f"{KNOBS} {seconds // 60} min": (partial(FixedKnobs, seconds), without_valve) for seconds in KNOB_SECONDS},
}


@dataclass(frozen=True)
class Task:
    market: str
    behaviour: str
    region: str
    policy: str
    seed: int
    days: float


@dataclass(frozen=True)
class Outcome:
    """One drill, in what the bounds need."""

    task: Task
    degraded_minutes: float
    cost_usd: float
    windows: int
    late_seconds: tuple[float, ...]
    early: int
    answered: int
    missed: int
    bridges: int


def drill(task: Task) -> Outcome:
    """One policy through one market."""
    policy, adjust = POLICIES[task.policy]
    settings = adjust(replace(default_settings(), region=task.region))
    droughts = Droughts(settings.bridge.patience_seconds)
    market = MARKETS[task.market](task.region, task.seed, task.days)
    lived = Drill(market, settings, BEHAVIOURS[task.behaviour], seed=task.seed, emit=droughts.add)
    measure = run(lived, policy()).measure
    return Outcome(
        task,
        measure.degraded_minutes,
        measure.cost_usd,
        len(measure.windows),
        tuple(droughts.late_seconds),
        droughts.early,
        droughts.answered,
        droughts.missed,
        droughts.bridges,
    )


def default_cases() -> list[tuple[str, str]]:
    return [("fitted", behaviour) for behaviour in BEHAVIOURS] + [(market, "as measured") for market in MARKETS][1:]


def all_tasks(
    cases: Iterable[tuple[str, str]], policies: Iterable[str], regions: Iterable[str], seeds: Iterable[int], days: float
) -> list[Task]:
    regions, seeds, policies = list(regions), list(seeds), list(policies)
    return [
        Task(market, behaviour, region, policy, seed, days)
        for market, behaviour in cases
        for region in regions
        for policy in policies
        for seed in seeds
    ]


def run_all(tasks: Sequence[Task], jobs: int, console: Console) -> list[Outcome]:
    with ProcessPoolExecutor(jobs) as pool:
        drilled = pool.map(drill, tasks, chunksize=4)
        return list(track(drilled, total=len(tasks), description="drills", console=console))


def remembered(path: Path) -> dict[Task, Outcome]:
    """What an earlier run wrote."""
    raw = json.loads(path.read_text()) if path.exists() else []
    outcomes = [Outcome(**{**each, "task": Task(**each["task"])}) for each in raw]
    return {outcome.task: replace(outcome, late_seconds=tuple(outcome.late_seconds)) for outcome in outcomes}
