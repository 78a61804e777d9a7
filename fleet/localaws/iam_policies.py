"""Whether IAM would allow a call: the part of its evaluation that this project's policies use. Pure.

Allow statements with actions, resources and conditions (StringEquals, StringLike, ArnEquals, ArnLike, Bool,
ForAllValues); a Deny wins. A condition whose key the caller did not name does not hold.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

Statement = Mapping[str, Any]
Context = Mapping[str, list[str]]


def allowed(statements: Iterable[Statement], action: str, resource: str, context: Context) -> bool:
    """Whether the statements allow `action` on `resource`."""
    applying = [s["Effect"] for s in statements if applies(s, action, resource, context)]
    return "Allow" in applying and "Deny" not in applying


def applies(statement: Statement, action: str, resource: str, context: Context) -> bool:
    """Whether a statement, Allow or Deny, is about this call."""
    return (
        any(fnmatchcase(action.lower(), pattern.lower()) for pattern in listed(statement["Action"]))
        and any(fnmatchcase(resource, pattern) for pattern in listed(statement.get("Resource", "*")))
        and all(
            _holds(operator, listed(wanted), context.get(key))
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _holds(operator: str, wanted: list[str], found: list[str] | None) -> bool:
    for_all = operator.startswith("ForAllValues:")
    operator = operator.removeprefix("ForAllValues:")
    if operator not in ("StringEquals", "StringLike", "ArnEquals", "ArnLike", "Bool"):
        raise ValueError(f"this evaluation does not know the condition operator {operator}")
    if found is None:
        return for_all
    return (all if for_all else any)(any(fnmatchcase(value, pattern) for pattern in wanted) for value in found)


def listed(value: Any) -> list[Any]:
    """A policy may write one thing without its brackets."""
    return value if isinstance(value, list) else [value]
