"""The Lambda runtime in small: runs a function's own zip in a process of its own. Started by `lambdas`, by path.

Reads the event from the first line of standard input and ends when the input closes, so that it cannot outlive the
server. Writes the answer to the file named by its only argument. Only what Lambda itself ships may come from outside
the zip; anything else fails the invocation, as it would there.
"""

import gc
import importlib
import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

# certifi: botocore uses it where it is installed, and its own bundle in Lambda.
SHIPPED_BY_LAMBDA = {"boto3", "botocore", "s3transfer", "urllib3", "dateutil", "jmespath", "six", "certifi"}
# Loaded by Python's own start-up from a virtual environment, not by the function.
VENV_START_UP = {"_virtualenv", "distutils-precedence", "__editable___spot_gpu_fleet_0_1_0_finder", "_distutils_hack"}


class Context:
    """What the watchdog's handler asks about its invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds; the whole timeout, since the starting process enforces it."""
        return int(os.environ["AWS_LAMBDA_FUNCTION_TIMEOUT"]) * 1000


def foreign_modules() -> list[str]:
    """Packages that the function imported from this machine, though Lambda would not have them."""
    names = {
        name.split(".")[0]
        for name, module in sys.modules.items()
        if "site-packages" in (getattr(module, "__file__", None) or "")
    }
    return sorted(names - SHIPPED_BY_LAMBDA - VENV_START_UP)


def main() -> None:
    """Run the handler once."""
    gc.disable()  # a fifth of a run went into looking through what botocore had loaded
    event = json.loads(sys.stdin.readline())
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    sys.path[0] = os.environ["LAMBDA_TASK_ROOT"]
    module, function = os.environ["_HANDLER"].rsplit(".", 1)
    answer: dict[str, Any]
    try:
        answer = {"result": getattr(importlib.import_module(module), function)(event, Context())}
        if missing := foreign_modules():
            answer = {"error": {"errorType": "ImportError", "errorMessage": f"not in the zip: {', '.join(missing)}"}}
    except Exception as error:
        traceback.print_exc()
        answer = {"error": {"errorType": type(error).__name__, "errorMessage": str(error)}}
    Path(sys.argv[1]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
