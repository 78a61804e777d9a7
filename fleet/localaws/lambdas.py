"""Lambda without containers: an invocation runs the deployed zip in a subprocess with its role's credentials.

moto would ask a Docker engine. Every invocation leaves a line in `invocations.jsonl`: function, event, result or
error, what it logged, seconds.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.awslambda.models import LambdaFunction

from fleet.localaws import control, credentials
from fleet.localaws.patching import extend

RUNTIME = Path(__file__).with_name("runtime.py")

_endpoint = ""
_log_dir = Path()
_zips = Path()
_write_lock = threading.Lock()
_one_at_a_time: dict[str, threading.Lock] = defaultdict(threading.Lock)
_background: list[threading.Thread] = []


def configure(endpoint: str, log_dir: Path) -> None:
    """Where functions find this AWS, and where their invocations are recorded."""
    global _endpoint, _log_dir, _zips
    _endpoint, _log_dir = endpoint, log_dir
    if not _zips.name:
        _zips = log_dir / "zips"  # copies run what their original unpacked


def log_dir() -> Path:
    """Where this AWS keeps its logs."""
    return _log_dir


@extend(LambdaFunction, "_invoke_lambda")
def _invoke_lambda(_original: Any, function: LambdaFunction, event: Any = None) -> tuple[str, bool, str]:
    """Answer, whether it is an error, and the log: what moto makes an Invoke response of."""
    text = event if isinstance(event, str) else json.dumps(event or {})
    if function.reserved_concurrency == 1:
        with _one_at_a_time[function.function_arn]:
            answer, log = _run(function, text)
    else:
        answer, log = _run(function, text)
    if function.logs_group_name in function.logs_backend.groups:
        function.save_logs(log)
    error = answer.get("error")
    return json.dumps(error or answer.get("result")), error is not None, log


@extend(LambdaFunction, "create_from_cloudformation_json")
def create(original: Any, cls: Any, name: str, template: Any, account: str, region: str, **kwargs: Any) -> Any:
    """A function that logs to the group its template names; moto knows no LoggingConfig."""
    function = original(cls, name, template, account, region, **kwargs)
    wanted = template["Properties"].get("LoggingConfig", {}).get("LogGroup")
    function.logs_group_name = wanted or function.logs_group_name
    return function


def _run(function: LambdaFunction, event: str) -> tuple[dict[str, Any], str]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lambda-") as scratch:
        answer_file, log_file = Path(scratch, "answer.json"), Path(scratch, "log")
        with log_file.open("w") as log:
            process = subprocess.Popen(  # noqa: S603  (our own runtime)
                [sys.executable, str(RUNTIME), str(answer_file)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(function),
                text=True,
            )
            if process.stdin is None:
                raise RuntimeError("subprocess without the standard input that was asked for")
            process.stdin.write(event.replace("\n", " ") + "\n")
            process.stdin.flush()
            try:
                process.wait(timeout=int(function.timeout))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                answer_file.write_text(json.dumps({"error": {"errorMessage": f"timed out after {function.timeout} s"}}))
            process.stdin.close()
        text = log_file.read_text()
        answer: dict[str, Any] = (
            json.loads(answer_file.read_text())
            if answer_file.exists()
            else {"error": {"errorType": "Runtime.ExitError", "errorMessage": f"exit {process.returncode}"}}
        )
    record = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "function": function.function_name,
        "event": json.loads(event),
        **answer,
        "log": text.splitlines(),
        "seconds": round(time.monotonic() - started, 2),
    }
    with _write_lock, (_log_dir / "invocations.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    return answer, text


def _environment(function: LambdaFunction) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "_HANDLER": str(function.handler).replace("/", "."),
        "LAMBDA_TASK_ROOT": str(_unpacked(function)),
        "AWS_LAMBDA_FUNCTION_NAME": function.function_name,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_size),
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(function.timeout),
        "AWS_REGION": function.region,
        "AWS_DEFAULT_REGION": function.region,
        "AWS_ENDPOINT_URL": _endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        **credentials.role_keys(function.role, function.region),
        **(function.environment_vars or {}),
    }


def _unpacked(function: LambdaFunction) -> Path:
    """The zip's folder, unpacked once per version of the code."""
    folder = _zips / hashlib.sha256(function.code_bytes).hexdigest()[:16]
    with _write_lock:
        if not folder.exists():
            _zips.mkdir(exist_ok=True)
            partial = Path(tempfile.mkdtemp(dir=_zips))
            zipfile.ZipFile(io.BytesIO(function.code_bytes)).extractall(partial)
            with suppress(OSError):  # another copy was faster
                partial.rename(folder)
    return folder


def in_background(work: Callable[[], Any]) -> None:
    """Run an asynchronous invocation, as EventBridge and SNS do; `settle` waits for it."""
    thread = threading.Thread(target=work, daemon=True)
    _background.append(thread)
    thread.start()


@control.verb
def settle() -> None:
    """Return once no asynchronous invocation is running."""
    while _background:
        _background.pop().join()
