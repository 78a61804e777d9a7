"""One line of the log a request: what CloudWatch takes out of it, what stands in it, and what never does."""

import asyncio
import json
import logging
from collections import Counter
from typing import Any

import pytest

from fleet.core import names
from gateway.memory import MemoryStore
from tests.gateway.running import FAST, closed_port, serving
from tests.gateway.targets import Act, Target, answers, breaks, fails, silent

ECHO = "xyzzy"  # in every prompt, every answer and every error of a target
PROMPT = [{"role": "user", "content": f"say {ECHO}"}]
KEY = "sk-fleet-guessed"
TARGETS_OWN = fails(400, f"no {ECHO}")


def told(lines: list[str], name: str, **dimensions: str) -> list[float]:
    """The values that CloudWatch would take for a metric, by the published rules of the embedded metric format."""
    found = []
    for line in map(json.loads, lines):
        assert isinstance(line["_aws"]["Timestamp"], int)
        for directive in line["_aws"]["CloudWatchMetrics"]:
            assert set(directive) == {"Namespace", "Dimensions", "Metrics"}
            assert directive["Namespace"] == names.METRIC_NAMESPACE
            for metric in directive["Metrics"]:
                assert metric["Unit"] in {"Count", "Seconds", "None"}
                assert isinstance(line[metric["Name"]], int | float), "a target member stands at the root"
            for keys in directive["Dimensions"]:
                assert all(isinstance(line[key], str) and line[key] for key in keys)
                if {key: line[key] for key in keys} == {names.DIMENSION_FLEET: "llm", **dimensions}:
                    found += [line[m["Name"]] for m in directive["Metrics"] if m["Name"] == name]
    return found


async def _asked(gpu: Act, cloud: Act, **body: Any) -> None:
    store = MemoryStore()
    async with Target(gpu) as box, Target(cloud) as other, serving(box.url, other.url, store=store) as caller:
        asking = asyncio.create_task(caller.chat(messages=PROMPT, **body))
        if body.get("tools"):
            await asyncio.sleep(0.2)
            asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.sleep(0.02)
        await caller.settled()
        assert ECHO not in str(store.lines), "the ledger holds no text either, nor an error that repeats it"


def lines_of(caplog: pytest.LogCaptureFixture, *turns: Any) -> list[str]:
    caplog.set_level(logging.INFO, logger="gateway.requests")
    for turn in turns:
        asyncio.run(turn)
    return [record.getMessage() for record in caplog.records if record.name == "gateway.requests"]


def test_who_answered_how_soon_and_what_went_wrong_reach_cloudwatch(caplog: pytest.LogCaptureFixture) -> None:
    leaves: dict[str, Any] = {"tools": [{"type": "function"}]}
    lines = lines_of(
        caplog,
        _asked(answers(ECHO), fails(500)),
        _asked(fails(503, ECHO), answers(ECHO), stream=True),
        _asked(breaks(ECHO, how="error"), answers(ECHO), stream=True),
        _asked(TARGETS_OWN, answers(ECHO)),
        _asked(silent(60), answers(ECHO), **leaves),
        _asked(answers(), answers(), n=99),
    )
    by = names.DIMENSION_ANSWERED_BY
    requests = Counter({who: len(told(lines, names.METRIC_REQUESTS, **{by: who})) for who in ("gpu", "fallback")})
    assert requests == {"gpu": 3, "fallback": 1}, "an error that fails the same anywhere is an answer"
    assert told(lines, names.METRIC_REQUESTS, **{by: "caller-left"}) == [1]
    assert len(told(lines, names.METRIC_FIRST_TOKEN_SECONDS, **{by: "gpu"})) == 2
    assert len(told(lines, names.METRIC_ANSWER_SECONDS, **{by: "fallback"})) == 1
    assert told(lines, names.METRIC_ANSWERS_BROKEN) == [1]
    assert sum(told(lines, names.METRIC_FALLBACK_DOLLARS)) > 0
    assert told(lines, names.METRIC_REFUSALS, **{names.DIMENSION_REASON: "invalid_value"}) == [1]
    assert len(lines) == 6
    assert ECHO not in "".join(lines)
    failed = [line["failed"] for line in map(json.loads, lines) if "failed" in line]
    assert ["gpu status 503"] in failed


def test_line_names_request_caller_and_outcome_and_the_balancers_own_questions_have_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def asked() -> None:
        async with Target() as gpu, serving(gpu.url) as caller:
            await caller.get("/v1/health")
            await caller.get("/v1/ready")
            await caller.chat(stream=True, headers={"x-request-id": "request-1"})
            await caller.chat(headers={"Authorization": f"Bearer {KEY}"})

    first, second = map(json.loads, lines_of(caplog, asked()))
    assert (first["id"], first["status"], first["state"]) == ("request-1", 200, "done")
    assert (first["attempts"], first["tokens"], first["tier"]) == (1, 6, "anonymous")
    assert first["caller"].startswith("address:")
    assert (second["status"], second[names.DIMENSION_REASON]) == (401, "invalid_api_key")
    assert KEY not in json.dumps(second)


def test_nobody_and_an_error_of_our_own_are_told_apart(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody() -> None:
        async with serving(closed_port(), budgets=FAST) as caller:
            await caller.chat(stream=True)

    async def own() -> None:
        async with Target() as gpu, serving(gpu.url) as caller:
            monkeypatch.setattr(caller.gateway, "_serve", lambda *_: 1 / 0)
            assert (await caller.chat()).status == 500

    lines = lines_of(caplog, nobody(), own())
    assert told(lines, names.METRIC_NOBODY_ANSWERED) == [1]
    nobody_answers = {names.DIMENSION_ANSWERED_BY: "nobody"}
    assert told(lines, names.METRIC_REQUESTS, **nobody_answers) == [1]
    assert told(lines, names.METRIC_ANSWERS_BROKEN) == [1]


def test_spent_days_limit_is_a_metric_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async def spent() -> None:
        async with Target(answers()) as cloud:
            async with serving(closed_port(), cloud.url, cloud_settings={"dollars_per_day": 0.000001}) as caller:
                await caller.chat(stream=True)

    assert told(lines_of(caplog, spent()), names.METRIC_FALLBACK_SPENT) == [1]
