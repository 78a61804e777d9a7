"""A request that is not taken: why, and how its caller is told in OpenAI's words. Pure."""

import json
from typing import Any, Optional


class Refusal(Exception):  # noqa: N818  an answer, not an error
    """No target is asked. `retry` tells an SDK whether trying again may help."""

    def __init__(
        self, status: int, message: str, code: str, retry_after_seconds: Optional[int] = None, *, retry: bool = False
    ) -> None:
        self.status, self.message, self.code = status, message, code
        self.headers = {"x-should-retry": "true" if retry else "false"}
        if retry_after_seconds is not None:
            self.headers["Retry-After"] = str(retry_after_seconds)
        super().__init__(message)


def error_body(message: str, code: str, status: int) -> dict[str, Any]:
    """OpenAI's error object."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def json_object(raw: bytes) -> dict[str, Any]:
    """What every body must be; raises Refusal."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refusal(400, "The body is not valid JSON", "invalid_json") from None
    if not isinstance(body, dict):
        raise Refusal(400, "The body must be a JSON object", "invalid_json")
    return body
