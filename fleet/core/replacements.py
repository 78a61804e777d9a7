"""Which changed property replaces its resource: read from CloudFormation's own schemas, as cfn-lint ships them."""

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

Paths = tuple[str, ...]


def create_only(resource_type: str) -> tuple[Paths, Paths]:
    """Property paths whose change replaces a resource, and those whose change may; none of a type without a schema."""
    schema = _schemas().get(resource_type)
    found = _read(f"resources/{schema}.json") if schema else {}
    certain, perhaps = (
        tuple(pointer.removeprefix("/properties/") for pointer in found.get(key) or [])
        for key in ("createOnlyProperties", "conditionalCreateOnlyProperties")
    )
    return certain, perhaps


@functools.cache
def _schemas() -> dict[str, str]:
    """By type, the name of its schema's file."""
    return _read("providers/us-east-1.json")


@functools.cache
def _read(name: str) -> dict[str, Any]:
    cfnlint = importlib.util.find_spec("cfnlint")  # found, not imported: that takes seconds
    assert cfnlint is not None and cfnlint.origin is not None  # noqa: S101, PT018  it is installed
    read: dict[str, Any] = json.loads(Path(cfnlint.origin).with_name("data").joinpath("schemas", name).read_text())
    return read
