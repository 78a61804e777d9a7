"""Everything by which this AWS differs from plain moto, in one list. `docs/embedded.md` gives the reasons."""

from importlib import import_module

MODULES = (
    "cloudformation",
    "updates",
    "resources",
    "custom_resources",
    "deletions",
    "roles",
    "load_balancer",
    "metrics",
    "auto_scaling",
    "auto_scaling_calls",
    "lambdas",
    "event_bridge",
    "capacity",
    "operator",
    "tasks",
)


def load() -> None:
    """Apply them all; importing a module is what applies it."""
    for module in MODULES:
        import_module(f"fleet.localaws.{module}")
