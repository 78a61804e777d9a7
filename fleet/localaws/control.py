"""The embedded AWS's own switches, for tests and the demo: `POST /embedded/<verb>`, the run's token, a JSON object.

Other modules register verbs; those here concern the server itself. A verb that raises ValueError or KeyError was asked
wrongly (400); the client raises what it says.
"""

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

from fleet.localaws import credentials
from fleet.localaws.calls import Call
from fleet.localaws.missing import ApiError

PREFIX = "/embedded/"
RESPOND = "respond"  # for a function of a custom resource, which knows an address that nobody can guess

VERBS: dict[str, Callable[..., Any]] = {}
_faults: list[dict[str, Any]] = []
_fault_lock = threading.Lock()


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a switch under the function's name; the JSON object becomes its keyword arguments."""
    VERBS[function.__name__] = function
    return function


def respond(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer one control request."""
    name = environ["PATH_INFO"].removeprefix(PREFIX)
    if not credentials.operator.turns(environ) and name != RESPOND:
        return answer(start_response, "403 FORBIDDEN", "only by POST, and with the token of this run")
    try:
        arguments = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) or b"{}")
        if name not in VERBS:
            raise ValueError(f"no such verb: {name}")
        status, result = "200 OK", VERBS[name](**arguments)
    except (ValueError, KeyError, TypeError) as error:
        status, result = "400 BAD REQUEST", f"{type(error).__name__}: {error}"
    return answer(start_response, status, result)


def answer(start_response: Any, status: str, result: Any) -> Iterable[bytes]:
    """One answer in JSON."""
    body = json.dumps(result, default=str).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


@verb
def keys(role: str, region: str) -> dict[str, str]:
    """Credentials of a role."""
    return credentials.role_keys(role, region)


@verb
def fault(service: str, action: str, code: str, message: str = "injected", times: int = 1) -> None:
    """The next `times` calls of an action fail with `code`; times=-1 until `clear_faults`."""
    with _fault_lock:
        _faults.append({"service": service, "action": action, "code": code, "message": message, "times": times})


@verb
def clear_faults() -> None:
    """Forget every fault."""
    with _fault_lock:
        _faults.clear()


def take_fault(call: Call) -> ApiError | None:
    """The error that this call is to fail with, if any; counted down."""
    with _fault_lock:
        for planned in _faults:
            if (planned["service"], planned["action"]) == (call.service, call.operation) and planned["times"]:
                planned["times"] -= 1
                return ApiError(planned["code"], planned["message"])
    return None
