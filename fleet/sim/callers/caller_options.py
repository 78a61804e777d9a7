"""What `drill` and `worth` ask of callers on the command line, and what it means."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any, get_args

import click

from fleet.core.errors import UserError
from fleet.sim.callers.traffic import Traffic

Decorator = Callable[[Callable[..., None]], Callable[..., None]]
TRAFFIC = click.option(
    "--traffic", "traffic", multiple=True, metavar="KEY=VALUE", help="Of callers who are drawn; docs/drills.md has all."
)


def caller_options(command: Callable[..., None]) -> Callable[..., None]:
    """What `drill` asks."""
    options: Sequence[Decorator] = (
        click.option("--callers", metavar="RATE|FILE", help="Requests a day, a CSV of them, or a gateway's ledger."),
        TRAFFIC,
        click.option("--no-lane", is_flag=True, help="Callers meet the engine's own strict line."),
        click.option("--no-cloud", is_flag=True, help="Callers have no cloud model to fall back to."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def traffic_of(changes: Sequence[str], a_day: float | None = None) -> Traffic:
    """The traffic that is asked for; raises UserError with all problems at once."""
    known = {each.name: each for each in fields(Traffic)}
    values, problems = asdict(Traffic()) | ({} if a_day is None else {"a_day": a_day}), list[str]()
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals or name not in known:
            problems.append(f"--traffic {change}: expected KEY=VALUE with one of {', '.join(known)}")
            continue
        values[name] = _value(text, values[name])
    for name, value in values.items():
        allowed = _problem(known[name], value)
        if allowed:
            where = "--callers" if name == "a_day" and a_day is not None else f"--traffic {name}"
            problems.append(f"{where} = {value}: {allowed}")
    if problems:
        raise UserError("\n".join(problems))
    return Traffic(**values)


def _value(text: str, like: Any) -> Any:
    if isinstance(like, str):
        return text
    try:
        return type(like)(text)
    except ValueError:
        return text


def _problem(known: Any, value: Any) -> str:
    """What is allowed, where it is something else."""
    if words := get_args(known.type):
        return "" if value in words else f"one of {', '.join(words)}"
    data = known.metadata
    low, high = data.get("ge", data.get("gt")), data["le"]
    kind = "a whole number" if known.type is int else "a number"
    above = "above" if "gt" in data else "from"
    if isinstance(value, known.type) and low <= value <= high and not ("gt" in data and value == low):
        return ""
    return f"{kind} {above} {low} to {high}"
