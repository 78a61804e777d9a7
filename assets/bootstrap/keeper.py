"""Keeps an opened box honest: a thread of the agent that looks at the engine and carries out what `wedge` decides."""

import http.client
import subprocess
import threading
import time
from typing import Optional

import engine
import gate
import leave
import paths
import streams
import warm
import wedge
from config import Box
from log import say

GPU_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
GPU_BUSY_PERCENT = 5
YIELD_SECONDS = 0.2  # how soon a self-prime makes room for a caller
PRIME_SECONDS = 60.0  # 46 s was the worst first request after hours of idling


def keep(box: Box) -> None:
    """Look and act until the box leaves."""
    now = time.monotonic()
    memory = wedge.Memory(answered_at=now, moved_at=now, active_at=now)
    while not paths.LEAVING.exists():
        time.sleep(box.poll_seconds)
        if not paths.OPENED.exists():
            now = time.monotonic()
            memory = wedge.Memory(answered_at=now, moved_at=now, active_at=now)
            continue
        if not engine.manifest(box.model).is_file():
            leave.request("the instance store is empty")
            return
        memory, action, why = wedge.decide(box, memory, look(box))
        if action is not wedge.Action.NOTHING:
            say(f"ENGINE {action.value}: {why}")
        act(box, action, why)


def act(box: Box, action: wedge.Action, why: str) -> None:
    """Carry out one decision."""
    if action is wedge.Action.PRIME:
        prime(box)
    elif action is wedge.Action.SHUT:
        gate.set_state(gate.CLOSED, box.port)
    elif action is wedge.Action.REPLACE:
        leave.request(why)
    elif action is wedge.Action.WARM:
        gate.set_state(gate.CLOSED, box.port)
        try:
            warm.warm(box, box.wedge_confirm_seconds)
            gate.set_state(gate.OPEN, box.port)
            say("ENGINE warm: gate open again")
        except engine.EngineError as error:
            leave.request(f"the engine did not come back: {error}")
        except gate.GateError as error:
            say(f"gate: {error}")  # a notice came first


def look(box: Box) -> wedge.Look:
    """One look at engine, connections and, only where it matters, the GPU."""
    answers = loaded = False
    try:
        answers = bool(engine.ask(box, "GET", "/api/version").get("version"))
        models = engine.ask(box, "GET", "/api/ps").get("models", [])
        loaded = engine.full_name(box.model) in {model.get("name") for model in models}
    except engine.EngineError as error:
        say(f"engine: {error}")
    live = connections(box)
    outstanding = any(found.outstanding for found in live)
    silent = all(not found.sent_bytes or found.since_sent_seconds > box.poll_seconds for found in live)
    waiting = outstanding and silent
    return wedge.Look(
        at=time.monotonic(),
        answers=answers,
        loaded=loaded,
        gate_closed=gate.current() == gate.CLOSED,
        active=any(found.stream for found in live),
        waiting=waiting,
        gpu_busy=gpu_busy() if waiting else None,
    )


def connections(box: Box) -> tuple[streams.Connection, ...]:
    """Connections from outside; none where the kernel does not tell, which is logged."""
    try:
        return streams.connections(box.port)
    except streams.StreamsError as error:
        say(f"streams: {error}")
        return ()


def gpu_busy() -> Optional[bool]:
    """Whether the GPU works; None where nobody can tell."""
    try:
        done = subprocess.run(GPU_QUERY, capture_output=True, text=True, timeout=5)
        return max(int(value) for value in done.stdout.split()) >= GPU_BUSY_PERCENT
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None


def prime(box: Box) -> None:
    """One token over loopback, given up as soon as a caller appears."""
    connection = http.client.HTTPConnection("127.0.0.1", box.port, timeout=PRIME_SECONDS)
    done = threading.Event()
    outcome = []

    def ask() -> None:
        try:
            engine.answer(connection, "POST", "/api/generate", warm.request(box, tokens=1))
            outcome.append("done")
        except engine.EngineError as error:
            outcome.append(str(error))
        done.set()

    if any(found.stream for found in connections(box)):
        return
    threading.Thread(target=ask, daemon=True).start()
    while not done.wait(YIELD_SECONDS):
        if any(found.outstanding for found in connections(box)) and connection.sock:
            connection.sock.close()  # the engine drops a request whose caller is gone
            say("ENGINE prime: made room for a caller")
            return
    say(f"ENGINE prime: {outcome[0]}")
