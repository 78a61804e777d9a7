"""The state: whatever happened it fits one parameter and reads back as it was written."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.watchdog.daily import REMEMBERED_IDS
from lambdas.watchdog.state import (
    KEPT_PARTS,
    LIMIT_BYTES,
    MOVES_LEVERS,
    OWED_MAILS,
    SHORT_WHY_BYTES,
    SILENT,
    Evidence,
    Kind,
    Mode,
    State,
    StateError,
    Transition,
    loads,
)

AT = datetime(2026, 7, 22, 0, 35, 43, tzinfo=UTC)
times = st.datetimes(datetime(2020, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001 zone below
    lambda at: at.replace(microsecond=0)
)
whys = st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\0'), max_size=500) | st.sampled_from(
    ['"' * 500, "\0" * 500]
)
boxes = st.text("0123456789abcdef", min_size=17, max_size=17).map("i-".__add__)


@st.composite
def states(draw: Any) -> State:
    """Any state that the rules can reach, with every list at most as long as settings allow."""
    maybe = st.none() | times
    state = State(
        mode=draw(st.sampled_from(Mode)),
        since=draw(maybe),
        failovers=tuple(draw(st.lists(times, max_size=11, unique=True))),
        part=draw(st.integers(0, 99)),
        cooldown_from=draw(maybe),
        streak=draw(st.integers(0, 10)),
        scored_at=draw(maybe),
        rearm_from=draw(maybe),
        refresh_id=draw(st.none() | st.uuids().map(str)),
        launched_at=draw(maybe),
        abandoned=tuple(draw(st.dictionaries(boxes, times, max_size=20)).items()),
        dry_at=draw(maybe),
        repair_waits_since=draw(maybe),
        suspended_at=draw(maybe),
        resumed=draw(st.integers(0, 99)),
    )
    parts = tuple((at, draw(st.integers(1, 99))) for at in state.failovers[:KEPT_PARTS])
    state = replace(state, parts=parts)
    for kind, at, why in draw(st.lists(st.tuples(st.sampled_from(Kind), times, whys), max_size=9)):
        state = state.begin(kind, at, why)
    return state


@given(states())
def test_state_always_fits_and_always_parses(state: State) -> None:
    text = state.dumps()
    assert len(text.encode()) <= LIMIT_BYTES
    assert loads(text) == state


PARTS = tuple((AT + timedelta(hours=n), 95) for n in range(1, KEPT_PARTS + 2))


def largest(noticed: int) -> State:
    """Everything that settings allow at once, with that many notices."""
    boxes = tuple(f"i-{n:017x}" for n in range(20))
    seen = Evidence(AT, tuple(f"i-{n:017x}" for n in range(noticed)), 86400, ("use2-az1",) * 6, boxes, AT, 100)
    full = State(
        Mode.FAILOVER, since=AT, failovers=(*((AT,) * 41), *(at for at, _ in PARTS)), parts=PARTS, part=95,
        cooldown_from=AT, streak=10, scored_at=AT, rearm_from=AT,
        trial=True, blocked="permission", on_demand_since=AT, reminders=999, replaced_on="2026-07-22", replaced=9999,
        recommended=("0a1b2c3d",) * REMEMBERED_IDS, refresh_id="00000000-0000-0000-0000-000000000000", launched_at=AT,
        abandoned=tuple((box, AT) for box in boxes[:20]), dry_at=AT, refused=("on-demand permission",) * 4,
        evidence=seen, turns=99, metered_at=AT, metered_seconds=86400,
        repair_waits_since=AT, suspended_at=AT, resumed=99,
    )  # fmt: skip
    for _ in range(20):
        full = full.begin(Kind.LIMITED, AT, 'VcpuLimitExceeded: "' + "x" * 1000)  # what JSON escapes doubles
    return full


def test_largest_state_of_one_warned_box_loses_first_the_ends_of_mailed_reasons_then_the_oldest_notices() -> None:
    full = largest(noticed=88)  # forty boxes at twice their number
    full = replace(full, failovers=full.failovers[:41], parts=(), evidence=replace(full.evidence, warned=("i-0a",)))
    kept = loads(full.dumps())
    assert len(full.dumps().encode()) <= LIMIT_BYTES < len(full._text().encode())
    assert len(kept.owed) == OWED_MAILS
    assert {mail.why for mail in kept.owed} == {("VcpuLimitExceeded: '" + "x" * 100)[:SHORT_WHY_BYTES]}
    assert kept.unfinished == full.unfinished
    left = len(kept.evidence.noticed)
    assert kept.evidence.noticed == full.evidence.noticed[-left:]
    assert replace(kept, owed=full.owed, evidence=full.evidence) == full  # nothing else is lost
    longer = replace(kept, evidence=replace(kept.evidence, noticed=full.evidence.noticed[-left - 1 :]))
    assert len(longer._text().encode()) > LIMIT_BYTES  # and no more than must be


def test_largest_state_of_twenty_boxes_keeps_what_its_decisions_hang_on() -> None:
    full = largest(noticed=40)
    kept = loads(full.dumps())
    assert len(full.dumps().encode()) <= LIMIT_BYTES
    assert kept.evidence.warned == full.evidence.warned[-len(kept.evidence.warned) :]
    assert kept.evidence.warned
    lost = replace(kept.evidence, noticed=full.evidence.noticed, warned=full.evidence.warned)
    assert replace(kept, owed=full.owed, evidence=lost) == full


def test_part_of_the_fleet_that_a_failover_bought_is_read_back() -> None:
    state = State(Mode.FAILOVER, failovers=(AT, AT + timedelta(hours=1)), part=34, parts=((AT, 33),))
    assert '"2026-07-22T00:35:43Z 33"' in state.dumps()
    assert loads(state.dumps()) == state


def test_state_that_fits_loses_nothing_and_one_that_nearly_does_no_notice() -> None:
    small = replace(largest(noticed=0), failovers=(), parts=(), abandoned=(), recommended=())
    small = replace(small, evidence=replace(small.evidence, warned=("i-0a",)))
    assert loads(small.dumps()) == small
    owed = replace(
        small,
        failovers=(*((AT,) * 41), *(at for at, _ in PARTS)),
        parts=PARTS,
        part=95,
        abandoned=tuple((f"i-{n:017x}", AT) for n in range(16)),
    )
    notices = replace(owed.evidence, noticed=("i-0a", "i-0b"))
    assert loads(replace(owed, evidence=notices).dumps()).evidence == notices


def test_first_state_that_the_deploy_writes_is_read() -> None:
    assert loads('{"version": 1, "mode": "spot-armed"}') == State(Mode.ARMED)


@pytest.mark.parametrize(
    "text",
    [
        None, "", "{", "null", "[]", "7", '"text"', "{}",
        '{"mode":"spot-armed"}',
        '{"version":1}',
        '{"version":1,"mode":"spot"}',
        '{"version":2,"mode":"spot-armed"}',
        '{"version":0,"mode":"spot-armed"}',
        '{"version":1,"mode":"spot-armed","unknown":"2026-07-22T00:35:43Z"}',
        '{"version":1,"mode":"spot-armed","since":"yesterday"}',
        '{"version":1,"mode":"spot-armed","since":"2026-07-22T00:35:43"}',
        '{"version":1,"mode":"spot-armed","since":7}',
        '{"version":1,"mode":"spot-armed","failovers":7}',
        '{"version":1,"mode":"spot-armed","streak":"x"}',
        '{"version":1,"mode":"spot-armed","streak":1e999}',
        '{"version":1,"mode":"spot-armed","unfinished":{"kind":"failover"}}',
        '{"version":1,"mode":"spot-armed","unfinished":{"kind":"x","at":"2026-07-22T00:35:43Z","why":""}}',
        '{"version":1,"mode":"spot-armed","owed":["x"]}',
        '{"version":1,"mode":"spot-armed","abandoned":["x"]}',
    ],
)  # fmt: skip
def test_what_cannot_be_read_completely_is_not_read_at_all(text: str | None) -> None:
    with pytest.raises(StateError):
        loads(text)


def test_newer_state_names_both_versions() -> None:
    with pytest.raises(StateError, match="schema version 2, this watchdog reads 1"):
        loads('{"version":2,"mode":"spot-armed"}')


def test_reason_is_cut_at_a_whole_character() -> None:
    state = State(Mode.ARMED).begin(Kind.REPAIRED, AT, "ä" * 200)
    assert state.unfinished == Transition(Kind.REPAIRED, AT, "ä" * 60)


def test_reason_is_one_printable_line() -> None:
    state = State(Mode.ARMED).begin(Kind.REPAIRED, AT, "a\n\0b ")
    assert state.unfinished == Transition(Kind.REPAIRED, AT, "a  b")


def test_reason_holds_nothing_that_json_would_double() -> None:
    state = State(Mode.ARMED).begin(Kind.REPAIRED, AT, 'a "b" \\c')
    assert state.unfinished == Transition(Kind.REPAIRED, AT, "a 'b' /c")


def test_every_transition_owes_its_mail_but_the_silent_ones() -> None:
    for kind in Kind:
        assert bool(State(Mode.ARMED).begin(kind, AT, "why").owed) is (kind not in SILENT)


def test_every_transition_is_known_to_move_a_lever_or_not_to() -> None:
    """A new one moves a lever unless `state.py` says that it only mails: it is written here which is meant."""
    moves = "failover re-arm re-armed fell-back gave-up pinned armed repaired bridged on-demand-limit turned"
    mails = "boot-loop on-demand-dry resumed unsuspended suspended repair-waits launch-refused still-on-demand"
    assert set(moves.split()) == MOVES_LEVERS
    assert {*mails.split(), "many-replacements"} == set(Kind) - MOVES_LEVERS


def test_oldest_mail_is_dropped_when_too_many_are_owed() -> None:
    state = State(Mode.ARMED)
    for minute in range(OWED_MAILS + 1):
        state = state.begin(Kind.REPAIRED, AT + timedelta(minutes=minute), "why")
    assert [mail.at for mail in state.owed] == [AT + timedelta(minutes=n) for n in range(1, OWED_MAILS + 1)]


@pytest.mark.parametrize(
    ("mode", "rearm_from", "lever"),
    [
        (Mode.ARMED, None, 0),
        (Mode.FAILOVER, None, 100),
        (Mode.FAILOVER, AT, 0),
        (Mode.PINNED, None, 100),
    ],
)
def test_expected_lever_follows_mode_and_phase(mode: Mode, rearm_from: datetime | None, lever: int) -> None:
    assert State(mode, rearm_from=rearm_from).expected_lever == lever
