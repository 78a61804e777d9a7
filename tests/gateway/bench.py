"""`make bench-gateway`: what the gateway adds to a direct call, beside a plain relay and LiteLLM's proxy; streams held;
callers who left.

Every process is real and on loopback; each peer (gateway, a plain relay of aiohttp with nothing between, LiteLLM) is
asked in turn with the target itself, so that the machine's drift meets both; the gateway once more after pauses, when
caches are cold and cores asleep. The store is kept apart (memory). LiteLLM is installed into build/litellm, at the
version below, by name.
"""

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from fleet.core import names
from fleet.core.ports import free_port
from tests.gateway import engine

LITELLM = "litellm[proxy]==1.108.7"
ROUNDS, PAUSED_ROUNDS, PAUSE_SECONDS = 1500, 300, 0.02
WARM_UP = 500  # first touches of memory, which a task of days has behind it
STREAMS, STREAM_SECONDS = 1000, 60
LEAVERS = 1000
BUDGET = {
    "gateway": {"added p50 ms": 0.5, "added p99 ms": 1.0, "of LiteLLM's": 0.05},
    "streams": {"MB": 150.0},
    "callers who left": {"cancelled ms": 100.0},
}
OUT = Path("out/bench/gateway.json")
ROOT = Path(__file__).parents[2]
BODY = {"model": "house", "messages": [{"role": "user", "content": "hello"}]}
FILES = 8192


@contextmanager
def process(*command: str, port: int, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own, once it takes connections."""
    with (ROOT / "build" / "bench-gateway.log").open("ab") as log:
        child = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                asyncio.run(_connect(port))
                break
            except OSError:
                if child.poll() is not None:
                    sys.exit(f"{command[:3]} ended with {child.returncode}: build/bench-gateway.log")
                time.sleep(0.2)
        yield child
    finally:
        child.terminate()
        child.wait()


async def _connect(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


def request(port: int, **body: Any) -> bytes:
    data = json.dumps({**BODY, **body}).encode()
    key = "Authorization: Bearer anonymous\r\n"
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{key}Content-Type: application/json\r\n"
    return head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> float:
    """Milliseconds of one request on a connection that stays."""
    began = time.perf_counter()
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        sys.exit(head.decode())
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return (time.perf_counter() - began) * 1000


async def added(direct: int, through: int, *, pause_seconds: float = 0.0) -> dict[str, float]:
    """Milliseconds of a request through a relay, direct, and between, taken in turn."""
    found: dict[int, list[float]] = {direct: [], through: []}
    lines = {port: await asyncio.open_connection("127.0.0.1", port) for port in found}
    for number in range(-WARM_UP, PAUSED_ROUNDS if pause_seconds else ROUNDS):
        for port, times in found.items():
            await asyncio.sleep(pause_seconds if number >= 0 else 0.0)
            took = await whole(*lines[port], request(port))
            if number >= 0:
                times.append(took)
    for _, writer in lines.values():
        writer.close()
    shares = {"p50": 0.5, "p99": 0.99}
    alone, took = ({name: percentile(found[port], share) for name, share in shares.items()} for port in found)
    return {
        **{f"direct {name} ms": round(alone[name], 2) for name in shares},
        **{f"added {name} ms": round(took[name] - alone[name], 2) for name in shares},
    }


async def held(port: int) -> int:
    """Streams that reach their end, of those that are open at once while their target sends comments only."""

    async def one() -> bool:
        async with connection(port) as (reader, writer):
            writer.write(request(port, stream=True, max_tokens=engine.HOLDS))
            return b"[DONE]" in await reader.readuntil(b"data: [DONE]")

    ended = await asyncio.gather(*(one() for _ in range(STREAMS)), return_exceptions=True)
    return sum(end is True for end in ended)


async def leavers(port: int, control: int) -> list[float]:
    """Milliseconds from a caller's leaving to the target's seeing it, before a token, in mid-stream, not streaming."""
    left: list[float] = []
    for number in range(LEAVERS):
        stream, tokens = number % 3 < 2, engine.NEVER if number % 3 != 1 else engine.SLOWLY
        async with connection(port) as (reader, writer):
            writer.write(request(port, stream=stream, max_tokens=tokens))
            if number % 3 == 1:
                await reader.readuntil(b"data: ")
            else:
                await asyncio.sleep(0.01)
            left.append(time.monotonic())
        await asyncio.sleep(0.005)
    return await seen_leaving(control, left)


async def seen_leaving(control: int, left: list[float]) -> list[float]:
    """Milliseconds from each caller's leaving to the target's seeing it."""
    await asyncio.sleep(1)
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{control}/") as answer:
        seen = await answer.json(content_type=None)
    if len(seen) != len(left):
        sys.exit(f"{len(left)} callers left, the target saw {len(seen)} leave")
    return [(at - by) * 1000 for at, by in zip(sorted(seen), left, strict=True)]


def percentile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=100)[round(share * 100) - 1]


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def litellm(target: int, port: int) -> list[str]:
    """Its proxy's command; installed once."""
    folder = ROOT / "build" / "litellm"
    if not (folder / ".ready").exists():
        print("installing LiteLLM's proxy for comparison ...", flush=True)
        uv = str(ROOT / ".venv/bin/uv")
        subprocess.run([uv, "venv", "-q", "--clear", str(folder)], check=True)
        subprocess.run([uv, "pip", "install", "-q", "--python", str(folder), LITELLM], check=True)
        (folder / ".ready").touch()
    model = {
        "model": "openai/house",
        "api_base": f"http://127.0.0.1:{target}/v1",
        "api_key": "none",  # pragma: allowlist secret
    }
    config = folder / "config.json"
    config.write_text(json.dumps({"model_list": [{"model_name": "house", "litellm_params": model}]}))
    return [str(folder / "bin/litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]


def main() -> int:
    """Measure, print, keep."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    (ROOT / "build").mkdir(exist_ok=True)
    target, gateway, floor, peer = (free_port() for _ in range(4))
    many = {"requests_per_day": 10**6, "parallel": 10_000}
    config = {
        "fleet": "bench",
        "gpu_url": f"http://127.0.0.1:{target}",
        "models": {"house": "house"},
        "port": gateway,
        "metrics_port": free_port(),
        "gateway": {"tiers": {"anonymous": many}, "trusted_hops": 0},
    }
    environment = {names.ENV_GATEWAY: json.dumps(config), "PYTHONPATH": f"{ROOT}:{ROOT / 'assets'}"}
    found: dict[str, Any] = {}
    with process(sys.executable, "-m", "tests.gateway.engine", str(target), port=target):
        with process(sys.executable, "-m", "gateway", port=gateway, environment=environment) as child:
            unlocked = {
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"
            }  # loopback, and no key to look up
            relay = [sys.executable, "-m", "tests.gateway.plain", str(floor), f"http://127.0.0.1:{target}"]
            with (
                process(*relay, port=floor),
                process(*litellm(target, peer), port=peer, environment=unlocked),
            ):
                for name, port in {"gateway": gateway, "plain relay": floor, "LiteLLM": peer}.items():
                    found[name] = asyncio.run(added(target, port))
                paused = asyncio.run(added(target, gateway, pause_seconds=PAUSE_SECONDS))
                found[f"gateway, after {PAUSE_SECONDS * 1000:.0f} ms"] = paused
            cancelled = asyncio.run(leavers(gateway, target))
            ended = asyncio.run(held(gateway))
            found["streams"] = {"open at once": STREAMS, "ended well": ended, "MB": round(peak_mb(child.pid))}
    found["gateway"]["of LiteLLM's"] = round(found["gateway"]["added p50 ms"] / found["LiteLLM"]["added p50 ms"], 3)
    found["callers who left"] = {
        "callers": LEAVERS,
        "median ms": round(statistics.median(cancelled), 1),
        "cancelled ms": round(max(cancelled), 1),
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    missed = []
    for name, row in found.items():
        budget = BUDGET.get(name, {})
        cells = (
            f"{key} {value}" + (f" (budget {budget[key]:g})" if key in budget else "") for key, value in row.items()
        )
        print(f"{name:22}" + "   ".join(cells))
        missed += [f"{name}'s {key}" for key, most in budget.items() if row[key] > most]
    print(f"missed: {', '.join(missed) or 'nothing'}")
    return 0 if ended == STREAMS else 1


if __name__ == "__main__":
    sys.exit(main())
