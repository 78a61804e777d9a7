"""Drills of a group that AWS suspends after a day of failed launches: resumed again and again, each time later."""

from itertools import pairwise

from fleet.config.settings import Settings
from fleet.eventlog.events import Event
from fleet.sim.cloud.behaviour import Scores
from fleet.sim.markets.market import PLENTY, Step
from lambdas.watchdog.state import Mode, State
from tests.drills.by_hand import HOUR, START, build, exact, market, told, with_steps

DAY = 24 * HOUR
SELLS_AGAIN = 42 * HOUR
LONGEST_WAIT_MINUTES = 240


def lived(settings: Settings, *, watched: bool) -> list[Event]:
    """Neither kind sells for most of two days. AWS suspends after one, and again as soon as a launch fails."""
    steps = [
        Step(START + at, "g6.xlarge", supply, purchase="on-demand") for at, supply in ((HOUR, 0), (SELLS_AGAIN, PLENTY))
    ]
    cloud, log = build(
        settings,
        with_steps(market((HOUR, 0), hours=60), steps),
        exact(suspended_after_failing_seconds=DAY, scores=Scores(refuses=(1, 1), wrong_share=0)),
        watched=watched,
        state=State(Mode.ARMED).dumps(),
        serving="spot",
    )
    cloud.run()
    return log


def test_a_group_that_aws_suspended_is_resumed_each_time_later_and_serves_once_the_market_sells(
    settings: Settings,
) -> None:
    log = lived(settings, watched=True)
    resumed = told(log, "mail", subject="[drill] AWS had suspended launching, resumed")
    gaps = [(later - at) / 60 for at, later in pairwise(resumed)]
    assert gaps == sorted(gaps)
    assert gaps[0] >= 30
    assert gaps[-1] <= LONGEST_WAIT_MINUTES + settings.scan_seconds / 60
    (served,) = [at for at in told(log, "box.serving") if at > DAY]
    assert served - SELLS_AGAIN <= LONGEST_WAIT_MINUTES * 60 + settings.scan_seconds + 600


def test_a_group_that_nobody_resumes_never_launches_again(settings: Settings) -> None:
    assert [at for at in told(lived(settings, watched=False), "box.serving") if at > DAY] == []
