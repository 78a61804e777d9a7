"""What `drill` and `worth` alike ask of callers on the command line, and what it means."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import click
import pydantic

from fleet.config import validation
from fleet.core.errors import UserError
from fleet.sim.callers.traffic import Traffic

TRAFFIC = click.option(
    "--traffic", "traffic", multiple=True, metavar="KEY=VALUE", help="Of callers who are drawn; docs/drills.md has all."
)


def traffic_of(changes: Sequence[str], a_day: float) -> Traffic:
    """The traffic that is asked for; raises UserError with all problems at once."""
    known = {each.name: each for each in fields(Traffic)}
    values, problems = dict[str, Any](a_day=a_day), list[str]()
    for change in changes:
        name, equals, text = change.partition("=")
        if equals and name in known:
            values[name] = text
        else:
            problems.append(f"--traffic {change}: expected KEY=VALUE with one of {', '.join(known)}")
    try:
        traffic = pydantic.TypeAdapter(Traffic).validate_python(values)
    except pydantic.ValidationError as error:
        for detail in error.errors(include_url=False):
            name = str(detail["loc"][0])
            where = "--callers" if name == "a_day" else f"--traffic {name}"
            problems.append(f"{where} = {detail['input']}: {validation.allowed(known[name])}")
    if problems:
        raise UserError("\n".join(problems))
    return traffic
