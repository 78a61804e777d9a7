"""Requests on reused connections: the kernel's stamps tell neither what is busy nor what is idle, at either tick."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator

import ending
import gate
import paths
import pytest
import sight
import streams
import wedge

from tests.box import lab as labs
from tests.box import world
from tests.box.conftest import a_box

CALLERS = 25
BOX = dataclasses.replace(a_box(), port=labs.PORT, poll_seconds=0.2, token_seconds=20.0)


@pytest.fixture(params=[100, 250], ids=["100 Hz", "250 Hz"])
def lab(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[labs.Lab]:
    """A box whose kernel ticks so often. What was sent lately is no help here."""
    monkeypatch.setattr(streams, "_ss", labs.ticks_of(request.param))
    monkeypatch.setattr(streams, "ACTIVE_SECONDS", 0.05)
    monkeypatch.setattr(ending, "QUIET_SECONDS", 0.3)
    with labs.lab() as made:
        paths.mark(paths.GATE, gate.OPEN)
        yield made


def told(seen: streams.Watch) -> wedge.Look:
    """What the keeper makes of the connections."""
    live = sight.connections(BOX, seen)
    return sight.told(BOX, 0.0, live, answers=True, loaded=None, gate_shut=False, load=None, token=None)


@pytest.mark.root
def test_no_request_that_follows_an_answer_within_a_tick_is_taken_for_idle(lab: labs.Lab) -> None:
    def call(number: int) -> None:
        connection = lab.connect()
        labs.ask(connection, number, 0)
        with contextlib.suppress(OSError):  # it ends with the lab
            labs.ask(connection, CALLERS + number, 60.0)

    for number in range(CALLERS):
        threading.Thread(target=call, args=(number,), daemon=True).start()
        world.wait(lambda number=number: CALLERS + number in lab.requests)
    time.sleep(0.3)
    seen = streams.Watch(labs.PORT)
    assert sum(each.outstanding is False for each in seen.look()) == 0
    assert len(seen.unsure()) > 0  # or nothing was tried
    assert told(seen).waiting
    gate.set_state(gate.DRAINING, labs.PORT)
    assert ending.wait(BOX, time.monotonic() + 1.0) == ending.Ended(finished=0, cut=CALLERS)


@pytest.mark.root
def test_no_idle_connection_holds_a_drain_or_keeps_a_self_prime_from_falling_due(lab: labs.Lab) -> None:
    idle = [lab.connect() for _ in range(CALLERS)]
    for number, connection in enumerate(idle):
        labs.ask(connection, number, 0)
    time.sleep(0.3)
    seen = streams.Watch(labs.PORT)
    seen.look()
    assert len(seen.unsure()) > 0
    assert not told(seen).active
    gate.set_state(gate.DRAINING, labs.PORT)
    ended = ending.wait(BOX, deadline := time.monotonic() + 20)
    assert ended.cut == 0
    assert ended.closed == CALLERS
    assert time.monotonic() < deadline
