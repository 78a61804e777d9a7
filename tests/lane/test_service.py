"""The service before a target that misbehaves on request: who is told what, and that no stream ends quietly."""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from lane.config import OLLAMA
from lane.delivery import Delivery
from lane.estimates import Span
from relay import lane_headers, sse
from relay.http_server import CallerConnection, Request, Stream
from tests.calling import connected, posted
from tests.gateway.targets import DONE, Act, Target, Turn, answers, breaks, chunk, fails, resets, says, silent
from tests.lane.running import HELLO, MODEL, WORDS, first_served, from_gateway, on_loop, serving

GATEWAY = {"gateway": True, "exact": False}


@on_loop
async def test_a_busy_lane_tells_the_wait_the_box_and_when_to_come_back() -> None:
    async with Target(answers(every=0.2)) as engine, serving(engine.url, **GATEWAY) as caller:
        first = await first_served(caller, stream=True)
        busy = await caller.chat(from_gateway(seconds=0.5))
        assert busy.status == 503
        assert busy.headers[lane_headers.BOX] == "i-0lane"
        assert float(busy.headers[lane_headers.WAIT]) > 0.5
        assert 1 <= int(busy.headers["Retry-After"]) <= 120
        assert busy.body["error"]["code"] == "would_be_late"
        assert (await first).text == WORDS
        assert len(engine.asked) == 1


@on_loop
async def test_headers_are_believed_where_a_gateway_stands_in_front_and_nowhere_else() -> None:
    forged = from_gateway("background", "somebody else", 0.0)
    async with Target(answers()) as engine, serving(engine.url, exact=False) as caller:
        assert (await caller.chat(forged)).status == 200
        assert not [name for name in engine.asked[0].headers if name.startswith("x-lane")]
    async with Target(answers()) as engine, serving(engine.url, **GATEWAY) as caller:
        assert (await caller.chat(forged)).status == 503


@on_loop
async def test_comments_go_to_a_gateway_while_its_stream_waits_and_to_nobody_else() -> None:
    for gateway in (True, False):
        async with Target(answers(first=0.3)) as engine:
            async with serving(engine.url, exact=False, gateway=gateway, comment_seconds=0.1) as caller:
                first = await first_served(caller, stream=True)
                second = await caller.chat(stream=True)
                assert second.text == WORDS
                said = [event.data for event in second.events if event.kind == sse.COMMENT]
                assert (b"in line" in said and b"reading the prompt" in said) is gateway
                assert not said or gateway
                await first


@on_loop
async def test_who_waits_past_its_deadline_is_told() -> None:
    async with Target(silent(30, head=True)) as engine, serving(engine.url, **GATEWAY) as caller:
        first = await first_served(caller, stream=True)
        caller.lane.line.wait = lambda *_: Span()  # type: ignore[method-assign]  # it had hoped
        late = await caller.chat(from_gateway(seconds=0.3), stream=True)
        assert late.status == 503
        assert late.body["error"]["code"] == "deadline"
        assert caller.lane.line.counts["deadline"] == 1
        first.cancel()


@on_loop
async def test_who_leaves_is_let_go_at_the_engine_and_the_next_one_is_served() -> None:
    async with Target(answers(every=5), answers()) as engine, serving(engine.url, exact=False) as caller:
        for stream in (True, False):
            engine.script = [answers(every=5), answers()]
            leaver = await first_served(caller, stream=stream)
            waiting = asyncio.create_task(caller.chat(stream=True))
            queued = asyncio.create_task(caller.chat(stream=True))
            await caller.until(lambda: len(caller.lane.line.waiting) == 2)
            queued.cancel()
            leaver.cancel()
            assert (await waiting).text == WORDS
            assert engine.asked[-2].left_at is not None
        await caller.until(lambda: caller.lane.streams == 0)
        assert caller.lane.line.counts["caller_left"] == 4


@on_loop
async def test_a_broken_stream_ends_with_an_error_and_never_quietly() -> None:
    broken = (
        breaks("Spot", " boxes", how="cut"),
        breaks("Spot", " boxes", how="reset"),
        breaks("Spot", " boxes", how="error"),
        answers("Spot", " boxes", finish=None),  # a clean end without a word why: Ollama's swallowed error
        answers("Spot", " boxes", finish=None, done=False),
    )
    for act in broken:
        async with Target(act) as engine, serving(engine.url, exact=False) as caller:
            answer = await caller.chat(stream=True)
            assert answer.status == 200
            last = answer.events[-1]
            assert last.kind == "error"
            told = sse.parsed(last.data) or {}
            assert told["error"]["code"] == "engine_failed"
            assert told["served_prefix_tokens"] == 2
            assert sse.DONE not in [event.data for event in answer.events]
            assert caller.lane.line.running is None


@on_loop
async def test_a_slice_that_ends_without_a_word_why_is_an_error_and_not_asked_again_and_again() -> None:
    async with Target(answers("Spot", " boxes", finish=None)) as engine:
        async with serving(engine.url, exact=True) as caller:
            answer = await asyncio.wait_for(caller.chat(temperature=0, max_tokens=1000, stream=True), 10)
            assert answer.events[-1].kind == "error"
            assert len(engine.asked) == 1
            assert caller.lane.line.running is None


@on_loop
async def test_an_engine_that_closes_a_kept_connection_just_then_is_asked_again() -> None:
    came: list[int] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(0)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await reader.readuntil(b"\r\n\r\n")  # as its time for an idle connection ends
        writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with serving(url, exact=False) as caller:
        assert [await caller.lane.engine.unready() for _ in range(2)] == ["", ""]
    assert len(came) == 2
    server.close()


@on_loop
async def test_without_a_gateway_callers_are_told_apart_by_an_address_that_nobody_is_shown() -> None:
    async with Target(answers(every=0.12)) as engine, serving(engine.url, exact=False) as caller:
        first = await first_served(caller, stream=True)
        done: list[str] = []

        async def asks(who: str, **connection: Any) -> None:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(**connection)) as session:
                body = {"model": MODEL, "messages": HELLO}
                async with session.post(f"{caller.url}/v1/chat/completions", json=body) as response:
                    assert response.status == 200
            done.append(who)

        again = asyncio.create_task(asks("the first one"))
        await caller.until(lambda: len(caller.lane.line.waiting) == 1)
        other = asyncio.create_task(asks("another", local_addr=("127.0.0.2", 0)))
        await caller.until(lambda: len(caller.lane.line.waiting) == 2)
        _, listed = await caller.inside("GET", "/line")
        words = [one["caller"] for one in listed["line"]]
        assert len(set(words)) == 2
        assert all(word.startswith("address:") and "127.0.0" not in word for word in words)
        await asyncio.gather(first, again, other)
        assert done == ["another", "the first one"]  # who has had nothing yet is before who has


@on_loop
async def test_an_engine_that_fails_before_it_answers_is_an_honest_status() -> None:
    for act, status in (
        (fails(400, "bad"), 400),
        (fails(503, "server busy"), 503),
        (resets, 503),
        (says(b"x"), 503),
        (silent(0.0), 503),
    ):
        async with Target(act) as engine, serving(engine.url, exact=False) as caller:
            answer = await caller.chat()
            assert answer.status == status, answer
            assert "error" in answer.body
            assert lane_headers.WAIT not in answer.headers  # no word of a line: another box would not help
    with socket.socket() as gone:  # bound: no other server, nor the lane itself, can be given its port meanwhile
        gone.bind(("127.0.0.1", 0))
        async with serving(f"http://127.0.0.1:{gone.getsockname()[1]}", exact=False) as caller:
            answer = await caller.chat()
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")


@on_loop
async def test_a_connection_that_the_engine_had_closed_costs_nobody_an_error() -> None:
    async with Target(answers(), resets, answers()) as engine, serving(engine.url, exact=False) as caller:
        assert (await caller.chat()).status == 200
        assert (await caller.chat()).status == 200
        assert len(engine.asked) == 3


@on_loop
async def test_a_slow_reader_does_not_hold_the_engine_and_one_who_reads_nothing_is_let_go() -> None:
    big = [f"{number} " * 2000 for number in range(300)]
    script = (answers(*big), answers())
    async with Target(*script) as engine, serving(engine.url, exact=False) as caller:
        narrow = socket.socket()  # of the kernel's buffers: they would hold all of the answer
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        narrow.connect(("127.0.0.1", int(caller.url.rpartition(":")[2])))
        slow = await asyncio.open_connection(sock=narrow)
        slow[1].write(posted(model=MODEL, stream=True))
        await caller.until(lambda: caller.lane.line.counts["answered"] == 1)
        assert caller.lane.streams == 1  # its reader has not begun
        assert (await caller.chat(stream=True)).text == WORDS
        read = b""
        while b"[DONE]" not in read[-200:]:
            read += await slow[0].read(1 << 20)
        slow[1].close()
        assert b"299 299" in read
    async with Target(*script) as engine:
        async with serving(engine.url, exact=False, buffer_bytes=100_000) as caller:
            slow = await connected(caller.url, posted(model=MODEL, stream=True), limit=1024)
            await caller.until(lambda: caller.lane.line.counts["slow_reader"] == 1)
            assert (await caller.chat(stream=True)).text == WORDS
            assert caller.lane.metrics.wasted > 0


@on_loop
async def test_a_whole_answer_is_passed_on_byte_for_byte_and_waits_for_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    done, write = list[str](), CallerConnection.write
    monkeypatch.setattr(CallerConnection, "write", lambda self, data: (done.append("answer"), write(self, data)))
    monkeypatch.setattr(logging.getLogger("lane"), "info", lambda *told: done.append("log"))
    body = b'{ "choices" : [ {"message": {"content": "\\u00e9 \xc3\xa9"}} ],\n"x":1.0 }'

    async def engine(turn: Turn) -> None:
        await turn.head(200, {}, len(body))
        await turn.send(body)

    async with Target(engine) as target, serving(target.url, exact=False) as caller:
        asked = {"model": MODEL, "messages": HELLO}
        async with caller.session.post(f"{caller.url}/v1/chat/completions", json=asked) as response:
            assert await response.read() == body
        assert done == ["answer", "log"]


@on_loop
async def test_an_answer_in_one_part_is_given_however_long_it_is() -> None:
    async with Target(answers("word " * 1000)) as engine, serving(engine.url, exact=False, buffer_bytes=1000) as caller:
        answer = await caller.chat()
        assert (answer.status, len(answer.text)) == (200, 5000)


@on_loop
async def test_a_leaving_box_hands_back_who_cannot_finish_and_ends_the_stream_that_could_not_with_a_word() -> None:
    async with Target(answers(every=0.2)) as engine, serving(engine.url, **GATEWAY) as caller:
        for _ in range(60):
            caller.lane.line.estimates.answered(prompt_tokens=1, prompt_seconds=0, tokens=101, token_seconds=20)
            caller.lane.line.estimates.length(100)
        stream = await first_served(caller, stream=True)
        queued = asyncio.create_task(caller.chat(from_gateway(seconds=600), stream=True))
        await caller.until(lambda: caller.lane.line.waiting and caller.lane.line.running.delivered)
        assert (await caller.inside("POST", "/drain", {"seconds": 0.5}))[0] == 200
        back = await queued
        assert back.status == 503
        assert back.body["error"]["code"] == "draining"
        assert back.headers[lane_headers.BOX] == "i-0lane"
        assert lane_headers.WAIT in back.headers, "by which a gateway knows a lane's no"
        refused = await caller.chat(from_gateway(seconds=600))
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        cut = await stream
        told = sse.parsed(cut.events[-1].data) or {}
        assert (cut.events[-1].kind, told["error"]["code"], told["recoverable"]) == ("error", "SPOT_PREEMPTION", True)
        assert 0 < told["served_prefix_tokens"] == len(cut.chunks) - 1  # the first is a role
        await caller.until(lambda: caller.lane.streams == 0)
        assert (await caller.inside("DELETE", "/drain"))[0] == 200
        engine.script = [answers()]
        assert (await caller.chat(from_gateway(seconds=600))).status == 200


@on_loop
async def test_metrics_tell_depth_wait_refusals_and_wasted_tokens() -> None:
    async with Target(answers(every=0.2)) as engine, serving(engine.url, **GATEWAY) as caller:
        first = await first_served(caller, stream=True)
        await caller.chat(from_gateway(seconds=0.0))
        _, text = await caller.inside("GET", "/metrics")
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert lines["llm_lane_depth"] == "1"
        assert lines['llm_lane_refusals_total{reason="would_be_late"}'] == "1"
        assert float(lines["llm_lane_expected_wait_seconds"]) > 0
        assert lines["llm_spot_wasted_decode_tokens_total"] == "0"
        assert float(lines["llm_spot_inflight_aborted_ratio"]) == 0
        await first


# --- Ollama's own family, before a stand-in that speaks it ---


def ollama(*said: dict[str, Any], last: dict[str, Any] | None = None, end: dict[str, Any] | None = None) -> Any:
    """Lines as Ollama's documents show them; `end`: what is different in the last one."""
    times = {"eval_count": len(said), "eval_duration": 10**9, "prompt_eval_duration": 1}
    end = {"done": True, "done_reason": "stop", **times, **(end or {})}

    async def act(turn: Turn) -> None:
        if not turn.asked.body["stream"]:
            body = json.dumps({"model": "m", "response": "".join(one["response"] for one in said), **end}).encode()
            await turn.head(200, {"Content-Type": "application/json"}, len(body))
            return await turn.send(body)
        await turn.head(200, {"Content-Type": "application/x-ndjson"})
        for one in said:
            await turn.part(json.dumps({"model": "m", "done": False, **one}).encode() + b"\n")
        await turn.part(json.dumps(last or {"model": "m", **end}).encode() + b"\n")
        await turn.send(b"0\r\n\r\n")
        return None

    return act


def in_parts(models: list[dict[str, Any]]) -> Act:
    """What it has loaded, told in two parts."""

    async def act(turn: Turn) -> None:
        told = json.dumps({"models": models}).encode()
        await turn.head(200)
        for part in (told[:10], told[10:]):
            await turn.part(part)
            await turn.pause(0.05)
        await turn.send(b"0\r\n\r\n")

    return act


OF_OLLAMA = {"engine": OLLAMA, "exact": False}


@on_loop
async def test_ollamas_lines_go_through_as_they_are_and_teach_the_lane() -> None:
    said = [{"response": "Spot "}, {"response": "boxes"}]
    async with Target(ollama(*said)) as engine, serving(engine.url, **OF_OLLAMA) as caller:
        before = caller.lane.line.estimates.token_seconds
        answer = await caller.post("/api/generate", model=MODEL, prompt="Hi")
        assert [line.get("response") for line in answer.body] == ["Spot ", "boxes", None]
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        assert engine.asked[0].body["options"]["num_predict"] == 1024
        assert caller.lane.line.estimates.token_seconds > before
        whole = await caller.post("/api/generate", model=f"{MODEL}:latest", prompt="Hi", stream=False)
        assert whole.body["response"] == "Spot boxes"
        assert caller.lane.line.counts["answered"] == 2


@on_loop
async def test_an_answer_that_its_limit_ended_teaches_no_length_the_boxs_own_single_tokens_least_of_all() -> None:
    act = ollama({"response": "Hi"}, end={"done_reason": "length"})
    async with Target(act) as engine, serving(engine.url, **OF_OLLAMA) as caller:
        before = caller.lane.line.estimates.tokens_left(1024, 0)
        for stream in (False, True):
            await caller.post("/api/generate", model=MODEL, prompt="Hi", stream=stream, options={"num_predict": 1})
        assert caller.lane.line.counts["answered"] == 2
        assert caller.lane.line.estimates.tokens_left(1024, 0) == before


@on_loop
async def test_an_error_inside_ollamas_lines_or_a_missing_last_one_is_told_as_its_last_line() -> None:
    for last in ({"error": "the runner crashed"}, {"model": "m", "response": "x", "done": False}):
        async with Target(ollama({"response": "Spot"}, last=last)) as engine:
            async with serving(engine.url, **OF_OLLAMA) as caller:
                answer = await caller.post("/api/generate", model=MODEL, prompt="Hi")
                assert answer.status == 200
                assert list(answer.body[-1]) == ["error"]


@on_loop
async def test_an_ollama_is_ready_only_with_the_exact_model_whole_on_the_gpu_with_its_context() -> None:
    loaded = {"name": f"{MODEL}:latest", "size": 10, "size_vram": 10, "context_length": 2048}
    for models, why in (
        ([loaded], ""),
        ([], "not loaded"),
        ([{**loaded, "name": "another"}], "not loaded"),
        ([{**loaded, "size_vram": 5}], "not on the GPU"),
        ([{**loaded, "context_length": 4096}], "its context is 4096"),
    ):
        async with Target(in_parts(models)) as engine, serving(engine.url, **OF_OLLAMA) as caller:
            status, told = await caller.inside("GET", "/ready")
            assert status == (503 if why else 200)
            assert why in told["why"]
            async with caller.session.get(f"{caller.url}/api/tags") as response:
                assert await response.json() == {"models": models}


@on_loop
async def test_an_engine_whose_slices_differ_is_never_sliced_at_a_fixed_answer() -> None:
    async with Target(answers("another ", "text ", "every ", "time")) as engine, serving(engine.url) as caller:
        caller.lane.engine.unready = _ready  # type: ignore[method-assign]
        await caller.until(lambda: caller.lane.exact is not None)
        assert caller.lane.exact is False
        asked = len(engine.asked)
        assert (await caller.chat(temperature=0, max_tokens=4000, stream=True)).status == 200
        assert engine.asked[asked].body["max_tokens"] > 1000


async def _ready() -> str:
    return ""


@on_loop
async def test_a_thought_is_not_continued() -> None:
    thinks = chunk({"role": "assistant", "reasoning_content": "Hm"})
    async with Target(says(thinks, chunk({}, "length"))) as engine, serving(engine.url, exact=True) as caller:
        answer = await caller.chat(temperature=0, max_tokens=1000, stream=True)
        assert answer.events[-1].kind == "error" if answer.events else answer.status == 503
        assert len(engine.asked) == 1


@on_loop
async def test_a_model_that_thinks_is_never_sliced_at_a_temperature_either() -> None:
    thinks = chunk({"role": "assistant", "reasoning": "Hm"}), chunk({"content": "Spot"}), chunk({}, "length")
    async with Target(says(*thinks, DONE)) as engine, serving(engine.url, inexact_slices=True) as caller:
        caller.lane.engine.unready = _ready  # type: ignore[method-assign]
        await caller.until(lambda: caller.lane.exact is not None)
        asked = len(engine.asked)
        answer = await caller.chat(temperature=0.7, max_tokens=1000, stream=True)
        assert [asked.body["max_tokens"] for asked in engine.asked[asked:]] == [1000]
        assert lane_headers.SLICES not in answer.headers
        assert any("reasoning" in choice["delta"] for said in answer.chunks for choice in said["choices"])


@on_loop
async def test_usage_of_slices_is_right_where_each_chunk_carries_one_of_zeros_as_ollamas_do() -> None:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    words = [chunk({"role": "assistant", "content": word}, usage=zeros) for word in ("Spot", " boxes")]
    last = chunk({"role": "assistant", "content": ""}, "stop", usage=zeros)
    counts = {**chunk({}), "choices": [], "usage": usage}
    async with Target(says(*words, last, counts, DONE)) as engine, serving(engine.url, exact=True) as caller:
        answer = await caller.chat(temperature=0, max_tokens=1000)
        assert answer.body["usage"] == usage


@on_loop
async def test_what_was_held_back_for_a_stop_string_that_never_came_is_given() -> None:
    async with Target(answers("Spot", " bo")) as engine, serving(engine.url, exact=True) as caller:
        for stream in (True, False):
            answer = await caller.chat(temperature=0, max_tokens=1000, stop="boxes", stream=stream)
            assert answer.text == "Spot bo"


@on_loop
async def test_what_an_operator_drops_and_what_is_handed_back_is_no_stream_that_the_box_cut() -> None:
    # each is served as a slice, so that tokens are seen of what is not streamed, too
    async with Target(answers(every=0.05)) as engine, serving(engine.url, exact=True) as caller:
        for stream, leaves, cut in ((True, False, 0), (False, True, 0), (True, True, 1)):
            task = await first_served(caller, temperature=0, max_tokens=1000, stream=stream)
            entry = caller.lane.line.running
            assert entry is not None
            await caller.until(lambda entry=entry, stream=stream: entry.delivered if stream else entry.decoded)
            if leaves:
                await caller.inside("POST", "/drain", {"seconds": 0})
            else:
                await caller.inside("DELETE", f"/line/{entry.id}")
            await task
            assert caller.lane.metrics.aborted == cut, (stream, leaves)
            await caller.inside("DELETE", "/drain")


@on_loop
async def test_a_caller_who_hangs_up_before_his_request_is_looked_at_leaves_nothing_behind() -> None:
    async with Target(answers()) as engine, serving(engine.url, exact=False) as caller:
        for _ in range(20):
            _, writer = await connected(caller.url, posted(model=MODEL))
            writer.transport.abort()
        assert (await caller.chat()).text == WORDS
        await caller.until(lambda: caller.lane.streams == 0)
        assert caller.lane.line.waiting == []
        assert caller.lane.line.running is None


def asked_by() -> "asyncio.Task[Any]":
    """The task of the request that is being served."""
    task = asyncio.current_task()
    assert task
    return task


@on_loop
async def test_a_caller_who_hangs_up_as_his_body_ends_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Request.read

    async def read_and_left(request: Request, seconds: float) -> bytes:
        raw = await whole(request, seconds)
        asyncio.get_running_loop().call_soon(asked_by().cancel)  # as the server does when it sees him leave
        return raw

    async def slowly() -> AsyncIterator[bytes]:
        body = json.dumps({"model": MODEL, "messages": HELLO}).encode()
        yield body[:10]
        await asyncio.sleep(0.05)
        yield body[10:]

    monkeypatch.setattr(Request, "read", read_and_left)
    async with Target(answers(every=0.1)) as engine, serving(engine.url, exact=False) as caller:
        with pytest.raises(aiohttp.ClientError):
            await caller.session.post(f"{caller.url}/v1/chat/completions", data=slowly())
        await caller.until(lambda: caller.lane.streams == 0)
        assert caller.lane.line.counts["answered"] == 0


@on_loop
@pytest.mark.parametrize("gateway", [False, True])
async def test_a_caller_who_hangs_up_as_his_bytes_are_taken_is_let_go(
    monkeypatch: pytest.MonkeyPatch, gateway: bool
) -> None:
    whole = Stream.write

    def written_and_left(stream: Stream, data: bytes) -> None:
        whole(stream, data)
        asyncio.get_running_loop().call_soon(asked_by().cancel)  # as the server does when it sees him leave

    monkeypatch.setattr(Stream, "write", written_and_left)
    async with Target(answers("x" * 40_000, every=60)) as engine:
        async with serving(engine.url, exact=False, gateway=gateway) as caller:
            leaver = asyncio.create_task(caller.chat(stream=True))
            await asyncio.wait_for(caller.until(lambda: caller.lane.line.counts["caller_left"]), 20)
            assert caller.lane.line.running is None
            leaver.cancel()


@on_loop
async def test_a_caller_whose_leaving_is_seen_twice_at_once_leaves_nothing_behind() -> None:
    """By the write that fails, and by the server, which then cancels what the write had begun to clear up."""

    async def fails_and_is_cancelled(*_: Any) -> None:
        asyncio.get_running_loop().call_soon(asked_by().cancel)
        raise ConnectionResetError("the caller has left")

    async with Target(answers(every=5)) as engine, serving(engine.url, exact=False) as caller:
        caller.lane._delivery._write = fails_and_is_cancelled  # type: ignore[method-assign]
        with pytest.raises(aiohttp.ClientError):
            await caller.chat(stream=True)
        await asyncio.wait_for(caller.until(lambda: caller.lane.streams == 0), 10)
        assert caller.lane.line.counts["caller_left"] == 1


@on_loop
async def test_an_error_of_the_lane_amid_a_stream_cuts_it_and_is_no_second_answer_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = Delivery._write

    async def fails_later(self: Delivery, stream: Stream, data: bytes) -> None:
        assert b" go" not in data
        await write(self, stream, data)

    monkeypatch.setattr(Delivery, "_write", fails_later)
    async with Target(answers(every=0.05)) as engine, serving(engine.url, exact=False) as caller:
        reader, writer = await connected(caller.url, posted(model=MODEL, stream=True))
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while part := await reader.read(1 << 16):
                got += part
        assert (b"Spot" in got, b" 500 " in got, got.endswith(b"0\r\n\r\n")) == (True, False, False)
        writer.close()


@on_loop
async def test_a_gateway_is_told_the_wait_before_it_asks_and_nobody_else_nor_by_a_box_that_leaves() -> None:
    async with Target(answers(every=0.1)) as engine:
        async with (
            serving(engine.url, exact=False) as caller,
            caller.session.get(caller.url + lane_headers.WAIT_PATH) as told,
        ):
            assert (told.status, lane_headers.WAIT in told.headers) == (404, False)
        async with serving(engine.url, **GATEWAY) as caller:

            async def told_now() -> tuple[int, float, float]:
                async with caller.session.get(caller.url + lane_headers.WAIT_PATH) as told:
                    wait, answer = (told.headers.get(name, "-1") for name in (lane_headers.WAIT, lane_headers.ANSWER))
                    return told.status, float(wait), float(answer)

            status, wait, answer = await told_now()
            assert (status, wait) == (204, 0)
            assert answer > 0
            first = await first_served(caller, max_tokens=1000)
            one = (await told_now())[1]
            second = asyncio.create_task(caller.chat(max_tokens=1000))
            await caller.until(lambda: caller.lane.line.waiting)
            both = (await told_now())[1]
            assert 0 < one < both
            assert both - one == pytest.approx(answer, rel=0.2)
            caller.lane.leave(60)
            assert (await told_now())[0] == 503
            await asyncio.gather(first, second)
            assert caller.lane.line.counts["arrived"] == 2  # telling is no request


@on_loop
async def test_an_engine_that_says_nothing_is_given_up_in_its_time() -> None:
    for stream in (False, True):
        async with Target(silent(60)) as engine, serving(engine.url, exact=False, engine_seconds=0.2) as caller:
            answer = await caller.chat(stream=stream)
            assert (answer.status, answer.body["error"]["code"]) == (503, "engine_failed")
            await caller.until(lambda caller=caller: caller.lane.streams == 0)
            assert engine.asked[0].left_at


@on_loop
async def test_a_box_that_leaves_ends_the_connection_of_whom_it_has_answered() -> None:
    async with Target(answers(every=0.05)) as engine, serving(engine.url, exact=False) as caller:
        reader, writer = await connected(caller.url, posted(model=MODEL))
        await caller.until(lambda: caller.lane.line.running)
        caller.lane.leave(30)
        async with asyncio.timeout(5):  # else as long as a server keeps one
            told = await reader.read()
        assert told.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in told.lower()
        writer.close()
