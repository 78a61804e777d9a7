"""The endpoint of the embedded AWS: names every request, answers what moto lacks, writes the request log.

One JSON line a request: at, principal ("operator", "cloudformation" or a role's name), service, action, resources,
status, and error where the answer is one. The log is what the permission check reads.
"""

import json
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.core.exceptions import ServiceException

from fleet.localaws import admission, control, credentials, owners
from fleet.localaws.calls import Call, parse
from fleet.localaws.denials import denied
from fleet.localaws.missing import OPERATIONS, ApiError, Operation

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]
Answer = tuple[str, list[tuple[str, str]], bytes]  # status line, headers, body
UNKNOWN_KEY = ApiError("InvalidClientTokenId", "The security token included in the request is invalid.")
CROSS_ORIGIN = "access-control-"  # moto would let every page read every answer


class Endpoint:
    """The WSGI application around moto's."""

    def __init__(self, moto: Wsgi, log: Path) -> None:
        self._moto = moto
        self._log = log
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if not admission.is_local(environ):
            return control.answer(start_response, "403 FORBIDDEN", "Host and Origin must be loopback's")
        if environ["PATH_INFO"].startswith(control.PREFIX):
            return control.respond(environ, start_response)
        call = parse(environ)
        if call is None:
            return control.answer(start_response, "403 FORBIDDEN", "not signed")
        who, resources = credentials.principal(call), call.resources()
        status, headers, body = self._answer(call, environ, resources) if who else _own_answer(call, UNKNOWN_KEY)
        self._write(who, call, resources, status, body)
        start_response(status, [(name, value) for name, value in headers if not name.lower().startswith(CROSS_ORIGIN)])
        return [body]

    def _answer(self, call: Call, environ: dict[str, Any], resources: dict[str, Any]) -> Answer:
        try:
            resources |= owners.facts(call)  # before the answer, which may end what it names
            fault = control.take_fault(call) or denied(call)
            function = OPERATIONS.get((call.service, call.operation))
            if fault is None and function is None:
                # moto copies every table for a transaction, and closes an object that another write replaces: whoever
                # writes meanwhile breaks the one, whoever answers for it the other
                with self._writing if call.service == "dynamodb" or call.operation == "PutObject" else nullcontext():
                    return self._ask_moto(environ)
            return _own_answer(call, fault or function)
        except Exception:
            traceback.print_exc()  # the server's log; the status fails the run
            return "500 INTERNAL SERVER ERROR", [("Content-Type", "text/plain")], traceback.format_exc().encode()

    def _ask_moto(self, environ: dict[str, Any]) -> Answer:
        answer: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], _error: Any = None) -> None:
            answer.extend((status, headers))

        chunks = self._moto(environ, start_response)
        try:
            body = b"".join(chunks)
        finally:
            getattr(chunks, "close", lambda: None)()
        return answer[0], answer[1], body

    def _write(self, who: str | None, call: Call, resources: dict[str, Any], status: str, body: bytes) -> None:
        line: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "principal": who or "unknown key",
            "service": call.service,
            "action": call.operation,
            "resources": resources,
            "status": int(status.split()[0]),
        }
        if line["status"] >= 400:
            line["error"] = body[-3000:].decode(errors="replace")
        with self._lock, self._log.open("a") as log:
            log.write(json.dumps(line) + "\n")


def _own_answer(call: Call, source: ApiError | Operation | None) -> Answer:
    """A planned fault's answer, or that of an operation of ours."""
    try:
        result: Any = source(call) if callable(source) else source
    except ServiceException as error:
        result = error
    code, headers, body = call.answer(result)
    headers["Content-Length"] = str(len(body))
    return f"{code} {'OK' if code < 400 else 'ERROR'}", list(headers.items()), body
