"""Several boxes: which one is asked, who is asked next, and what follows where AWS does not say who is healthy."""

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import pairwise

import botocore.session
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.stub import Stubber
from hypothesis import example, given
from hypothesis import strategies as st

from gateway import boxes
from gateway.choice import LaneWait, order
from relay import lane_headers
from tests.gateway.running import closed_port, on_loop, serving
from tests.gateway.targets import Act, Target, Turn, answers, fails, resets

BOXES = st.sampled_from(["i-1", "i-2", "i-3", "i-4"])
TOLD = st.dictionaries(BOXES, st.builds(LaneWait, st.floats(0, 100), st.floats(0.1, 20)), max_size=4)


def box(wait: float, act: Act | None = None, answer: float = 1.0) -> Act:
    """A box whose lane tells this wait, before an engine that does as `act`."""

    async def each(turn: Turn) -> None:
        if turn.asked.body:
            return await (act or answers())(turn)
        return await turn.head(204, {lane_headers.WAIT: str(wait), lane_headers.ANSWER: str(answer)}, 0)

    return each


def requests(target: Target) -> int:
    """How often it was asked for an answer."""
    return sum(1 for asked in target.asked if asked.body)


# --- the decision ---------------------------------------------------------------------------------------------------


@example(dict.fromkeys(("i-1", "i-2"), LaneWait(0, 9)), {}, {"i-1": 2, "i-2": 1}, set())  # alike, but for the turns
@example({"i-1": LaneWait(9, 9), "i-2": LaneWait(4, 9)}, {"i-2": 1}, {}, set())  # 4 + 9 is longer than 9
@given(TOLD, st.dictionaries(BOXES, st.integers(0, 5)), st.dictionaries(BOXES, st.integers(1, 99)), st.sets(BOXES))
def test_each_box_is_named_once_those_tried_in_vain_last_and_no_longer_line_before_a_shorter(
    told: dict[str, LaneWait], sent: dict[str, int], turns: dict[str, int], tried: set[str]
) -> None:
    found = order(told, sent, turns, tried)
    assert sorted(found) == sorted(told)
    line = {name: each.wait_seconds + sent.get(name, 0) * each.answer_seconds for name, each in told.items()}
    for first, then in pairwise(found):
        assert (first in tried, line[first]) <= (then in tried, line[then])
        if (first in tried, line[first]) == (then in tried, line[then]):
            assert turns.get(first, 0) <= turns.get(then, 0)


# --- over sockets ---------------------------------------------------------------------------------------------------


@on_loop
async def test_shorter_line_gets_the_request_and_a_crowd_is_spread() -> None:
    async with Target(box(30)) as long, Target(box(0)) as short, Target() as balancer:
        listed = [str(long.port), str(short.port)]
        async with serving(balancer.url, healthy=lambda: listed) as caller:
            assert (await caller.chat()).headers["x-served-by"] == "gpu"
            assert [requests(each) for each in (long, short, balancer)] == [0, 1, 0]
    async with Target(box(0, answer=9)) as one, Target(box(0, answer=9)) as other, Target() as balancer:
        listed = [str(one.port), str(other.port)]
        async with serving(balancer.url, healthy=lambda: listed) as caller:
            await asyncio.gather(*(caller.chat(stream=True) for _ in range(10)))
            assert [requests(each) for each in (one, other, balancer)] == [5, 5, 0]


@on_loop
async def test_targets_are_listed_once_in_a_while_and_waits_told_once_for_a_crowd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(boxes, "WAITS_SECONDS", 60)
    async with Target(box(0)) as only:
        listed: list[float] = []

        def healthy() -> list[str]:
            listed.append(time.monotonic())
            return [str(only.port)]

        async with serving(closed_port(), healthy=healthy) as caller:
            await asyncio.gather(*(caller.chat() for _ in range(20)))
            assert (len(listed), len(only.asked) - requests(only)) == (1, 1)
            monkeypatch.setattr(boxes, "TARGETS_SECONDS", 0.6)
            monkeypatch.setattr(boxes, "WAITS_SECONDS", 0.2)
            began = time.monotonic()
            while (elapsed := time.monotonic() - began) < 1.5:
                await caller.chat()
                await asyncio.sleep(0.01)  # a fast machine would use up the day's cap
            told = len(only.asked) - requests(only) - 1
    assert 2 <= len(listed) <= 2 + elapsed / 0.6
    assert len(listed) <= told <= 1 + elapsed / 0.2


@on_loop
async def test_box_that_left_the_list_or_tells_nothing_is_not_asked() -> None:
    async with Target(box(0)) as gone, Target(fails(503)) as leaving, Target(box(60)) as left, Target() as balancer:
        listed = [str(leaving.port), str(left.port)]
        async with serving(balancer.url, healthy=lambda: listed) as caller:
            await caller.chat()
            assert [requests(each) for each in (gone, leaving, left, balancer)] == [0, 0, 1, 0]


@pytest.mark.parametrize("act", [fails(503, x_lane_wait_seconds="40"), resets, fails(500)])
@on_loop
async def test_who_was_busy_or_broke_is_not_asked_again_while_there_is_another(act: Act) -> None:
    async with Target(box(0, act)) as first, Target(box(5)) as other, Target() as balancer:
        listed = [str(first.port), str(other.port)]
        async with serving(balancer.url, healthy=lambda: listed) as caller:
            assert (await caller.chat()).headers["x-served-by"] == "gpu"
            assert [requests(each) for each in (first, other, balancer)] == [1, 1, 0]


@on_loop
async def test_box_that_takes_no_connection_is_left_out_and_the_breaker_opens_when_the_balancer_refuses_too() -> None:
    async with Target(box(0)) as first, Target(box(5)) as other, Target(answers("cloud")) as cloud:
        listed = [str(first.port), str(other.port)]
        async with serving(closed_port(), cloud.url, healthy=lambda: listed) as caller:
            await caller.chat()
            await first.leave()  # after it told its wait
            assert (await caller.chat()).headers["x-served-by"] == "gpu"
            assert [requests(each) for each in (first, other)] == [1, 1]
            gpu = caller.gateway._gpu
            assert gpu.breaker.closed
            await other.leave()
            assert (await caller.chat()).headers["x-served-by"] == "fallback"
            assert not gpu.breaker.closed


def refused(code: str) -> Callable[[], list[str]]:
    def healthy() -> list[str]:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeTargetHealth")

    return healthy


def silent() -> list[str]:
    time.sleep(1.5)
    return []


def unreachable() -> list[str]:
    raise EndpointConnectionError(endpoint_url="https://elb")


@pytest.mark.parametrize(
    ("healthy", "word"),
    [
        (refused("Throttling"), "(Throttling)"),
        (refused("AccessDenied"), "(AccessDenied)"),
        (unreachable, "Could not connect"),
        (silent, "not told within 1 s"),
        (list, "none of 0 healthy boxes"),
        (lambda: ["1"], "none of 1 healthy boxes"),
    ],
)
@on_loop
async def test_where_nobody_says_which_box_is_healthy_the_balancer_chooses_and_the_log_says_so(
    healthy: Callable[[], list[str]], word: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway")
    async with Target() as balancer, serving(balancer.url, healthy=healthy) as caller:
        began = time.monotonic()
        for _ in range(3):
            assert (await caller.chat()).headers["x-served-by"] == "gpu"
        assert time.monotonic() - began < boxes.PATIENCE_SECONDS + 1
        assert requests(balancer) == 3
    told = [record.getMessage() for record in caplog.records if record.name == "gateway"]
    assert len(told) == 1
    assert told[0].startswith("boxes: the balancer chooses (")
    assert word in told[0]


def test_healthy_are_those_that_the_target_group_calls_so(monkeypatch: pytest.MonkeyPatch) -> None:
    states = ("healthy", "initial", "unhealthy", "draining", "unhealthy.draining", "unused", "unavailable")
    client = botocore.session.get_session().create_client(
        "elbv2", region_name="us-east-2", aws_access_key_id="x", aws_secret_access_key="x"
    )
    monkeypatch.setattr(boxes.boto3, "client", lambda *_, **__: client)
    with Stubber(client) as stub:
        told = [{"Target": {"Id": f"i-{state}"}, "TargetHealth": {"State": state}} for state in states]
        stub.add_response("describe_target_health", {"TargetHealthDescriptions": told}, {"TargetGroupArn": "arn:group"})
        assert boxes.healthy("arn:group")() == ["i-healthy"]
