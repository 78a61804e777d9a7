"""The operator's access to AWS: clients made on demand, every call counted by name, every failure explained once."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from fleet.account.aws_errors import MissingError, explain
from fleet.core import names

# An operator waits for the answer: four tries, and a dead endpoint is told within half a minute.
_CONFIG = Config(connect_timeout=5, read_timeout=25, retries={"mode": "standard", "max_attempts": 4})
# An invocation runs on when its caller hangs up: wait for its end, and never send it twice unasked.
_INVOKE = Config(connect_timeout=5, read_timeout=names.WATCHDOG_TIMEOUT_SECONDS + 15, retries={"total_max_attempts": 1})


class Aws:
    """AWS in one region, seen with the credentials of whoever runs the command."""

    def __init__(self, region: str, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: AWS variables to use instead of the process's own (an embedded AWS beside a real profile)."""
        self.region = region
        self._environment = dict(environment or {})
        self._lock = threading.Lock()
        self._session: boto3.Session | None = None
        self._clients: dict[tuple[str, Config], Any] = {}

    def client(self, service: str, operation: str = "") -> Any:
        """The boto3 client, with the patience that this operation asks for."""
        config = _INVOKE if operation == "Invoke" else _CONFIG
        with self._lock:  # making clients is not thread-safe; using them is
            try:
                self._session = self._session or self._sign_in()
                if (service, config) not in self._clients:
                    endpoint = self._environment.get("AWS_ENDPOINT_URL")
                    self._clients[service, config] = self._session.client(service, config=config, endpoint_url=endpoint)
            except (BotoCoreError, ValueError) as error:
                raise explain(error, service=service, operation="session") from None
            return self._clients[service, config]

    def _sign_in(self) -> boto3.Session:
        return boto3.Session(
            profile_name=self._environment.get("AWS_PROFILE"),
            aws_access_key_id=self._environment.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=self._environment.get("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=self._environment.get("AWS_SESSION_TOKEN"),
            region_name=self.region,
        )

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        """One API call by its own name (`DescribeAlarms`); raises an `OperatorError`."""
        client = self.client(service, operation)
        try:
            answer: dict[str, Any] = getattr(client, xform_name(operation))(**arguments)
        except (BotoCoreError, ClientError) as error:
            raise explain(error, service=service, operation=operation) from None
        return answer

    def find(self, service: str, operation: str, **arguments: Any) -> dict[str, Any] | None:
        """The same; None where what it asks for does not exist."""
        try:
            return self.call(service, operation, **arguments)
        except MissingError:
            return None

    def pages(self, service: str, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Every page of one read."""
        client = self.client(service)
        try:
            yield from client.get_paginator(xform_name(operation)).paginate(**arguments)
        except (BotoCoreError, ClientError) as error:
            raise explain(error, service=service, operation=operation) from None

    def items(self, service: str, operation: str, key: str, **arguments: Any) -> Iterator[Any]:
        """Every item under `key`, over all pages of one read."""
        for page in self.pages(service, operation, **arguments):
            yield from page.get(key, [])

    def together(self, *reads: Any) -> list[Any]:
        """Run independent reads (functions without arguments) at the same time; in order, first failure raised."""
        with ThreadPoolExecutor(max_workers=len(reads) or 1) as pool:
            return [future.result() for future in [pool.submit(read) for read in reads]]


def stack_output(aws: Aws, fleet: str, stack: str, key: str) -> str:
    """What one of the fleet's stacks says under that name; raises MissingError while it says nothing."""
    name = names.stack(fleet, stack)
    found = aws.call("cloudformation", "DescribeStacks", StackName=name)["Stacks"][0]
    for output in found.get("Outputs", ()):
        if output["OutputKey"] == key:
            return str(output["OutputValue"])
    raise MissingError(
        f"{name} is {found['StackStatus']}: it has no {key} yet",
        "wait while it is IN_PROGRESS; else read its events, then `make deploy`, which deletes what is left of it",
    )
