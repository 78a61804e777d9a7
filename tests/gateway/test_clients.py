"""Clients that nobody here wrote: OpenAI's SDKs, unchanged, and the caller's side that the docs show."""

import asyncio
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from fleet.config.gateway_settings import CallerTier
from tests.gateway.running import FAST, MANY, on_loop, serving
from tests.gateway.targets import WORDS, Target, answers, breaks, fails

pytestmark = pytest.mark.slow  # loads OpenAI's SDKs

ROOT = Path(__file__).parents[2]
TEXT = "".join(WORDS)
ASK: dict[str, Any] = {"model": "house", "messages": [{"role": "user", "content": "hello"}]}
DONE = answers()
CUT = breaks("Spot", " boxes", how="cut")


def client(url: str, **options: Any) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="anonymous", **options)  # pragma: allowlist secret


async def node(url: str, mode: str) -> dict[str, Any]:
    """What the Node SDK's caller got."""
    program = [str(ROOT / ".venv/bin/node"), str(ROOT / "tests/gateway/openai_node.mjs"), f"{url}/v1", mode]
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    found: dict[str, Any] = json.loads(output)
    return found


@on_loop
async def test_python_sdk_streams_and_does_not() -> None:
    async with Target() as gpu, serving(gpu.url) as caller, client(caller.url) as sdk:
        whole = await sdk.chat.completions.create(**ASK)
        assert (whole.choices[0].message.content, whole.model) == (TEXT, "house")
        stream = await sdk.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == TEXT
        assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == [13]
        assert [model.id for model in (await sdk.models.list()).data] == ["house-model:31b-q4", "house"]


@on_loop
async def test_node_sdk_streams_and_does_not() -> None:
    async with Target() as gpu, serving(gpu.url, tiers=MANY) as caller:
        whole, streamed, models = await asyncio.gather(
            *(node(caller.url, mode) for mode in ("whole", "stream", "models"))
        )
        assert whole == {"text": TEXT, "finish": "stop", "usage": None, "error": None, "code": None, "status": None}
        assert (streamed["text"], streamed["finish"], streamed["usage"]["total_tokens"]) == (TEXT, "stop", 13)
        assert models["text"].split() == ["house-model:31b-q4", "house"]


@on_loop
async def test_break_in_mid_stream_is_an_error_to_both_sdks_never_a_short_success() -> None:
    async with Target(CUT) as gpu, serving(gpu.url) as caller, client(caller.url) as sdk:
        stream, text = await sdk.chat.completions.create(**ASK, stream=True), ""

        async def read() -> None:
            nonlocal text
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""

        with pytest.raises(openai.APIError) as told:
            await read()
        assert (text, told.value.code) == ("Spot boxes", "SPOT_PREEMPTION")
        other = await node(caller.url, "stream")
        assert (other["text"], other["code"], other["finish"]) == ("Spot boxes", "SPOT_PREEMPTION", None)
        assert len(gpu.asked) == 2, "neither SDK asks again by itself once it has tokens"


@on_loop
async def test_sdks_do_not_retry_what_cannot_help() -> None:
    off = replace(MANY, anonymous=CallerTier(requests_per_day=1, parallel=9))
    async with Target() as gpu, serving(gpu.url, tiers=off) as caller, client(caller.url) as sdk:
        await sdk.chat.completions.create(**ASK)
        with pytest.raises(openai.RateLimitError) as told:
            await sdk.chat.completions.create(**ASK)
        assert told.value.code == "cap_reached"
        await caller.settled()
        assert caller.gateway.metrics.refusals.labels("cap_reached")._value.get() == 1, "asked once"


def caller_of_the_docs() -> Any:
    spec = importlib.util.spec_from_file_location("caller", ROOT / "docs" / "caller.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("connected", [9.0, FAST.connected_seconds], ids=["status", "event"])
@on_loop
async def test_caller_of_the_docs_appends_after_a_clean_break_and_waits_where_nobody_answers(connected: float) -> None:
    budgets = replace(FAST, first_token_seconds=0.5, connected_seconds=connected)
    async with Target(CUT, fails(503, Retry_After="7")) as gpu, serving(gpu.url, budgets=budgets) as caller:
        sdk = OpenAI(base_url=f"{caller.url}/v1", api_key="anonymous", max_retries=0)
        module, waited = caller_of_the_docs(), list[float]()

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            gpu.script = [answers(*WORDS[2:])]

        module.time = SimpleNamespace(sleep=sleep)
        text = await asyncio.to_thread(module.ask, sdk, "hello", "house")
        assert (text, waited) == (TEXT, [7])
        assert gpu.asked[-1].body["messages"][-1] == {"role": "assistant", "content": "Spot boxes"}
