"""Callers on the simulated clock, held against queueing theory, a published ramp, and days made by hand."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from random import Random
from statistics import fmean, median, quantiles
from typing import Any

import pytest

from fleet.config import cards
from fleet.config.gateway_settings import Budgets, Gateway, ProTier, Tiers
from fleet.config.settings import Settings
from fleet.eventlog.events import Event
from fleet.sim.callers.front import CloudModel
from fleet.sim.callers.listener import ASSUMED, Callers, Plan
from fleet.sim.callers.tally import CLOUD, CUT, GPU, NOBODY, REFUSED, Tally
from fleet.sim.callers.traffic import Asked, Traffic
from fleet.sim.cloud.virtual_clock import utc
from fleet.sim.drills import drill, scene
from fleet.sim.drills.drill import Drill
from fleet.sim.markets import synthetic
from fleet.sim.policies.catalogue import POLICIES
from gateway.ledger import reservation
from tests.drills.by_hand import START

pytestmark = pytest.mark.slow  # draws 120,000 requests

NO_LIMITS = Tiers(pro=ProTier(requests_per_day=10**9, fallbacks_per_day=10**9, parallel=10**9))
ENDLESS = Budgets(first_token_seconds=1e9, whole_seconds=1e9, wall_seconds=2e9)
A10G, L4 = "g5.xlarge", "g6.xlarge"
BEFORE_FIRST = cards.PROMPT_SECONDS + cards.A10G.token_seconds  # at the engine, until a first token
DRAWN = 120_000
LOADS = (0.2, 0.5, 0.8)


def log(seconds: float, pool: str = A10G, more: Iterable[tuple[float, str, dict[str, Any]]] = ()) -> list[Event]:
    """One box that serves from the start on, and what else happens; times in seconds from the start."""
    told: list[tuple[float, str, dict[str, Any]]] = [
        (0, "start", {"name": "by hand", "desired": 1}),
        (0, "box.launched", {"box": "a", "purchase": "spot", "pool": pool, "usd_per_hour": 0.42}),
        (0, "box.serving", {"box": "a"}),
        *more,
        (seconds, "end", {"name": "by hand", "desired": 1}),
    ]
    return [Event(utc(START) + timedelta(seconds=at), kind, fields) for at, kind, fields in told]


def lived(plan: Plan, settings: Settings, events: Sequence[Event]) -> Tally:
    callers = Callers(plan, settings)
    for event in events:
        callers.add(event)
    tally = callers.tally
    assert sum(tally.outcomes.values()) == tally.asked, "every request is answered, refused or cut exactly once"
    assert sum(tally.refusals.values()) == tally.outcomes[REFUSED]
    return tally


def with_gateway(settings: Settings, gateway: Gateway = ASSUMED, **changes: Any) -> Settings:
    return replace(settings, gateway=replace(gateway, **changes))


# --- closed forms -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn() -> list[tuple[float, int]]:
    """Gaps between requests, of mean 1, and the tokens of their answers."""
    wishes = Traffic(a_day=86400, shape="flat").drawn(0.0, seed=1)
    found = [next(wishes) for _ in range(DRAWN)]
    return [(b.at - a.at, b.tokens) for a, b in pairwise(found)]


def service(tokens: int) -> float:
    return cards.PROMPT_SECONDS + tokens * cards.A10G.token_seconds


def lindley(gaps: Iterable[float], services: Iterable[float], patience: float = math.inf) -> Iterator[float]:
    """The wait of each request at one server; who would wait longer than `patience` leaves, and does not count."""
    work = 0.0
    for gap, took in zip(gaps, services, strict=True):
        work = max(0.0, work - gap)
        yield work
        if work < patience:
            work += took


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant lengths", "drawn lengths"])
def test_waits_at_one_server_are_those_of_queueing_theory(
    load: float, constant: bool, drawn: list[tuple[float, int]]
) -> None:
    """Pollaczek and Khinchine: the mean wait is rate x E[S^2] / (2 (1 - load))."""
    services = [service(cards.ANSWER_TOKENS if constant else tokens) for _, tokens in drawn]
    gap = fmean(services) / load
    waits = list(lindley([each * gap for each, _ in drawn], services))
    expected = fmean(each * each for each in services) / gap / (2 * (1 - load))
    assert fmean(waits) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("lane", [True, False], ids=["the lane", "a strict line"])
def test_a_box_lets_each_request_wait_as_long_as_one_server_does(
    lane: bool, load: float, settings: Settings, drawn: list[tuple[float, int]]
) -> None:
    """Request by request: so what holds of one server on average holds here."""
    few, gap = drawn[:600], service(cards.ANSWER_TOKENS) / load
    at, wishes = START, list[Asked]()
    for each, tokens in few:
        at += each * gap
        wishes.append(Asked(at, tokens=tokens))
    fleet = with_gateway(settings, budgets=ENDLESS, tiers=NO_LIMITS)
    tally = lived(Plan(recorded=tuple(wishes), lane=lane), fleet, log(at - START + 1))
    expected = list(lindley([each * gap for each, _ in few], [service(tokens) for _, tokens in few]))
    waits = [first - BEFORE_FIRST for first in tally.first]
    assert waits == pytest.approx(expected, abs=0.01)
    assert tally.outcomes == {GPU: len(few)}


def test_the_share_that_spills_is_that_of_a_server_whose_callers_wait_for_so_long_and_no_longer(
    settings: Settings, drawn: list[tuple[float, int]]
) -> None:
    """Barrer: of exponential answers and callers who wait t, (1-r) r e / (1 - r^2 e) leave, e = exp(-(1-r) t / S)."""
    load, mean, draw = 0.9, service(cards.ANSWER_TOKENS), Random(2)  # noqa: S311  no secret
    patience = ASSUMED.budgets.first_token_seconds - BEFORE_FIRST
    token = cards.A10G.token_seconds
    lengths = [max(1, round(draw.expovariate(token / (mean - BEFORE_FIRST)))) for _ in drawn]
    services = [service(tokens) for tokens in lengths]
    gap = fmean(services) / load
    gaps = [each * gap for each, _ in drawn]
    left = [wait >= patience for wait in lindley(gaps, services, patience)]
    fading = math.exp(-(1 - load) * patience / fmean(services))
    theory = (1 - load) * load * fading / (1 - load**2 * fading)
    assert fmean(left) == pytest.approx(theory, rel=0.03)

    few, at, wishes = 1500, START, list[Asked]()
    for each, tokens in zip(gaps[:few], lengths, strict=False):
        at += each
        wishes.append(Asked(at, tokens=tokens, limit=4096))
    tally = lived(Plan(recorded=tuple(wishes), lane=False), with_gateway(settings, tiers=NO_LIMITS), log(at - START))
    assert tally.outcomes[CLOUD] == pytest.approx(sum(left[:few]), abs=2)  # one at the very edge of its patience
    assert tally.outcomes[GPU] + tally.outcomes[CLOUD] == few


# --- the published ramp -----------------------------------------------------------------------------------------------


def ramp(at_once: int, settings: Settings, *, lane: bool, bursts: int = 22) -> Tally:
    wishes = tuple(
        Asked(START + burst * 300, stream=False, tokens=tokens)
        for burst in range(bursts)
        for tokens in _lengths(at_once, burst)
    )
    return lived(Plan(recorded=wishes, lane=lane), with_gateway(settings, tiers=NO_LIMITS), log(bursts * 300))


def whole_by(tally: Tally, outcome: str) -> list[float]:
    """Seconds of the whole answers that the GPU, or the cloud, gave."""
    found = zip(tally.whole, tally.by_cloud, strict=True)
    return [seconds for seconds, cloud in found if cloud == (outcome == CLOUD)]


def _lengths(many: int, seed: int) -> list[int]:
    draw = Random(seed)  # noqa: S311  no secret
    return [round(cards.ANSWER_TOKENS * draw.lognormvariate(0, cards.SPREAD)) for _ in range(many)]


@pytest.mark.parametrize(("at_once", "published"), [(1, 9.4), (4, 23.4), (10, 47.9)])
def test_the_published_medians_come_out_of_the_time_of_one_answer(
    at_once: int, published: float, settings: Settings
) -> None:
    """Of those that the GPU answered. Nothing was fitted to them."""
    tally = ramp(at_once, settings, lane=False)
    assert median(whole_by(tally, GPU)) == pytest.approx(published, rel=0.05)
    spilled = whole_by(tally, CLOUD)
    if at_once < 10:
        assert spilled == []
    else:  # published: 11 of 220, all at 91 to 96 s
        assert 11 <= len(spilled) <= 33
        assert all(91 <= seconds <= 96 for seconds in spilled)


def test_with_the_lane_who_cannot_be_served_in_time_spills_at_second_0(settings: Settings) -> None:
    """Told so at arrival, by the estimate, and not overtaken since: of one caller, the order is that of arrival."""
    tally = ramp(10, settings, lane=True)
    slowest = cards.CLOUD_SECONDS[1]
    assert len(whole_by(tally, CLOUD)) > 11
    late = [seconds for seconds in whole_by(tally, CLOUD) if seconds > 1 + slowest]
    assert late == []
    assert tally.outcomes[NOBODY] == tally.outcomes[REFUSED] == 0


# --- a box leaves -----------------------------------------------------------------------------------------------------

NOTICE = [
    (100.0, "notice", {"box": "a"}),
    (105.0, "box.unserving", {"box": "a", "why": "notice"}),
    (220.0, "box.ended", {"box": "a", "why": "reclaim"}),
]


def asked(at: float, **fields: Any) -> Plan:
    return Plan(recorded=(Asked(START + at, **fields),))


def test_an_answer_that_can_be_finished_before_the_box_goes_is(settings: Settings) -> None:
    tally = lived(asked(99), settings, log(600, more=NOTICE))
    assert tally.outcomes == {GPU: 1}
    assert tally.whole[0] == pytest.approx(9.4, abs=0.01)


def test_a_stream_that_cannot_is_cut_when_the_margin_begins(settings: Settings) -> None:
    tally = lived(asked(90, tokens=3000, limit=4096), settings, log(600, more=NOTICE))
    assert tally.outcomes == {CUT: 1}
    margin = settings.drain.safety_margin_seconds
    assert tally.decoded == pytest.approx((100 + 120 - margin - 90) / cards.A10G.token_seconds, rel=0.02)
    assert tally.wasted == 0, "its caller has what was decoded"


def test_a_stream_is_continued_where_the_cloud_declares_it_and_sampling_is_fixed(settings: Settings) -> None:
    fallback = replace(ASSUMED.fallback, continues=True)
    fleet = with_gateway(settings, fallback=fallback, fixed_sampling=True)
    tally = lived(asked(90, tokens=3000, limit=4096), fleet, log(600, more=NOTICE))
    assert (tally.outcomes, tally.continued) == ({GPU: 1}, 1)
    prompt, rest = Asked(START).prompt_tokens, 3000 - tally.decoded
    used = reservation(prompt, rest, fallback.dollars_per_million_input, fallback.dollars_per_million_output)
    assert tally.cloud_usd == pytest.approx(used / 1e6), "what the box had delivered is not the cloud's"


def test_a_continuation_that_the_cloud_refuses_costs_nothing(settings: Settings) -> None:
    fallback = replace(ASSUMED.fallback, continues=True)
    fleet = with_gateway(settings, fallback=fallback, fixed_sampling=True)
    refused = replace(asked(90, tokens=3000, limit=4096), cloud=CloudModel(too_many=1.0))
    tally = lived(refused, fleet, log(600, more=NOTICE))
    assert (tally.outcomes, tally.cloud_usd) == ({CUT: 1}, 0)


def test_who_cannot_be_served_before_the_box_goes_is_handed_back_at_once_and_answered_by_the_cloud(
    settings: Settings,
) -> None:
    """Five in line, 30 s to go: two of 9.4 s fit, by the lane's estimates; the others need not wait for the end."""
    fleet = replace(settings, drain=replace(settings.drain, budget_seconds=30))
    wishes = tuple(Asked(START + 99, caller=str(number), stream=False) for number in range(5))
    tally = lived(Plan(recorded=wishes), fleet, log(600, more=NOTICE))
    assert tally.outcomes == {GPU: 2, CLOUD: 3}
    assert max(whole_by(tally, CLOUD)) < 105 - 99 + 1 + cards.CLOUD_SECONDS[1]
    strict = lived(Plan(recorded=wishes, lane=False), fleet, log(600, more=NOTICE))
    assert max(whole_by(strict, CLOUD)) > 105 + 30 - 99, "without the lane they wait for the end"


def test_in_the_dark_the_cloud_answers_after_the_fresh_connections_and_later_at_once(settings: Settings) -> None:
    plan = Plan(recorded=tuple(Asked(START + at) for at in (300, 400)))
    tally = lived(plan, settings, log(600, more=NOTICE))
    assert tally.outcomes == {CLOUD: 2}
    low, high = cards.CLOUD_SECONDS
    assert low + 0.5 <= tally.whole[0] <= high + 0.5
    assert low <= tally.whole[1] <= high, "the breaker is open"


def test_a_successor_is_asked_within_a_second_of_its_serving_by_whoever_waits_for_it(settings: Settings) -> None:
    successor = [
        (230.0, "box.launched", {"box": "b", "purchase": "spot", "pool": f"{A10G}@us-east-2a", "usd_per_hour": 0.42}),
        (420.0, "box.serving", {"box": "b"}),
    ]
    plan = replace(asked(400), cloud=None)
    tally = lived(plan, settings, log(900, more=[*NOTICE, *successor]))
    assert tally.outcomes == {GPU: 1}
    assert 20 + BEFORE_FIRST <= tally.first[0] <= 20 + 1 + BEFORE_FIRST


def test_without_box_and_cloud_nobody_answers_and_the_cap_is_given_back(settings: Settings) -> None:
    wishes = tuple(Asked(START + 300 + 60 * number, tier="anonymous") for number in range(14))
    tally = lived(Plan(recorded=wishes, cloud=None), settings, log(3600, more=NOTICE))
    assert tally.outcomes == {NOBODY: 14}, "the eleventh of the day is not refused"


def test_caps_parallel_requests_and_sizes_are_refused_by_the_gateways_own_words(settings: Settings) -> None:
    wishes = (
        *(Asked(START + 60 * number, tier="anonymous") for number in range(11)),
        Asked(START + 1000, caller="2", tier="free"),
        Asked(START + 1000, caller="2", tier="free"),
        Asked(START + 1000, caller="2", tier="free"),
        Asked(START + 2000, caller="3", prompt_tokens=9000),
        Asked(START + 2000, caller="3", limit=5000),
    )
    tally = lived(Plan(recorded=wishes), settings, log(3600))
    words = {"cap_reached": 1, "too_many_at_once": 1, "context_length_exceeded": 1, "invalid_value": 1}
    assert tally.refusals == words
    assert tally.outcomes[GPU] == 12


def test_the_days_dollars_end_the_cloud_and_what_was_not_used_is_given_back(settings: Settings) -> None:
    """A reservation is of the largest answer, 1024 tokens: $0.00175; what is used is $0.00044. So more fit than 2."""
    gateway = replace(ASSUMED, fallback=replace(ASSUMED.fallback, dollars_per_day=0.0035))
    wishes = tuple(Asked(START + 300 + 100 * number) for number in range(9))
    tally = lived(Plan(recorded=wishes), with_gateway(settings, gateway), log(7200, more=NOTICE))
    assert tally.outcomes == {CLOUD: 5, NOBODY: 4}
    assert tally.cloud_usd <= 0.0035


def test_a_cloud_that_fails_is_left_alone_for_a_while_and_refuses_nobody_who_can_still_be_served(
    settings: Settings,
) -> None:
    wishes = tuple(Asked(START + 300 + 5 * number, caller=str(number)) for number in range(12))
    failing = Plan(recorded=wishes, cloud=CloudModel(fails=1.0))
    assert lived(failing, settings, log(7200, more=NOTICE)).outcomes == {NOBODY: 12}
    too_many = Plan(recorded=wishes, cloud=CloudModel(too_many=1.0))
    assert lived(too_many, settings, log(7200, more=NOTICE)).cloud_usd == 0


# --- whole drills -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["alarm", "fallback", "clairvoyant"])
def test_a_drill_counts_everybody_once_under_every_policy(policy: str, settings: Settings) -> None:
    events: list[Event] = []
    place = scene.named([str(synthetic.FOLDER / "drought.market")], days=1)
    drill.run(Drill(place.build(0), settings, emit=events.append), POLICIES[policy])
    traffic = Traffic(a_day=500, at_once=4, background=0.2)
    plan = Plan(traffic, cloud=CloudModel(fails=0.1, too_many=0.1))
    once, again = (lived(plan, settings, events) for _ in range(2))
    assert once == again
    end = events[-1].at.timestamp()
    counted = 0
    for asked in traffic.drawn(events[0].at.timestamp(), 0):
        if asked.at > end:
            break
        counted += 1
    assert once.asked == counted > 100
    assert once.wasted <= once.decoded
    assert quantiles(once.whole, n=100)[98] <= ASSUMED.budgets.wall_seconds + settings.drain.budget_seconds


def test_a_fleet_of_two_boxes_shares_the_callers_and_a_busy_box_sends_them_to_the_other(settings: Settings) -> None:
    second = [
        (0, "box.launched", {"box": "b", "purchase": "spot", "pool": A10G, "usd_per_hour": 0.42}),
        (0, "box.serving", {"box": "b"}),
    ]
    plan = Plan(Traffic(a_day=7000, shape="flat"))
    one, two = (lived(plan, with_gateway(settings), log(3 * 3600, more=more)) for more in ([], second))
    assert one.share(CLOUD) > 0.05
    assert two.share(CLOUD) < one.share(CLOUD) / 4


def test_the_rate_has_the_shape_of_a_week_and_the_mean_that_was_asked_for() -> None:
    traffic, week = Traffic(a_day=500), 7 * 86400.0
    ats = [wish.at for wish, _ in zip(traffic.drawn(0.0, 3), range(14_000), strict=False)]
    weeks = int(ats[-1] // week)
    inside = [at for at in ats if at < weeks * week]
    assert len(inside) == pytest.approx(weeks * 7 * 500, rel=0.03)
    weekend = sum((int(at // 86400) + 3) % 7 >= 5 for at in inside)
    assert weekend / len(inside) == pytest.approx(2 * 0.4 / (5 + 2 * 0.4), rel=0.05)
