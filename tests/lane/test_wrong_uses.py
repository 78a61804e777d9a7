"""Wrong uses of a lane, one table: who is refused before the engine hears of it, and what is pinned on the way."""

import asyncio
import json
from typing import Any

import pytest

from lane import asked
from lane.config import LLAMA_CPP, OLLAMA, Config
from relay import lane_headers
from tests.calling import POST, connected
from tests.gateway.targets import Target, answers, silent
from tests.lane.running import HELLO, MODEL, first_served, on_loop, serving

CHAT, GENERATE = "/v1/chat/completions", "/api/generate"
PLAIN = {"model": MODEL, "messages": HELLO}
PROMPT = {"model": MODEL, "prompt": "Hello"}
DEEP = b'{"model":"tiny","messages":' + b"[" * 100_000

# what, method, path, body, status, a word of the answer
REFUSED: tuple[tuple[str, str, str, Any, int, str], ...] = (
    ("pulling a model", "POST", "/api/pull", {"model": "evil"}, 404, "not served"),
    ("creating one", "POST", "/api/create", {"model": MODEL, "from": MODEL}, 404, "not served"),
    ("deleting one", "DELETE", "/api/delete", {"model": MODEL}, 404, "not served"),
    ("copying one", "POST", "/api/copy", {"source": MODEL, "destination": "x"}, 404, "not served"),
    ("pushing one", "POST", "/api/push", {"model": MODEL}, 404, "not served"),
    ("writing a blob", "POST", "/api/blobs/sha256:00", {}, 404, "not served"),
    ("reading the Modelfile", "POST", "/api/show", {"model": MODEL}, 404, "not served"),
    ("a path in capitals", "POST", "/API/PULL", {"model": "evil"}, 404, "not served"),
    ("a path around", "POST", "/v1/../api/pull", {"model": "evil"}, 404, "not served"),
    ("a path in percents", "POST", "/api/%70ull", {"model": "evil"}, 404, "not served"),
    ("another method", "PUT", CHAT, PLAIN, 404, "not served"),
    ("the line from outside", "GET", "/line", None, 404, "not served"),
    ("a drain from outside", "POST", "/drain", {"seconds": 0}, 404, "not served"),
    ("metrics from outside", "GET", "/metrics", None, 404, "not served"),
    ("llama.cpp's slots", "POST", "/slots/0?action=erase", {}, 404, "not served"),
    ("another model", "POST", CHAT, {**PLAIN, "model": "other"}, 404, "there is tiny"),
    ("no model", "POST", CHAT, {"messages": HELLO}, 404, "there is tiny"),
    ("a model that is a list", "POST", CHAT, {**PLAIN, "model": [MODEL]}, 404, "there is tiny"),
    ("no JSON", "POST", CHAT, b"{", 400, "not valid JSON"),
    ("nested without end", "POST", CHAT, DEEP, 400, "not valid JSON"),
    ("a list", "POST", CHAT, b"[]", 400, "JSON object"),
    ("not UTF-8", "POST", CHAT, b'{"model": "\xff"}', 400, "not valid JSON"),
    ("no messages", "POST", CHAT, {"model": MODEL}, 400, "`messages`"),
    ("messages of text", "POST", CHAT, {**PLAIN, "messages": ["hello"]}, 400, "`messages`"),
    ("an empty prompt, which is a load", "POST", GENERATE, {"model": MODEL}, 400, "a load"),
    ("an unload", "POST", GENERATE, {"model": MODEL, "prompt": "", "keep_alive": 0}, 400, "a load"),
    ("a limit of nothing", "POST", CHAT, {**PLAIN, "max_tokens": 0}, 400, "1 to 2048"),
    ("a limit of text", "POST", CHAT, {**PLAIN, "max_tokens": "many"}, 400, "1 to 2048"),
    ("a limit of true", "POST", CHAT, {**PLAIN, "max_completion_tokens": True}, 400, "1 to 2048"),
    ("a limit of half a token", "POST", GENERATE, {**PROMPT, "options": {"num_predict": 1.5}}, 400, "num_predict"),
    ("options of text", "POST", GENERATE, {**PROMPT, "options": "num_ctx=1"}, 400, "`options`"),
    ("a hundred answers", "POST", CHAT, {**PLAIN, "n": 100}, 400, "`n`"),
    ("a hundred prompts", "POST", "/v1/completions", {"model": MODEL, "prompt": ["Hello"] * 100}, 400, "`prompt`"),
    ("four choices of two", "POST", "/v1/completions", {"model": MODEL, "prompt": ["a", [1]], "n": 4}, 400, "`prompt`"),
    ("the whole vocabulary for each token", "POST", CHAT, {**PLAIN, "top_logprobs": 100_000}, 400, "`top_logprobs`"),
    ("the same of a completion", "POST", "/v1/completions", {**PROMPT, "logprobs": 1e9}, 400, "`logprobs`"),
    ("streaming a maybe", "POST", CHAT, {**PLAIN, "stream": "yes"}, 400, "`stream`"),
    ("a body of 2 MB", "POST", CHAT, {**PLAIN, "pad": "x" * (2 << 20)}, 413, ""),
)

# what is asked, what the engine sees of it
PINNED: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("an absurd limit", CHAT, {**PLAIN, "max_tokens": 10**9}, {"max_tokens": 2048}),
    ("no limit", CHAT, PLAIN, {"max_tokens": 1024}),
    ("the newer name of the limit", CHAT, {**PLAIN, "max_completion_tokens": 7}, {"max_tokens": 7}),
    ("no end", GENERATE, {**PROMPT, "options": {"num_predict": -1}}, {"options": {"num_predict": 2048}}),
    ("llama.cpp's own name of it", CHAT, {**PLAIN, "n_predict": -1}, {"n_predict": None}),
    ("a keep_alive", GENERATE, {**PROMPT, "keep_alive": 0}, {"keep_alive": None}),
    (
        "another context and fewer layers on the GPU",
        GENERATE,
        {**PROMPT, "options": {"num_ctx": 131072, "num_gpu": 0, "num_batch": 1, "temperature": 0.5}},
        {"options": {"temperature": 0.5, "num_predict": 1024}},
    ),
    (
        "a slot, an adapter, a cache",
        CHAT,
        {**PLAIN, "id_slot": 3, "lora": []},
        {"id_slot": None},
    ),
    ("a template, which the engine would run", GENERATE, {**PROMPT, "template": "{{ .Prompt }}"}, {"template": None}),
    ("a stream that is null", GENERATE, {**PROMPT, "stream": None}, {"stream": True}),
    ("a stream that is null, in the other family", CHAT, {**PLAIN, "stream": None}, {"stream": False}),
    ("options in the other family", CHAT, {**PLAIN, "options": {"num_ctx": 1}, "keep_alive": -1}, {"options": None}),
    ("the model by its tag", GENERATE, {**PROMPT, "model": f"{MODEL}:latest"}, {"model": MODEL}),
)


@on_loop
async def test_what_is_refused_reaches_no_engine() -> None:
    async with Target(answers()) as engine:
        async with serving(engine.url, engine=OLLAMA, exact=False, body_bytes=1 << 20) as caller:
            for what, method, path, body, status, word in REFUSED:
                raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
                # by hand, or a client would tidy the path
                head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(raw)}\r\n\r\n"
                reader, writer = await connected(caller.url, head.encode() + raw)
                answer = (await reader.read()).decode()
                writer.close()
                assert answer.startswith(f"HTTP/1.1 {status} "), (what, answer)
                assert word in answer, (what, answer)
            assert engine.asked == []
            assert caller.lane.line.counts["refused"] == len(REFUSED)
            assert caller.lane.streams == 0


@on_loop
async def test_nesting_that_can_be_read_and_not_written_again_is_the_callers_mistake() -> None:
    async with Target(answers()) as engine, serving(engine.url, exact=False) as caller:

        async def at(depth: int) -> int:
            deep = json.dumps({**PLAIN, "stream": True, "tools": "deep"}).replace('"deep"', "[" * depth + "]" * depth)
            async with caller.session.post(caller.url + CHAT, data=deep) as answer:
                return answer.status

        assert {await at(depth) for depth in range(900, 1000)} == {200, 400}


@on_loop
async def test_what_would_reshape_the_model_is_pinned() -> None:
    for what, path, body, seen in PINNED:
        found = asked.read(path, json.dumps(body).encode(), config()).body
        for name, value in seen.items():
            assert found.get(name) == value, what
        assert set(found) <= asked.FIELDS[path] | {"model", "max_tokens", "options"}, what


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
# what a slice would tear
WHOLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("an image", {"messages": [{"role": "user", "content": [IMAGE]}]}),
    ("an answer that is begun already", {"messages": [*HELLO, {"role": "assistant", "content": "So"}]}),
    ("tools", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    ("a format", {"response_format": {"type": "json_object"}}),
    ("logprobs", {"logprobs": True}),
    ("two choices", {"n": 2}),
    ("a thought", {"reasoning_effort": "high"}),
    ("a penalty for what was said before", {"presence_penalty": 1.0}),
    ("another penalty", {"frequency_penalty": 1.0}),
)


def test_what_a_slice_would_tear_is_served_whole() -> None:
    def whole(path: str, body: dict[str, Any]) -> bool:
        return asked.read(path, json.dumps({**PLAIN, **body}).encode(), config()).whole

    assert [what for what, body in WHOLE if not whole(CHAT, body)] == []
    assert whole("/api/chat", {})
    assert not whole(CHAT, {"temperature": 0, "stop": ["x"], "seed": 1})


def test_a_completion_is_continued_only_where_its_prompt_stays_as_it_is() -> None:
    def whole(engine: str, **body: Any) -> bool:
        raw = json.dumps({**PROMPT, "temperature": 0, **body}).encode()
        return asked.read("/v1/completions", raw, config(engine=engine)).whole

    assert whole(OLLAMA), "it puts the prompt into the chat's template"
    assert not whole(LLAMA_CPP)
    assert whole(LLAMA_CPP, prompt=["one", "two"])


def test_each_prompt_of_a_completion_has_its_own_limit_and_a_list_of_tokens_is_one() -> None:
    for prompt, many in ((["a", "b", "c"], 3), ([[1, 2], [3]], 2), ([1, 2, 3], 1), ("a", 1)):
        raw = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": 10}).encode()
        assert asked.read("/v1/completions", raw, config()).limit == 10 * many, prompt


# what, path, body, about how many tokens
LONG: tuple[tuple[str, str, dict[str, Any], float], ...] = (
    ("Chinese, which has no spaces", CHAT, {"messages": [{"role": "user", "content": "\u6f22" * 10_000}]}, 7500),
    ("what a stream of events says", CHAT, {"messages": [{"role": "user", "content": "data: x" * 10_000}]}, 17_500),
    ("an image", CHAT, {"messages": [{"role": "user", "content": "data:image/png;base64," + "A" * 100_000}]}, 1024),
    ("an image of Ollama's", GENERATE, {"prompt": "Hi", "images": ["iVBOR" * 20_000]}, 1024),
    ("what was said before, in tokens", GENERATE, {"prompt": "Hi", "context": [7] * 5000}, 5000),
    ("a system's text", GENERATE, {"prompt": "Hi", "system": "Be brief. " * 1000}, 2500),
)


@pytest.mark.parametrize(("what", "path", "body", "tokens"), LONG, ids=[row[0] for row in LONG])
def test_the_length_of_a_prompt_is_that_of_all_that_the_engine_reads(
    what: str, path: str, body: dict[str, Any], tokens: float
) -> None:
    found = asked.read(path, json.dumps({"model": MODEL, **body}).encode(), config())
    assert found.prompt_tokens == pytest.approx(tokens, rel=0.01)


def config(**changes: Any) -> Config:
    given = {"engine_url": "", "engine": OLLAMA, "model": MODEL, "context_length": 2048, "port": 0, "admin_port": 0}
    return Config(**{**given, "gateway": True, **changes})


HEADERS: tuple[tuple[str, dict[str, str], tuple[str, float]], ...] = (
    ("a deadline in the past", {lane_headers.DEADLINE: "-5"}, ("interactive", 0)),
    ("a deadline that is no number", {lane_headers.DEADLINE: "soon"}, ("interactive", 600)),
    ("a deadline that is not a number", {lane_headers.DEADLINE: "nan"}, ("interactive", 600)),
    ("a deadline of for ever", {lane_headers.DEADLINE: "inf"}, ("interactive", 1800)),
    ("a deadline of minus for ever", {lane_headers.DEADLINE: "-inf"}, ("interactive", 0)),
    ("a class above all", {lane_headers.CLASS: "root"}, ("background", 600)),
    ("a class in capitals", {lane_headers.CLASS: "INTERACTIVE"}, ("background", 600)),
)


@pytest.mark.parametrize(("what", "headers", "expected"), HEADERS, ids=[row[0] for row in HEADERS])
def test_headers_that_a_gateway_would_not_send_raise_nothing(
    what: str, headers: dict[str, str], expected: tuple[str, float]
) -> None:
    found = asked.terms(headers, config())
    assert (found.kind, found.deadline_seconds) == expected
    forged = asked.terms(headers, config(gateway=False))
    assert (forged.caller, forged.kind, forged.deadline_seconds) == ("", "interactive", 600)


def test_a_callers_name_without_end_is_cut() -> None:
    assert len(asked.terms({lane_headers.CALLER: "x" * 10_000}, config()).caller) == 128


@on_loop
async def test_a_body_that_comes_a_byte_at_a_time_is_given_up_and_holds_nobody_up() -> None:
    async with Target(answers()) as engine, serving(engine.url, exact=False, body_seconds=0.3) as caller:
        reader, writer = await connected(caller.url, POST + b"Content-Length: 1000\r\n\r\n{")
        assert (await caller.chat()).status == 200
        assert b" 408 " in await reader.readline()
        writer.close()
        assert len(engine.asked) == 1


@on_loop
async def test_large_bodies_share_a_bound_of_memory_and_a_prompt_of_text_always_finds_room() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 200_000}}
    large = [{"role": "user", "content": [image]}]
    async with Target(silent(60), answers()) as engine:
        async with serving(engine.url, exact=False, large_bytes=300_000) as caller:
            first = await first_served(caller, messages=large)
            refused = await caller.chat(messages=large)
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
            small = asyncio.create_task(caller.chat())
            await caller.until(lambda: caller.lane.line.waiting)
            first.cancel()
            assert (await small).status == 200
            assert (await caller.chat(messages=large)).status == 200


@on_loop
async def test_llama_cpps_server_is_asked_of_its_own_family_alone() -> None:
    async with Target(answers()) as engine, serving(engine.url, engine=LLAMA_CPP, exact=False) as caller:
        answer = await caller.post(GENERATE, **PROMPT)
        assert answer.status == 404
        assert engine.asked == []


@on_loop
async def test_an_id_that_two_requests_share_names_one_alone() -> None:
    async with Target(answers(every=0.05)) as engine, serving(engine.url, exact=False, gateway=True) as caller:
        same = {lane_headers.REQUEST: "same-id-for-both"}
        first, second = await asyncio.gather(caller.chat(same, stream=True), caller.chat(same, stream=True))
        assert first.status == second.status == 200
        assert caller.lane.line.counts["answered"] == 2


@on_loop
async def test_administration_refuses_what_is_no_time() -> None:
    async with Target(answers()) as engine, serving(engine.url, exact=False) as caller:
        for seconds in ("soon", -1, 1e9, None, [1]):
            status, told = await caller.inside("POST", "/drain", {"seconds": seconds})
            assert status == 400
            assert "seconds" in told["error"]
        assert caller.lane.line.leaves_at is None
