"""Nothing that a caller sends shuts the gate or has a box replaced; an engine that is ill is found all the same."""

from collections.abc import Callable
from dataclasses import replace

import engine
import pytest
from wedge import Action

from tests.box.conftest import a_box
from tests.box.day import GATE, LOAD_SECONDS, Caller, Day

MINUTE, HOUR = 60.0, 3600.0
DAY, QUIET_FROM = 24 * HOUR, 22 * HOUR

CALLERS = [
    Caller("a wrapper's five minutes, its lulls are longer", every=420, keep_alive=300),
    Caller("unloads after each request", every=900, first=60, keep_alive=0),
    Caller("a context of its own", every=1500, first=200, context=4096, keep_alive=300),
    Caller("a context for half a model on the processor", every=4 * HOUR, first=HOUR, context=65536, tokens=3000),
    Caller("the same in one piece", every=6 * HOUR, first=3 * HOUR, context=65536, tokens=3000, stream=False),
    Caller("fewer layers on the GPU", every=3 * HOUR, first=1.5 * HOUR, num_gpu=10, tokens=100),
    Caller("long answers in one piece", every=180, first=30, tokens=600, stream=False),
    Caller("never sends the rest of its request", every=5 * HOUR, first=2 * HOUR, half=True, patience=HOUR),
    Caller("gives up", every=600, first=77, tokens=900, stream=False, patience=20),
    Caller("preloads with an empty prompt", every=1800, first=100, empty=True, keep_alive=600),
    Caller("fourteen at once", every=2 * HOUR, first=2000, times=14, keep_alive=300),
    Caller("fourteen at once of another context", every=7 * HOUR, first=2.2 * HOUR, times=14, context=2048),
    Caller("a generation without an end", every=DAY, first=5 * HOUR, tokens=15 * 40 * MINUTE),
    Caller("one that does not stream", every=DAY, first=9 * HOUR, tokens=15 * 50 * MINUTE, stream=False),
]
BUSY = Caller("asks always", every=20, tokens=150)


def named(name: str) -> Caller:
    return next(caller for caller in CALLERS if name in caller.name)


@pytest.mark.slow
@pytest.mark.parametrize("newer", [True, False], ids=["ps waits for loads", "ps lists what loads"])
def test_day_of_mixed_callers_shuts_no_gate_and_replaces_no_box(newer: bool) -> None:
    day = Day(a_box(), [replace(caller, until=QUIET_FROM) for caller in CALLERS], newer=newer).run(DAY)
    assert [told for told in day.told if told[1] in GATE] == []
    assert {Action.LOAD, Action.PROVE, Action.PRIME} <= set(day.actions())
    assert day.seen == engine.Loaded()  # in the end all is as it should be
    assert {40, 50} <= {round(generation.seconds / MINUTE, -1) for generation in day.ended()}
    assert max(generation.waiting for generation in day.ended()) >= 14


@pytest.mark.parametrize("caller", CALLERS, ids=[caller.name for caller in CALLERS])
def test_no_caller_alone_does_either(caller: Caller) -> None:
    assert not set(Day(a_box(), [replace(caller, every=min(caller.every, HOUR))]).run(3 * HOUR).actions()) & set(GATE)


def test_model_that_a_caller_would_unload_is_held_beside_the_open_gate_and_loaded_once() -> None:
    day = Day(a_box(), [named("five minutes")]).run(6 * HOUR)
    assert day.loads == 1
    assert day.actions()[Action.LOAD] >= 50  # at each lull


def test_caller_with_a_context_of_its_own_costs_two_loads_and_finds_the_box_as_configured_after_a_minute() -> None:
    box = a_box()
    day = Day(box, [replace(named("a context of its own"), until=HOUR)])
    loads = day.loads
    day.run(200 + LOAD_SECONDS + 20)
    assert day.seen.resized
    day.run(box.resized_idle_seconds + 2 * LOAD_SECONDS)
    assert day.seen == engine.Loaded()
    assert day.loads == loads + 2


FAULTS: dict[str, tuple[Callable[[Day], None], list[Caller], float]] = {
    "silent": (lambda day: setattr(day, "silent", True), CALLERS, 30),
    "stuck, somebody waits": (lambda day: setattr(day, "hung", True), [BUSY], 120 + 20),
    "stuck under all kinds": (lambda day: setattr(day, "hung", True), CALLERS, 120 + 180),
    "stuck, half on the processor": (
        lambda day: setattr(day, "hung", True),
        [replace(named("half a model"), first=0, every=600)],
        900 + 120 + 600,
    ),
    "stuck, nobody can tell of the GPU": (
        lambda day: (setattr(day, "hung", True), setattr(day, "gpu_told", False))[0],
        [BUSY],
        900 + 120 + 20,
    ),
    "stuck, nobody waits long": (lambda day: setattr(day, "hung", True), [named("gives up")], HOUR + 120),
    "stuck, nobody calls": (lambda day: setattr(day, "hung", True), [], 1200 + 60),
    "a load that hangs, somebody waits": (
        lambda day: (setattr(day, "load_hangs", True), day.scheduler.crash(day.now, ""))[0],
        [BUSY],
        120 + 20,
    ),
    "a load that hangs, nobody calls": (
        lambda day: (setattr(day, "load_hangs", True), day.scheduler.crash(day.now, ""))[0],
        [],
        120,
    ),
    "loads that fail, however many are answered": (
        lambda day: (setattr(day, "load_fails", True), day.scheduler.crash(day.now, ""))[0],
        [BUSY],
        300,
    ),
    "loads that fail, nobody calls": (
        lambda day: (setattr(day, "load_fails", True), day.scheduler.crash(day.now, ""))[0],
        [],
        30,
    ),
    "an error to everyone who stays connected": (lambda day: setattr(day, "failing", True), [BUSY], HOUR + 30),
    "an error to whoever calls": (lambda day: setattr(day, "failing", True), [], 1200 + 30),
}


@pytest.mark.parametrize("name", FAULTS)
def test_engine_that_is_ill_is_found_within_its_bound(name: str) -> None:
    fault, callers, bound = FAULTS[name]
    box = a_box()
    day = Day(box, callers).run(2.6 * HOUR if len(callers) > 1 else 0.6 * HOUR)
    assert not set(day.actions()) & set(GATE)
    began = day.now
    fault(day)
    day.run(2 * HOUR, until=GATE)
    found, action, why = day.told[-1]
    assert action in GATE, why
    assert found - began <= bound + box.poll_seconds
    if action is Action.SHUT:
        day.run(HOUR, until=[Action.REPLACE])
        assert day.told[-1][1] is Action.REPLACE
        assert day.told[-1][0] - found <= box.wedge_confirm_seconds + box.poll_seconds
