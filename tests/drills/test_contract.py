"""What a flip writes is the same in the simulated and in the embedded cloud: one drought, one failover, both clouds."""

import json
from datetime import timedelta
from typing import Any

from fleet.drills.cloud import SimulatedCloud
from fleet.embedded.deployed import Deployed
from fleet.events import Event
from lambdas.watchdog.handler import run
from lambdas.watchdog.state import Mode, State
from tests.drills.by_hand import START, exact, market

MOMENTS = {"failovers", "cooldown_from", "since"}  # each cloud has its own clock

JUST_AFTER_THE_ALARM = 7260 + 12 * 60 + 300 + 3  # the notice at 2 h, whole periods, the lag, the event's way


def written_by_simulated_cloud(live: Deployed) -> dict[str, Any]:
    """A group that has long served loses its box; two hours later nothing is sold and the alarm is lit."""
    log: list[Event] = []
    settings = live.settings
    cloud = SimulatedCloud(
        market((7200, 0), hours=3),
        settings=settings,
        behaviour=exact(),
        emit=log.append,
        serving="spot",
        state=State(Mode.ARMED).dumps(),
        scans_from=START + 86400,
    )
    cloud.watch(lambda payload, now: run(payload, cloud=cloud, settings=settings, now=now))
    cloud.autoscaling.created_at -= timedelta(days=1).total_seconds()
    cloud.run(until=START + JUST_AFTER_THE_ALARM)
    state, lever = cloud.parameters()
    return writes(cloud.group().policy, state, lever, [e.fields["subject"] for e in log if e.kind == "mail"])


def written_by_embedded_cloud(live: Deployed) -> dict[str, Any]:
    live.market(spot=False)
    live.reclaim()
    live.age_group(86400)
    live.set_alarm("ALARM", seconds_ago=2)
    (decision,) = live.decisions()
    assert "error" not in decision, decision
    policy = live.group()["MixedInstancesPolicy"]
    return writes(policy, live.state(), live.lever(), [mail["subject"] for mail in live.mails()])


def writes(policy: dict[str, Any], state: Any, lever: str | None, mails: list[str]) -> dict[str, Any]:
    """Everything that a flip leaves behind, less the moments."""
    raw = json.loads(state) if isinstance(state, str) else state
    raw.pop("evidence", None)  # of the notice before it, which the embedded cloud sends nobody
    return {
        "distribution": policy["InstancesDistribution"],
        "overrides": [override["InstanceType"] for override in policy["LaunchTemplate"]["Overrides"]],
        "template keys": sorted(policy["LaunchTemplate"]["LaunchTemplateSpecification"]),
        "state": {key: value for key, value in raw.items() if key not in MOMENTS},
        "state keys": sorted(raw),
        "lever": lever,
        "mails": mails,
    }


def test_a_flip_writes_the_same_in_the_simulated_and_the_embedded_cloud(live: Deployed) -> None:
    assert written_by_simulated_cloud(live) == written_by_embedded_cloud(live)
