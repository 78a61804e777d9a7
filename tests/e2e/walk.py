"""The newcomer's path: the README's "Try every command without an account", typed into two terminals as it stands."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from fleet import localaws
from fleet.localaws.admission import Keys
from tests.synth import CDK_JSON, ROOT

HEADING = "## Try every command without an account"
START_SECONDS = 120
OF_ITS_OWN = {".git", "out", "build", "cdk.json", "cdk.out"}  # what a checkout shares with no other


@dataclass(frozen=True)
class Typed:
    """One line as it went: what it said (both streams), its exit code, seconds by the wall clock."""

    line: str
    said: str
    code: int
    seconds: float


@contextmanager
def terminal(checkout: Path, environment: Mapping[str, str] | None = None) -> Iterator[Callable[[str], Typed]]:
    """A shell of somebody who has set nothing up: a function that types one line and returns when it has ended."""
    clean = {name: value for name, value in os.environ.items() if not re.match("AWS_|CDK_|PYTHON", name)}
    clean["PATH"] = ":".join(part for part in clean["PATH"].split(":") if not Path(part).is_relative_to(ROOT))
    shell = subprocess.Popen(
        ["bash"],
        cwd=checkout,
        env={**clean, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def enter(line: str) -> Typed:
        assert shell.stdin
        assert shell.stdout
        began, said = time.monotonic(), []
        shell.stdin.write(f"{{\n{line}\n}} </dev/null; printf '\\n:: %s\\n' $?\n")
        shell.stdin.flush()
        for told in shell.stdout:
            if told.startswith(":: "):
                return Typed(line, "".join(said), int(told[3:]), time.monotonic() - began)
            said.append(told)
        raise AssertionError(f"the shell ended with {line}:\n{''.join(said)}")

    try:
        yield enter
    finally:
        shell.communicate()


def lines(checkout: Path = ROOT) -> tuple[str, list[str]]:
    """What the two terminals are given: one line, and many."""
    section = (checkout / "README.md").read_text().split(HEADING)[1].split("\n## ")[0]
    first, second = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return first.strip(), second.splitlines()


def tell(out: Path, typed: list[Typed], load: float, **more: object) -> None:
    """The lines with their seconds, as JSON and on the screen; `load`: the machine's, before."""
    rows = [{**asdict(line), "seconds": round(line.seconds, 1), "said": line.said[-2000:]} for line in typed]
    told = {"load_average_before": round(load, 1), "cores": os.cpu_count(), "lines": rows, **more}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    for line in typed:
        click.echo(f"{line.seconds:6.1f} s  {line.code}  {line.line}")
    total = sum(line.seconds for line in typed)
    click.echo(f"{total:6.0f} s  {len(typed)} lines, two terminals; load average before {load:.1f}")


def linked(folder: Path) -> Path:
    """This checkout by links, set up, with the settings it was published with and nothing that was made in it."""
    folder.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in OF_ITS_OWN:
            (folder / entry.name).symlink_to(entry)
    (folder / "cdk.json").write_text(CDK_JSON.read_text().replace("../", ""))
    return folder


@contextmanager
def cloud(checkout: Path) -> Iterator[localaws.Aws]:
    """The first terminal, from the moment when the second may begin."""
    log, exported = checkout / "cloud.log", checkout / "out" / "cloud" / "env"
    with log.open("w") as said:
        process = subprocess.Popen(["bash", "-c", f"exec {lines()[0]}"], cwd=checkout, stdout=said, stderr=said)
    try:
        until = time.monotonic() + START_SECONDS
        while not exported.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        told = dict(re.findall(r"^export (\w+)='(.*)'$", exported.read_text(), re.MULTILINE))
        keys = Keys(told["AWS_ACCESS_KEY_ID"], told["AWS_SECRET_ACCESS_KEY"])
        aws = localaws.Aws(told["AWS_ENDPOINT_URL"], exported.parent / "aws", keys, told["AWS_REGION"])
        yield aws
        aws.check()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
