"""What several folders of tests share."""

import fcntl
import functools
import gc
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from botocore.loaders import JSONFileLoader

from tests import synth
from tests.embedded_fleet import deployed, live

__all__ = ["deployed", "live"]  # pytest finds them here

# They begin first, the longest of them before the others: at the end one worker would be left alone with it.
LONGEST = (
    *("test_running.py", "test_boot_faults.py", "test_cdk_cli.py", "test_commands.py", "test_streamed.py"),
    *("test_boot.py", "test_embedded.py", "test_demo.py", "test_deployed.py", "test_mutants.py"),
    *("test_standing_fleet.py", "test_cli.py", "test_game_day.py", "test_hostility.py"),
)

# Everything that a setting can switch on, at once: the other branch of each stack.
OTHER_SETTINGS = {
    "policy": "bridge",
    "fleet_name": "other",
    "ami_id": "ami-0a1b2c3d4e5f60718",
    "initial_mode": "on-demand-pinned",
    "ebs_key_arn": "arn:aws:kms:us-east-2:123456789012:key/0a1b2c3d-0000-0000-0000-000000000000",
    "mail": ["oncall@example.org", "owner@example.org"],
    "network": {
        "vpc_id": "vpc-0a1b2c3d",
        "subnet_ids": ["subnet-0a1b2c3d", "subnet-0a1b2c3e", "subnet-0a1b2c3f"],
        "route_table_ids": ["rtb-0a1b2c3d", "rtb-0a1b2c3e", "rtb-0a1b2c3f"],
        "callers": ["sg-0a1b2c3d", "203.0.113.0/24"],
        "allow_public": True,
    },
}

# A fleet with a gateway, and one whose gateway anybody may call.
GATEWAY_SETTINGS: dict[str, Any] = {
    "gateway": {
        "aliases": ["gpt"],
        "fallback": {
            "url": "https://cloud.example/v1",
            "model": "cloud-model",
            "key_secret": "llm/fallback",  # pragma: allowlist secret
        },
    }
}
SEVERAL_BOXES: dict[str, Any] = {**GATEWAY_SETTINGS, "capacity": {"min": 2, "max": 4}}
PUBLIC_GATEWAY: dict[str, Any] = {
    "network": {"callers": ["0.0.0.0/0"]},
    "gateway": {
        "public": True,
        "certificate_arn": "arn:aws:acm:us-east-2:123456789012:certificate/0a1b2c3d-0000-0000-0000-000000000000",
        "fallback": {
            "url": "https://bedrock-runtime.us-east-2.amazonaws.com/openai/v1",
            "model": "openai.gpt-oss-20b",
            "sign_as": "bedrock",
        },
    },
}


CHECKED = "not root and not slow"  # as the Makefile has it

# `make check` leaves out what stands on one of these, beside what is marked by itself.
MARKED = {"base": pytest.mark.root, "deployed": pytest.mark.slow, "other_assembly": pytest.mark.slow}


def pytest_configure(config: pytest.Config) -> None:
    """No test fails for a slow machine; what `make test` draws a hundred of, `make check` draws a quarter of."""
    drawn = 25 if config.option.markexpr == CHECKED else 100
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("any", max_examples=drawn, deadline=None, suppress_health_check=slow)
    hypothesis.settings.load_profile("any")
    gc.disable()  # while every file is loaded: what is loaded stays
    read = functools.cache(functools.partial(JSONFileLoader.load_file, JSONFileLoader()))
    JSONFileLoader.load_file = lambda _, path: read(path)  # each command's session would read AWS's services anew


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file whose head says that `make check` leaves it out is not even loaded by it: imports take seconds."""
    if collection_path.suffix == ".py" and config.option.markexpr == CHECKED:
        left_out = re.search(r"^pytestmark = pytest\.mark\.(root|slow)\b", collection_path.read_text(), re.MULTILINE)
        return bool(left_out) or None
    return None


def pytest_collection_finish() -> None:
    """No collection of garbage looks through what was loaded again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order in which `make test` deals out files, and what `make check` leaves out."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    for item in items:
        for fixture in MARKED.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(MARKED[fixture])


@pytest.fixture(scope="session", autouse=True)
def beside_the_frozen_settings() -> Iterator[None]:
    """Whatever reads `cdk.json` where it runs finds the tests' own: what an operator edits breaks no test."""
    before = Path.cwd()
    os.chdir(synth.CDK_JSON.parent)
    yield
    os.chdir(before)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def once_per_run(run_folder: Path) -> Callable[..., Path]:
    """A cloud assembly by name, synthesized by the first worker that asks, shared with all others."""

    def assembly(name: str, settings: dict[str, Any], how: Callable[..., Path] = synth.synth) -> Path:
        out = run_folder / f"synth-{name}"
        with (run_folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = out / "done"
            if not done.exists():
                how(out, settings)
                done.touch()
        return out / "cdk.out"

    return assembly


@pytest.fixture(scope="session")
def assembly(once_per_run: Callable[..., Path]) -> Path:
    """The cloud assembly of the tests' own cdk.json."""
    return once_per_run("default", {}, synth.in_process)


@pytest.fixture(scope="session")
def other_assembly(once_per_run: Callable[..., Path]) -> Path:
    """The cloud assembly of a fleet with every option the other way, as the CDK CLI has it made."""
    return once_per_run("other", OTHER_SETTINGS)


@pytest.fixture(scope="session")
def gateway_assembly(once_per_run: Callable[..., Path]) -> Path:
    """The cloud assembly of the tests' own cdk.json with a gateway."""
    return once_per_run("gateway", GATEWAY_SETTINGS, synth.in_process)


@pytest.fixture(scope="session")
def several_assembly(once_per_run: Callable[..., Path]) -> Path:
    """The same with two boxes, among which the gateway chooses."""
    return once_per_run("several", SEVERAL_BOXES, synth.in_process)
