"""A box that leaves under load: notices amid traffic, callers who keep their connections, ends that the group plans."""

import dataclasses
import threading
import time
from collections.abc import Callable

import ending
import gate
import pytest

from fleet.core import names
from tests.box import lab, leaving, replacing, world
from tests.box.conftest import a_box

pytestmark = pytest.mark.root

NOTICES, AT_A_TIME, REPLACEMENTS = 20, 10, 2


def test_no_notice_amid_traffic_cuts_who_had_time_to_end_and_none_who_had_not_goes_uncounted() -> None:
    told = leaving.many(NOTICES, AT_A_TIME)
    assert told.notices == NOTICES
    assert (told.cut_with_time, told.uncounted) == (0, 0)
    assert told.answered > told.notices
    assert told.refused > told.notices  # who keeps his connection is refused sooner or later


def test_caller_who_keeps_his_connection_is_told_to_go_elsewhere_whether_he_asks_at_once_or_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending, "QUIET_SECONDS", 0.3)
    answered: list[float] = []
    refused: list[int] = []

    def call(made: lab.Lab) -> None:
        connection, number = made.connect(), 0
        try:
            while (status := lab.ask(connection, number := number + 1, 0.1)) == 200:
                answered.append(time.monotonic())
            refused.append(status)
        except OSError:
            refused.append(503)  # closed after its last answer: the gate takes no new one

    with lab.lab() as made:
        gate.set_state(gate.OPEN, lab.PORT)
        idle = made.connect()
        lab.ask(idle, 0, 0)
        threading.Thread(target=call, args=(made,), daemon=True).start()
        world.wait(lambda: len(answered) > 3)
        gate.set_state(gate.DRAINING, lab.PORT)
        began = time.monotonic()
        ended = ending.wait(dataclasses.replace(a_box(), port=lab.PORT), began + 20)
        assert ended.cut == 0
        assert time.monotonic() - began < 5
        world.wait(lambda: refused)
        assert len(made.requests) == len(answered) + 1  # the engine has read of nobody else
        assert lab.ask(idle, 0, 0) == 503
        assert idle.sock is None  # closed, so that he goes elsewhere


def test_where_the_lane_tells_nothing_every_connection_that_carried_a_request_counts_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending, "QUIET_SECONDS", 0.3)
    box = dataclasses.replace(a_box(), port=lab.PORT)
    with lab.lab(admin=False) as made:
        assert ending.wait(box, time.monotonic() + 20) == ending.Ended(0, 0)  # nobody is connected
        caller, idle = made.connect(), made.connect()
        lab.ask(caller, 1, 0)
        began = time.monotonic()
        assert ending.wait(box, began + 1.0) == ending.Ended(finished=0, cut=1)  # answered, but who would know?
        assert time.monotonic() - began >= 1.0
        threading.Timer(0.3, caller.close).start()
        assert ending.wait(box, time.monotonic() + 20) == ending.Ended(finished=1, cut=0)
        idle.close()


def test_planned_replacements_fail_no_request_and_cut_no_stream(serving: Callable[..., world.World]) -> None:
    first = serving(**replacing.TIMINGS)
    first.aws.client("autoscaling").set_desired_capacity(
        AutoScalingGroupName=names.group(world.FLEET), DesiredCapacity=2
    )
    told = replacing.planned([first, serving(aws=first.aws, number=1, **replacing.TIMINGS)], REPLACEMENTS)
    assert set(told) == {"request answered", "stream answered"}
    assert min(told.values()) > REPLACEMENTS
