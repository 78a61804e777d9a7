"""Market files: the public forms are read as they are meant, and an odd file is one message with its place."""

import copy
import functools
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fleet.core.errors import UserError
from fleet.sim.drills import replay
from fleet.sim.markets import files, synthetic
from fleet.sim.markets.market import PLENTY
from tests.drills.by_hand import lived

HAND_WRITTEN = """\
# two pools; the first is taken on the first night
pool g6.xlarge us-east-2a
pool g5.xlarge us-east-2b
0        all sells
02:30    g6.xlarge takes       # notice at half past two
02:31    g5.xlarge refuses
1d2h     g6.xlarge sells 2
1d2h     g6.xlarge price 0.5
1d3h     all on-demand refuses
2d       end
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def steps(path: Path) -> list[tuple[float, str, int | None]]:
    market = files.load([path])
    return [(step.at - market.start, step.pool, step.supply) for step in market.steps()]


def test_availability_is_read_with_the_notice_before_each_fall(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", json.dumps({"metadata": {"gap_seconds": 195}, "data": [1, 1, 0, 2]}))
    assert steps(path) == [(0, "a", 1), (390 - 120, "a", 0), (585, "a", 2)]


def test_nodes_added_and_removed_are_read_as_supply(tmp_path: Path) -> None:
    path = write(tmp_path, "b.csv", "0,add,n1\n0,add,n2\n600000,remove,n1\n")
    assert steps(path) == [(0, "b", 2), (480, "b", 1)]


@pytest.mark.parametrize("name", ["bamboo-g4dn-trace.csv", "bamboo-p3-trace.csv"])
def test_public_traces_are_read_whole(name: str) -> None:
    path = synthetic.FOLDER / name
    market = files.load([path])
    read = list(market.steps())
    assert 9 * 3600 < market.end - market.start < 14 * 3600
    assert all(after.at >= before.at for before, after in pairwise(read))
    held = sum({"add": 1, "remove": -1}[line.split(",")[1]] for line in path.read_text().split())
    assert read[-1].supply == held


def test_several_files_are_the_pools_of_one_market(tmp_path: Path) -> None:
    text = json.dumps({"metadata": {"gap_seconds": 60}, "data": [1]})
    paths = [write(tmp_path, name, text) for name in ("us-east-2a_g6.xlarge.json", "us-east-2b_g5.xlarge.json")]
    market = files.load(paths)
    assert [(pool.instance_type, pool.zone) for pool in market.pools] == [
        ("g6.xlarge", "us-east-2a"),
        ("g5.xlarge", "us-east-2b"),
    ]


def test_hand_written_market_is_read_as_it_says(tmp_path: Path) -> None:
    market = files.load([write(tmp_path, "mine.market", HAND_WRITTEN)])
    read = [(step.at - market.start, step.pool, step.supply, step.spares, step.purchase) for step in market.steps()]
    assert read[:4] == [
        (0, "g6.xlarge", PLENTY, False, "spot"),
        (0, "g5.xlarge", PLENTY, False, "spot"),
        (9000, "g6.xlarge", 0, False, "spot"),
        (9060, "g5.xlarge", 0, True, "spot"),
    ]
    assert read[-1] == (97200, "g5.xlarge", 0, True, "on-demand")
    assert market.end - market.start == 2 * 86400


ODD_FILES = {
    "unreadable json": ("x.json", "{", "line 1 column 2"),
    "no gap": ("x.json", '{"data": [1]}', "metadata.gap_seconds"),
    "negative gap": ("x.json", '{"metadata": {"gap_seconds": -5}, "data": [1]}', "metadata.gap_seconds: -5"),
    "no data": ("x.json", '{"metadata": {"gap_seconds": 5}, "data": []}', "data: expected a list"),
    "odd reading": ("x.json", '{"metadata": {"gap_seconds": 5}, "data": [1, "two"]}', "data[1]: 'two'"),
    "true as reading": ("x.json", '{"metadata": {"gap_seconds": 5}, "data": [true]}', "data[0]: True"),
    "a list": ("x.json", "[1, 2]", "metadata.gap_seconds"),
    "csv fields": ("x.csv", "0,add,n1\n5,add\n", "line 2"),
    "csv time": ("x.csv", "soon,add,n1\n", "line 1: 'soon'"),
    "csv order": ("x.csv", "9,add,n1\n5,add,n2\n", "line 2: 5 ms is earlier"),
    "csv verb": ("x.csv", "0,lease,n1\n", "allowed are add and remove"),
    "csv twice": ("x.csv", "0,add,n1\n5,add,n1\n", "line 2: add n1: is held already"),
    "csv unheld": ("x.csv", "0,remove,n1\n", "line 1: remove n1: is not held"),
    "csv empty": ("x.csv", "", "no line in it"),
    "no pool": ("x.market", "0 all sells\n", "no pool in it"),
    "unknown pool": ("x.market", "pool g6.xlarge\n0 g5.xlarge sells\n", "line 2"),
    "unknown verb": ("x.market", "pool g6.xlarge\n0 all burns\n", "line 2: 'burns'"),
    "odd time": ("x.market", "pool g6.xlarge\n25:99 all sells\n", "line 2: '25:99' is no time"),
    "backwards": ("x.market", "pool g6.xlarge\n5h all sells\n4h end\n", "line 3: 4h is earlier"),
    "no end": ("x.market", "pool g6.xlarge\n0 all sells\n", "no end"),
    "after end": ("x.market", "pool g6.xlarge\n1h end\n2h all sells\n", "line 3: nothing may follow"),
    "other kind": ("x.txt", "", "allowed are"),
    "digit of another script": ("x.csv", "\u00b2,add,n1\n", "line 1: '\u00b2'"),
    "csv of another age": ("x.csv", "99999999999999999,add,n1\n", "line 1: '99999999999999999'"),
    "boxes of another script": ("x.market", "pool g6.xlarge\n0 all sells \u00b2\n1h end\n", "line 2: 'sells \u00b2'"),
    "no boxes": ("x.market", "pool g6.xlarge\n0 all sells 0\n1h end\n", "line 2: 'sells 0'"),
    "price of another script": ("x.market", "pool g6.xlarge\n0 all price 1.\u00b2\n1h end\n", "line 2: 'price"),
    "time of another script": ("x.market", "pool g6.xlarge\n\u00b2h all sells\n1h end\n", "line 2"),
    "an age": ("x.market", "pool g6.xlarge\n9999999d end\n", "line 2: '9999999d'; at most ten years"),
    "odd zone": ("x.market", "pool g6.xlarge europe\n1h end\n", "line 1: zone 'europe'"),
    "misspelt type": ("x.market", "pool g6.xlrage\n1h end\n", "line 1: type 'g6.xlrage'"),
    "pool twice": (
        "x.market",
        "pool g6.xlarge\npool g6.xlarge us-east-2a\n1h end\n",
        "line 2: pool g6.xlarge us-east-2a",
    ),
    "huge number": ("x.json", '{"metadata": {"gap_seconds": 5}, "data": [%s]}' % ("9" * 5000), "x.json"),
    "too many": ("x.json", '{"metadata": {"gap_seconds": 5}, "data": [1, %s]}' % ("9" * 400), "data[1]: 999"),
    "deep json": ("x.json", "[" * 100_000, "x.json: maximum recursion"),
    "key twice": ("x.json", '{"metadata": {"gap_seconds": 5}, "data": [1], "data": [0]}', "'data' stands twice"),
    "json of an age": (
        "x.json",
        '{"metadata": {"gap_seconds": 86400}, "data": [%s]}' % ("1," * 4000 + "1"),
        "ten years",
    ),
}


@pytest.mark.parametrize("case", ODD_FILES)
def test_odd_market_file_is_one_message_with_its_place(case: str, tmp_path: Path) -> None:
    name, text, place = ODD_FILES[case]
    path = write(tmp_path, name, text)
    with pytest.raises(UserError) as raised:
        files.load([path])
    assert place in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_and_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        files.load([tmp_path / "none.csv"])
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="byte 0 is not UTF-8"):
        files.load([binary])


FLEET = {"desired": 1, "pools": ["g6.xlarge"], "lever_at_start": 0, "mode_at_start": "spot-armed"}
ODD_HISTORIES = {
    "no fleet": ({}, "fleet: missing"),
    "odd event": ({"market": [{"at": "2026-07-21T00:00:00Z", "event": "burns"}]}, "market[0].event: 'burns'"),
    "odd time": ({"market": [{"at": "noon", "event": "reclaim"}]}, "market[0].at: 'noon'"),
    "no zone": ({"market": [{"at": "2026-07-21T00:00:00", "event": "reclaim"}]}, "market[0].at"),
    "odd mode": ({"fleet": {**FLEET, "mode_at_start": "bold"}}, "mode_at_start"),
    "odd lever": ({"fleet": {**FLEET, "lever_at_start": -5}}, "lever_at_start"),
    "no pools": ({"fleet": {**FLEET, "pools": []}}, "fleet.pools"),
    "odd pool": ({"fleet": {**FLEET, "pools": [None]}}, "fleet.pools[0]: None"),
    "odd boot": ({"boots": ["odd"]}, "boots[0]: 'odd'"),
    "odd alarm": ({"alarm": [{"at": None, "state": "odd"}]}, "alarm[0].state: 'odd'"),
    "not understood": ({"fleet": {**FLEET, "colour": "red"}}, "fleet.colour: unknown key"),
    "no time before": ({"market": [{"at": None, "event": "reclaim", "count": 6}]}, "market[0].at"),
    "backwards": (
        {"market": [{"at": f"2026-07-{day}T00:00:00Z", "event": "reclaim"} for day in (22, 21)]},
        "market[1].at",
    ),
}


@pytest.mark.parametrize("case", ODD_HISTORIES)
def test_odd_history_is_one_message_with_its_place(case: str, tmp_path: Path) -> None:
    change, place = ODD_HISTORIES[case]
    known = json.loads((replay.FOLDER / f"{replay.names()[0]}.json").read_text())
    raw = {**known, **change} if change else {key: value for key, value in known.items() if key != "fleet"}
    path = write(tmp_path, "h.json", json.dumps(raw))
    with pytest.raises(UserError) as raised:
        replay.load(path)
    assert place in str(raised.value)
    assert str(path) in str(raised.value)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value whose meaning matters."""
    if path and path[-1] not in ("outcome", "note"):
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        if key != "outcome":
            yield from leaves(item, (*path, key))


@pytest.mark.parametrize("name", replay.names())
@pytest.mark.parametrize("bad", [..., "odd", -5, None, [], {}, 1.5, 10**12, "2126-07-21T00:00:00Z"], ids=repr)
def test_a_history_with_any_one_place_damaged_is_refused_in_a_sentence_or_read_whole(
    bad: Any, name: str, tmp_path: Path
) -> None:
    raw = json.loads((replay.FOLDER / f"{name}.json").read_text())
    path, refusals = tmp_path / "h.json", list[str]()
    for leaf in leaves(raw):
        damaged = copy.deepcopy(raw)
        place = functools.reduce(lambda inner, key: inner[key], leaf[:-1], damaged)
        if bad is ...:
            del place[leaf[-1]]
        else:
            place[leaf[-1]] = bad
        path.write_text(json.dumps(damaged))
        try:
            read = replay.load(path)
        except UserError as error:
            refusals.append(str(error))
        else:
            assert len(list(read.market.steps())) < 10_000, leaf
    assert all(refusal.startswith(f"{path}: ") and "\n" not in refusal for refusal in refusals)
    assert len(refusals) > 5


def test_one_type_in_two_zones_is_two_pools_named_together_or_apart(tmp_path: Path) -> None:
    pools = "pool g6.xlarge us-east-2a\npool g6.xlarge us-east-2b\npool g5.xlarge\n"
    text = pools + "0 g6.xlarge sells\n1h g6.xlarge@us-east-2b takes\n2h end\n"
    assert steps(write(tmp_path, "zones.market", text)) == [
        (0, "g6.xlarge@us-east-2a", PLENTY),
        (0, "g6.xlarge@us-east-2b", PLENTY),
        (3600, "g6.xlarge@us-east-2b", 0),
    ]


def test_the_hand_written_market_that_ships_has_one_routine_reclaim_and_one_failover() -> None:
    log, _ = lived(files.load([synthetic.FOLDER / "drought.market"]))
    actions = [event.fields["action"] for event in log if event.kind == "decision"]
    assert actions.count("failover") == 1
    assert len([event for event in log if event.kind == "notice"]) == 2
