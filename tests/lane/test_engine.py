"""The lane before a real llama.cpp server: its answers unchanged, slices exact, a strict line."""

import asyncio
from typing import Any

import aiohttp
import pytest

from lane.order import Entry
from tests.lane.running import HELLO, MODEL, Caller, on_loop, serving

pytestmark = pytest.mark.slow  # computes a model's answers

LONG = 1024
FIXED = {"temperature": 0, "max_tokens": LONG}


async def direct(engine: str, **body: Any) -> Any:
    """The engine's own answer."""
    async with aiohttp.ClientSession() as session:
        url = f"{engine}/v1/chat/completions"
        async with session.post(url, json={"model": MODEL, "messages": HELLO, **body}) as response:
            return await response.json()


async def ids(engine: str, text: str) -> list[int]:
    """The token ids of a text."""
    async with aiohttp.ClientSession() as session, session.post(f"{engine}/tokenize", json={"content": text}) as found:
        return list((await found.json())["tokens"])


def in_slices(caller: Caller, tokens: int) -> None:
    """From now on a slice is so many tokens, whatever the engine's speed."""
    caller.lane.line.estimates.slice_tokens = lambda: tokens  # type: ignore[method-assign]


@on_loop
async def test_answers_are_the_engines_own(engine: str) -> None:
    said = {"temperature": 0, "max_tokens": 12}
    own = await direct(engine, **said)
    async with serving(engine, exact=False) as caller:
        whole = await caller.chat(**said)
        assert whole.body["choices"] == own["choices"]
        assert whole.body["usage"]["completion_tokens"] == 12
        stream = await caller.chat(**said, stream=True, stream_options={"include_usage": True})
        assert stream.text == whole.text
        assert stream.events[-1].data == b"[DONE]"
        assert [chunk["usage"]["completion_tokens"] for chunk in stream.chunks if chunk.get("usage")] == [12]
        text = await caller.post("/v1/completions", model=MODEL, prompt="Hello", **said)
        assert len(text.text) == 12
        assert (await caller.session.get(f"{caller.url}/v1/models")).status == 200


@on_loop
async def test_the_engine_is_proved_to_go_on_exactly_at_temperature_0(engine: str) -> None:
    async with serving(engine) as caller:
        await caller.until(lambda: caller.lane.exact is not None)
        assert caller.lane.exact is True
        assert await caller.inside("GET", "/ready") == (200, {"ready": True, "why": ""})


@on_loop
async def test_a_short_request_is_done_beside_a_long_one_whose_text_stays_the_same(engine: str) -> None:
    own = (await direct(engine, **FIXED))["choices"][0]["message"]["content"]
    assert len(own) > LONG / 2
    async with serving(engine, exact=True) as caller:
        for _ in range(40):
            caller.lane.line.estimates.length(LONG)
        in_slices(caller, 128)
        for stream in (True, False):
            long = asyncio.create_task(caller.chat(**FIXED, stream=stream))
            await caller.until(lambda: caller.lane.line.running is not None)
            short = await caller.chat(max_tokens=4, stream=True)
            assert short.text
            assert not long.done()
            answer = await long
            assert await ids(engine, answer.text) == await ids(engine, own)
            assert short.ended < answer.ended
        assert caller.lane.line.counts["paused"] >= 2


@on_loop
async def test_limits_usage_and_one_finish_hold_over_the_seams(engine: str) -> None:
    async with serving(engine, exact=True) as caller:
        in_slices(caller, 50)
        body = {"temperature": 0, "max_tokens": 120}
        stream = await caller.chat(**body, stream=True, stream_options={"include_usage": True})
        assert stream.finish == ["length"]
        assert {chunk["id"] for chunk in stream.chunks} == {stream.chunks[0]["id"]}
        assert sum("role" in choice["delta"] for chunk in stream.chunks for choice in chunk["choices"]) == 1
        usage = stream.chunks[-1]["usage"]
        assert usage["completion_tokens"] == 120
        assert usage["total_tokens"] == usage["prompt_tokens"] + 120
        whole = await caller.chat(**body)
        assert whole.body["usage"] == usage
        assert whole.body["choices"][0]["finish_reason"] == "length"
        assert whole.text == stream.text


@on_loop
async def test_a_stop_string_that_begins_in_one_slice_and_ends_in_the_next_ends_the_answer(engine: str) -> None:
    body = {"temperature": 0, "max_tokens": 200}
    text = (await direct(engine, **body))["choices"][0]["message"]["content"]
    at = next(i for i in range(40, 150) if text.find(text[i - 3 : i + 3]) == i - 3)  # where six characters are new
    stop = text[at - 3 : at + 3]
    async with serving(engine, exact=True) as caller:
        in_slices(caller, at)
        for stream in (True, False):
            answer = await caller.chat(**body, stop=stop, stream=stream)
            assert answer.text == text[: at - 3]
            finish = answer.finish if stream else [answer.body["choices"][0]["finish_reason"]]
            assert finish == ["stop"]


@on_loop
async def test_a_prompt_that_fills_the_context_and_an_image_beside_a_long_one_are_answered_as_the_engine_does(
    engine: str,
) -> None:
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}}]
    async with serving(engine, exact=True) as caller:
        in_slices(caller, 64)
        long = asyncio.create_task(caller.chat(**{**FIXED, "max_tokens": 600}, stream=True))
        await caller.until(lambda: caller.lane.line.running is not None)
        full, pictured = await asyncio.gather(
            caller.chat(messages=[{"role": "user", "content": "word " * 3000}], max_tokens=4),
            caller.chat(messages=[{"role": "user", "content": image}], max_tokens=4),
        )
        assert full.status == 400
        assert "context" in full.body["error"]["message"]
        assert pictured.status in {400, 500}  # this model has no eyes: the engine's word, passed on
        assert (await long).finish == ["length"]
        assert caller.lane.streams == 0


@on_loop
async def test_many_at_once_are_a_strict_line(engine: str) -> None:
    async with serving(engine, exact=False) as caller:
        line, taken = caller.lane.line, list[Entry]()
        take = line.take

        def takes(now: float) -> Entry | None:
            found = take(now)
            taken.extend([found] if found else [])
            return found

        line.take = takes  # type: ignore[method-assign]
        answers = await asyncio.gather(*(caller.chat(max_tokens=60, stream=True) for _ in range(10)))
        assert all(answer.status == 200 and answer.text for answer in answers)
        assert [entry.arrived for entry in taken] == sorted(entry.arrived for entry in taken)
        assert caller.lane.line.counts["answered"] == 10
        assert caller.lane.metrics.wasted == 0
