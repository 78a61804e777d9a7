"""Breaks templates one property at a time: each key removed, each value changed, each list item dropped."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.infra.templates import Templates

# Written by CDK for itself, or read by nobody: their values change nothing that runs.
IGNORED_KEYS = ("Metadata", "Rules", "BootstrapVersion")


def mutants(t: Templates, stack: str) -> Iterator[str]:
    """Yield the path of each mutation of a stack while it is in place; the templates are whole again at the end."""
    for section in ("Resources", "Parameters"):
        yield from _walk(t[stack][section], stack, kinds=t[stack]["Resources"])


def _walk(node: Any, path: str, kinds: dict[str, Any]) -> Iterator[str]:
    items: list[tuple[Any, Any]] = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    for key, value in items:
        if key in IGNORED_KEYS:
            continue
        name = kinds[key]["Type"] if key in kinds and isinstance(kinds[key], dict) else key
        here = f"{path}/{name}"
        if isinstance(value, dict | list):
            yield from _walk(value, here, kinds if name == key else {})
        else:
            node[key] = _other(value)
            yield f"{here} changed"
            node[key] = value
        restore = _remove(node, key)
        yield f"{here} removed"
        restore()


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
    return f"{value}-other"


def _remove(node: Any, key: Any) -> Callable[[], None]:
    """Take one item out; returns how to put it back in its place."""
    if isinstance(node, list):
        value = node.pop(key)
        return lambda: node.insert(key, value)
    whole = dict(node)
    del node[key]

    def restore() -> None:
        node.clear()
        node.update(whole)

    return restore
