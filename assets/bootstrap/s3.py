"""Reads from the model store over plain HTTP requests, signed with the box's role: no CLI start-up on the serving path.

StoreError      the store does not answer as it should; worth another try
  GoneError     no such object, or no longer the version that was asked for
"""

import hashlib
import hmac
import http.client
import os
import ssl
import threading
import time
import urllib.parse
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Optional

import names
from imds import Imds, ImdsError, parsed

TIMEOUT_SECONDS = 10.0  # without a byte
PATIENCE_SECONDS = 90.0  # for a small object: metadata, which has the credentials, may be away for a minute
PAUSE_SECONDS = 0.5
RENEW_BEFORE = timedelta(minutes=5)  # role credentials are replaced by then


class StoreError(Exception):
    """The store did not answer as it should."""


class GoneError(StoreError):
    """The object, or the version asked for, is not there."""


@dataclass(frozen=True)
class Object:
    """What the store knows of one object."""

    etag: str
    size: int
    sha256: str = ""  # of what `fleetctl publish` wrote


@dataclass(frozen=True)
class Credentials:
    """The role's credentials. Never printed."""

    key_id: str
    secret: str
    token: str
    expires_at: datetime

    def __repr__(self) -> str:
        return "Credentials(...)"


class Bucket:
    """One bucket. Safe to share between threads; every thread brings its own connection."""

    def __init__(self, name: str, region: str, imds: Imds) -> None:
        self._region, self._imds = region, imds
        self._lock = threading.Lock()
        self._credentials: Optional[Credentials] = None
        # The SDKs' own variables for another endpoint; addressed by path there, by host name at AWS.
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        url = urllib.parse.urlsplit(endpoint or f"https://{name}.s3.{region}.amazonaws.com")
        self._host, self._tls = url.netloc, ssl.create_default_context() if url.scheme == "https" else None
        self._root = f"/{name}/" if endpoint else "/"

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the store; raises OSError only when used."""
        if self._tls:
            return http.client.HTTPSConnection(self._host, timeout=TIMEOUT_SECONDS, context=self._tls)
        return http.client.HTTPConnection(self._host, timeout=TIMEOUT_SECONDS)

    def ask(
        self, connection: http.client.HTTPConnection, method: str, key: str, extra: Optional[dict[str, str]] = None
    ) -> http.client.HTTPResponse:
        """One signed request, its body still to be read. Raises StoreError with the status, never with the request."""
        path = urllib.parse.quote(self._root + key)
        try:
            signed = sign(method, self._host, path, self._region, self._current(), datetime.now(timezone.utc))
            connection.request(method, path, headers={**signed, **(extra or {})})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException, ImdsError) as error:
            raise StoreError(f"{key}: {error or type(error).__name__}") from None
        if response.status in (404, 412, 416):
            raise GoneError(f"{key}: {response.status} {response.reason}")
        if response.status not in (200, 206):
            raise StoreError(f"{key}: {response.status} {response.reason}")
        return response

    def head(self, key: str) -> Object:
        """ETag and size; raises GoneError where there is none, StoreError after some patience."""
        response, _ = self._whole("HEAD", key)
        sha256 = response.headers.get(f"x-amz-meta-{names.METADATA_SHA256}", "")
        return Object(response.headers["ETag"], int(response.headers["Content-Length"]), sha256)

    def read(self, key: str) -> bytes:
        """A small object, whole; raises as `head` does."""
        return self._whole("GET", key)[1]

    def _whole(self, method: str, key: str) -> tuple[http.client.HTTPResponse, bytes]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            connection = self.connect()
            try:
                response = self.ask(connection, method, key)
                return response, response.read()
            except GoneError:
                raise
            except (StoreError, OSError, http.client.HTTPException) as error:
                if time.monotonic() > deadline:
                    raise StoreError(str(error) or f"{key}: {type(error).__name__}") from None
                time.sleep(PAUSE_SECONDS)
            finally:
                connection.close()

    def _current(self) -> Credentials:
        with self._lock:
            known = self._credentials
            if known is None or datetime.now(timezone.utc) > known.expires_at - RENEW_BEFORE:
                known = self._credentials = role_credentials(self._imds)
            return known


def role_credentials(imds: Imds) -> Credentials:
    """The instance role's credentials; raises ImdsError."""
    root = "meta-data/iam/security-credentials/"
    role = imds.get(root)
    answer = imds.get(root + role.split()[0]) if role and role.split() else None
    try:
        raw = parsed(answer or "{}")
        expires = datetime.strptime(raw["Expiration"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
        return Credentials(raw["AccessKeyId"], raw["SecretAccessKey"], raw["Token"], expires)
    except (ValueError, KeyError):
        raise ImdsError("metadata has no role credentials") from None


def sign(method: str, host: str, path: str, region: str, credentials: Credentials, now: datetime) -> dict[str, str]:
    """Headers of AWS signature version 4 for a request without body or query; `path` is quoted."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {
        "host": host,
        "x-amz-content-sha256": "UNSIGNED-PAYLOAD",
        "x-amz-date": stamp,
    }
    if credentials.token:  # a role's always has one
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(headers)
    canonical = "\n".join([method, path, "", *(f"{k}:{v}" for k, v in headers.items()), "", names, "UNSIGNED-PAYLOAD"])
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{credentials.secret}".encode()
    for part in (stamp[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"Credential={credentials.key_id}/{scope}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"
    return headers
