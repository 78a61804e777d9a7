"""Instance metadata, version 2: identity, role credentials and notices. Read by every program on the box.

ImdsError    metadata is slow, gone or answered with something other than 200 and 404
"""

import http.client
import json
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Optional

HOST = "169.254.169.254"
TOKEN_SECONDS = 21600  # the longest that IMDSv2 grants
TIMEOUT_SECONDS = 1.0  # answers take about a millisecond; two notice paths must fit into one 5 s poll
IDENTITY_SECONDS = 90.0  # patience with metadata where nothing can be done without
PAUSE_SECONDS = 1.0


class ImdsError(Exception):
    """Metadata did not answer."""


class Imds:
    """A client with a cached token, renewed on 401. Safe to share between threads."""

    def __init__(self, host: str = HOST, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._host, self._timeout = host, timeout_seconds
        self._token: Optional[str] = None
        self._lock = threading.Lock()

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
        return body

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, timeout=self._timeout)
        try:
            connection.request(method, f"/latest/{path}", headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise ImdsError(f"metadata: {error or type(error).__name__}") from None
        finally:
            connection.close()


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
        document = json.loads(imds.get("dynamic/instance-identity/document") or "{}")
        pending = datetime.strptime(document["pendingTime"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
        return Identity(instance_id, pending)
    except (ImdsError, ValueError, KeyError, TypeError):
        return Identity(instance_id, None)
