"""How the gateway is built: decisions apart from input and output, a relay that also runs on the box, a gentle end."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from fleet.core import names
from fleet.core.ports import free_port
from gateway.metrics import PLAIN, TIMED, Metrics, prometheus
from tests.calling import connected, misread, posted
from tests.gateway.running import on_loop
from tests.gateway.targets import Target, answers, silent
from tests.source import imported, too_new_for_the_box

ASSETS = Path(__file__).parents[2] / "assets"
DECISIONS = ("admission", "breaker", "callers", "choice", "fallback", "ledger")
WORLD = {"asyncio", "boto3", "botocore", "os", "socket", "subprocess", "threading", "time"}


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_know_no_clock_no_socket_and_no_store(name: str) -> None:
    assert not imported(ASSETS / "gateway" / f"{name}.py") & WORLD


def test_relay_runs_on_the_box_and_knows_nothing_of_callers() -> None:
    files = sorted((ASSETS / "relay").glob("*.py"))
    assert too_new_for_the_box(files) == ""
    for path in files:
        assert imported(path) <= {"relay", "httptools", "async_timeout"} | sys.stdlib_module_names, path.name


def test_metric_has_one_name_and_one_home() -> None:
    told = Metrics("llm").text().decode()
    own = {*PLAIN, *TIMED, names.METRIC_REQUESTS, names.METRIC_REFUSALS, names.METRIC_ATTEMPTS_FAILED}
    assert [name for name in own if f"# HELP {prometheus(name)}" not in told] == []
    assert prometheus(names.METRIC_FIRST_TOKEN_SECONDS) == "llm_gateway_first_token_seconds"


@on_loop
async def test_process_lets_go_of_whom_left_and_told_to_go_answers_what_is_here_and_what_arrives() -> None:
    async with Target(answers(every=0.2), silent(60), answers(every=0.2)) as gpu:
        port, metrics = (free_port() for _ in range(2))
        config = {"fleet": "llm", "gpu_url": gpu.url, "models": {"m": "m"}, "port": port, "metrics_port": metrics}
        config["gateway"] = {"trusted_hops": 0, "tiers": {"anonymous": {"requests_per_day": 9, "parallel": 9}}}
        environment = {**os.environ, names.ENV_GATEWAY: json.dumps(config), "PYTHONPATH": f"{ASSETS}:{ASSETS.parent}"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", env=environment, cwd=ASSETS, stderr=PIPE
        )

        async def ask() -> bytes:
            reader, writer = await connected(port, posted(model="m", stream=True))
            told = await reader.readuntil(b"data: [DONE]\n\n")
            writer.close()
            return told

        async with asyncio.timeout(30):
            while True:
                try:
                    here = asyncio.create_task(ask())
                    await asyncio.sleep(0.3)
                    assert not here.done() or here.result()
                    break
                except OSError:
                    await asyncio.sleep(0.1)
            _, leaves = await connected(port, posted(model="m"))
            while len(gpu.asked) < 2:
                await asyncio.sleep(0.01)
            leaves.close()
            while not gpu.asked[1].left_at:
                await asyncio.sleep(0.01)
            await misread(port)
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
            arrives = await ask()
            assert b"connection: close" in arrives.lower()
            assert b"[DONE]" in await here
            _, logged = await process.communicate()
            assert (process.returncode, b"secret" in logged) == (0, False)
