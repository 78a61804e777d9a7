"""The stages of a boot and what each needs: the one declaration that the runner, the docs and the dashboard share.

A stage starts as soon as everything it needs has ended. `budget_seconds` is generous (three times the slowest of 27
measured boots, or of the two cold ones); the whole boot has a budget of its own, warm or cold.
"""

import keyword
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage."""

    name: str
    needs: tuple[str, ...]
    budget_seconds: float
    serving: bool = True  # False: the boot does not wait for it, and its failure is reported, not fatal

    @property
    def method(self) -> str:
        """The method of `boot.Boot` that does it: of the same name, but for Python's own words."""
        return self.name + "_" * keyword.iskeyword(self.name)


STAGES = (
    Stage("gate", (), 10),
    Stage("agent", ("gate",), 80),
    Stage("telemetry", ("gate",), 300, serving=False),
    Stage("register", ("gate",), 120),  # aws-behaviours: held-registers
    Stage("store", ("gate",), 60),
    Stage("plan", ("gate",), 120),
    Stage("engine", ("store", "plan"), 120),
    Stage("serve", ("engine",), 60),
    Stage("restore", ("store", "plan"), 450),
    Stage("load", ("restore", "serve"), 850),
    Stage("import", ("load",), 1000),
    Stage("warm", ("import",), 400),
    Stage("open", ("warm",), 10),
    Stage("healthy", ("open", "register"), 420),
    Stage("complete", ("healthy",), 400),
    Stage("prime", ("complete",), 900, serving=False),
)


def budget(name: str) -> float:
    """The budget of a stage, less a moment in which it can still say what failed."""
    return next(stage.budget_seconds for stage in STAGES if stage.name == name) * 0.9
