"""A gateway before a lane before an engine: who spills and when, and that all three count the same requests."""

import asyncio
from collections import Counter

from lane import line
from relay import lane_headers
from tests.gateway import running as gateway
from tests.gateway.targets import Target, answers
from tests.lane.lengths import A10G
from tests.lane.running import Caller, on_loop, serving

EACH = A10G / gateway.SCALE * 150 / 5  # an answer of the fleet's median, in five words, at the gateway's scale
WORDS = ("Spot", " boxes", " come", " and", " go")


def knows(lane: Caller) -> None:
    """The lane has seen answers of this engine before."""
    for _ in range(60):
        lane.lane.line.estimates.answered(prompt_tokens=3, prompt_seconds=0.0, tokens=5, token_seconds=4 * EACH)
        lane.lane.line.estimates.length(5)


@on_loop
async def test_a_ramp_of_callers_is_answered_and_gateway_lane_and_cloud_count_the_same() -> None:
    async with Target(answers(*WORDS, every=EACH)) as engine, Target(answers("the", " cloud")) as cloud:
        async with serving(engine.url, exact=False, gateway=True, model=gateway.MODEL) as lane:
            knows(lane)
            async with gateway.serving(lane.url, cloud.url) as caller:
                served: Counter[str] = Counter()
                for many in (1, 4, 10):
                    asked = (caller.chat(stream=number % 2 == 0) for number in range(many))
                    for answer in await asyncio.gather(*asked):
                        assert answer.status == 200
                        model = (answer.chunks or [answer.body])[0]["model"]
                        served["fallback" if model == "cloud-model" else "gpu"] += 1
                await lane.until(lambda: lane.lane.streams == 0)
                counts = lane.lane.line.counts
                assert sum(served.values()) == 15
                assert served["gpu"] == counts["answered"]
                assert served["fallback"] == len(cloud.asked)
                ends = ("answered", "caller_left", line.Why.LATE.value, line.Why.DEADLINE.value)
                assert counts["arrived"] == sum(counts[end] for end in ends)
                assert served["fallback"] > 0  # ten at once cannot all be in time, and that is known at second 0
                assert counts[line.Why.LATE.value] >= 2  # the same box is asked once more before the cloud is


@on_loop
async def test_slices_at_a_temperature_are_marked_up_to_the_caller() -> None:
    async with Target(answers("a", "b", finish="stop")) as engine:
        for on in (False, True):
            sliced = {"exact": False, "gateway": True, "model": gateway.MODEL, "inexact_slices": on}
            async with serving(engine.url, **sliced) as lane, gateway.serving(lane.url) as caller:
                knows(lane)
                for stream in (False, True):
                    answer = await caller.chat(temperature=0.7, max_tokens=1000, stream=stream)
                    assert (lane_headers.SLICES in answer.headers, answer.headers["x-served-by"]) == (on, "gpu")
                    assert (engine.asked[-1].body["max_tokens"] < 1000) is on
