"""What a caller meets, over real sockets: the fallback's rules, the bytes that flow, and the stream that breaks."""

import asyncio
import contextlib
import functools
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError

from fleet.config.gateway_settings import Retries
from gateway import admission, fallback
from gateway.ledger import OPEN, State
from gateway.memory import MemoryStore
from gateway.restraint import ENOUGH
from gateway.serving import Serving
from gateway.voice import Voice
from relay import chat, lane_headers, sse, upstream
from tests.gateway.running import FAST, HELLO, MODEL, closed_port, on_loop, serving
from tests.gateway.targets import DONE, WORDS, Target, Turn, answers, breaks, chunk, fails, resets, says, silent

TEXT = "".join(WORDS)
QUICK = replace(FAST, whole_seconds=0.8, first_token_seconds=0.8)
CLOUD = ("Clouds", " answer", " too", ".")


async def settled(store: MemoryStore) -> None:
    """Until every line has its last state: a stream's is written once its last byte is out."""
    while any(line.state in OPEN for line in store.lines.values()):
        await asyncio.sleep(0.01)


# --- who answers ---------------------------------------------------------------------------------------------------


@on_loop
async def test_gpu_answers_streaming_and_whole_and_says_so() -> None:
    async with Target() as gpu, serving(gpu.url) as caller:
        streamed, whole = await caller.chat(stream=True), await caller.chat()
        assert (streamed.text, streamed.done, streamed.headers["x-served-by"]) == (TEXT, True, "gpu")
        assert streamed.headers["Cache-Control"] == "no-cache, no-transform"
        assert streamed.headers["X-Accel-Buffering"] == "no"
        assert whole.body["choices"][0]["message"]["content"] == TEXT
        assert (whole.body["model"], whole.headers["x-served-by"]) == (MODEL, "gpu")
        assert whole.headers["x-request-id"] in whole.body["id"]
        assert (await caller.chat(model="house")).body["model"] == "house", "an alias stays the caller's word"
        assert gpu.asked[-1].body["model"] == MODEL


@on_loop
async def test_cloud_answers_what_the_gpu_refuses_and_the_model_tells_who() -> None:
    async with Target(answers(*CLOUD)) as cloud, serving(closed_port(), cloud.url) as caller:
        streamed, whole = await caller.chat(stream=True), await caller.chat()
        assert streamed.text == "".join(CLOUD)
        assert {chunk["model"] for chunk in streamed.chunks} == {"cloud-model"}
        assert "x-served-by" not in streamed.headers, "by the time that is up nobody had accepted it"
        assert (whole.body["model"], whole.headers["x-served-by"]) == ("cloud-model", "fallback")


@on_loop
async def test_refused_connection_gets_three_fresh_ones_within_a_second_before_the_cloud_is_asked() -> None:
    async with Target() as gpu, Target(answers(*CLOUD)) as cloud, serving(gpu.url, cloud.url) as caller:
        await gpu.leave()
        started = time.monotonic()
        asking = asyncio.create_task(caller.chat())
        await asyncio.sleep(fallback.FRESH_PAUSE_SECONDS * 1.5)
        await gpu.listen()
        assert (await asking).headers["x-served-by"] == "gpu"
        assert time.monotonic() - started < Retries().fresh_seconds + 0.5


@on_loop
async def test_500_and_a_reset_before_headers_are_tried_once_more_at_once() -> None:
    for act in (fails(500), resets):
        async with Target(act, answers()) as gpu, Target() as cloud, serving(gpu.url, cloud.url) as caller:
            assert (await caller.chat(stream=True)).text == TEXT
            assert (len(gpu.asked), len(cloud.asked)) == (2, 0)
        async with Target(act) as gpu, Target(answers(*CLOUD)) as cloud, serving(gpu.url, cloud.url) as caller:
            assert (await caller.chat(stream=True)).text == "".join(CLOUD)
            assert len(gpu.asked) == 2


@on_loop
async def test_short_retry_after_is_waited_out_once_and_a_long_one_or_none_is_not() -> None:
    for status in (429, 503):
        async with Target(fails(status, Retry_After="1"), answers()) as gpu, Target() as cloud:
            async with serving(gpu.url, cloud.url) as caller:
                assert (await caller.chat()).headers["x-served-by"] == "gpu"
                assert gpu.asked[1].at - gpu.asked[0].at >= 1
        for act in (fails(status), fails(status, Retry_After="6")):
            async with Target(act) as gpu, Target() as cloud, serving(gpu.url, cloud.url) as caller:
                assert (await caller.chat()).headers["x-served-by"] == "fallback"
                assert len(gpu.asked) == 1


@on_loop
@pytest.mark.parametrize("said", ["²", "١٢", "12²", "9" * 400, "-1", "soon"])
async def test_retry_after_that_is_no_number_of_seconds_is_none(said: str) -> None:
    for status in (429, 503):
        refused = fails(status, Retry_After=said)
        async with Target(refused) as gpu, Target(refused) as cloud:
            async with serving(gpu.url, cloud.url, budgets=QUICK) as caller:
                answer = await caller.chat()
                assert (answer.status, answer.body["error"]["code"]) == (503, "nobody_answers"), answer
                assert answer.headers["Retry-After"] == str(fallback.DEFAULT_RETRY_AFTER_SECONDS)
                assert caller.gateway._cloud.restraint._pause_until < asyncio.get_running_loop().time() + 60


@on_loop
async def test_a_box_that_lacks_its_model_is_absent_and_what_fails_anywhere_is_passed_on() -> None:
    async with Target(fails(404)) as gpu, Target() as cloud, serving(gpu.url, cloud.url) as caller:
        assert (await caller.chat()).headers["x-served-by"] == "fallback"
    for status in (400, 401, 403, 413, 422):
        async with Target(fails(status, "no", "content_policy")) as gpu, Target() as cloud:
            async with serving(gpu.url, cloud.url) as caller:
                answer = await caller.chat(stream=True)
                assert (answer.status, answer.body["error"]["code"]) == (status, "content_policy")
                assert (len(gpu.asked), len(cloud.asked)) == (1, 0)


@on_loop
async def test_no_first_token_in_time_spills_and_the_generation_is_cancelled() -> None:
    acts = silent(60), silent(60, head=True), silent(60, head=True, comments=0.2)
    for act, accepted in zip(acts, (None, "gpu", "gpu"), strict=True):  # a header says so; the model, who answered
        async with Target(act) as gpu, Target(answers(*CLOUD)) as cloud, serving(gpu.url, cloud.url) as caller:
            started = time.monotonic()
            answer = await caller.chat(stream=True)
            took = time.monotonic() - started
            assert answer.text == "".join(CLOUD)
            assert {each["model"] for each in answer.chunks} == {"cloud-model"}
            assert answer.headers.get("x-served-by") == accepted
            assert FAST.first_token_seconds <= took < FAST.first_token_seconds + 1
            await asyncio.sleep(0.1)
            assert gpu.asked[0].left_at is not None
            assert len(gpu.asked) == 1, "a silent target is not asked again"


@on_loop
async def test_whole_answer_has_the_longer_budget() -> None:
    async with Target(silent(60)) as gpu, Target(answers(*CLOUD)) as cloud, serving(gpu.url, cloud.url) as caller:
        started = time.monotonic()
        assert (await caller.chat()).headers["x-served-by"] == "fallback"
        assert FAST.whole_seconds <= time.monotonic() - started < FAST.wall_seconds


@on_loop
async def test_room_for_the_fallback_is_what_its_whole_answers_took() -> None:
    slow = [answers(first=0.2)] * ENOUGH
    async with Target(*slow, answers()) as cloud:
        async with serving(closed_port(), cloud.url, cloud_settings={"concurrency": 100}) as caller:
            whole = await asyncio.gather(*(caller.chat() for _ in slow))
            streamed = await asyncio.gather(*(caller.chat(stream=True) for _ in range(100)))
            assert {answer.status for answer in (*whole, *streamed)} == {200}
            assert caller.gateway._cloud.restraint.p95(0.0) >= 0.2, "first tokens come sooner, and say nothing of it"


@on_loop
async def test_busy_box_names_itself_and_another_is_asked_before_the_cloud() -> None:
    busy = [fails(503, "busy", x_lane_box=box, x_lane_wait_seconds="80", Retry_After="80") for box in ("i-1", "i-2")]
    async with Target(*busy, answers()) as gpu, Target() as cloud, serving(gpu.url, cloud.url) as caller:
        assert (await caller.chat()).headers["x-served-by"] == "gpu"
        assert len(gpu.asked) == 3
    async with Target(busy[0]) as gpu, Target() as cloud, serving(gpu.url, cloud.url) as caller:
        started = time.monotonic()
        assert (await caller.chat()).headers["x-served-by"] == "fallback"
        assert len(gpu.asked) == 2, "the same box again says that there is no other"
        assert time.monotonic() - started < 1, "who cannot make it spills at second 0"


@on_loop
async def test_request_that_is_refused_again_and_again_in_the_line_is_counted_once() -> None:
    busy, store = fails(503, "busy", x_lane_box="i-1", x_lane_wait_seconds="80", Retry_After="80"), MemoryStore()
    async with Target(busy) as gpu, serving(gpu.url, store=store, budgets=QUICK) as caller:
        assert (await caller.chat()).status == 503
        await caller.settled()
        assert len(gpu.asked) > 3
        assert len({asked.headers[lane_headers.REQUEST] for asked in gpu.asked}) == 1, "by which the lane knows it"
        assert caller.gateway.metrics.failures.labels("gpu", "busy 503")._value.get() == 1
        assert [line.why.count("busy") for line in store.lines.values()] == [1]


@on_loop
async def test_stream_that_said_how_it_ended_waits_for_no_done_of_its_targets() -> None:
    async def hangs(turn: Turn) -> None:
        await turn.head(200, {"Content-Type": "text/event-stream"})
        await turn.event(chunk({"content": "all"}))
        await turn.event(chunk({}, "stop"))
        await turn.pause(60)

    async with Target(hangs) as gpu, serving(gpu.url) as caller:
        began = time.monotonic()
        answer = await caller.chat(stream=True)
        assert (answer.text, answer.done) == ("all", True)
        assert time.monotonic() - began < FAST.silence_seconds, "the silence of a stream that goes on"


@pytest.mark.parametrize("status", [429, 400])
@on_loop
async def test_when_the_cloud_refuses_or_takes_no_such_request_it_goes_back_into_the_line(status: int) -> None:
    async with Target(fails(503), fails(503), answers()) as gpu, Target(fails(status)) as cloud:
        async with serving(gpu.url, cloud.url) as caller:
            answer = await caller.chat()
            assert (answer.headers["x-served-by"], len(cloud.asked)) == ("gpu", 1)


@on_loop
async def test_cloud_that_takes_no_such_request_is_told_at_once_while_the_gpu_is_dark(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Target(fails(400, "no field xyzzy")) as cloud, serving(closed_port(), cloud.url) as caller:
        began = time.monotonic()
        answer = await caller.chat()
        assert time.monotonic() - began < FAST.whole_seconds / 2, "neither can answer within the budget"
        assert (answer.status, answer.body["error"]["code"], len(cloud.asked)) == (503, "nobody_answers", 1)
        assert int(answer.headers["Retry-After"]) == fallback.RETRY_AFTER_HONOURED_SECONDS, "the GPU may take it"
        await caller.settled()
        assert b"llm_gateway_fallback_misconfigured_total 1.0" in caller.gateway.metrics.text()
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [line.endswith("takes no such request: status 400") for line in told] == [True], "and no word of its own"


@on_loop
async def test_cloud_that_fails_again_and_again_is_left_alone_for_a_while() -> None:
    async with Target(fails(500)) as cloud, serving(closed_port(), cloud.url, budgets=QUICK) as caller:
        found = await asyncio.gather(*(caller.chat() for _ in range(3)))
        assert {answer.status for answer in found} == {503}
        assert "a moment ago" in (await caller.chat()).body["error"]["message"]
        assert len(cloud.asked) == 3
    async with Target(breaks("a", how="cut")) as cloud, serving(closed_port(), cloud.url, budgets=QUICK) as caller:
        for _ in range(3):
            assert (await caller.chat(stream=True)).error["recoverable"], "broken after a token"
        assert "a moment ago" in (await caller.chat()).body["error"]["message"]


@on_loop
async def test_nobody_is_an_honest_503_within_the_budget_and_costs_the_caller_nothing() -> None:
    store, brief = MemoryStore(), replace(QUICK, connected_seconds=0.4)
    async with Target(fails(503)) as cloud, serving(closed_port(), cloud.url, store=store, budgets=brief) as caller:
        for stream in (False, True):
            answer = await caller.chat(stream=stream, headers={"Idempotency-Key": "again"})
            if stream:  # its 200 went out after a second: the same is said as an event
                assert answer.error["error"]["code"] == "nobody_answers"
                assert answer.error["error"]["retry_after_seconds"] > 0
            else:
                assert (answer.status, answer.body["error"]["code"]) == (503, "nobody_answers")
                assert int(answer.headers["Retry-After"]) > 0
        await settled(store)
        assert {line.state for line in store.lines.values()} == {State.FAILED}
        assert not any(store._used.values()), "caps are given back"


@on_loop
async def test_stream_that_nobody_can_answer_at_once_is_refused_with_a_status() -> None:
    slow = replace(FAST, connected_seconds=5.0, first_token_seconds=0.4)
    async with serving(closed_port(), budgets=slow) as caller:
        assert (await caller.chat(stream=True)).status == 503


MODELFILE = """FROM ./model.gguf
SYSTEM \"\"\"You are the house's own.\"\"\"
PARAMETER temperature 0.4
PARAMETER top_k 20
PARAMETER num_ctx 8192
PARAMETER stop "<|end|>"
PARAMETER stop "###"
"""


@on_loop
async def test_fallback_speaks_with_the_voice_of_the_fleets_own_modelfile() -> None:
    voice = Voice(lambda: MODELFILE)
    async with Target() as cloud, serving(closed_port(), cloud.url, voice=voice, budgets=QUICK) as caller:
        assert (await caller.chat()).status == 503, "not before it is read"
        following = asyncio.create_task(voice.follow())
        while voice.instructions is None:
            await asyncio.sleep(0.01)
        following.cancel()
        await caller.chat()
        own = [{"role": "system", "content": "Mine."}, *HELLO]
        await caller.chat(messages=own, temperature=1, stop=["x"])
        first, second = (asked.body for asked in cloud.asked)
        assert first["messages"] == [{"role": "system", "content": "You are the house's own."}, *HELLO]
        assert (first["temperature"], first["stop"]) == (0.4, ["<|end|>", "###"])
        assert {"top_k", "num_ctx"}.isdisjoint(first)
        assert (second["messages"], second["temperature"], second["stop"]) == (own, 1, ["x"])


@on_loop
async def test_key_of_the_fallback_is_read_again_when_it_was_refused() -> None:
    asked = []

    async def authorize(url: str, payload: bytes, again: bool) -> dict[str, str]:
        asked.append(again)
        return {"Authorization": "Bearer new" if again else "Bearer old"}

    async with Target(fails(401), answers()) as cloud, serving(closed_port(), cloud.url, authorize=authorize) as caller:
        assert (await caller.chat()).status == 200
        assert asked == [False, True]
        assert [each.headers["authorization"] for each in cloud.asked] == ["Bearer old", "Bearer new"]
    asked_with = functools.partial(serving, closed_port(), authorize=authorize, budgets=QUICK)
    async with Target(fails(401), fails(429)) as cloud, asked_with(cloud.url) as caller:
        assert [(await caller.chat()).status for _ in range(2)] == [503, 503]
        assert len(cloud.asked) == 2, "it asked for a pause, whichever key it was asked with"


@on_loop
async def test_fallback_whose_key_cannot_be_read_is_one_that_does_not_answer_and_costs_nothing() -> None:
    async def authorize(url: str, payload: bytes, again: bool) -> dict[str, str]:
        raise NoCredentialsError

    store, prices = MemoryStore(), {"dollars_per_million_output": 2.0}
    asked = functools.partial(serving, closed_port(), authorize=authorize, store=store, cloud_settings=prices)
    async with Target() as cloud, asked(cloud.url, budgets=QUICK) as caller:
        answer = await caller.chat()
        assert (answer.status, answer.body["error"]["code"], cloud.asked) == (503, "nobody_answers", [])
        await caller.settled()
        assert set(store._spent.values()) == {0}
        assert set(store._used.values()) == {0}


@on_loop
async def test_ledger_says_why_the_cloud_answered_and_nothing_of_an_answer_by_the_gpu() -> None:
    for act, why in ((fails(500), "status 500, status 500"), (answers(), "")):
        store = MemoryStore()
        async with Target(act) as gpu, Target(answers(*CLOUD)) as cloud:
            async with serving(gpu.url, cloud.url, store=store) as caller:
                await caller.chat()
                await settled(store)
                assert [line.why for line in store.lines.values()] == [why]
    store = MemoryStore()
    async with Target(answers(*CLOUD)) as cloud, serving(closed_port(), cloud.url, store=store) as caller:
        await caller.chat()
        await caller.chat()
        await settled(store)
        whys = [line.why for line in store.lines.values()]
        assert whys == ["refused, refused, refused", "no box takes connections"], "the second met the open breaker"


# --- the breaker ---------------------------------------------------------------------------------------------------


@on_loop
async def test_breaker_asks_no_box_while_none_takes_connections_and_closes_within_a_second() -> None:
    async with Target() as gpu, Target(answers(*CLOUD)) as cloud, serving(gpu.url, cloud.url) as caller:
        await gpu.leave()
        await caller.chat()
        started = time.monotonic()
        assert (await caller.chat()).headers["x-served-by"] == "fallback"
        assert time.monotonic() - started < fallback.FRESH_PAUSE_SECONDS, "nobody waits for what cannot come"
        await gpu.listen()
        await asyncio.sleep(1.0)
        assert (await caller.chat()).headers["x-served-by"] == "gpu"


@on_loop
async def test_breaker_opens_where_nobody_even_refuses_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "CONNECT_SECONDS", 0.9)
    with contextlib.ExitStack() as closing:  # a box that was taken: what is sent to it is lost
        dead = closing.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):  # no more than it has room for unless they are taken, and nobody takes them
            waits = closing.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(dead.getsockname())
        async with Target(answers(*CLOUD)) as cloud:
            async with serving(f"http://127.0.0.1:{dead.getsockname()[1]}", cloud.url) as caller:
                assert (await caller.chat()).headers["x-served-by"] == "fallback"
                started = time.monotonic()
                assert (await caller.chat()).headers["x-served-by"] == "fallback"
                assert time.monotonic() - started < fallback.FRESH_PAUSE_SECONDS, "nobody waits for what cannot come"


@on_loop
async def test_refusal_of_the_cloud_says_nothing_of_the_boxes() -> None:
    async with Target(fails(503)) as gpu, serving(gpu.url, closed_port(), budgets=QUICK) as caller:
        await gpu.leave()
        asked, tries, opened = caller.gateway._gpu.asked, 0, 0

        @contextlib.asynccontextmanager
        async def third_is_taken(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
            nonlocal tries
            tries += 1
            if tries == 3:
                await gpu.listen()
            async with asked(*arguments, **named) as answer:
                yield answer

        def all_refused() -> None:
            nonlocal opened
            opened += 1

        caller.gateway._gpu.asked = third_is_taken  # type: ignore[method-assign]
        caller.gateway._gpu.all_refused = all_refused  # type: ignore[method-assign]
        assert (await caller.chat()).status == 503
        assert (tries > 3, opened) == (True, 0)


@on_loop
async def test_an_answer_that_breaks_says_nothing_of_connections_and_leaves_the_breaker_open() -> None:
    async with Target() as box, serving(box.url) as caller:
        gpu, by = caller.gateway._gpu, asyncio.get_running_loop().time() + 5
        ask = admission.admit(sse.dumps({"model": MODEL, "messages": HELLO}), {}, caller.gateway._config)
        with contextlib.suppress(upstream.ResetError):
            async with gpu.asked(ask, {}, by, fresh=False):
                gpu.all_refused()  # meanwhile, of another request
                raise upstream.ResetError("its box died")
        assert not gpu.breaker.closed


@on_loop
async def test_errors_of_a_box_do_not_open_the_breaker() -> None:
    async with Target(*[fails(503)] * 20, answers()) as gpu, Target() as cloud, serving(gpu.url, cloud.url) as caller:
        for _ in range(20):
            assert (await caller.chat()).headers["x-served-by"] == "fallback"
        assert (await caller.chat()).headers["x-served-by"] == "gpu"


# --- bytes flow ----------------------------------------------------------------------------------------------------


@on_loop
async def test_connected_is_said_after_a_second_and_a_comment_while_nothing_comes() -> None:
    async with Target(answers(first=1.4)) as gpu, serving(gpu.url, budgets=FAST) as caller:
        answer = await caller.chat(stream=True)
        comments = [event.data for event in answer.events if event.kind == "comment"]
        assert comments[0] == b"connected"
        assert len(comments) >= 2, "20 s of silence, scaled, had a comment"
        assert answer.text == TEXT


@on_loop
async def test_role_stands_in_the_first_delta_alone_and_id_created_and_model_never_change() -> None:
    parts = [
        chunk({"role": "assistant"}),
        chunk({"role": "assistant", "content": "a"}),
        chunk({"role": "assistant", "content": "b"}),
    ]
    odd = [{**part, "id": f"id-{n}", "created": n, "model": f"m-{n}"} for n, part in enumerate(parts)]
    async with Target(says(*odd, chunk({}, "stop"), DONE)) as gpu, serving(gpu.url) as caller:
        found = (await caller.chat(stream=True)).chunks
        assert [("role" in c["choices"][0]["delta"]) for c in found] == [True, False, False]
        for name in ("id", "created", "model"):
            assert len({c[name] for c in found}) == 1


@on_loop
async def test_usage_reaches_who_asked_for_it_and_nobody_else() -> None:
    async with Target() as gpu, serving(gpu.url) as caller:
        without = await caller.chat(stream=True)
        wanted = await caller.chat(stream=True, stream_options={"include_usage": True})
        assert not any(chunk.get("usage") for chunk in without.chunks)
        assert [c["choices"] for c in wanted.chunks if c.get("usage")] == [[]]


@on_loop
async def test_thoughts_and_tool_calls_are_first_tokens_too() -> None:
    for delta in ({"reasoning": "hm"}, {"reasoning_content": "hm"}, {"tool_calls": [{"index": 0}]}):
        for own in ({}, {"continues": True}):
            async with Target(says(chunk(delta))) as gpu, Target() as cloud:
                async with serving(gpu.url, cloud.url, cloud_settings=own) as caller:
                    answer = await caller.chat(stream=True, temperature=0)
                    assert answer.error["error"]["code"] == "SPOT_PREEMPTION", "it had begun: no other follows it"
                    assert len(cloud.asked) == 0, "nor is it continued as if it had been text"


# --- the stream that breaks ------------------------------------------------------------------------------------------


@on_loop
async def test_break_after_the_first_token_is_clean_and_visible_however_it_comes() -> None:
    acts = [breaks("a", " b", " c", how=how) for how in ("cut", "reset", "error")]
    acts += [breaks("a", " b", " c", how="cut", after=60), answers("a", " b", " c", finish=None)]
    for act in acts:
        async with Target(act) as gpu, Target(answers(*CLOUD)) as cloud, serving(gpu.url, cloud.url) as caller:
            answer = await asyncio.wait_for(caller.chat(stream=True), 20)  # the one that stalls does so for a minute
            assert (answer.text, answer.done) == ("a b c", False)
            assert answer.error["error"]["code"] == "SPOT_PREEMPTION"
            assert (answer.error["recoverable"], answer.error["served_prefix_tokens"]) == (True, 3)
            assert not any(c["choices"][0]["finish_reason"] for c in answer.chunks if c.get("choices"))
            assert len(cloud.asked) == 0, "never a mixed text"


@on_loop
async def test_break_before_the_first_token_is_answered_by_another() -> None:
    for act in (
        breaks(how="cut"),
        breaks(how="error"),
        breaks(how="reset"),
        says(b"data: {}\n\n"),
        says(b": queued\n\n"),
    ):
        async with Target(act) as gpu, Target(answers(*CLOUD)) as cloud, serving(gpu.url, cloud.url) as caller:
            answer = await caller.chat(stream=True)
            assert (answer.text, answer.done) == ("".join(CLOUD), True)


@on_loop
async def test_continuation_is_declared_never_tried() -> None:
    rest = answers(" d", " e")
    cut = breaks("a", " b", " c", how="cut")
    async with Target(cut) as gpu, Target(rest) as cloud:
        async with serving(gpu.url, cloud.url, cloud_settings={"continues": True}) as caller:
            answer = await caller.chat(stream=True, temperature=0, max_tokens=10)
            assert (answer.text, answer.done) == ("a b c d e", True)
            assert gpu.asked[0].headers[lane_headers.CONTINUED] == lane_headers.YES
            assert cloud.asked[0].body["messages"][-1] == {"role": "assistant", "content": "a b c"}
            assert cloud.asked[0].body["max_tokens"] == 7, "what is left of the caller's limit"
            assert [c["continued_by"] for c in answer.chunks if "continued_by" in c] == ["cloud-model"]
            assert sum("role" in c["choices"][0]["delta"] for c in answer.chunks if c["choices"]) == 1
        for body in ({}, {"temperature": 0.7}, {"temperature": 0, "tools": [{"type": "function"}]}):
            gpu.script = [cut]
            async with serving(gpu.url, cloud.url, cloud_settings={"continues": True}) as caller:
                assert not (await caller.chat(stream=True, **body)).done
                assert lane_headers.CONTINUED not in gpu.asked[-1].headers
    assert len(cloud.asked) == 1


@on_loop
async def test_continuation_that_the_cloud_refuses_costs_nothing_and_is_told() -> None:
    store = MemoryStore()
    own = {"continues": True, "dollars_per_million_output": 2.0}
    async with Target(breaks("a", " b", how="cut")) as gpu, Target(fails(503)) as cloud:
        async with serving(gpu.url, cloud.url, store=store, cloud_settings=own) as caller:
            answer = await caller.chat(stream=True, temperature=0)
            assert (answer.text, answer.error["error"]["code"], len(cloud.asked)) == ("a b", "SPOT_PREEMPTION", 1)
            await settled(store)
            await caller.settled()
            assert set(store._spent.values()) == {0}
            assert sum(used for (_, what, _), used in store._used.items() if what == "fallbacks") == 0
            assert caller.gateway.metrics.failures.labels("fallback", "status 503")._value.get() == 1


@on_loop
async def test_cloud_does_not_continue_what_the_cloud_began() -> None:
    async with Target(breaks("a", " b", how="cut"), answers(" c")) as cloud:
        async with serving(closed_port(), cloud.url, cloud_settings={"continues": True}) as caller:
            answer = await caller.chat(stream=True, temperature=0)
            assert (answer.text, len(cloud.asked)) == ("a b", 1)
            assert "fallback" in answer.error["error"]["message"]


@on_loop
async def test_request_that_ends_in_an_assistant_message_goes_where_that_is_declared() -> None:
    messages = [*HELLO, {"role": "assistant", "content": "so far"}]
    async with Target() as cloud, serving(closed_port(), cloud.url, budgets=QUICK) as caller:
        answer = await caller.chat(messages=messages)
        assert (answer.status, len(cloud.asked)) == (503, 0)
        told = str(fallback.RETRY_AFTER_HONOURED_SECONDS)
        assert answer.headers["Retry-After"] == told, "a box just went, and a boot takes longer than SDKs wait"


@on_loop
async def test_malformed_events_are_dropped_and_a_missing_done_is_added() -> None:
    malformed = b'data: {"choices": [{"delta": \n\n', b"data: [1]\n\n"
    act = says(*malformed, chunk({"content": "a"}), chunk({}, "stop"))
    async with Target(act) as gpu, serving(gpu.url) as caller:
        answer = await caller.chat(stream=True)
        assert (answer.text, answer.done) == ("a", True)


@on_loop
async def test_stream_that_says_nothing_and_ends_well_is_an_answer_that_is_counted() -> None:
    store = MemoryStore()
    nothing = says(chunk({"role": "assistant"}, "stop"), DONE)
    async with Target(nothing) as cloud, serving(closed_port(), cloud.url, store=store) as caller:
        answer = await caller.chat(stream=True)
        assert (answer.text, answer.done) == ("", True)
        await settled(store)
        assert [line.answered_by for line in store.lines.values()] == ["fallback"]


@on_loop
async def test_two_requests_at_once_under_one_request_id_are_both_answered() -> None:
    async with Target(answers(every=0.05)) as gpu, serving(gpu.url) as caller:
        same = {"x-request-id": "trace-of-both"}
        both = await asyncio.gather(*(caller.chat(headers=same) for _ in range(2)))
        assert [answer.status for answer in both] == [200, 200]
        assert not caller.gateway._open


@pytest.mark.parametrize("stream", [False, True])
@on_loop
async def test_error_of_its_own_before_the_answer_is_a_500_that_costs_the_caller_nothing(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(Serving, "_attempt", None)
    store = MemoryStore()
    async with Target() as gpu, serving(gpu.url, store=store) as caller:
        answer = await caller.chat(stream=stream, headers={"Idempotency-Key": "once"})
        await caller.settled()
        assert (answer.status, answer.body["error"]["code"]) == (500, "internal_error")
        assert [line.state for line in store.lines.values()] == [State.FAILED]
        assert (set(store._used.values()), store._once) == ({0}, {})


@on_loop
async def test_error_of_its_own_amid_a_stream_ends_it_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "finished", lambda chunk: 1 // (chat.content(chunk) != WORDS[2]) - 1)
    async with Target() as gpu, serving(gpu.url) as caller:
        answer = await caller.chat(stream=True)
        assert (answer.text, answer.error["served_prefix_tokens"]) == ("".join(WORDS[:2]), 2)
        await caller.settled()
        assert b"llm_gateway_answers_broken_total 1.0" in caller.gateway.metrics.text()


# --- callers who leave ---------------------------------------------------------------------------------------------


@on_loop
async def test_generation_of_a_caller_who_leaves_is_cancelled_at_once() -> None:
    for stream, after in ((True, 0), (True, 0.5), (False, 0)):
        act = answers(every=0.3, first=0.3) if stream else silent(60)
        store = MemoryStore()
        async with Target(act) as gpu, Target() as cloud, serving(gpu.url, cloud.url, store=store) as caller:
            asking = [asyncio.create_task(caller.chat(stream=stream)) for _ in range(10)]
            while len(gpu.asked) < 10:
                await asyncio.sleep(0.01)
            await asyncio.sleep(after)
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await settled(store)
            await asyncio.sleep(0.1)
            assert all(asked.left_at for asked in gpu.asked)
            assert len(gpu.asked) == 10
            assert len(cloud.asked) == 0, "never once the caller has left"
            assert [line.state for line in store.lines.values()] == [State.CANCELLED] * 10


@on_loop
async def test_request_marked_once_is_not_sent_again_after_a_target_had_it() -> None:
    async with Target(resets) as gpu, Target() as cloud, serving(gpu.url, cloud.url) as caller:
        answer = await caller.chat(headers={"x-replay": "never"})
        assert (answer.status, len(gpu.asked), len(cloud.asked)) == (503, 1, 0)
    async with Target() as cloud, serving(closed_port(), cloud.url) as caller:
        assert (await caller.chat(headers={"x-replay": "never"})).headers["x-served-by"] == "fallback"
