"""Hostile input, one table: each with its status and message, and the gateway alive after each."""

import asyncio
import itertools
import json
import resource
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fleet.config.gateway_settings import CallerTier, Limits
from gateway import service
from tests.calling import POST, connected, posted
from tests.gateway.running import FAST, HELLO, MANY, MODEL, Caller, closed_port, on_loop, serving
from tests.gateway.targets import Target, Turn, answers, fails, silent

LIMITS = Limits(body_mib=200_000 / (1 << 20), body_seconds=0.5, max_tokens=4096, prompt_tokens=1000)
QUICK = replace(FAST, whole_seconds=0.3)
DEEP = "[" * 90_000 + "]" * 90_000
CUT_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}


@dataclass(frozen=True)
class Case:
    """One request; `says` stands in its answer."""

    name: str
    status: int
    says: str
    body: Any = None
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"
    path: str = "/v1/chat/completions"

    def data(self) -> bytes:
        body = {"model": MODEL, "messages": HELLO, **(self.body or {})}
        return json.dumps(body).encode() if self.raw is None else self.raw


def message(**values: Any) -> dict[str, Any]:
    """A body with one message of these fields."""
    return {"messages": [{"role": "user", "content": "hi", **values}]}


CASES = [
    # what is no request
    Case("nothing", 400, "not valid JSON", raw=b""),
    Case("JSON that was cut", 400, "not valid JSON", raw=b'{"model": "x", "mess'),
    Case("a list", 400, "JSON object", raw=b"[]"),
    Case("a number", 400, "JSON object", raw=b"17"),
    Case("bytes that are no text", 400, "not valid JSON", raw=b"\xff\xfe\x00"),
    Case("lists 90,000 deep", 400, "not valid JSON", raw=f'{{"messages": {DEEP}}}'.encode()),
    Case("a number with 5,000 digits", 400, "not valid JSON", raw=b'{"max_tokens": ' + b"9" * 5000 + b"}"),
    Case("a body above the limit", 413, "too_large", raw=b" " * 200_001),
    Case(
        "NaN for a number",
        400,
        "max_tokens",
        raw=json.dumps({"model": MODEL, "messages": HELLO, "max_tokens": float("nan")}).encode(),
    ),
    # what no model needs to be asked for
    Case("no model", 404, "does not exist", {"model": None}),
    Case("an unknown model", 404, MODEL, {"model": "gpt-4"}),
    Case("the cloud's model by name", 404, "does not exist", {"model": "cloud-model"}),
    Case("a model that is a list", 404, "does not exist", {"model": [MODEL]}),
    Case("no messages", 400, "messages", {"messages": []}),
    Case("messages that are a text", 400, "messages", {"messages": "hi"}),
    Case("a message that is a text", 400, "messages[0].role", {"messages": ["hi"]}),
    Case("an unknown role", 400, "messages[0].role", message(role="root")),
    Case("a role that is a list", 400, "messages[0].role", message(role=["user"])),
    Case("content that is a number", 400, "messages[0].content", message(content=7)),
    Case("tool calls cut in their JSON", 400, "whole JSON", message(role="assistant", tool_calls=[CUT_CALL])),
    Case("tool calls that are numbers", 400, "tool_calls", message(role="assistant", tool_calls=[7])),
    Case("tool calls that are a number", 400, "tool_calls", message(role="assistant", tool_calls=7)),
    Case("stream that is a text", 400, "stream", {"stream": "yes"}),
    Case("stream options that are a list", 400, "stream_options", {"stream_options": [1]}),
    Case("no tokens", 400, "max_tokens", {"max_tokens": 0}),
    Case("fewer than no tokens", 400, "max_tokens", {"max_tokens": -1}),
    Case("half a token", 400, "max_tokens", {"max_tokens": 1.5}),
    Case("true tokens", 400, "max_tokens", {"max_tokens": True}),
    Case("a hundred answers", 400, "n:", {"n": 100}),
    Case("two streamed answers", 400, "n:", {"n": 2, "stream": True}),
    # steering into the cloud
    Case("a token limit beyond every budget", 400, "from 1 to 4096", {"max_tokens": 10**9}),
    Case("the same under its other name", 400, "max_completion_tokens", {"max_completion_tokens": 10**9}),
    Case("a prompt that no box takes", 413, "at most 1000", message(content="x" * 20_000)),
    Case("a prompt hidden in parts", 413, "at most 1000", message(content=[{"type": "text", "text": "x" * 5000}] * 4)),
    Case("a prompt hidden in tools", 413, "at most 1000", {"tools": [{"type": "function", "d": "x" * 20_000}]}),
    Case("more images than a context holds", 413, "at most 1000", message(content=[{"type": "image_url"}] * 2)),
    # administration
    Case("a load-time option", 200, "Spot", {"keep_alive": 0, "options": {"num_ctx": 131072}, "num_gpu": 0}),
    Case("the engine's own route", 404, "is not served here", path="/api/pull"),
    Case("deleting the model", 404, "is not served here", method="DELETE", path="/api/delete"),
    Case("a route of other products", 404, "is not served here", path="/v1/responses"),
    Case("a path out of the root", 404, "is not served here", path="/v1/../../etc/passwd"),
    Case("the metrics, from outside", 404, "is not served here", method="GET", path="/metrics"),
    Case("another method", 404, "is not served here", method="PUT"),
    # who one is
    Case("a guessed key", 401, "unknown or revoked", headers={"Authorization": "Bearer sk-fleet-guess"}),
    Case("a key of 16,000 characters", 401, "unknown or revoked", headers={"Authorization": "Bearer " + "k" * 16_000}),
    Case("a key with a table's separators", 401, "unknown", headers={"Authorization": "Bearer a#b#c"}),
    Case("another scheme is no key", 200, "Spot", headers={"Authorization": "Basic eDp5"}),
    Case("an address that is none", 200, "Spot", headers={"X-Forwarded-For": "<script>, ';--"}),
    Case("a thousand forged hops", 200, "Spot", headers={"X-Forwarded-For": ", ".join(["10.0.0.1"] * 600)}),
    Case("a deadline of its own", 200, "Spot", headers={"x-lane-deadline-seconds": "-5", "x-lane-class": "root"}),
    Case("a request id that is an injection", 200, "Spot", headers={"x-request-id": 'a"}{$ne'}),
]


@dataclass
class Open:
    """A gateway that stays for the whole table, and the loop that it lives on."""

    loop: asyncio.AbstractEventLoop
    caller: Caller
    gpu: Target


@pytest.fixture(scope="module")
def gateway() -> Any:
    async def stays() -> AsyncIterator[tuple[Caller, Target]]:
        async with Target(answers()) as gpu, Target() as cloud:
            async with serving(gpu.url, cloud.url, limits=LIMITS, trusted_hops=1) as caller:
                yield caller, gpu

    loop, found = asyncio.new_event_loop(), stays()
    caller, gpu = loop.run_until_complete(anext(found))
    yield Open(loop, caller, gpu)
    loop.run_until_complete(found.aclose())
    loop.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_is_told_its_mistake_and_the_gateway_lives(case: Case, gateway: Open) -> None:
    async def ask() -> tuple[int, str, int]:
        url, before = gateway.caller.url + case.path, len(gateway.gpu.asked)
        async with gateway.caller.session.request(case.method, url, data=case.data(), headers=case.headers) as response:
            status, text = response.status, await response.text()
        alive = await gateway.caller.chat(max_tokens=5)
        assert alive.status == 200
        return status, text, len(gateway.gpu.asked) - before - 1

    status, text, asked = gateway.loop.run_until_complete(ask())
    assert (status, case.says in text) == (case.status, True), text
    assert asked == (case.status == 200), "a target hears only of what was admitted"
    if case.status != 200:
        assert json.loads(text)["error"]["type"] == "invalid_request_error"


def test_only_what_is_on_the_list_travels_to_a_target(gateway: Open) -> None:
    odd = {"keep_alive": 0, "options": {"num_ctx": 1}, "num_gpu": 0, "user": "u", "store": True, "top_p": 0.5}
    gateway.loop.run_until_complete(gateway.caller.chat(**odd))
    sent = gateway.gpu.asked[-1].body
    assert set(sent) == {"model", "messages", "max_tokens", "stream", "top_p"}
    assert sent["max_tokens"] == LIMITS.default_max_tokens, "an engine's own default is endless"


def test_nesting_that_can_be_read_and_not_written_again_is_the_callers_mistake(gateway: Open) -> None:
    async def at(depth: int) -> int:
        deep = f'{{"model":"{MODEL}","messages":[{{"role":"user","content":[{{"text":{"[" * depth}{"]" * depth}}}]}}]}}'
        url = f"{gateway.caller.url}/v1/chat/completions"
        async with gateway.caller.session.post(url, data=deep.encode()) as response:
            return response.status

    statuses = [gateway.loop.run_until_complete(at(depth)) for depth in range(900, 1000)]
    assert set(statuses) == {200, 400}


async def first_line(url: str, said: bytes) -> bytes:
    """What these bytes are answered with, which are no whole request."""
    reader, writer = await connected(url, said)
    line = await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    return line


@on_loop
async def test_fifty_at_once_are_refused_by_number_before_any_estimate() -> None:
    few = replace(MANY, anonymous=CallerTier(requests_per_day=1000, fallbacks_per_day=5, parallel=2))
    patient, all_have_asked = replace(FAST, whole_seconds=90, wall_seconds=98), asyncio.Event()

    async def waits(turn: Turn) -> None:
        await all_have_asked.wait()
        await answers()(turn)

    async with Target(waits) as gpu, Target() as cloud:
        async with serving(gpu.url, cloud.url, tiers=few, budgets=patient) as caller:
            asking = [asyncio.create_task(caller.chat()) for _ in range(50)]
            refused = [await each for each in itertools.islice(asyncio.as_completed(asking), 48)]
            all_have_asked.set()
            found = await asyncio.gather(*asking)
            assert sorted(answer.status for answer in found) == [200] * 2 + [429] * 48
            assert len(cloud.asked) == 0
            assert {(one.headers["x-should-retry"], one.headers["Retry-After"]) for one in refused} == {("true", "1")}


@on_loop
async def test_who_has_too_many_at_once_is_refused_before_his_body_is_read() -> None:
    one = replace(MANY, anonymous=CallerTier(requests_per_day=1000, parallel=1))
    async with Target(silent(60)) as gpu, serving(gpu.url, tiers=one, limits=Limits(body_seconds=30)) as caller:
        asking = asyncio.create_task(caller.chat())
        while not gpu.asked:
            await asyncio.sleep(0.01)
        answer = await first_line(caller.url, POST + b"Content-Length: 20000000\r\n\r\n{")
        assert answer.startswith(b"HTTP/1.1 429 "), "twenty of these would have been a task's memory"
        asking.cancel()


@pytest.mark.parametrize("told", [True, False], ids=["length told", "not told"])
@on_loop
async def test_large_bodies_share_a_bound_of_memory_and_a_prompt_of_text_always_finds_room(
    monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    monkeypatch.setattr(service, "LARGE_BYTES", 300_000)
    large = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": [IMAGE] * 2}]}).encode()

    async def in_parts() -> AsyncIterator[bytes]:
        yield large

    async with Target(silent(60), answers()) as gpu, serving(gpu.url, limits=Limits(body_mib=0.25)) as caller:

        async def ask() -> tuple[int, str]:
            body = large if told else in_parts()
            async with caller.session.post(f"{caller.url}/v1/chat/completions", data=body) as response:
                return response.status, await response.text()

        first = asyncio.create_task(ask())
        while not gpu.asked:
            await asyncio.sleep(0.01)
        status, text = await ask()
        assert (status, json.loads(text)["error"]["code"]) == (503, "too_many_large")
        assert (await caller.chat()).status == 200
        first.cancel()
        await caller.settled()
        assert (await ask())[0] == 200


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (POST + b"Content-Length: 100\r\n\r\n{", b"408"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", b"408"),
        (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
    ],
    ids=["a slow body", "a slow chunk", "smuggling"],
)
def test_bytes_that_are_no_request_end_in_a_status(said: bytes, status: bytes, gateway: Open) -> None:
    answer = gateway.loop.run_until_complete(first_line(gateway.caller.url, said))
    assert answer.startswith(b"HTTP/1.1 " + status), answer
    assert gateway.loop.run_until_complete(gateway.caller.chat()).status == 200
    assert b"llm_gateway_answers_broken_total 0.0" in gateway.caller.gateway.metrics.text(), "which would wake somebody"


@on_loop
async def test_slow_reader_is_let_go_and_its_generation_with_it() -> None:
    words = ["x" * 2000] * 5000
    quick = replace(FAST, wall_seconds=0.5)
    async with Target(answers(*words)) as gpu, serving(gpu.url, budgets=quick) as caller:
        _, writer = await connected(caller.url, posted(model=MODEL, stream=True), limit=1024)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with asyncio.timeout(10):
            while caller.gateway._open or not gpu.asked:
                await asyncio.sleep(0.05)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000, "10 MB were waiting for him"
        await caller.settled()
        assert b"llm_gateway_answers_broken_total 0.0" in caller.gateway.metrics.text(), "he has left"
        writer.close()
        assert (await caller.get("/v1/health")).status == 200


@on_loop
async def test_pages_of_any_origin_may_ask_with_a_key_and_no_cookie() -> None:
    async with Target() as gpu, serving(gpu.url) as caller:
        url = f"{caller.url}/v1/chat/completions"
        asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
        async with caller.session.options(url, headers=asked) as response:
            assert response.status == 204
            allowed = {each.strip() for each in response.headers["Access-Control-Allow-Headers"].split(",")}
            assert allowed == {"*", "Authorization"}, "an SDK in a page sends x-stainless-os and a dozen more"
            assert response.headers["Access-Control-Allow-Origin"] == "*"
            assert "Access-Control-Allow-Credentials" not in response.headers
        streamed = await caller.chat(stream=True, headers={"Origin": "https://app.example"})
        assert streamed.headers["Access-Control-Allow-Origin"] == "*"
        assert streamed.headers["Access-Control-Expose-Headers"] == "*", "x-should-retry among them"
    async with Target() as gpu, serving(gpu.url, origins=("https://app.example",)) as caller:
        for origin, allowed in (("https://app.example", "https://app.example"), ("https://evil.example", None)):
            answer = await caller.chat(headers={"Origin": origin})
            assert answer.headers.get("Access-Control-Allow-Origin") == allowed


@on_loop
async def test_health_does_not_lie_and_never_takes_the_gateway_out() -> None:
    async with Target() as gpu, serving(gpu.url) as caller:
        assert (await caller.get("/v1/ready")).body == {"answers": "gpu"}
        assert {entry["served_by"] for entry in (await caller.get("/v1/models")).body["data"]} == {"gpu"}
    async with Target() as cloud, serving(closed_port(), cloud.url) as caller:
        ready = await caller.get("/v1/ready")
        assert (ready.status, ready.body) == (200, {"answers": "fallback"})
    async with Target(fails(429)) as cloud, serving(closed_port(), cloud.url, budgets=QUICK) as caller:
        await caller.chat()
        assert (await caller.get("/v1/ready")).body == {"answers": "nobody"}, "it asked for a pause"
    async with serving(closed_port()) as caller:
        ready, health = await caller.get("/v1/ready"), await caller.get("/v1/health")
        assert (ready.status, ready.body, health.status) == (200, {"answers": "nobody"}, 200)
