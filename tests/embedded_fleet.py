"""Fixtures: a fleet that stands on an embedded AWS, for every folder of tests.

    def test_x(live: Deployed) -> None:              # a fresh copy of the deployed fleet, in milliseconds
        live.age_boxes(600); live.set_health("initial")
        live.set_alarm("ALARM", seconds_ago=60)       # EventBridge wakes the deployed function's own zip
        assert live.decisions()[-1]["result"]["action"] == ...
        assert live.percentage() == 0 and live.lever() == "0" and live.mails() == []
        live.aws.control("fault", service="ssm", action="PutParameter", code="ThrottlingException")
        live.wake(event)                              # invoke by hand: a command, a payload from tests/events

`live` is forked from `deployed`, which deploys the synthesized templates once a session: what a test does to its copy
stays there. A box's own calls: `live.aws.environment(role=live.role("group", "BoxRole"))`. All tests that use these
fixtures run in one worker (the hook below puts them into one group), or each worker would deploy its own.

With REQUEST_LOGS set (`make test` does), every copy's request log stays below that folder for the permission check.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet import embedded, names, validation
from fleet.embedded import assembly as cloud_assembly
from fleet.embedded.deployed import Deployed, fill_store

ON_EMBEDDED = {"deployed", "live"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker for everything that stands on the deployed fleet."""
    for item in items:
        if ON_EMBEDDED & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("embedded"))


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where request logs go."""
    wanted = os.environ.get("REQUEST_LOGS")
    return Path(wanted).absolute() if wanted else tmp_path_factory.mktemp("requests")


@pytest.fixture(scope="session")
def deployed(assembly: Path, logs: Path) -> Iterator[Deployed]:
    """The fleet on an embedded AWS, in service; for reading only."""
    with embedded.server(logs / "deployed") as aws:
        fleet = Deployed(aws, validation.load())
        cloud_assembly.bootstrap(aws)
        for stack in cloud_assembly.stacks(assembly):
            if stack == names.stack(fleet.settings.fleet_name, "group"):
                fill_store(fleet)
            cloud_assembly.deploy(aws, assembly, stack)
        aws.control("settle")
        yield fleet


@pytest.fixture
def live(deployed: Deployed, logs: Path, request: pytest.FixtureRequest) -> Iterator[Deployed]:
    """A copy of the deployed fleet that the test may change as it likes."""
    name = re.sub(r"[^\w.-]+", "-", request.node.nodeid)[-120:]
    with deployed.aws.fork(logs / name) as copy:
        yield deployed.on(copy)
