"""What the watchdog writes is the same in the simulated and in the embedded cloud: failover, re-arm, boot loop.

One scene each, first in the one cloud, then in the other; whatever it left behind is compared, less what is each
cloud's own: its clock and the names it gives.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fleet.core import names
from fleet.localaws.deployed import Deployed
from fleet.sim.cloud.behaviour import Behaviour, Scores
from fleet.sim.cloud.virtual_clock import utc
from fleet.sim.markets.market import Market
from lambdas.watchdog.state import Mode, State
from tests.drills.by_hand import START, build, exact, market
from tests.embedded_fleet import (
    act,
    fail_over_long_ago,
    long_failed_over,
    lose_the_last_box_in_a_drought,
    put_state,
)
from tests.watchdog.still_cloud import group_event

OWN = {
    *("failovers", "cooldown_from", "since", "scored_at", "rearm_from", "launched_at", "refresh_id", "abandoned"),
    "suspended_at",
    "on_demand_since",
}

JUST_AFTER_THE_ALARM = 7260 + 12 * 60 + 300 + 3  # the notice at 2 h, whole periods, the lag, the event's way
REARMED_BY_NOW = 1200  # a boot of 317 s, the warm-up, the old box's way out


class Simulated:
    """A fleet of these settings in the simulated cloud, with the watchdog's own handler."""

    def __init__(self, live: Deployed, market: Market, behaviour: Behaviour, state: State, **start: Any) -> None:
        own = {"state": state.dumps(), "scans_from": START + 86400, **start}
        self.cloud, self.log = build(live.settings, market, behaviour, watched=True, **own)
        self.cloud.autoscaling.created_at -= timedelta(days=1).total_seconds()

    def wrote(self, *, by: float) -> dict[str, Any]:
        """What stands that many seconds after the start."""
        self.cloud.run(until=START + by)
        group, (state, lever) = self.cloud.group(), self.cloud.parameters()
        return _written(
            group.policy,
            json.loads(state or ""),
            lever,
            [refresh.status for refresh in self.cloud.refreshes()],
            group.suspended,
            [event.fields["subject"] for event in self.log if event.kind == "mail"],
        )


def embedded_wrote(live: Deployed) -> dict[str, Any]:
    group = live.group()
    found = live.aws.client("autoscaling").describe_instance_refreshes(AutoScalingGroupName=live.group_name)
    return _written(
        group["MixedInstancesPolicy"],
        live.state(),
        live.lever(),
        [refresh["Status"] for refresh in found["InstanceRefreshes"]],
        {process["ProcessName"] for process in group["SuspendedProcesses"]},
        [mail["subject"] for mail in live.mails()],
    )


def _written(
    policy: dict[str, Any],
    state: dict[str, Any],
    lever: str | None,
    refreshes: list[str],
    suspended: Iterable[str],
    mails: list[str],
) -> dict[str, Any]:
    state.pop("evidence", None)  # of notices, which the embedded cloud sends nobody
    return {
        "distribution": policy["InstancesDistribution"],
        "overrides": [override["InstanceType"] for override in policy["LaunchTemplate"]["Overrides"]],
        "template keys": sorted(policy["LaunchTemplate"]["LaunchTemplateSpecification"]),
        "state": {key: value for key, value in state.items() if key not in OWN},
        "state keys": {key: len(value) if isinstance(value, list | dict) else 1 for key, value in state.items()},
        "lever": lever,
        "refreshes": refreshes,
        "launches": "Launch" not in suspended,
        "mails": mails,
    }


def test_failover_writes_the_same_in_the_simulated_and_the_embedded_cloud(live: Deployed) -> None:
    """A group that has long served loses its box; nothing is sold and the alarm is lit."""
    simulated = Simulated(live, market((7200, 0), hours=3), exact(), State(Mode.ARMED), serving="spot")
    expected = simulated.wrote(by=JUST_AFTER_THE_ALARM)

    lose_the_last_box_in_a_drought(live)
    (decision,) = live.decisions()
    assert "error" not in decision, decision
    assert (expected["lever"], expected["state"]["mode"]) == ("100", Mode.FAILOVER)
    assert embedded_wrote(live) == expected


def test_rearm_writes_the_same_in_the_simulated_and_the_embedded_cloud(live: Deployed) -> None:
    """A box serves on-demand, long after a failover; a second good score: the flip back, and the end of its phase."""
    behaviour = exact(scores=Scores(sells=(3, 3), wrong_share=0))
    simulated = Simulated(live, market(), behaviour, long_failed_over(utc(START + 60)), lever=100, serving="on-demand")
    simulated.cloud.command("scan", at=START + 60)
    flipped, done = simulated.wrote(by=60), simulated.wrote(by=REARMED_BY_NOW)

    fail_over_long_ago(live)
    assert act(live, {"command": "scan"})["action"] == "re-arm"
    assert (flipped["lever"], flipped["refreshes"], flipped["mails"]) == ("0", ["InProgress"], [])
    assert embedded_wrote(live) == flipped

    live.reclaim()  # the on-demand box goes, a spot box stands in its place: what the roll comes to
    live.set_health("healthy")
    live.aws.control("refresh", group=live.group_name, status="Successful")
    assert act(live, group_event("launch-successful", at=datetime.now(UTC)))["action"] == "re-armed"
    assert (done["state"]["mode"], len(done["mails"])) == (Mode.ARMED, 1)
    assert embedded_wrote(live) == done


def test_boot_loop_writes_the_same_in_the_simulated_and_the_embedded_cloud(live: Deployed) -> None:
    """The fifth boot running fails: launching stops; then a human arms."""
    gave_up = exact(boots=replace(exact().boots, failed_first=1))
    simulated = Simulated(live, market(), gave_up, _four_abandoned(utc(START)))
    stopped = simulated.wrote(by=300)
    simulated.cloud.command("arm")
    resumed = simulated.wrote(by=301)

    now = datetime.now(UTC)
    live.age_group(86400)
    put_state(live, _four_abandoned(now))
    (box,) = (box["InstanceId"] for box in live.boxes())
    says = {"Key": names.TAG_BOOT, "Value": names.BOOT_FAILED}
    live.aws.client("ec2").create_tags(Resources=[box], Tags=[says])
    assert act(live, group_event("launch-abandoned", at=now, box=box))["action"] == "boot-loop"
    assert (stopped["launches"], stopped["lever"], stopped["state keys"]["abandoned"]) == (False, "0", 5)
    assert embedded_wrote(live) == stopped
    assert act(live, {"command": "arm", "who": "drill", "why": "drill"})["action"] == "armed"
    assert resumed["launches"]
    assert embedded_wrote(live) == resumed


def _four_abandoned(now: datetime) -> State:
    return State(Mode.ARMED, abandoned=tuple((f"i-0{n}", now - timedelta(seconds=600 - n)) for n in range(4)))
