"""Fixtures: a fleet that stands on an embedded AWS, for every folder of tests.

    def test_x(live: Deployed) -> None:              # a fresh copy of the deployed fleet, in milliseconds
        live.age_boxes(600); live.set_health("initial")
        live.set_alarm("ALARM", seconds_ago=60)       # EventBridge wakes the deployed function's own zip
        assert live.decisions()[-1]["result"]["action"] == ...
        assert live.percentage() == 0 and live.lever() == "0" and live.mails() == []
        live.aws.control("fault", service="ssm", action="PutParameter", code="ThrottlingException")
        live.wake(event)                              # invoke by hand: a command, a payload from tests/events

`live` is forked from `deployed`, for which one worker deploys the synthesized templates once a run: what a test does to
its copy stays there. A box's own calls: `live.aws.environment(role=live.role("group", "BoxRole"))`.

With REQUEST_LOGS set (`make test` does), `deployed` also writes down there what its roles may do: `tests.permissions`
compares that with the calls of the whole run.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet import localaws
from fleet.config import validation
from fleet.core import names
from fleet.localaws import Aws
from fleet.localaws import assembly as cloud_assembly
from fleet.localaws.admission import Keys
from fleet.localaws.deployed import Deployed, fill_store
from lambdas.watchdog.state import Mode, State
from tests.permissions import save_roles
from tests.synth import CDK_JSON


@contextmanager
def shared(folder: Path, furnish: Callable[[Aws], None], region: str = localaws.REGION) -> Iterator[Aws]:
    """This worker's copy of an AWS in `folder` that the first worker to ask starts and furnishes for all."""
    folder.mkdir(exist_ok=True)
    told = folder / "address.json"
    with (folder / "users").open("w") as users, (folder / "lock").open("w") as lock, ExitStack() as own:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(lock, fcntl.LOCK_EX)  # one copy at a time is made, and nothing else is ever asked of the original
        if told.exists():
            raw = json.loads(told.read_text())
            original = Aws(raw["endpoint"], folder, Keys(**raw["keys"]), region)
        else:
            original = own.enter_context(localaws.server(folder, region))
            own.callback(fcntl.flock, users, fcntl.LOCK_EX)  # with it end the copies of all
            furnish(original)
            told.write_text(json.dumps({"endpoint": original.endpoint, "keys": asdict(original.keys)}))
        with original.fork(folder / str(os.getpid())) as copy:
            fcntl.flock(lock, fcntl.LOCK_UN)
            yield copy


@pytest.fixture(scope="session")
def deployed(assembly: Path, run_folder: Path) -> Iterator[Deployed]:
    """The fleet on an embedded AWS, in service; for reading only."""
    settings = validation.load(CDK_JSON)

    def furnish(aws: Aws) -> None:
        fleet = Deployed(aws, settings)
        cloud_assembly.bootstrap(aws)
        for stack in cloud_assembly.stacks(assembly):
            if stack == names.stack(fleet.settings.fleet_name, "group"):
                fill_store(fleet)
            cloud_assembly.deploy(aws, assembly, stack)
        aws.control("settle")
        if folder := os.environ.get("REQUEST_LOGS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            save_roles(fleet, Path(folder))

    with shared(run_folder / "deployed", furnish, settings.region) as aws:
        yield Deployed(aws, settings)


@pytest.fixture
def live(deployed: Deployed, tmp_path: Path) -> Iterator[Deployed]:
    """A copy of the deployed fleet that the test may change as it likes."""
    with deployed.aws.fork(tmp_path / "aws") as copy:
        yield deployed.on(copy)


# --- scenes -----------------------------------------------------------------------------------------------------


def ago(seconds: float) -> datetime:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).replace(microsecond=0)


def act(live: Deployed, payload: dict[str, Any]) -> dict[str, Any]:
    """One invocation of the watchdog that must not fail; its record."""
    run = live.wake(payload)
    assert "error" not in run, run
    record: dict[str, Any] = run["result"]
    return record


def put(live: Deployed, parameter: str, value: str) -> None:
    live.aws.client("ssm").put_parameter(Name=parameter, Value=value, Type="String", Overwrite=True)


def put_state(live: Deployed, state: State) -> None:
    put(live, names.state_parameter(live.settings.fleet_name), state.dumps())


def long_failed_over(now: datetime) -> State:
    """The cooldown is over and one good score was seen: the next one re-arms."""
    past = now - timedelta(seconds=20000)
    scored_at = now - timedelta(seconds=1800)
    return State(Mode.FAILOVER, failovers=(past,), cooldown_from=past, streak=1, scored_at=scored_at)


def lose_the_last_box_in_a_drought(live: Deployed) -> None:
    """A group that has long served stands empty, nothing is sold, and the alarm fires."""
    live.market(spot=False)
    live.reclaim()
    live.age_group(86400)
    live.set_alarm("ALARM", seconds_ago=2)


def fail_over_long_ago(live: Deployed) -> None:
    """A box serves on-demand, and spot sells."""
    put_state(live, long_failed_over(ago(0)))
    put(live, names.lever_parameter(live.settings.fleet_name), "100")
    policy = live.group()["MixedInstancesPolicy"]["InstancesDistribution"]
    live.aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=live.group_name,
        MixedInstancesPolicy={"InstancesDistribution": {**policy, "OnDemandPercentageAboveBaseCapacity": 100}},
    )
    live.reclaim()
    live.age_boxes(4000)
    live.set_health("healthy")
