"""The stages of a boot and what each needs: the one declaration that the runner and the docs share.

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
    does: str = ""  # in docs/box.md
    serving: bool = True  # False: the boot does not wait for it, and its failure is reported, not fatal

    @property
    def method(self) -> str:
        """The method of `boot.Boot` that does it: of the same name, but for Python's own words."""
        return self.name + "_" * keyword.iskeyword(self.name)


STAGES = (
    Stage("gate", (), 10, "shuts the serving port to all but loopback, both families, TCP reset"),
    Stage("agent", ("gate",), 80, "starts the drain agent: a notice may come at any moment"),
    Stage("lane", ("gate",), 60, "starts the lane, which listens behind the shut gate"),
    Stage("telemetry", ("gate",), 300, "starts CloudWatch's agent; nothing needs it", serving=False),
    Stage(
        "register",
        ("gate",),  # aws-behaviours: held-registers
        120,
        "registers the target: balancers take minutes to begin their checks",
    ),
    Stage(
        "store",
        ("gate",),
        60,
        "finds, formats and mounts the instance store, or reuses the image's mount; what cannot be mounted is wiped",
    ),
    Stage(
        "plan",
        ("gate",),
        120,
        "reads the artifacts' ETags, looks for the released cache of exactly them: warm or cold; tags the instance",
    ),
    Stage("engine", ("store", "plan"), 120, "fetches and unpacks the engine, checksum checked while it arrives"),
    Stage("start_engine", ("engine",), 60, "starts its unit, checks the pinned version; callers still meet the gate"),
    Stage(
        "restore",
        ("store", "plan"),
        450,
        "warm: has the model's file served while it arrives, fetches the other blobs, manifest last; where "
        "that cannot be, fetches all of them. cold: fetches GGUF and Modelfile",
    ),
    Stage(
        "load",
        ("restore", "start_engine"),
        850,
        "streamed: an empty prompt loads the model while it arrives; then the digest of all that was served "
        "must be right. Where that fails, the blobs are fetched and the engine starts anew",
    ),
    Stage(
        "import",
        ("load",),
        1000,
        "cold: `ollama create`, as the engine's user; then the store is root's, and its manifest must hold "
        "the configured GGUF",
    ),
    Stage(
        "warm_up",
        ("import", "lane"),
        400,
        "a generate that returns tokens of the exact model, loaded whole, with its full context",
    ),
    Stage(
        "open",
        ("warm_up",),
        10,
        "opens the gate; a box that is leaving never opens, and an engine that was restarted since is left to "
        "the agent, shut",
    ),
    Stage("healthy", ("open", "register"), 420, "waits until the balancer says healthy"),
    Stage("complete", ("healthy",), 400, "completes the launch hook: from here on the box counts"),
    Stage(
        "upload_cache",
        ("complete",),
        900,
        "cold: fills the cache, blobs first, last the manifest as the import left it",
        serving=False,
    ),
)


def budget(name: str) -> float:
    """The budget of a stage, less a moment in which it can still say what failed."""
    return next(stage.budget_seconds for stage in STAGES if stage.name == name) * 0.9
