"""The embedded AWS: moto with our extensions, as a server process that lives as long as the command that needs it.

    with embedded.server(log_dir) as aws:
        subprocess.run(["cdk", "deploy", ...], env={**os.environ, **aws.environment()})
        aws.client("autoscaling").describe_auto_scaling_groups()
        aws.client("ssm", role="my-fleet-watchdog")      # the same, with the role's own access key
        aws.control("fault", service="ssm", action="PutParameter", code="ThrottlingException")

It answers "do template, permissions, zip and CLI work?". What happens over time is the simulated cloud's business
(`fleet.sim`). A request that ended in a 500 fails the `with` block: moto may report success all the same.
`docs/embedded.md` lists what moto gets wrong and what was done about it.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import boto3

from fleet.localaws.admission import TOKEN_HEADER, Keys

REGION = "us-east-2"
ACCOUNT = "123456789012"


class EmbeddedError(Exception):
    """The embedded AWS did not start, was asked wrongly, or answered a request with a 500."""


@dataclass(frozen=True)
class Aws:
    """A running embedded AWS, as its users see it."""

    endpoint: str
    log_dir: Path
    keys: Keys
    region: str = REGION

    def environment(self, role: str | None = None) -> dict[str, str]:
        """AWS variables for a subprocess: the operator's, or a role's (its name or ARN)."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            # CloudFormation's own reading of templates goes by S3's public address, which moto needs to see.
            "AWS_ENDPOINT_URL_S3_FOR_CLOUDFORMATION": f"https://s3.{self.region}.amazonaws.com",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            **self._keys(role),
        }

    def client(self, service: str, role: str | None = None) -> Any:
        """A boto3 client: the operator's, or a role's."""
        keys = self._keys(role)
        return boto3.client(
            service,
            region_name=self.region,
            endpoint_url=self.endpoint,
            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=keys.get("AWS_SESSION_TOKEN"),
        )

    def control(self, verb: str, **arguments: Any) -> Any:
        """Turn one of the embedded AWS's own switches; raises EmbeddedError where it was asked wrongly."""
        body = json.dumps(arguments).encode()
        token = {TOKEN_HEADER: self.keys.secret}
        request = urllib.request.Request(f"{self.endpoint}/embedded/{verb}", body, token, method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(request) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise EmbeddedError(f"{verb}: {error.read().decode()}") from None

    def requests(self) -> list[dict[str, Any]]:
        """The request log so far (see `gateway`)."""
        return _lines(self.log_dir / "requests.jsonl")

    def invocations(self) -> list[dict[str, Any]]:
        """The functions' runs so far (see `lambdas`)."""
        return _lines(self.log_dir / "invocations.jsonl")

    @contextmanager
    def fork(self, log_dir: Path) -> Iterator["Aws"]:
        """A copy with everything that is in this AWS now, in a few milliseconds; what happens to it stays in it."""
        _clear(log_dir)
        port = self.control("fork", log_dir=str(log_dir))
        copy = Aws(f"http://127.0.0.1:{port}", log_dir, self.keys, self.region)
        try:
            yield copy
        finally:
            with suppress(ConnectionError):  # it may be gone before its answer is out
                copy.control("stop")
            copy._collect()
        copy.check()

    def check(self) -> None:
        """Raise EmbeddedError where a request ended in a 500."""
        broken = [line for line in self.requests() if line["status"] >= 500]
        if broken:
            calls = ", ".join(sorted({f"{line['service']}:{line['action']}" for line in broken}))
            raise EmbeddedError(f"{len(broken)} requests ended in a 500: {calls}\n{broken[0]['error'][-1500:]}")

    def _collect(self) -> None:
        """Keep the request log in the folder REQUEST_LOGS, if that is set: `make test` checks permissions over all."""
        if folder := os.environ.get("REQUEST_LOGS"):
            target = Path(folder, f"{uuid.uuid4().hex}.jsonl")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.log_dir / "requests.jsonl", target)

    def _keys(self, role: str | None) -> dict[str, str]:
        if role is None:
            return {"AWS_ACCESS_KEY_ID": self.keys.id, "AWS_SECRET_ACCESS_KEY": self.keys.secret}
        of_role: dict[str, str] = self.control("keys", role=role, region=self.region)
        return of_role


@contextmanager
def server(log_dir: Path, region: str = REGION) -> Iterator[Aws]:
    """Run an embedded AWS. It ends with the block, and with this process however that ends."""
    _clear(log_dir)
    keys = Keys()
    with (log_dir / "server.log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603  (our own server)
            [sys.executable, "-m", "fleet.localaws.serve", str(log_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=Path(__file__).parents[2],
        )
    with process:
        if process.stdin:  # not an argument, not a variable: neither `ps` nor a child of the server shows them
            process.stdin.write(json.dumps(asdict(keys)) + "\n")
            process.stdin.flush()
        port = process.stdout.readline().strip() if process.stdout else ""
        if not port:
            raise EmbeddedError(f"did not start:\n{(log_dir / 'server.log').read_text()[-2000:]}")
        aws = Aws(f"http://127.0.0.1:{port}", log_dir, keys, region)
        try:
            yield aws
        finally:
            if process.stdin:
                process.stdin.close()
            process.wait(timeout=10)
            aws._collect()
    aws.check()


def _clear(log_dir: Path) -> None:
    log_dir.mkdir(parents=True, exist_ok=True)
    log_dir.chmod(0o700)  # functions log what they like
    for old in ("requests.jsonl", "invocations.jsonl"):
        (log_dir / old).write_text("")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
