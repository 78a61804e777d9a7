"""Step 5, report: one structured record per invocation, the `decision` event of `fleet.eventlog.events`."""

from dataclasses import dataclass, field
from typing import Any

from lambdas.watchdog.decision import Action, Decision
from lambdas.watchdog.signals import Signal
from lambdas.watchdog.state import State
from lambdas.watchdog.world import World

Record = dict[str, Any]


@dataclass
class Trace:
    """Collects what one invocation saw, decided and did."""

    signal: Signal
    world: World | None = None
    state: State | None = None
    decisions: list[Decision] = field(default_factory=list)
    scores: dict[str, int] = field(default_factory=dict)
    outcome: str = "done"

    def add(self, world: World, state: State | None, decision: Decision) -> None:
        self.world, self.state = world, state
        self.scores = self.scores or world.scores  # a look after a flip reads others, which nothing was decided on
        self.decisions.append(decision)

    def record(self) -> Record:
        """JSON-ready. `action` is the signal's own decision; `also` what came before or after it.

        There is no `world` where nothing was decided on: one that was read halfway would pass for an empty one.
        """
        main = next((d for d in self.decisions if not d.comes_first), None)
        main = main or (self.decisions[-1] if self.decisions else Decision(Action.NOTHING, "no decision"))
        also = [f"{d.name}: {d.reason}" for d in self.decisions if d is not main]
        signal = {
            "wake": self.signal.wake,
            "at": self.signal.at and self.signal.at.isoformat(),
            "box": self.signal.box,
            "who": self.signal.who,
            "detail": self.signal.detail,
        }
        raw = {
            "signal": {key: str(value) for key, value in signal.items() if value},
            "world": self.world and self.world.summary(),
            "scores": self.scores,
            "action": main.name,
            "reason": main.reason,
            "detail": main.detail,
            "also": also,
            "outcome": self.outcome,
            "mode": self.state and str(self.state.mode),
            "lever": self.state.expected_lever if self.state and main.kind else self.world and self.world.percentage,
            "rearming": bool(self.state and self.state.rearm_from),
            "streak": self.state and self.state.streak,
            "owed_mails": self.state and len(self.state.owed),
        }
        return {key: value for key, value in raw.items() if value or (value == 0 and value is not False)}
