"""The server process: moto with our extensions on a free loopback port. `fleet.localaws.server` starts it.

It reads its keys from the first line of its standard input, prints its port, then lives until that input closes: when
the command that started it ends, however it ends, the server ends too.
"""

import functools
import gc
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from moto.core.routing import get_service_router
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

# Importing a module of ours is what extends moto; docs/embedded.md gives the reasons.
from fleet.localaws import (  # noqa: F401
    REGION,
    auto_scaling_calls,
    calls,
    capacity,
    cloudformation,
    control,
    credentials,
    custom_resources,
    deletions,
    event_bridge,
    lambdas,
    metrics,
    operator,
    tasks,
    updates,
)
from fleet.localaws.admission import Keys
from fleet.localaws.endpoint import Endpoint


class Handler(MotoRequestHandler):
    """Quiet: the request log says more than an access log."""

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Say nothing."""


MOTO = DomainDispatcherApplication(create_backend_app)  # of a process and its copies: it holds what they do not change
SERVICES = (  # by their names in a signature: what the fleet and its operator ask
    "autoscaling", "cloudformation", "ec2", "elasticloadbalancing", "events", "iam", "lambda", "logs", "monitoring",
    "s3", "sns", "ssm", "sts",
)  # fmt: skip


@functools.cache
def warm() -> None:
    """Load what each copy would otherwise load anew with its first request to a service: two seconds for EC2 alone."""
    for service in SERVICES:
        get_service_router(calls.MODELS.get(service, service))
        signature = f"AWS4-HMAC-SHA256 Credential=key/20260101/{REGION}/{service}/aws4_request,"
        MOTO.get_application({"HTTP_AUTHORIZATION": signature, "HTTP_HOST": "localhost"})


def listen(log_dir: Path) -> BaseWSGIServer:
    """A server on a port of the kernel's choice, so it is certainly ours."""
    log_dir.mkdir(parents=True, exist_ok=True)
    app = Endpoint(MOTO, log_dir / "requests.jsonl")
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    server.daemon_threads = True  # type: ignore[attr-defined]
    os.environ["MOTO_PORT"] = str(server.port)
    lambdas.configure(f"http://127.0.0.1:{server.port}", log_dir)
    return server


def end_with_input() -> None:
    """Exit when the starting process closes our standard input, or dies. Copies share the input and end too."""
    while os.read(0, 1):
        pass
    os._exit(0)


@control.verb
def fork(log_dir: str) -> int:
    """A copy of this AWS with everything in it, on a port of its own: what a test may change freely.

    Only while no other request is being served: a copied process has one thread, and locks of others stay shut.
    """
    warm()
    gc.freeze()  # a copy would copy what it holds, only to look through it
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        server = listen(Path(log_dir))
        os.write(write_end, str(server.port).encode())
        os.close(write_end)
        threading.Thread(target=end_with_input, daemon=True).start()
        server.serve_forever()
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        return int(answer.read())


@control.verb
def stop() -> None:
    """End this process once the answer is out."""
    threading.Timer(0.05, os._exit, [0]).start()


def main() -> None:
    """Serve until standard input closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # copies are not waited for
    os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = str(1 << 40)  # copies share an open file's place, not memory
    credentials.configure(Keys(**json.loads(sys.stdin.readline())))
    server = listen(Path(sys.argv[1]))
    print(server.port, flush=True)  # noqa: T201  (how the starting process learns the port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    end_with_input()


if __name__ == "__main__":
    main()
