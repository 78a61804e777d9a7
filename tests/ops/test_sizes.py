"""Fleets of 2, 4 and 20 boxes before an operator's eyes: quotas, room, a status that one can read."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from fleet.cli import tables
from fleet.config.settings import Capacity, Settings
from fleet.ops import checks_account as account
from fleet.ops.checks import Ground, Level
from fleet.ops.fleet_view import Told, View
from fleet.ops.status import judge
from lambdas.watchdog.cloud import Alarm, Box, Group, Instance
from lambdas.watchdog.state import Mode, State
from lambdas.watchdog.world import World

NOW = datetime(2026, 7, 22, 12, tzinfo=UTC)


def quota(settings: Settings, answers: Any, kind: str, vcpus: int, capacity: Capacity) -> tuple[Level, str]:
    aws = answers({"service-quotas GetServiceQuota": {"Quota": {"Value": vcpus}}})
    check = account.spot_quota if kind == "spot" else account.on_demand_quota
    found = check(Ground(replace(settings, capacity=capacity), aws))
    return found.level, found.found


@pytest.mark.parametrize(
    ("size", "base", "kind", "vcpus", "level", "said"),
    [
        (1, 0, "spot", 0, Level.FAIL, "not even 1 x 4"),
        (1, 0, "on-demand", 7, Level.FAIL, "no room for a successor"),
        (4, 0, "spot", 15, Level.FAIL, "not even 4 x 4"),
        (4, 0, "spot", 19, Level.FAIL, "no room for a successor"),
        (4, 0, "spot", 20, Level.WARN, "launch-first fits 5 x 4, not 8 x 4"),
        (4, 0, "spot", 32, Level.WARN, "rebalancing may pass max to 9"),
        (4, 0, "spot", 36, Level.PASS, "9 x 4 for launch-first"),
        (4, 1, "spot", 11, Level.FAIL, "not even 3 x 4"),
        (4, 1, "spot", 32, Level.PASS, "8 x 4 for launch-first"),
        (4, 1, "on-demand", 15, Level.FAIL, "not even 4 x 4"),
        (4, 4, "spot", 0, Level.PASS, "spot is never asked"),
        (20, 2, "spot", 71, Level.FAIL, "not even 18 x 4"),
        (20, 2, "spot", 168, Level.PASS, "42 x 4 for launch-first"),
        (20, 2, "on-demand", 176, Level.PASS, "44 x 4 for launch-first"),
        (2, 0, "on-demand", 20, Level.PASS, "5 x 4 for launch-first"),
    ],
)
def test_quotas_are_reckoned_for_every_size_and_kind(
    settings: Settings, answers: Any, size: int, base: int, kind: str, vcpus: int, level: Level, said: str
) -> None:
    found = quota(settings, answers, kind, vcpus, Capacity(min=size, max=2 * size, on_demand_base=base))
    assert found[0] is level, found
    assert said in found[1]


@pytest.mark.parametrize(("capacity", "level"), [((1, 2), Level.PASS), ((4, 8), Level.PASS), ((4, 5), Level.WARN)])
def test_room_says_how_many_successors_may_launch_ahead(
    settings: Settings, answers: Any, capacity: tuple[int, int], level: Level
) -> None:
    sized = replace(settings, capacity=Capacity(min=capacity[0], max=capacity[1]))
    found = account.room(Ground(sized, answers()))
    assert found.level is level
    assert f"{capacity[1] - capacity[0]} of {capacity[0]} successors may launch ahead" in found.found


@pytest.mark.parametrize(
    ("vcpus", "level", "said"),
    [(0, Level.FAIL, "no room for 4 x 4 that `grow_to` allows"), (28, Level.PASS, "7 x 4 for launch-first")],
)
def test_spot_is_asked_for_what_grows_above_a_base_that_is_all_of_min(
    settings: Settings, answers: Any, vcpus: int, level: Level, said: str
) -> None:
    found = quota(settings, answers, "spot", vcpus, Capacity(min=4, max=10, grow_to=8, on_demand_base=4))
    assert found[0] is level, found
    assert said in found[1]


@pytest.mark.parametrize(
    ("capacity", "remedy"),
    [
        (Capacity(min=20, max=21), "set capacity.max to 40"),
        (Capacity(min=10, max=31, grow_to=30), "set capacity.max to 40"),
        (Capacity(min=10, max=40, grow_to=30), "set a smaller capacity.grow_to"),
    ],
)
def test_room_is_mended_by_what_the_settings_take(
    settings: Settings, answers: Any, capacity: Capacity, remedy: str
) -> None:
    assert account.room(Ground(replace(settings, capacity=capacity), answers())).remedy == remedy


def seen(settings: Settings, size: int, *, on_demand: int, lost: int) -> tuple[View, Settings]:
    """A fleet in which so many boxes were bought, and so many do not serve."""
    sized = replace(settings, capacity=Capacity(min=size, max=2 * size))
    lever = 100 * on_demand // size
    boxes = tuple(Box(f"i-{n:017x}", "InService", f"us-east-2{'ab'[n % 2]}", "g6.xlarge") for n in range(size))
    instances = {box.id: Instance(NOW.replace(hour=1 + n % 9), n >= on_demand, "warm") for n, box in enumerate(boxes)}
    group = Group(NOW, size, lever, boxes, sized.zones, {}, {})
    health = {box.id: "unhealthy" if n < lost else "healthy" for n, box in enumerate(boxes)}
    world = World(lever=str(lever), alarm=Alarm("OK", NOW), group=group, instances=instances, health=health)
    state = State(Mode.FAILOVER, part=lever % 100, failovers=(NOW,), parts=((NOW, lever),))
    return View(world, state, "", (), True, {}, Told()), sized


@pytest.mark.parametrize(("size", "on_demand"), [(2, 1), (4, 2), (20, 5)])
def test_status_fits_one_screen_and_says_what_is_asked_of_which_kind(
    settings: Settings, size: int, on_demand: int
) -> None:
    view, sized = seen(settings, size, on_demand=on_demand, lost=1)
    found = judge(view, sized, NOW)
    assert found.lever.agreed
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(tables.status(found))
    text = console.export_text()
    assert f"{on_demand} of {size} boxes asked for" in text
    assert f"{size - 1} of {size}" in text
    assert len(text.splitlines()) < 30
    assert "i-00000000000000000" in text  # the one that does not serve stands by itself
    if size == 20:
        assert "8 boxes" in text
    assert found.usd_per_day == round(24 * (on_demand * 0.8048 + (size - on_demand) * 0.34), 2)


def test_status_reckons_what_a_grown_group_has_on_demand_of_all_its_boxes(settings: Settings) -> None:
    view, sized = seen(settings, 4, on_demand=1, lost=0)
    assert view.world.group is not None
    world = replace(view.world, group=replace(view.world.group, desired=8))
    assert judge(replace(view, world=world), sized, NOW).on_demand_asked == 2  # 25 % of eight


def test_status_says_that_nothing_shrinks_a_group_whose_growth_was_taken_away(settings: Settings) -> None:
    view, sized = seen(settings, 2, on_demand=0, lost=0)
    assert view.world.group is not None
    wide = replace(view, world=replace(view.world, group=replace(view.world.group, desired=3)))
    problem = judge(wide, sized, NOW).problems[-1]
    assert "wants 3 boxes, capacity.min is 2" in problem
    assert problem.endswith("--desired-capacity 2")
    grows = replace(sized, capacity=replace(sized.capacity, grow_to=3))
    assert judge(wide, grows, NOW).problems == judge(view, sized, NOW).problems


def test_status_of_a_fleet_whose_base_is_all_of_it_asks_for_all_on_demand(settings: Settings) -> None:
    view, _ = seen(settings, 4, on_demand=0, lost=0)
    based = replace(settings, capacity=Capacity(min=4, max=8, on_demand_base=4))
    assert judge(replace(view, state=State(Mode.ARMED)), based, NOW).on_demand_asked == 4


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (("on-demand capacity",), "on-demand has been dry since 12:00:00: docs/runbook/mail-on-demand-dry.md"),
        (("spot quota",), "spot quota has been refused since 12:00:00: docs/runbook/mail-launch-refused.md"),
    ],
)
def test_status_names_what_was_refused(settings: Settings, refused: tuple[str, ...], said: str) -> None:
    view, sized = seen(settings, 4, on_demand=1, lost=0)
    assert view.state is not None
    found = judge(replace(view, state=replace(view.state, dry_at=NOW, refused=refused)), sized, NOW)
    assert said in found.problems
