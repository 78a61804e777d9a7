"""How the lane is built: decisions apart from input and output, Python 3.9, a process that systemd can watch."""

import asyncio
import errno
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from fleet.core import names
from fleet.core.ports import free_port
from lane import notify
from lane.config import ENVIRONMENT, LLAMA_CPP, load
from tests.calling import connected, misread, posted
from tests.gateway.targets import Target, Turn, answers, silent
from tests.lane.running import MODEL, on_loop
from tests.source import imported, too_new_for_the_box

ASSETS = Path(__file__).parents[2] / "assets"
DECISIONS = ("asked", "estimates", "line", "order", "seam")
NEVER = 7  # tokens: who asks for so many is not answered
WORLD = {"asyncio", "os", "random", "socket", "subprocess", "threading", "time"}


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_know_no_clock_no_socket_and_no_chance(name: str) -> None:
    assert not imported(ASSETS / "lane" / f"{name}.py") & WORLD


def test_lane_runs_on_the_boxs_python_with_the_relay_alone() -> None:
    files = sorted((ASSETS / "lane").glob("*.py"))
    assert too_new_for_the_box(files) == ""
    for path in files:
        assert imported(path) <= {"lane", "relay", "names", "paths"} | sys.stdlib_module_names, path.name


def test_every_metric_of_the_lanes_has_one_name_and_one_home() -> None:
    told = (ASSETS / "lane" / "admin.py").read_text()
    for name in (name for name, value in vars(names).items() if str(value).startswith("llm_")):
        assert f"names.{name}" in told, name


def test_an_unknown_word_of_the_configuration_is_named() -> None:
    with pytest.raises(TypeError, match="unknown"):
        load('{"unknown": 1}')


@on_loop
async def test_a_crowd_that_takes_every_descriptor_does_not_silence_what_tells_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "10000")
        notify.tell("READY=1")
        monkeypatch.setattr(notify.socket, "socket", none_left)
        telling = asyncio.create_task(notify.keep_telling())
        heard = [await asyncio.wait_for(asyncio.get_running_loop().sock_recv(told, 100), 5) for _ in range(3)]
        telling.cancel()
        assert heard == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"], "else systemd starts it anew"


async def _act(turn: Turn) -> None:
    answers_longer_than_a_shutdown = answers(every=0.4)
    await (silent(60) if turn.asked.body.get("max_tokens") == NEVER else answers_longer_than_a_shutdown)(turn)


@on_loop
async def test_the_process_tells_systemd_that_it_is_ready_and_alive_and_ends_once_its_callers_are_answered(
    tmp_path: Path,
) -> None:
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    told.setblocking(False)
    loop = asyncio.get_running_loop()
    async with Target(_act) as engine:
        port = free_port()
        config = {"engine_url": engine.url, "engine": LLAMA_CPP, "model": MODEL, "context_length": 2048}
        environment = {
            **os.environ,
            ENVIRONMENT: json.dumps({**config, "port": port, "admin_port": free_port()}),
            "PYTHONPATH": f"{ASSETS}:{ASSETS / 'bootstrap'}",
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "200000",
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lane", env=environment, cwd=ASSETS, stderr=PIPE
        )
        said = []
        while said.count(b"WATCHDOG=1") < 3 or b"READY=1" not in said:
            said.append(await loop.sock_recv(told, 100))

        _, leaves = await connected(port, posted(model=MODEL, max_tokens=NEVER))
        while not any(asked.body.get("max_tokens") == NEVER for asked in engine.asked):
            await asyncio.sleep(0.01)
        leaves.close()
        while not any(asked.left_at for asked in engine.asked):  # not streamed: nothing is written that could fail
            await asyncio.sleep(0.01)
        await misread(port)
        reader, writer = await connected(port, posted(model=MODEL, stream=True))
        await reader.readuntil(b"data: ")
        process.send_signal(signal.SIGTERM)
        while b"STOPPING=1" not in said:
            said.append(await loop.sock_recv(told, 100))
        late, _ = await connected(port, posted(model=MODEL))
        assert b"503" in await late.readline()
        assert b"[DONE]" in await reader.readuntil(b"[DONE]")
        writer.close()
        _, logged = await process.communicate()
        assert (process.returncode, b"secret" in logged) == (0, False)
    told.close()
