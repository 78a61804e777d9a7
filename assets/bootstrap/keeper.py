"""Keeps an opened box honest: a thread of the agent that looks at the engine and carries out what `wedge` decides."""

import subprocess
import time
from typing import Optional

import engine
import gate
import leave
import paths
import stages
import streams
import warm
import wedge
from config import Box
from log import say
from wedge import Action

GPU_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
GPU_BUSY_PERCENT = 5
GPU_SECONDS = 5.0  # it answers in a fraction of one; a look must not wait longer than to the next
YIELD_SECONDS = 0.2  # how soon a self-prime makes room for a caller


def keep(box: Box) -> None:
    """Look and act until the box leaves."""
    keeper = Keeper(box)
    while not paths.LEAVING.exists():
        keeper.step()
        time.sleep(box.poll_seconds)


class Keeper:
    """What is remembered between two looks. Once the box leaves it changes nothing any more: streams are ending."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._memory = wedge.fresh(time.monotonic())
        self._gpu = Gpu()
        self._proof: Optional[warm.Token] = None

    def step(self) -> None:
        """One look, and what it asks for."""
        box = self._box
        if not paths.OPENED.exists():
            self._memory = wedge.fresh(time.monotonic())
            return
        if not stored(box):
            self._leave("the instance store is empty")  # what is in the GPU's memory answers until the streams end
            return
        proven = self._proof is not None and self._proof.came
        self._memory, action, why = wedge.decide(box, self._memory, look(box, self._gpu, proven))
        if self._proof and self._memory.proof_at is None:
            self._proof.give_up()  # something moved: no reason to stand in a caller's way
            self._proof = None
        if action is not Action.NOTHING and not paths.LEAVING.exists():
            say(f"ENGINE {action.value}: {why}")
            try:
                self._act(action, why)
            except gate.GateError as error:
                say(f"gate: {error}")

    def _act(self, action: Action, why: str) -> None:
        box = self._box
        if action is Action.PROVE:
            self._proof = warm.Token(box)
        elif action is Action.SHUT:
            gate.set_state(gate.DRAINING, box.port, unless_leaving=True)  # a stream that still lives may end
        elif action is Action.REPLACE:
            self._leave(why)
        elif action is Action.PRIME:
            if not prime(box) and self._gpu.busy() is not True:
                self._warm()  # who comes next would have found out
            self._memory = wedge.fresh(time.monotonic())  # nobody looked meanwhile
        elif action is Action.WARM:
            self._warm()
            self._memory = wedge.fresh(time.monotonic())

    def _warm(self) -> None:
        """Load the model and prove it behind the gate, as patiently as the boot does; streams that live go on."""
        box = self._box
        gate.set_state(gate.DRAINING, box.port, unless_leaving=True)
        try:
            warm.warm(box, stages.budget("warm"))
        except (engine.EngineError, OSError) as error:  # the store's manifest is read, too
            self._leave(f"the engine did not come back: {error}")
            return
        gate.set_state(gate.OPEN, box.port)
        say("ENGINE warm: gate open again")

    def _leave(self, why: str) -> None:
        if not paths.LEAVING.exists():
            leave.request(why)


class Gpu:
    """The GPU, as nvidia-smi tells of it: one at a time, and one that hangs in the driver, where no signal reaches it,
    is not waited for.
    """

    def __init__(self) -> None:
        self._asking: Optional[subprocess.Popen[str]] = None
        self._known = True

    def busy(self) -> Optional[bool]:
        """Whether it works; None where nobody can tell, which is logged once."""
        try:
            busy = self._percent() >= GPU_BUSY_PERCENT
        except (OSError, subprocess.TimeoutExpired, ValueError) as error:
            if self._known:
                say(f"nobody can tell whether the GPU works: {error}")
            self._known = False
            return None
        self._known = True
        return busy

    def _percent(self) -> int:
        if self._asking and self._asking.poll() is None:
            raise ValueError("nvidia-smi hangs")
        self._asking = subprocess.Popen(GPU_QUERY, stdout=subprocess.PIPE, text=True)
        try:
            output, _ = self._asking.communicate(timeout=GPU_SECONDS)
        except subprocess.TimeoutExpired:
            self._asking.kill()
            raise
        return max(int(value) for value in output.split())


def look(box: Box, gpu: Gpu, proven: bool) -> wedge.Look:
    """One look at engine, connections and, only where it matters, the GPU."""
    answers = answered(box)
    live = connections(box)
    outstanding = any(found.outstanding for found in live)
    silent = all(not found.sent_bytes or found.since_sent_seconds > box.poll_seconds for found in live)
    waiting = outstanding and silent
    return wedge.Look(
        at=time.monotonic(),
        answers=answers,
        loaded=loaded(box) if answers else None,
        gate_shut=gate.current() != gate.OPEN,
        active=any(found.stream for found in live),
        waiting=waiting,
        gpu_busy=gpu.busy() if waiting else None,
        proven=proven,
        peers=frozenset(found.peer for found in live if found.outstanding),
    )


def stored(box: Box) -> bool:
    """Whether the instance store holds the model; a disk that fails holds nothing."""
    try:
        return engine.manifest(box.model).is_file()
    except OSError as error:
        say(f"instance store: {error}")
        return False


def answered(box: Box) -> bool:
    """Whether the engine answers at all."""
    try:
        return bool(engine.ask(box, "GET", "/api/version").get("version"))
    except engine.EngineError as error:
        say(f"engine: {error}")
        return False


def loaded(box: Box) -> Optional[bool]:
    """Whether the model is loaded; None where the engine does not say."""
    try:
        models = engine.ask(box, "GET", "/api/ps").get("models", [])
    except engine.EngineError as error:
        say(f"engine: {error}")
        return None
    return engine.full_name(box.model) in {model.get("name") for model in models}


def connections(box: Box) -> tuple[streams.Connection, ...]:
    """Connections from outside; none where the kernel does not tell, which is logged."""
    try:
        return streams.connections(box.port)
    except streams.StreamsError as error:
        say(f"streams: {error}")
        return ()


def prime(box: Box) -> bool:
    """One token over loopback, given up as soon as a caller appears; False where the engine could not give it."""
    if any(found.stream for found in connections(box)):
        return True
    token = warm.Token(box)
    while not token.done.wait(YIELD_SECONDS):
        if any(found.outstanding for found in connections(box)):
            token.give_up()
            say("ENGINE prime: made room for a caller")
            return True
    say(f"ENGINE prime: {token.outcome}")
    return token.came
