"""The bridge policy over time: when it decides, what it leaves alone, and that it never costs the last serving box."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fleet.config.settings import Settings
from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Behaviour, Events, Scores
from fleet.sim.cloud.simulated_cloud import SimulatedCloud
from fleet.sim.drills import drill, replay
from fleet.sim.drills.drill import Drill
from fleet.sim.drills.droughts import Droughts
from fleet.sim.markets import levels, synthetic
from fleet.sim.markets.market import Market, Step
from fleet.sim.policies.catalogue import watchdog, without_valve
from lambdas.watchdog.state import Mode, State
from tests.drills.by_hand import BOOT_SECONDS, HOUR, START, build, exact, lived, market, told

pytestmark = pytest.mark.slow

OURS = {"replaced", "ended by the watchdog"}
HOPEFUL = Scores(wrong_share=1.0)  # some zone sells, they say, while none does: what patience is for


@pytest.fixture
def bridge(settings: Settings) -> Settings:
    """Patience and bar of these tests' own: what is tried is how they are kept, whatever the defaults are."""
    limits = replace(settings.bridge, patience_seconds=130, return_after_seconds=3300)
    return replace(settings, policy="bridge", bridge=limits)


def watched(settings: Settings, scene: Market) -> tuple[SimulatedCloud, list[Event]]:
    """A fleet that begins armed and empty."""
    return build(settings, scene, watched=True, state=State(Mode.ARMED).dumps())


def ended_by_us_while_alone(log: list[Event]) -> list[Event]:
    """Boxes taken out of service by group or watchdog, with no other one serving."""
    serving: set[str] = set()
    found = []
    for event in log:
        if event.kind == "box.serving":
            serving.add(event.fields["box"])
        if event.kind == "box.unserving":
            serving.discard(event.fields["box"])
            found += [event] if event.fields["why"] in OURS and not serving else []
    return found


# --- droughts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scores", "waited"), [(Scores(wrong_share=0), 0), (HOPEFUL, 130 + 1)])
def test_window_of_a_drought_is_first_failure_patience_flip_and_boot(
    bridge: Settings, scores: Scores, waited: int
) -> None:
    """Patience ends by the clock's own event; where no zone sells there is none."""
    log, result = lived(market((HOUR, 0), (5 * HOUR, 1000)), settings=bridge, behaviour=exact(scores=scores))
    failover = told(log, "decision", action="failover")[0]
    assert failover == HOUR + 15 + 1 + waited  # attempt at the notice, its event
    lost = result.measure.windows[1]
    assert lost.seconds == (failover + 7 + BOOT_SECONDS) - (HOUR + 5)


@pytest.mark.parametrize("patience", [60, 130, 300])
def test_patience_is_a_setting(bridge: Settings, patience: int) -> None:
    settings = replace(bridge, bridge=replace(bridge.bridge, patience_seconds=patience))
    log, _ = lived(market((HOUR, 0), (5 * HOUR, 1000)), settings=settings, behaviour=exact(scores=HOPEFUL))
    assert told(log, "decision", action="failover")[0] == HOUR + 15 + 1 + patience + 1


@pytest.mark.parametrize("region", synthetic.regions())
@pytest.mark.parametrize("make", ["fitted", "levels"])
def test_every_drought_is_decided_within_20_s_and_none_within_patience_while_a_pool_sells(
    bridge: Settings, region: str, make: str
) -> None:
    scene = (
        synthetic.market(synthetic.region(region), 8, days=8) if make == "fitted" else levels.market(region, 8, days=8)
    )
    droughts = Droughts(130)
    drill.run(Drill(scene, without_valve(bridge), Behaviour(), seed=8, emit=droughts.add), watchdog)
    assert droughts.late_seconds
    assert max(droughts.late_seconds) <= 20
    assert (droughts.early, droughts.missed) == (0, 0)


def test_alarm_path_holds_when_every_event_but_the_scans_is_lost(bridge: Settings) -> None:
    lossy = exact(events=Events(delay=(1, 1), lost_share=1.0))
    log, _ = lived(market((HOUR, 0), (20 * HOUR, 1000)), settings=bridge, behaviour=lossy)
    (failover,) = told(log, "decision", action="failover")
    assert failover <= HOUR + 5 + 12 * 60 + 60 + 300 + bridge.scan_seconds


def test_doubled_and_late_events_never_fail_over_twice(bridge: Settings) -> None:
    unruly = replace(Behaviour(), events=Events(doubled_share=1.0, late_share=0.5))
    for seed in range(3):
        log, _ = lived(market((HOUR, 0), (9 * HOUR, 1000)), settings=bridge, behaviour=unruly, seed=seed)
        assert len(told(log, "decision", action="failover")) == 1
        assert len([e for e in log if e.kind == "mail" and "failover" in e.fields["subject"]]) == 1


# --- histories ----------------------------------------------------------------------------------------------------


def test_drought_of_22_july_is_left_in_a_third_of_the_minutes(bridge: Settings) -> None:
    """Scores were recorded twice that day; at the policy's other readings they are drawn from the market."""
    log, result = lived(replay.load("07-21"), settings=bridge)
    (failover,) = [e.at for e in log if e.kind == "decision" and e.fields["action"] == "failover"]
    assert 0 <= (failover - datetime(2026, 7, 22, 0, 14, 30, tzinfo=UTC)).total_seconds() <= 40
    assert max(window.seconds for window in result.measure.windows) <= 9 * 60


def test_noon_reclaim_of_22_july_is_ridden_out_by_a_fleet_that_is_on_spot(bridge: Settings) -> None:
    """Its market answered 120 s after the notice, then refused again: the reclaim that patience is made for.

    How the zones scored at that hour was not recorded.
    """
    record = replay.load("07-21")
    morning = datetime(2026, 7, 22, 11, tzinfo=UTC).timestamp()
    steps = [step for step in record.market.steps() if step.at >= morning]
    scene = replace(record.market, start=morning, read=lambda: iter([Step(morning, "g6.xlarge", 1), *steps]))
    hopeful = replace(record.behaviour, scores=HOPEFUL)
    cloud, log = build(bridge, scene, hopeful, watched=True, state=State(Mode.ARMED).dumps(), serving="spot")
    cloud.run(until=morning + 2 * HOUR)
    assert [e for e in log if e.kind == "notice"]
    assert [e for e in log if e.kind == "decision" and e.fields["action"] == "waiting"]
    assert not [e for e in log if e.kind == "lever" and e.fields["percentage"] == 100]


def test_night_of_28_july_needs_nobody(bridge: Settings) -> None:
    _, result = lived(replay.load("07-27"), settings=bridge)
    assert max(window.seconds for window in result.measure.windows) < 8 * 60
    assert result.measure.windows[-1].start < datetime(2026, 7, 28, 2, 5, tzinfo=UTC).timestamp()


# --- warnings and returns -----------------------------------------------------------------------------------------

AHEAD = {"recommendation_ahead_share": 1.0, "recommendation_ahead": (500, 500)}


def test_loss_that_was_announced_in_time_costs_nobody_a_second(bridge: Settings) -> None:
    log, result = lived(market((HOUR, 0), (5 * HOUR, 1000)), settings=bridge, behaviour=exact(**AHEAD))
    assert len(told(log, "decision", action="bridged")) == 1
    assert len(result.measure.windows) == 1  # the first boot


def test_warning_while_nothing_is_sold_keeps_the_box_that_cannot_be_bought_back(bridge: Settings) -> None:
    scene = market((HOUR, 0), (9 * HOUR, 1000), spares=True)
    cloud, log = watched(bridge, scene)
    cloud.run(until=START + 2 * HOUR)
    for box in list(cloud.ec2.running.values()):
        cloud.ec2.recommend(box)
    cloud.run()
    assert "could not be bought back" in str([e.fields for e in log if e.fields.get("action") == "refused"])
    assert not told(log, "lever", percentage=100)
    assert not told(log, "box.unserving", why="notice")


def test_return_waits_for_the_bar_of_calm_and_is_launch_first(bridge: Settings) -> None:
    log, result = lived(
        market((HOUR, 0), (5 * HOUR, 1000)), settings=bridge, behaviour=exact(scores=Scores(wrong_share=0))
    )
    (back,) = told(log, "decision", action="re-arm")
    assert abs(back - (5 * HOUR + bridge.bridge.return_after_seconds)) <= 2 * bridge.scan_seconds
    assert len(result.measure.windows) == 2


# --- capacity counts only when it serves --------------------------------------------------------------------------


@pytest.mark.parametrize("replaces", [True, False])
def test_flips_in_both_worlds_never_end_the_last_serving_box(bridge: Settings, replaces: bool) -> None:
    steps = [(HOUR, 0), (4 * HOUR, 1000), (8 * HOUR, 0), (9 * HOUR, 1000)]
    log, _ = lived(market(*steps), settings=bridge, behaviour=exact(replaces_wrong_kind=replaces))
    assert len(told(log, "decision", action="re-armed")) >= 1
    assert not ended_by_us_while_alone(log)


def test_swap_of_16_july_does_not_happen_on_a_return(bridge: Settings) -> None:
    """Then, 8.7 s after its launch a cold spot box counted as capacity and ended the healthy on-demand one."""
    swift = exact(running_after=(8.7, 8.7), warmup_seconds=0)
    log, result = lived(market((HOUR, 0), (5 * HOUR, 1000)), settings=bridge, behaviour=swift)
    assert told(log, "decision", action="re-armed")
    assert not ended_by_us_while_alone(log)
    assert len(result.measure.windows) == 2  # first boot, drought; none at the return


def test_rebalancing_never_ends_the_last_serving_box(bridge: Settings) -> None:
    scene = market((HOUR, 0), (HOUR + 300, 1000), (6 * HOUR, 0), (9 * HOUR, 1000))
    log, _ = lived(scene, settings=bridge, behaviour=exact(**AHEAD))
    assert told(log, "rebalance")
    assert not ended_by_us_while_alone(log)


@pytest.mark.parametrize("path", ["refresh", "health"])
def test_deploys_and_health_replacements_never_end_the_last_serving_box(bridge: Settings, path: str) -> None:
    cloud, log = watched(bridge, market(hours=6))
    cloud.run(until=START + HOUR)
    if path == "refresh":
        cloud.autoscaling.start_refresh(has_desired_configuration=True)
    else:
        cloud.wedge(next(iter(cloud.ec2.running)))
    cloud.run()
    assert len(told(log, "box.launched")) == 2
    assert not ended_by_us_while_alone(log)


# --- on-demand hours ----------------------------------------------------------------------------------------------


def test_limit_of_on_demand_hours_chooses_degraded_service_over_cost_until_midnight(bridge: Settings) -> None:
    settings = replace(bridge, watchdog=replace(bridge.watchdog, on_demand_hours_per_day=2))
    steps = [Step(START, "g6.xlarge", 1000), Step(START + HOUR, "g6.xlarge", 0)]
    scene = replace(market(hours=30), read=lambda: iter(steps))
    log, result = lived(scene, settings=settings, behaviour=exact())
    (limited, *_) = [e for e in log if e.kind == "mail" and "used up" in e.fields["subject"]]
    by_day = result.measure.box_seconds["on-demand"] / 3600
    assert by_day <= 2 * 2 + 0.5  # two UTC days, each to one scan
    assert result.measure.degraded_seconds > 20 * HOUR
    assert limited.at.timestamp() > START + HOUR
