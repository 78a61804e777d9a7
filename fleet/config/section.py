"""What settings are written with: the base of every section, its bounded fields, and the way back from JSON."""

import dataclasses
import types
import typing
from dataclasses import field
from typing import Any, ClassVar

# Keys that once had another name, or that are gone (empty): refused at synth, which says so; a receipt written before
# is read all the same.
RENAMED = {
    "bridge.bar_seconds": "bridge.return_after_seconds",
    "bridge.bar_sways_percent": "",
    "bridge.return_adjust_percent": "",
    "bridge.steady_seconds": "",
    "bridge.late_event_seconds": "bridge.stale_event_seconds",
    "bridge.idle_warnings": "bridge.false_warnings",
}


def number(default: int, *, ge: int, le: int, why: str) -> int:
    """A bounded whole number with its reason; typed as its value, as dataclasses.field is."""
    value: int = field(default=default, metadata={"ge": ge, "le": le, "why": why})
    return value


def amount(default: float, *, le: float, why: str, gt: float = 0) -> float:
    """A bounded number that may have a fraction, with its reason."""
    value: float = field(default=default, metadata={"gt": gt, "le": le, "why": why})
    return value


def text(pattern: str, allowed: str) -> dict[str, Any]:
    """Metadata of a string that a pattern bounds, and the pattern in words."""
    return {"pattern": pattern, "allowed": allowed}


class Section:
    """Base of every section: an unknown key is an error, in the words of the validation library."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


def given(kind: Any) -> Any:
    """The type of a field once it is given: of `X | None`, X."""
    return typing.get_args(kind)[0] if isinstance(kind, types.UnionType) else kind


def from_plain(kind: Any, raw: Any) -> Any:
    """JSON to the types of fields: objects to dataclasses, arrays to tuples, anything else as it is."""
    kind = given(kind)
    if raw is not None and dataclasses.is_dataclass(kind):
        known = {f.name: from_plain(f.type, raw[f.name]) for f in dataclasses.fields(kind) if f.name in raw}
        return kind(**known)  # type: ignore[operator]  # is_dataclass also admits instances
    if typing.get_origin(kind) is tuple:
        return tuple(from_plain(typing.get_args(kind)[0], item) for item in raw)
    return raw


def renamed(section: str, values: dict[str, Any]) -> dict[str, Any]:
    """Values of one section under the names of now, less those that are gone."""
    now = {RENAMED.get(f"{section}.{key}", key).rpartition(".")[2]: value for key, value in values.items()}
    return {key: value for key, value in now.items() if key}
