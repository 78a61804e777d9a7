"""What operators, CloudWatch and Prometheus are told of a lane: through the box's own programs, from one that runs."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lane_metrics
import paths
import pytest
import telemetry

from fleet.core import lane_documents, names
from fleet.ops import lane as told
from tests.gateway.targets import Target, answers, silent
from tests.lane.running import WORDS, Caller, first_served, from_gateway, on_loop, serving

BOX: Any = SimpleNamespace(fleet="llm")
GATEWAY = {"exact": False, "gateway": True}


async def run_document(content: dict[str, Any], caller: Caller, **values: str) -> str:
    """What the agent on the box does, with the port of this lane."""
    first, *lines = content["mainSteps"][0]["inputs"]["runCommand"]
    assert first.count(str(names.LANE_ADMIN_PORT)) == 1
    script = "\n".join([first.replace(str(names.LANE_ADMIN_PORT), caller.admin.rpartition(":")[2]), *lines])
    for name, value in values.items():
        script = script.replace(f"{{{{ {name} }}}}", value)
    shell = await asyncio.create_subprocess_exec("bash", "-c", script, stdout=-1, stderr=-1)
    output, errors = await shell.communicate()
    assert (shell.returncode, errors) == (0, b"")
    return output.decode()


@on_loop
async def test_line_and_drop_go_through_the_documents_to_the_lane_itself() -> None:
    async with Target(silent(60, head=True), answers()) as engine, serving(engine.url, **GATEWAY) as caller:
        stuck = await first_served(caller, stream=True)
        waiting = asyncio.create_task(caller.chat(from_gateway("background", "bob")))
        await caller.until(lambda: caller.lane.line.waiting)
        shown = await run_document(lane_documents.show(), caller)
        assert "Hello" not in shown, "no prompt"
        line = told.said("i-1", shown)
        assert [(each.caller, each.kind, each.state) for each in line.line] == [
            ("anybody", "interactive", "served"),
            ("bob", "background", "waiting"),
        ]
        assert line.line[1].expected > line.line[0].expected > 0
        drop = lane_documents.drop()
        assert json.loads(await run_document(drop, caller, id=line.line[0].id)) == {"dropped": True}
        ended = await stuck
        assert (ended.status, ended.body["error"]["code"]) == (503, "dropped")
        assert ended.headers["x-should-retry"] == "false"
        assert (await waiting).status == 200
        assert json.loads(await run_document(drop, caller, id="long-gone")) == {"dropped": False}


@on_loop
async def test_the_wait_that_is_told_is_behind_all_who_wait_whoever_had_a_turn_before() -> None:
    async with Target(answers(every=0.12), silent(60, head=True)) as engine, serving(engine.url, **GATEWAY) as caller:
        assert (await caller.chat(from_gateway(who="key:1"))).status == 200  # who has used the engine since
        tasks = [asyncio.create_task(caller.chat(from_gateway(who="key:1"), stream=True)) for _ in range(3)]
        await caller.until(lambda: len(caller.lane.line.waiting) == 2)
        now, line = asyncio.get_running_loop().time(), caller.lane.line
        waiting = sum(line.left(entry, now).mean for entry in line.waiting)
        assert caller.lane.expected_wait() > waiting > 0
        for task in tasks:
            task.cancel()


@on_loop
async def test_cloudwatch_is_told_of_the_line_and_of_what_was_counted_since() -> None:
    async with Target(answers(every=0.05)) as engine, serving(engine.url, **GATEWAY) as caller:

        async def told_now(before: Any = None) -> tuple[Any, dict[str, float]]:
            line = await asyncio.to_thread(lane_metrics.look, int(caller.admin.rpartition(":")[2]))
            assert line is not None
            return line, {each["MetricName"]: each["Value"] for each in lane_metrics.data(BOX, line, before)}

        first = await first_served(caller, stream=True)
        assert (await caller.chat(from_gateway(seconds=0.0))).status == 503
        line, values = await told_now()
        assert values[names.METRIC_LANE_DEPTH] == 1
        assert values[names.METRIC_LANE_EXPECTED_WAIT_SECONDS] > 0
        assert values[names.METRIC_LANE_REFUSALS] == 1
        assert values[names.METRIC_LANE_WAIT_SECONDS] < 1
        assert caller.lane.metrics.wait_seconds > 0
        assert (await first).text == WORDS
        caller.lane.metrics.wasted += 7
        line, values = await told_now(line)
        assert values == {
            names.METRIC_LANE_DEPTH: 0,
            names.METRIC_LANE_EXPECTED_WAIT_SECONDS: 0,
            names.METRIC_LANE_WASTED_TOKENS: 7,
        }
        _, values = await told_now({**line, "pid": 1})  # it was started anew: all of its counts are news
        assert (values[names.METRIC_LANE_REFUSALS], values[names.METRIC_LANE_WASTED_TOKENS]) == (1, 7)


STILL = {**lane_metrics.FRESH, "line": [], "expected_wait_seconds": 0.0, "draining": False}


def test_who_comes_to_a_box_that_leaves_waits_for_nothing_that_is_told() -> None:
    told = [each["MetricName"] for each in lane_metrics.data(BOX, {**STILL, "draining": True}, None)]
    assert told == [names.METRIC_LANE_DEPTH]


def test_a_refusal_is_told_by_its_reason() -> None:
    line = {**STILL, "refusals": {"draining": 3, "deadline": 0}}
    (refusal,) = (each for each in lane_metrics.data(BOX, line, None) if each["Value"])
    assert (refusal["Value"], refusal["Unit"]) == (3, "Count")
    assert {each["Name"]: each["Value"] for each in refusal["Dimensions"]} == {"Fleet": "llm", "Reason": "draining"}


def test_the_line_is_told_every_minute_and_more_often_while_the_box_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    reporter = lane_metrics.Reporter(BOX, sent.append)

    def look_at(seconds: float, *, leaving: bool = False, there: bool = True) -> int:
        monkeypatch.setattr(lane_metrics, "look", lambda: STILL if there else None)
        reporter.step(seconds, leaving=leaving)
        return len(sent)

    assert [look_at(at) for at in (0, 10, 59, 60, 119)] == [1, 1, 1, 2, 2]
    assert [look_at(at, leaving=True) for at in (120, 125, 130)] == [3, 3, 4]
    assert look_at(200, there=False) == look_at(300, there=False) == 4
    assert look_at(400) == 5


def test_a_lane_that_does_not_answer_tells_nothing() -> None:
    assert lane_metrics.look(9) is None


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, float], None]:
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    return telemetry.figure


def test_the_four_spot_names_are_on_the_boxs_loopback_once_they_are_known(
    figures: Callable[[str, float], None],
) -> None:
    async def told(caller: Caller) -> dict[str, str]:
        _, text = await caller.inside("GET", "/metrics")
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("llm_spot_"))

    @on_loop
    async def run() -> None:
        async with Target(answers()) as engine, serving(engine.url, **GATEWAY) as caller:
            assert set(await told(caller)) == {names.SPOT_ABORTED_RATIO, names.SPOT_WASTED_TOKENS}
            figures(names.SPOT_READY_LATENCY, 258.7)
            figures(names.SPOT_NOTICE_TO_DRAINING, 5.25)
            found = await told(caller)
            assert (found["llm_spot_replacement_ready_latency_seconds"], len(found)) == ("258.7", 4)
            assert found["llm_spot_notice_to_draining_seconds"] == "5.25"
            (paths.FIGURES / names.SPOT_READY_LATENCY).write_text("half a n")
            assert len(await told(caller)) == 3

    run()


def test_a_figure_that_cannot_be_kept_costs_a_line_of_the_log(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(paths, "FIGURES", Path("/proc/none"))
    telemetry.figure(names.SPOT_READY_LATENCY, 1.0)
    assert "not told" in capsys.readouterr().out


def test_what_the_document_prints_fits_into_what_run_command_returns() -> None:
    """AWS hands back 24,000 characters; a full line of the longest ids and callers is shorter."""
    entry = {"id": "i" * 64, "caller": "c" * 64, "class": "interactive", "state": "waiting", "tokens": 4096}
    entry |= {"waited_seconds": 1800.0, "expected_seconds": 1800.0, "limit": 4096}
    assert len(json.dumps([entry] * 65)) < 24_000
