"""Runs one service's tasks as processes: started by `tasks`, told by lines of JSON, ends with its standard input.

A deploy is rolling: new tasks start, become healthy, take over; the old ones get no new requests, end what they have
and are told to go. Tasks that do not become healthy are given up, and the old ones stay: the circuit breaker.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from fleet.core import names
from fleet.core.ports import free_port
from fleet.localaws.task_standins import ApplicationBalancer, BoxNames, NetworkBalancer, StandInModel

ROOT = Path(__file__).parents[2]
HEALTHY_SECONDS = 60
DRAIN_SECONDS = 600
POLL_SECONDS = 0.05


@dataclass
class TaskProcess:
    """One process, and the port that it serves on."""

    process: asyncio.subprocess.Process
    port: int
    environment: dict[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Service:
    """The tasks, and what stands before and behind them."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._tasks: list[TaskProcess] = []
        self._started = 0
        self._balancer, self._gpus, self._boxes = ApplicationBalancer(), NetworkBalancer(), BoxNames()
        self._watching: set[asyncio.Task[None]] = set()

    async def begin(self, cloud: StandInModel) -> None:
        """Stand-ins listen before the first task starts."""
        for each in (self._balancer, self._boxes, cloud):
            await each.listen()
        self._cloud = f"http://{cloud.address}/v1"

    async def deploy(self, count: int, environment: dict[str, str]) -> dict[str, Any]:
        """A rolling deployment."""
        fresh = [await self._start(environment) for _ in range(count)]
        if failed := [task for task in fresh if not await _healthy(task)]:
            for task in fresh:
                _kill(task)
            return {"failed": f"{len(failed)} of {count} tasks failed to start: {self._last_words()}"}
        old, self._tasks = self._tasks, fresh
        self._balancer.route([task.url for task in fresh])
        for task in old:
            self._spawn(self._retire(task))
        return await self.state()

    async def state(self) -> dict[str, Any]:
        """Where it is reached, and who runs."""
        return {"url": self._balancer.url, "tasks": [task.process.pid for task in self._tasks]}

    async def gpu(self, address: str | None) -> dict[str, Any]:
        """Who answers behind the fleet's own balancer."""
        await self._gpus.lead_to(address)
        return {"ok": True}

    async def box(self, instance_id: str, address: str) -> dict[str, Any]:
        """Where a box answers by its name."""
        self._boxes.addresses[instance_id] = f"http://{address}"
        return {"ok": True}

    async def kill(self) -> dict[str, Any]:
        """A task dies; the service keeps its count."""
        task = self._tasks.pop(0)
        _kill(task)
        self._balancer.route([each.url for each in self._tasks])
        fresh = await self._start(task.environment)
        if not await _healthy(fresh):
            return {"failed": self._last_words()}
        self._tasks.append(fresh)
        self._balancer.route([each.url for each in self._tasks])
        return await self.state()

    async def end(self) -> None:
        """All of them, now."""
        await self._gpus.lead_to(None)
        await self._balancer.close()
        await self._boxes.close()
        for task in self._tasks:
            with contextlib.suppress(ProcessLookupError):
                task.process.send_signal(signal.SIGTERM)

    async def _start(self, environment: dict[str, str]) -> TaskProcess:
        port, metrics_port = free_port(), free_port()
        config = json.loads(environment[names.ENV_GATEWAY])
        config |= {"port": port, "metrics_port": metrics_port, "gpu_url": self._gpus.url}
        if config.get("box_url"):
            config["box_url"] = f"{self._boxes.url}/{{}}"
        if config["gateway"]["fallback"]["url"]:
            config["gateway"]["fallback"]["url"] = self._cloud
        self._started += 1
        with (self._log_dir / f"{self._started}.log").open("w") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gateway",
                env={
                    **environment,
                    names.ENV_GATEWAY: json.dumps(config),
                    "PYTHONPATH": f"{ROOT / 'assets'}:{ROOT}",
                    "PYTHONUNBUFFERED": "1",
                },
                cwd=ROOT / "assets",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
            )
        return TaskProcess(process, port, environment)

    async def _retire(self, task: TaskProcess) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._balancer.in_flight(task.url):
                    await asyncio.sleep(POLL_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            task.process.send_signal(signal.SIGTERM)
        await task.process.wait()

    def _spawn(self, work: Any) -> None:
        running = asyncio.create_task(work)
        self._watching.add(running)
        running.add_done_callback(self._watching.discard)

    def _last_words(self) -> str:
        return (self._log_dir / f"{self._started}.log").read_text()[-1000:]


async def _healthy(task: TaskProcess) -> bool:
    """Whether it answers its health check in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEALTHY_SECONDS), aiohttp.ClientSession() as session:
            while task.process.returncode is None:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{task.url}/v1/health") as answer:
                        if answer.status == 200:
                            return True
                await asyncio.sleep(POLL_SECONDS)
    return False


def _kill(task: TaskProcess) -> None:
    with contextlib.suppress(ProcessLookupError):
        task.process.kill()


async def main() -> None:
    """Serve the messages of standard input, one after the other."""
    service = Service(Path(sys.argv[1]))
    await service.begin(StandInModel(wants_key=True))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        message = json.loads(line)
        answer = await getattr(service, message.pop("verb"))(**message)
        print(json.dumps(answer), flush=True)  # noqa: T201  how the server learns of it
    await service.end()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
