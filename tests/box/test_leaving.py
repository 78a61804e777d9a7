"""A box that leaves under load: notices amid traffic, callers who keep their connections, ends that the group plans."""

import dataclasses
import threading
import time
from collections.abc import Callable

import ending
import gate
import paths
import pytest
import streams

from fleet import names
from tests.box import lab, leaving, replacing, world
from tests.box.conftest import a_box

NOTICES, AT_A_TIME, REPLACEMENTS = 20, 10, 2


@pytest.mark.root
def test_no_notice_amid_traffic_cuts_who_had_time_to_end_and_none_who_had_not_goes_uncounted() -> None:
    told = leaving.many(NOTICES, AT_A_TIME)
    assert told.notices == NOTICES
    assert (told.cut_with_time, told.uncounted) == (0, 0)
    assert told.answered > told.notices
    assert told.refused > told.notices  # who keeps his connection is refused sooner or later


@pytest.mark.root
@pytest.mark.parametrize("tool", ["nft", "iptables"])
def test_caller_who_keeps_his_connection_is_turned_away_before_the_engine_reads_a_byte(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = gate.shutil.which
    monkeypatch.setattr(gate.shutil, "which", lambda name: real(name) if tool == "nft" or name != "nft" else None)
    monkeypatch.setattr(streams, "ACTIVE_SECONDS", 0.3)
    monkeypatch.setattr(ending, "QUIET_SECONDS", 0.3)
    answered: list[float] = []
    refused: list[type[Exception]] = []

    def call(made: lab.Lab, number: int) -> None:
        connection = made.connect()
        try:
            while lab.ask(connection, number, 0.1):
                answered.append(time.monotonic())
                number += 1
        except OSError as error:
            refused.append(type(error))

    with lab.lab() as made:
        gate.set_state(gate.OPEN, lab.PORT)
        idle = made.connect()
        lab.ask(idle, 0, 0)
        threading.Thread(target=call, args=(made, 1), daemon=True).start()
        world.wait(lambda: len(answered) > 3)
        gate.set_state(gate.DRAINING, lab.PORT)
        began = time.monotonic()
        box = dataclasses.replace(a_box(), port=lab.PORT)
        ended = ending.wait(box, began + 20)
        assert (ended.finished, ended.cut) == (1, 0)
        world.wait(lambda: refused)
        assert refused == [ConnectionResetError]
        assert sum(at > began for at in answered) <= 2  # the one that was asked, and one on its way
        assert len(made.requests) == len(answered) + 2 - (-1 not in made.requests)  # the idle caller's, maybe a token
        with pytest.raises(ConnectionResetError):
            idle.sock.recv(1)
    assert paths.GATE.read_text() == gate.DRAINING


def test_planned_replacements_fail_no_request_and_cut_no_stream(serving: Callable[..., world.World]) -> None:
    first = serving(**replacing.TIMINGS)
    first.aws.client("autoscaling").set_desired_capacity(
        AutoScalingGroupName=names.group(world.FLEET), DesiredCapacity=2
    )
    told = replacing.planned([first, serving(aws=first.aws, number=1, **replacing.TIMINGS)], REPLACEMENTS)
    assert set(told) == {"request answered", "stream answered"}
    assert min(told.values()) > REPLACEMENTS
