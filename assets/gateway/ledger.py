"""The ledger: what is remembered of a request, never its text. Pure; a line past its `until` reads as lost.

A request is reserved before a target hears of it, sent, streaming, then done, failed or cancelled. While its gateway
lives it renews `until`; a gateway that is killed renews nothing.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

RENEW_SECONDS = 20  # a killed gateway's lines read as lost within three of these
LEASE_SECONDS = 60
KEPT_DAYS = 30
SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class State(StrEnum):
    """Where a request stands."""

    RESERVED = "reserved"
    SENT = "sent"
    STREAMING = "streaming"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"  # never written: read


OPEN = frozenset({State.RESERVED, State.SENT, State.STREAMING})


@dataclass(frozen=True, kw_only=True)
class Line:
    """One request. Times are whole seconds since 1970."""

    id: str
    caller: str
    began: int
    until: int
    state: State = State.RESERVED
    stream: bool = False
    prompt: str = ""  # keyed fingerprint
    model_revision: str = ""
    answered_by: str = ""
    attempts: int = 0
    tokens: int = 0  # delivered
    micro_dollars: int = 0
    retry_safe: bool = True
    why: str = ""  # of an interruption; of an answer by the cloud, why the GPU gave none

    @property
    def day(self) -> str:
        """The UTC day of its counts: what is taken later, or given back past midnight, is of the day that it came."""
        return day_of(self.began)

    def seen(self, now: float) -> State:
        """The state as a reader must take it."""
        return State.LOST if self.state in OPEN and now > self.until else self.state

    def plain(self) -> dict[str, Any]:
        """For the store: defaults left out."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Self:
        """What `plain` wrote, numbers as the store returns them."""
        known = {f.name: f.type for f in fields(cls)}
        values: dict[str, Any] = {
            name: int(value) if known[name] is int else value for name, value in raw.items() if name in known
        }
        return cls(**{**values, "state": State(values.get("state", State.RESERVED))})


def day_of(at: float) -> str:
    """The UTC day that caps and spend count by; seconds since 1970."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def fingerprint(messages: Any, pepper: bytes) -> str:
    """A keyed hash of a prompt: tells equal from different, and nothing else to whoever lacks the key."""
    return hashlib.blake2b(SORTED.encode(messages).encode(), key=pepper, digest_size=16).hexdigest()


def repeated(line: Line, now: float) -> dict[str, Any]:
    """What a caller is told whose Idempotency-Key was seen before: the ledger's state, never an answer's text."""
    told = asdict(line)
    return {name: told[name] for name in ("id", "began", "tokens", "answered_by", "why")} | {"state": line.seen(now)}


def reservation(prompt_tokens: int, max_tokens: int, input_price: float, output_price: float) -> int:
    """Micro-dollars that a request may cost at most; prices are dollars per million tokens, so the units cancel."""
    return round(prompt_tokens * input_price + max_tokens * output_price)
