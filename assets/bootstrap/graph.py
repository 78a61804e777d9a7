"""Runs declared stages as early as what they need allows, and says afterwards which of them the boot had to wait for.

StageError    a stage that the boot cannot do without failed or exceeded its budget
"""

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

from log import uptime
from stages import Stage

DONE, SKIPPED, FAILED, OVER_BUDGET = "done", "skipped", "failed", "over budget"


class StageError(Exception):
    """Names the stage and why it ended the boot."""


@dataclass(frozen=True)
class Run:
    """One stage as it ran; times in seconds of uptime. `detail` is what the stage said of itself."""

    name: str
    started: float
    ended: float
    outcome: str
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.started


Detail = Union[dict[str, Any], str, None]  # what it has to say, if anything; SKIPPED: there was nothing to do
Body = Callable[[], Detail]


def run(stages: Sequence[Stage], bodies: Mapping[str, Body], deadline: Callable[[], float]) -> Iterator[Run]:
    """Run all stages, each told as it ends. Raises StageError at once.

    `deadline` is the whole boot's, asked again at every step (a warm boot may turn cold); it binds serving stages.
    """
    results: queue.SimpleQueue[tuple[Stage, Detail, Optional[BaseException]]] = queue.SimpleQueue()
    waiting, running, ended = list(stages), dict[Stage, float](), set[str]()

    def work(stage: Stage) -> None:
        try:
            results.put((stage, bodies[stage.name](), None))
        except BaseException as error:  # every end of a stage, an exit too, must reach the runner
            results.put((stage, None, error))

    while waiting or running:
        for stage in list(waiting):
            if ended.issuperset(stage.needs):
                waiting.remove(stage)
                running[stage] = uptime()
                threading.Thread(target=work, args=(stage,), name=stage.name, daemon=True).start()
        ends = {stage: _latest_end(stage, started, deadline()) for stage, started in running.items()}
        try:
            stage, detail, error = results.get(timeout=max(0.0, min(ends.values()) - uptime()))
        except queue.Empty:
            stage = min(ends, key=lambda late: ends[late])
            ends[stage] = _latest_end(stage, running[stage], deadline())  # the boot may have turned cold meanwhile
            if uptime() < ends[stage]:
                continue
            detail, error = None, TimeoutError(f"exceeded its budget of {ends[stage] - running[stage]:.0f} s")
        if stage not in running:
            continue  # a non-serving stage that came back after its budget
        outcome = SKIPPED if detail == SKIPPED else DONE
        if error is not None:
            outcome = OVER_BUDGET if isinstance(error, TimeoutError) else FAILED
            detail = {"why": str(error) or type(error).__name__}
        done = Run(stage.name, running.pop(stage), uptime(), outcome, detail if isinstance(detail, dict) else {})
        ended.add(done.name)
        yield done
        if error is not None and stage.serving:
            raise StageError(f"{stage.name} {outcome}: {done.detail['why']}")


def _latest_end(stage: Stage, started: float, deadline: float) -> float:
    own = started + stage.budget_seconds
    return min(own, deadline) if stage.serving else own


def critical_path(stages: Sequence[Stage], runs: Sequence[Run]) -> tuple[list[str], float]:
    """The longest chain of needs by measured durations that ends in a serving stage, and its seconds."""
    seconds = {done.name: done.seconds for done in runs}
    longest: dict[str, tuple[list[str], float]] = {}
    for stage in stages:  # declared after what it needs
        if stage.name in seconds:
            before = max((longest[need] for need in stage.needs), key=lambda path: path[1], default=([], 0.0))
            longest[stage.name] = ([*before[0], stage.name], before[1] + seconds[stage.name])
    serving = [longest[stage.name] for stage in stages if stage.serving and stage.name in longest]
    return max(serving, key=lambda path: path[1], default=([], 0.0))
