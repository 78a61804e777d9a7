"""Callers: who asks, and how much they may. Pure; a key is known by its hash alone.

A key reads `sk-fleet-<43 characters>`: 256 random bits, so one round of SHA-256 keeps it (nobody can try them all), and
looking it up by its hash takes the same time whatever a guess shares with a real one.
"""

import hashlib
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from fleet.config.gateway_settings import CallerTier
from gateway.config import Config
from relay.refusal import Refusal
from relay.site import site

PREFIX = "sk-fleet-"
ID_DIGITS = 12  # of a key's hash, which name it
ANONYMOUS = "anonymous"
Class = Literal["interactive", "background"]


@dataclass(frozen=True)
class Key:
    """An API key as the store knows it."""

    id: str  # the first digits of its hash: names it in lists and ledgers
    tier: str
    kind: Class
    name: str = ""
    expires: datetime | None = None
    revoked: bool = False


@dataclass(frozen=True)
class Caller:
    """Who a request is counted for."""

    id: str
    tier_name: str
    tier: CallerTier
    kind: Class


def new_key() -> str:
    """A fresh key; shown once, kept nowhere."""
    return PREFIX + secrets.token_urlsafe(32)


def key_hash(key: str) -> str:
    """What the store knows a key by."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def bearer(headers: Mapping[str, str]) -> str:
    """The key that a request carries; empty: none. SDKs insist on a key: "anonymous" says that there is none."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    found = token.strip() if scheme.lower() == "bearer" else ""
    return "" if found == ANONYMOUS else found


def by_key(key: Key | None, headers: Mapping[str, str], config: Config, now: datetime) -> Caller:
    """The caller of a key (None: unknown); raises Refusal. A request may lower its class, never raise it."""
    if key is None or key.revoked:
        raise Refusal(401, "This API key is unknown or revoked", "invalid_api_key")
    if key.expires and now >= key.expires:
        raise Refusal(401, f"This API key expired on {key.expires:%Y-%m-%d}", "invalid_api_key")
    tier = vars(config.gateway.tiers).get(key.tier)
    if tier is None or not tier.requests_per_day:
        raise Refusal(403, f"The tier {key.tier} is turned off", "tier_off")
    kind: Class = "background" if headers.get("x-class", "").lower() == "background" else key.kind
    return Caller(f"key:{key.id}", key.tier, tier, kind)


def by_address(address: str, pepper: bytes, config: Config) -> Caller:
    """The anonymous caller at an address."""
    tier = config.gateway.tiers.anonymous
    if not tier.requests_per_day:
        raise Refusal(401, "An API key is needed: Authorization: Bearer ...", "missing_api_key")
    return Caller(f"address:{address_hash(address, pepper)}", ANONYMOUS, tier, "interactive")


def address_hash(address: str, pepper: bytes) -> str:
    """A keyed hash of it as it is counted: whoever reads the store cannot try all addresses."""
    return hashlib.blake2b(site(address).encode(), key=pepper, digest_size=16).hexdigest()


def address_of(peer: str, forwarded: str, trusted_hops: int) -> str:
    """The caller's address: each hop of ours appended the one that it saw, and what stands left of those is hearsay."""
    if not trusted_hops:
        return peer
    seen = [part.strip() for part in forwarded.split(",") if part.strip()]
    if len(seen) < trusted_hops:
        return peer  # nobody of ours spoke: whoever is connected is who asks
    candidate = seen[-trusted_hops].strip("[]")
    try:
        ipaddress.ip_address(candidate)
    except ValueError:
        return peer
    return candidate


def seconds_to_midnight(now: datetime) -> int:
    """Until the caps of the day are new."""
    today = now.astimezone(UTC)
    tomorrow = (today + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1, int((tomorrow - today).total_seconds()))


def cap_reached(caller: Caller, now: datetime) -> Refusal:
    """The answer to a request above the day's cap: trying again before midnight UTC cannot help."""
    cap = caller.tier.requests_per_day
    message = f"The {caller.tier_name} tier has {cap} requests a UTC day, and all are used"
    return Refusal(429, message, "cap_reached", seconds_to_midnight(now))
