"""Checks `cdk.json` at synth and in the CLI: every problem at once, each with its key, its value and what is allowed.

Two kinds of problems. The schema: each value against the type and bounds of its field in `settings`, by pydantic.
The cross-field rules (`cross_field_rules`): values that are fine alone and wrong together, judged in the same message
unless the schema has refused one of them already, so one mistake makes one line.
"""

import contextlib
import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pydantic

from fleet.config.cross_field_rules import RULES
from fleet.config.problem import Problem
from fleet.config.section import RENAMED, given
from fleet.config.settings import Settings
from fleet.core.errors import UserError

TOO_DEEP = Problem("(file)", "lists in lists", "JSON that is nested less deeply")


class SettingsError(UserError):
    """Everything that is wrong with the settings, in one message."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n  ".join([f"{source}: {count} in the settings of the fleet", *map(str, problems)]))


def load(path: str | Path = "cdk.json") -> Settings:
    """The checked settings of one `cdk.json`; raises SettingsError."""
    source = str(path)
    try:
        return _load(path, source)
    except RecursionError:
        raise SettingsError(source, [TOO_DEEP]) from None


def _load(path: str | Path, source: str) -> Settings:
    repeated: list[Problem] = []
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_object(repeated))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(source, [Problem("(file)", source, f"a readable JSON file ({error})")]) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise SettingsError(source, [Problem("(file)", place, f"JSON; {error.msg}")]) from None
    context = document.get("context") if isinstance(document, dict) else None
    fleet = context.get("fleet") if isinstance(context, dict) else None
    if not isinstance(fleet, dict):
        problem = Problem("context.fleet", fleet, "an object with the settings of one fleet")
        raise SettingsError(source, [*repeated, problem])
    return check(fleet, source, repeated)


def _object(repeated: list[Problem]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """JSON objects as dicts; json alone takes the last of two equal keys without a word."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in found]
        for key in dict.fromkeys(key for key in keys if keys.count(key) > 1):
            repeated.append(Problem("(file)", key, "a key once in its object: the last would win in silence"))
        return dict(found)

    return pairs


def check(raw: dict[str, Any], source: str = "settings", problems: Sequence[Problem] = ()) -> Settings:
    """The checked settings of what stands under `context.fleet`; raises SettingsError with earlier problems too."""
    settings, problems = None, list(problems)
    try:
        settings = schema().validate_json(json.dumps(raw), strict=True)
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False)
        if not all(detail["loc"] for detail in details):  # the library's own reader of JSON gave up: no value is known
            raise SettingsError(source, [*problems, TOO_DEEP]) from None
        problems += [_problem(detail) for detail in details]
    refused = {problem.key.partition("[")[0] for problem in problems}
    known = cast(Settings, settings or _known(Settings, raw, refused))
    for rule in RULES:
        with contextlib.suppress(AttributeError):  # a value that the schema refused is absent here
            problems.extend(rule(known))
    if problems or settings is None:
        raise SettingsError(source, problems)
    return settings


@functools.cache
def schema() -> pydantic.TypeAdapter[Settings]:
    """What pydantic checks `cdk.json` with: the types and bounds of the fields, wherever they stand."""
    return pydantic.TypeAdapter(Settings)


def _key(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def _problem(detail: Any) -> Problem:
    """One error of pydantic in our words: what is allowed comes from the field, not from the library's phrase."""
    location: tuple[int | str, ...] = detail["loc"]
    key = _key(location)
    parent, found = Settings, None
    for part in location:
        if isinstance(part, int):
            continue
        found = next((f for f in dataclasses.fields(parent) if f.name == part), None)
        if found is None:
            if key in RENAMED:
                now = f"its name is {RENAMED[key]} now" if RENAMED[key] else "it is gone, for it moved nothing"
                return Problem(key, detail["input"], f"nothing: {now}")
            keys = ", ".join(f.name for f in dataclasses.fields(parent))
            return Problem(key, detail["input"], f"unknown key; allowed are {keys}")
        parent = cast(Any, item_type(found.type))
    assert found is not None  # noqa: S101  every error has a location, and its last name is a field
    if detail["type"] in ("missing", "missing_argument"):
        return Problem(key, dataclasses.MISSING, allowed(found))
    return Problem(key, detail["input"], allowed(found, item=isinstance(location[-1], int)))


def item_type(kind: Any) -> Any:
    """The type inside a tuple or an optional, else the type itself."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else given(kind)


def allowed(field: "dataclasses.Field[Any]", *, item: bool = False) -> str:
    """What a field takes, in words."""
    kind, limits = given(field.type), field.metadata
    if "allowed" in limits:
        return str(limits["allowed"])
    if typing.get_origin(kind) is tuple:
        inner = item_type(kind)
        noun = "an object" if dataclasses.is_dataclass(inner) else "a string"
        return noun if item else f"a list, each {noun}"
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(kind)))
    if dataclasses.is_dataclass(kind):
        return "an object with " + ", ".join(f.name for f in dataclasses.fields(kind))
    if kind is bool:
        return "true or false"
    if kind is int:
        return f"a whole number from {limits['ge']} to {limits['le']}"
    if kind is float:
        least = f"above {limits['gt']}, at most" if "gt" in limits else f"from {limits['ge']} to"
        return f"a number {least} {limits['le']}"
    return "a string"


def _known(kind: Any, raw: Any, refused: set[str], prefix: str = "") -> types.SimpleNamespace:
    """The values that the schema took, defaults filled in, so that cross-field rules are judged in the same message."""
    known = types.SimpleNamespace()
    for field in dataclasses.fields(kind):
        key = prefix + field.name
        if key in refused:
            continue
        if field.name in raw:
            value, of = raw[field.name], given(field.type)
            if value is not None and dataclasses.is_dataclass(of):
                value = _known(of, value, refused, key + ".")
            elif typing.get_origin(field.type) is tuple:
                value = tuple(_as_item(item_type(field.type), item) for item in value)
        elif field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            continue
        setattr(known, field.name, value)
    return known


def _as_item(kind: Any, item: Any) -> Any:
    return kind(**item) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else item
