"""The decisions, without a socket: properties that hold whatever a caller writes and however targets fail."""

from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from fleet.config.gateway_settings import Budgets, Fallback, Gateway, Retries
from gateway import admission, callers, fallback
from gateway.breaker import PROBE_SECONDS, RETURNS_SECONDS, Breaker
from gateway.config import Config
from gateway.fallback import Failure, Kind, PassOn, Refuse, Situation, Tier, Wait
from gateway.restraint import ENOUGH, Restraint
from relay import chat, sse
from relay.refusal import Refusal
from relay.site import site

CONFIG = Config(fleet="llm", gpu_url="http://gpu:1", models={"house": "house-model:31b-q4"}, gateway=Gateway())
BUDGETS = Budgets()

FAILURES = st.one_of(
    st.builds(Failure, st.just(Tier.GPU), st.sampled_from(sorted(set(Kind) - {Kind.STATUS, Kind.BUSY})), st.just(0.0)),
    st.builds(
        Failure,
        st.just(Tier.GPU),
        st.sampled_from([Kind.STATUS, Kind.BUSY]),
        st.just(0.0),
        status=st.sampled_from([400, 404, 413, 429, 451, 500, 502, 503]),
        retry_after_seconds=st.none() | st.floats(0, 100),
        box=st.sampled_from(["", "i-1", "i-2", "i-3", "i-4"]),
    ),
)


def lives(fail: Any, *, budget: float, cloud: str, gpu: str = "") -> tuple[list[fallback.Step], float]:
    """Play a request whose every attempt fails as `fail(tier)` says; its steps, and when it ended."""
    failures: list[Failure] = []
    now, steps = 0.0, []
    while True:
        step = fallback.next_step(Situation(now, budget, tuple(failures), gpu, cloud))
        steps.append(step)
        match step:
            case fallback.AskTarget(tier, after, _):
                failure = fail(tier)
                now += after + 0.001
                failures.append(Failure(**{**vars(failure), "tier": tier, "at": now}))
            case Wait(seconds):
                now += seconds
            case PassOn() | Refuse():
                return steps, now


@settings(deadline=None)
@given(FAILURES, FAILURES, st.sampled_from([2.0, 5.0]), st.sampled_from(["", "off"]))
def test_every_request_ends_within_its_budget_and_asks_the_cloud_once_at_most(
    first: Failure, other: Failure, budget: float, cloud: str
) -> None:
    turns = iter([first])
    steps, ended = lives(lambda tier: next(turns, other), budget=budget, cloud=cloud)
    asked = [step.tier for step in steps if isinstance(step, fallback.AskTarget)]
    assert asked.count(Tier.CLOUD) <= (0 if cloud else 1)
    assert ended <= budget
    last = steps[-1]
    if isinstance(last, PassOn):
        assert last.failure.status in fallback.FAILS_ANYWHERE
        assert Tier.CLOUD not in asked or asked[-1] is Tier.GPU
    else:
        assert isinstance(last, Refuse)
        assert last.retry_after_seconds > 0


@settings(deadline=None)
@given(FAILURES)
def test_before_the_cloud_a_target_is_asked_no_more_often_than_its_failure_allows(failure: Failure) -> None:
    steps, _ = lives(lambda tier: failure, budget=30.0, cloud="")
    before = [step for step in steps if isinstance(step, fallback.AskTarget)]
    until = next((n for n, step in enumerate(before) if step.tier is Tier.CLOUD), len(before))
    most = {Kind.REFUSED: 3, Kind.BUSY: 2, Kind.SILENT: 1, Kind.BROKEN: 1}
    assert until <= most.get(failure.kind, 2)


@pytest.mark.parametrize(
    ("refused_at", "all_were"),
    [
        ((), False),
        ((0.0,), False),
        ((0.0, 0.25), False),
        ((0.0, 0.25, 0.5), True),
        ((2.0, 4.25), True),  # given up, not refused: a third would come too late
    ],
)
def test_all_are_refused_when_no_fresh_connection_is_left(refused_at: tuple[float, ...], all_were: bool) -> None:
    failures = [Failure(Tier.GPU, Kind.REFUSED, at) for at in refused_at]
    assert fallback.all_refused(failures, Retries()) is all_were
    taken = Failure(Tier.GPU, Kind.RESET, 5.0)
    again = [*failures, taken, Failure(Tier.GPU, Kind.REFUSED, 6.0)]
    assert not fallback.all_refused(again, Retries()), "one was taken between"


def test_what_is_tried_at_the_gpu_once_more_is_as_the_settings_say() -> None:
    refused = [Failure(Tier.GPU, Kind.REFUSED, 0.1 * n) for n in range(3)]
    one, five = Retries(fresh_connections=1), Retries(fresh_connections=5)
    assert fallback.all_refused(refused[:1], one)
    assert not fallback.all_refused(refused, five)
    assert fallback.all_refused(refused, Retries(fresh_connections=5, fresh_seconds=0.4)), "so long it is tried"
    busy = (Failure(Tier.GPU, Kind.STATUS, 0.0, 503, retry_after_seconds=8.0),)
    assert fallback.next_step(Situation(0.0, 30.0, busy)) == fallback.AskTarget(Tier.CLOUD)
    patient = Situation(0.0, 30.0, busy, retries=Retries(retry_after_seconds=8))
    assert fallback.next_step(patient) == fallback.AskTarget(Tier.GPU, 8.0)
    full = (Failure(Tier.GPU, Kind.BUSY, 0.0, 503, box="i-1"),)
    assert fallback.next_step(Situation(0.0, 30.0, full)) == fallback.AskTarget(Tier.GPU, fresh=True)
    assert fallback.next_step(Situation(0.0, 30.0, full, retries=Retries(boxes=1))) == fallback.AskTarget(Tier.CLOUD)


def test_how_soon_and_for_how_long_the_cloud_is_left_alone_is_as_the_settings_say() -> None:
    cloud = Restraint(Fallback(url="https://cloud", failures=2, break_seconds=7, pause_seconds=3))

    def open_at(now: float) -> bool:
        return not cloud.closed(now, continues=False)

    cloud.judged(0.0, well=False)
    assert open_at(0.0)
    cloud.judged(0.0, well=False)
    assert (open_at(6.9), open_at(7.0)) == (False, True)
    cloud.too_many(10.0, None)
    assert (open_at(12.9), open_at(13.0)) == (False, True)


@pytest.mark.parametrize(
    ("back_in", "cloud_said", "told"),
    [
        (None, None, fallback.DEFAULT_RETRY_AFTER_SECONDS),
        (41.2, None, 42),
        (41.2, 7.5, 8),
        (7.5, 41.2, 8),
        (290.0, None, fallback.RETRY_AFTER_HONOURED_SECONDS),
        (None, 3600.0, fallback.RETRY_AFTER_HONOURED_SECONDS),
    ],
)
def test_who_cannot_be_answered_is_told_when_the_first_of_both_should_be_there(
    back_in: float | None, cloud_said: float | None, told: int
) -> None:
    refused = Failure(Tier.CLOUD, Kind.STATUS, 0.1, 429, retry_after_seconds=cloud_said)
    step = fallback.next_step(Situation(30.0, 30.0, (refused,), "no box", gpu_back_in=back_in))
    assert isinstance(step, Refuse)
    assert step.retry_after_seconds == told


@pytest.mark.parametrize(
    ("status", "back_in", "waits"),
    [
        (400, 41.0, False),
        (401, 41.0, False),
        (404, 41.0, False),
        (400, 19.0, True),  # a box should be back in time
        (400, None, True),  # it is overdue
        (408, 41.0, True),
        (429, 41.0, True),
        (500, 41.0, True),
    ],
)
def test_nobody_waits_for_a_gpu_that_comes_too_late_beside_a_cloud_that_never_takes_the_request(
    status: int, back_in: float | None, waits: bool
) -> None:
    refused = Failure(Tier.CLOUD, Kind.STATUS, 10.0, status)
    step = fallback.next_step(Situation(10.0, 30.0, (refused,), "no box", gpu_back_in=back_in))
    assert isinstance(step, Wait) is waits
    of_the_gpu = fallback.next_step(Situation(10.0, 30.0, (refused,)))
    assert of_the_gpu == fallback.AskTarget(Tier.GPU, fallback.LINE_PAUSE_SECONDS, True), (
        "it may take what that did not"
    )


def test_a_box_is_expected_back_by_what_outages_have_lasted_here() -> None:
    breaker = Breaker()
    assert breaker.back_in(0.0) is None, "one serves"
    dark = breaker.refused(1000.0)
    assert dark.back_in(1060.0) == RETURNS_SECONDS - 60
    assert dark.back_in(1000.0 + RETURNS_SECONDS) is None, "overdue: nobody can tell"
    after_100 = dark.taken(1100.0)
    assert after_100.refused(2000.0).back_in(2000.0) == (RETURNS_SECONDS + 100) / 2
    blip = after_100.refused(2000.0).taken(2001.0)
    assert blip.refused(3000.0).back_in(3000.0) == (RETURNS_SECONDS + 100) / 2, "no boot is that short"


@pytest.mark.parametrize("cloud", ["", "off"])
def test_request_whose_gpu_is_out_goes_to_the_cloud_or_waits_in_line_for_its_budget(cloud: str) -> None:
    steps, ended = lives(lambda tier: Failure(tier, Kind.STATUS, 0, 503), budget=30.0, cloud=cloud, gpu="no box")
    assert isinstance(steps[0], fallback.AskTarget if not cloud else Wait)
    assert 29 <= ended <= 30


def test_local_budget_leaves_room_for_the_fallback_below_the_wall() -> None:
    for p95 in (1.0, 6.0, 20.0, 200.0):
        assert 0 <= fallback.local_budget(False, BUDGETS, p95) <= max(0, BUDGETS.wall_seconds - p95)
    cloud = Restraint(Fallback(url="https://cloud"))
    for seconds in range(1, 101):
        assert seconds >= ENOUGH or cloud.p95(6.0) == 6.0, "too few to tell"
        cloud.took(seconds)
    assert cloud.p95(6.0) == 96
    assert fallback.cloud_budget(30.0, True, BUDGETS) == 30.0 + BUDGETS.fallback_first_token_seconds


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["refused", "taken", "probe"]), st.floats(0, 3)), max_size=30))
def test_breaker_is_open_from_a_refusal_to_the_next_connection_and_probes_twice_a_second(steps: Any) -> None:
    breaker, now, is_open, probed = Breaker(), 0.0, False, 0.0
    for step, seconds in steps:
        now += seconds
        if step == "refused":
            probed = probed if is_open else now
            breaker, is_open = breaker.refused(now), True
        elif step == "taken":
            breaker, is_open = breaker.taken(now), False
        elif breaker.due(now):
            assert now - probed >= PROBE_SECONDS
            breaker, probed = breaker.probed(now), now
        assert breaker.closed is not is_open


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
MESSAGE = st.fixed_dictionaries({}, optional=dict.fromkeys(("role", "content", "tool_calls"), JSON))
BODY = st.fixed_dictionaries(
    {"model": st.just("house")},
    optional={
        "messages": st.lists(MESSAGE | JSON, max_size=3) | JSON,
        **dict.fromkeys((*(chat.FIELDS - {"messages"}), "stream", "stream_options", "max_tokens"), JSON),
    },
)


@settings(deadline=None)
@given(BODY)
def test_a_body_of_any_shape_is_admitted_or_refused(body: dict[str, Any]) -> None:
    try:
        ask = admission.admit(sse.dumps(body), {}, CONFIG)
    except Refusal as refusal:
        event(f"refused with {refusal.status}")
        told = (refusal.status in (400, 413), bool(refusal.message))
    else:
        told = (set(ask.body) <= chat.FIELDS, 1 <= ask.max_tokens <= CONFIG.gateway.limits.max_tokens)
    assert told == (True, True)


@settings(deadline=None)
@given(st.text(max_size=60), st.text(max_size=80), st.integers(0, 4))
def test_address_is_never_one_that_a_caller_made_up(peer_hint: str, forwarded: str, hops: int) -> None:
    found = callers.address_of("192.0.2.1", forwarded, hops)
    ours = [part.strip().strip("[]") for part in forwarded.split(",") if part.strip()]
    assert found == "192.0.2.1" or found == ours[-hops]
    assert site(found)


def test_keys_are_long_random_and_known_by_their_hash_alone() -> None:
    made = {callers.new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(len(key) == len(callers.PREFIX) + 43 for key in made)
    assert len({callers.key_hash(key) for key in made}) == 100
