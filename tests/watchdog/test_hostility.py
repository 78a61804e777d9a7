"""Ten thousand invocations of generated hostility; and an onlooker who objects where a rule is missing."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.sim.cloud.behaviour import Behaviour, Events
from fleet.sim.markets.market import PLENTY
from lambdas.watchdog import bridge, failures, mail, turns
from lambdas.watchdog.state import Kind
from tests.watchdog.hostility import Life, Onlooker, lived_through

pytestmark = pytest.mark.slow

QUIET = Life("bridge", (), (), 3600.0, None, None, False, Behaviour(), 1, 1)
DRY_WHILE_SPOT_SELLS_AGAIN = replace(QUIET, spot=((1, 0), (4, PLENTY)), on_demand=((0.5, 0), (12, PLENTY)))
TAKEN_WHILE_THEY_BOOT = replace(QUIET, notice_after_launch=150, behaviour=Behaviour(events=Events(lost_share=0.2)))
REFUSED = replace(QUIET, behaviour=Behaviour(spot_refused_with="MaxSpotInstanceCountExceeded"))


def test_ten_thousand_invocations_break_no_rule() -> None:
    assert list(lived_through(10_000, 0, 2))  # one life of twenty boxes may be thirty thousand of them


@pytest.mark.parametrize(
    ("life", "module", "name", "instead", "objection"),
    [
        (DRY_WHILE_SPOT_SELLS_AGAIN, turns, "step", lambda *_: None, "dark for .* while spot sells"),
        (TAKEN_WHILE_THEY_BOOT, failures, "failed_boot", lambda *_: "abandoned", "did not fail in its boot"),
        (
            replace(TAKEN_WHILE_THEY_BOOT, behaviour=Behaviour()),
            bridge,
            "_boots_that_come_to_nothing",
            lambda *_: "",
            "dark for .* while on-demand sells",
        ),
    ],
)
def test_onlooker_objects_where_a_rule_is_missing(
    life: Life, module: Any, name: str, instead: Any, objection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Onlooker(life).lived()
    monkeypatch.setattr(module, name, instead)
    with pytest.raises(AssertionError, match=objection):
        Onlooker(life).lived()


def test_onlooker_objects_to_a_mail_that_its_evidence_contradicts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Onlooker(REFUSED).lived()
    capacity = replace(mail.TEXTS[Kind.REFUSED], subject=mail.TEXTS[Kind.DRY].subject)
    monkeypatch.setitem(mail.TEXTS, Kind.REFUSED, capacity)
    with pytest.raises(AssertionError):
        Onlooker(REFUSED).lived()
