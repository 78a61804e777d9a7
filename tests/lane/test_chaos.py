"""What `make chaos` judges by: one request's story told by three, and a storm of tries."""

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.targets import Target, answers
from tests.lane import chaos
from tests.lane.processes import Met
from tests.lane.running import first_served, from_gateway, on_loop, serving
from tests.lane.sdks import most_in_a_second

MET = Met(stream=True, id="r", by="gpu", status=200, tokens=7, finished=True)
LINE = {"id": "r", "state": "done", "AnsweredBy": "gpu", "tokens": 7}
SERVED = {"id": "r", "how": "answered", "delivered": 7}
BUSY = {"id": "r", "how": "would_be_late", "delivered": 0}


@pytest.mark.parametrize(
    ("met", "line", "turns", "holds"),
    [
        (MET, LINE, [SERVED], True),
        (MET, LINE, [BUSY, SERVED], True),  # asked again, and taken
        (MET, LINE, [SERVED, SERVED], False),  # two runs of one request
        (MET, LINE, [], False),
        (MET, {**LINE, "tokens": 6}, [SERVED], False),
        (MET, LINE, [{**SERVED, "delivered": 6}], False),
        (MET, {**LINE, "AnsweredBy": "fallback"}, [SERVED], False),
        (replace(MET, by="fallback"), {**LINE, "AnsweredBy": "fallback"}, [BUSY], True),
        (replace(MET, by="fallback"), {**LINE, "AnsweredBy": "fallback"}, [SERVED], False),  # the GPU worked for nobody
        (replace(MET, by="fallback"), {**LINE, "AnsweredBy": "fallback"}, [], False),
        (replace(MET, finished=False), LINE, [SERVED], False),
    ],
)
def test_caller_ledger_and_lane_must_agree(met: Met, line: Any, turns: Any, holds: bool) -> None:
    assert chaos.reconciled(met, line, turns) is holds


def test_the_busiest_second_is_counted_whichever_clients_tried() -> None:
    assert most_in_a_second({}) == 0
    assert most_in_a_second({"a": [0.0, 0.9, 1.0], "b": [0.95, 5.0]}) == 3


@on_loop
async def test_the_lane_logs_one_line_for_each_time_that_a_request_came_and_no_prompt() -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("lane")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    async with Target(answers(every=0.05)) as engine, serving(engine.url, exact=False, gateway=True) as caller:
        first = await first_served(caller, stream=True)
        await caller.chat({**from_gateway("background", seconds=0.0), "x-request-id": "told-busy"})
        await first
    log.removeHandler(handler)
    lines = [json.loads(line.removeprefix("REQUEST ")) for line in said if line.startswith("REQUEST ")]
    assert [(each["how"], each["class"]) for each in lines] == [
        ("would_be_late", "background"),
        ("answered", "interactive"),
    ]
    assert (lines[0]["id"], lines[1]["tokens"], lines[1]["delivered"]) == ("told-busy", 6, 6)
    assert "Hello" not in "".join(said)
