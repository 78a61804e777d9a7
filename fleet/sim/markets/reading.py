"""Reads a user's market file or history as text or JSON; whatever is wrong with it is one message with its place."""

import json
import re
from pathlib import Path
from typing import Any

from fleet.config.pools import POOLS
from fleet.core.errors import UserError
from fleet.sim.markets.market import ZONE

TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")  # g6.xlarge
LONGEST_SECONDS = 10 * 365 * 86400.0  # of a market: longer is a slip of the pen


def text(path: Path) -> str:
    """The file as UTF-8 text; raises UserError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8 text") from None


def parsed(path: Path) -> Any:
    """The file as JSON; raises UserError. Of a key that stands twice in an object one is not meant."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            raise UserError(f"{path}: {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one object")
        return found

    try:
        return json.loads(text(path), object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: line {error.lineno} column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {str(error).partition(';')[0]}") from None


def is_whole(word: str) -> bool:
    """Whether it is a whole number from 0 that is worth reading."""
    return word.isascii() and word.isdigit() and len(word) <= 15


def pool_problem(instance_type: str, zone: str) -> str | None:
    """Why there can be no such pool."""
    if instance_type not in POOLS:
        return f"type {instance_type!r}; known are {', '.join(POOLS)}"
    return None if ZONE.fullmatch(zone) else f"zone {zone!r}; expected one like us-east-2a"
