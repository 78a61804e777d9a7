"""Who may come in: a program of this machine that was told this run's keys. No web page, and no other local user.

A page reaches a loopback port through the browser that shows it: by a name that it lets resolve to 127.0.0.1 (the Host
tells), or from its own origin (Origin tells). A local user reaches the port, but knows neither key nor secret.
"""

import hmac
import secrets
import string
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_HEADER = "X-Embedded-Token"  # noqa: S105  its name
KEY_LETTERS = string.ascii_uppercase + "234567"


def access_key() -> str:
    """A new access key id of AWS's form."""
    return "AKIA" + "".join(secrets.choice(KEY_LETTERS) for _ in range(16))


@dataclass(frozen=True)
class Keys:
    """The operator's access key of one run. The secret never travels with an API call; it turns the switches."""

    id: str = field(default_factory=access_key, repr=False)
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(30), repr=False)

    def turns(self, environ: dict[str, Any]) -> bool:
        """Whether a request may turn a switch."""
        told = environ.get("HTTP_" + TOKEN_HEADER.upper().replace("-", "_"), "")
        return environ["REQUEST_METHOD"] == "POST" and hmac.compare_digest(
            told.encode(errors="replace"), self.secret.encode()
        )


def is_local(environ: dict[str, Any]) -> bool:
    """Whether a request was sent to loopback by its name, and by no page of elsewhere."""
    origin = environ.get("HTTP_ORIGIN")
    return _host("//" + environ.get("HTTP_HOST", "")) in LOOPBACK and (origin is None or _host(origin) in LOOPBACK)


def _host(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
