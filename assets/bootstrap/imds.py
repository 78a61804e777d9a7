"""Instance metadata, version 2: identity, role credentials and notices. Read by every program on the box.

ImdsError    metadata is slow, gone or answered with something other than 200 and 404
"""

import http.client
import json
import re
import socket
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Optional

HOST = "169.254.169.254"
TOKEN_SECONDS = 21600  # the longest that IMDSv2 grants
TIMEOUT_SECONDS = 1.0  # answers take about a millisecond; two notice paths must fit into one 5 s poll
IDENTITY_SECONDS = 90.0  # patience with metadata where nothing can be done without
PAUSE_SECONDS = 1.0
MOST_BYTES = 65536  # of one answer: an identity document has 500, role credentials 1500
TOKEN = re.compile(r"[\x21-\x7e]{1,1024}")  # it becomes a header


class ImdsError(Exception):
    """Metadata did not answer."""


class Imds:
    """A client with a cached token, renewed on 401. Safe to share between threads."""

    def __init__(self, host: str = HOST, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._host, self._timeout = host, timeout_seconds
        self._token: Optional[str] = None
        self._lock = threading.Lock()
        self.date: Optional[datetime] = None  # metadata's clock at its last answer (aws-behaviours: metadata-dated)

    def get(self, path: str) -> Optional[str]:
        """Text of a path below /latest/, or None where it does not exist (404)."""
        status = 401
        for _ in range(2):
            with self._lock:
                token = self._token = self._token or self._new_token()
            status, body = self._ask("GET", path, {"X-aws-ec2-metadata-token": token})
            if status == 200:
                return body
            if status == 404:
                return None
            if status != 401:
                break
            with self._lock:
                self._token = None
        raise ImdsError(f"metadata answered {status} for {path}")

    def _new_token(self) -> str:
        status, body = self._ask("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)})
        if status != 200:
            raise ImdsError(f"metadata answered {status} for a token")
        if not TOKEN.fullmatch(body):
            raise ImdsError("metadata answered a token that is none")
        return body

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, timeout=self._timeout)
        try:
            connection.sock = _Bounded.to((connection.host, connection.port), self._timeout)
            connection.request(method, f"/latest/{path}", headers=headers)
            response = connection.getresponse()
            body = response.read(MOST_BYTES + 1)
            self.date = _date(response.headers.get("Date"))
        except (OSError, http.client.HTTPException) as error:
            raise ImdsError(f"metadata: {error or type(error).__name__}") from None
        finally:
            connection.close()
        if len(body) > MOST_BYTES:
            raise ImdsError(f"metadata answered more than {MOST_BYTES} bytes for {path}")
        if response.length:  # of what was announced: http.client takes the connection's end for the answer's
            raise ImdsError(f"metadata's answer for {path} was cut after {len(body)} bytes")
        return response.status, body.decode("utf-8", "replace")


class _Bounded(socket.socket):
    """A connection that ends at a deadline, however slowly bytes trickle in."""

    deadline = 0.0

    @classmethod
    def to(cls, address: tuple[str, int], seconds: float) -> "_Bounded":
        made = cls(socket.AF_INET, socket.SOCK_STREAM)
        made.deadline = time.monotonic() + seconds
        made.settimeout(seconds)
        try:
            made.connect(address)
        except OSError:
            made.close()
            raise
        return made

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(max(0.001, self.deadline - time.monotonic()))
        return super().recv_into(*args, **kwargs)


def _date(text: Optional[str]) -> Optional[datetime]:
    try:
        return parsedate_to_datetime(text or "")
    except (TypeError, ValueError, IndexError):
        return None


def parsed(text: str) -> Any:
    """JSON; raises ValueError for what is none, however deep it is nested."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


@dataclass(frozen=True)
class Identity:
    """Who this instance is. `launched_at` is None where the document does not say."""

    instance_id: str
    launched_at: Optional[datetime]


def identity(imds: Imds) -> Identity:
    """Read the instance's identity; raises ImdsError where metadata stays away for `IDENTITY_SECONDS`."""
    deadline = time.monotonic() + IDENTITY_SECONDS
    while True:
        try:
            instance_id = imds.get("meta-data/instance-id")
            if instance_id:
                break
            raise ImdsError("metadata has no instance id")
        except ImdsError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)
    try:
        document = parsed(imds.get("dynamic/instance-identity/document") or "{}")
        pending = datetime.strptime(document["pendingTime"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
        return Identity(instance_id, pending)
    except (ImdsError, ValueError, KeyError, TypeError):
        return Identity(instance_id, None)
