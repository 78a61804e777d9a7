"""Decides what a running box does about its engine: nothing, prime, prove, shut the gate, warm up, or start it anew.

Pure; all times in seconds on the monotonic clock: the keeper looks every few seconds, this judges. Callers reach the
engine through the lane alone, one at a time, and can neither load nor unload anything. Only a token of our own is a
sign of life: what callers get may be errors. A load in progress and a GPU at work are no wedge, however long
somebody waits.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Optional

from config import Box
from engine import Loaded

LOOKS = 2  # running, before the model is called not loaded: one may fall into a runner's end
REFUSALS = 3  # running, of our own requests: one may have been in a runner that ended


class Action(Enum):
    """What the keeper does next."""

    NOTHING = "nothing"
    PRIME = "prime"  # idle for long: keep the GPU's graphs built
    PROVE = "prove"  # ask for a token, which loads the model where it is gone
    SHUT = "shut"  # wedged: nobody new may wait on it
    WARM_UP = "warm-up"  # it answers, but is shut or refuses: load and prove it behind the gate, then open
    RECOVER = "recover"  # stayed wedged, or serves something else: ended, started anew and proved, else the box leaves


class Asked(Enum):
    """What became of a request of our own."""

    PENDING = "pending"
    CAME = "came"
    BUSY = "busy"  # turned away by a line, or given up: it says nothing of the engine
    REFUSED = "refused"  # answered with an error


@dataclass(frozen=True)
class Look:
    """One look at the box. `gpu_busy` is None where it is unknown: busy for a while, then idle."""

    at: float
    answers: bool  # engine and lane
    loaded: Optional[Loaded]  # as `/api/ps` tells; None where it did not say
    gate_shut: bool
    streams: int = 0  # callers in line or served
    served: Optional[tuple[str, int]] = None  # who is, and his tokens so far
    gpu_busy: Optional[bool] = None
    reading: bool = False  # the instance store is being read: a load in progress
    token: Optional[Asked] = None  # of PROVE; None where nothing was asked

    @property
    def waiting(self) -> bool:
        """Whether anybody waits for the engine, we or a caller."""
        return self.served is not None or self.token is Asked.PENDING


@dataclass(frozen=True)
class Memory:
    """Since when, and how often running."""

    answered_at: float
    moved_at: float
    active_at: float
    gpu_known_at: float  # or nobody has waited since
    token_at: float  # when one of ours came
    asked_at: Optional[float] = None  # the first request of ours since anything moved, or when it moved last
    shut_at: Optional[float] = None
    off_looks: int = 0  # at which the model was absent, another or not whole
    refused: int = 0  # requests of ours, since a token came
    served: Optional[tuple[str, int]] = None


def fresh(at: float) -> Memory:
    """Nothing is known from before."""
    return Memory(answered_at=at, moved_at=at, active_at=at, gpu_known_at=at, token_at=at)


def decide(box: Box, memory: Memory, look: Look) -> tuple[Memory, Action, str]:
    """The next action with its reason, and what to remember."""
    unknown, memory = _remember(box, memory, look)
    silent, stuck = look.at - memory.answered_at, look.at - memory.moved_at
    unproven = memory.asked_at is not None and look.at - memory.asked_at >= box.token_seconds
    gpu = "nobody can tell of the GPU" if unknown else "the GPU is idle"
    waits = f"a request is open without a token for {stuck:.0f} s and {gpu}"
    wedged = ""
    if silent >= box.wedge_silent_seconds:
        wedged = f"the engine has been silent for {silent:.0f} s"
    elif unproven and stuck >= (box.wedge_stuck_seconds if look.served else box.token_seconds):
        wedged = waits
    if wedged and memory.shut_at is None:
        return replace(memory, shut_at=look.at), Action.SHUT, wedged
    if wedged and memory.shut_at is not None and look.at - memory.shut_at >= box.wedge_confirm_seconds:
        return memory, Action.RECOVER, wedged
    if wedged or not look.answers:
        return memory, Action.NOTHING, wedged
    memory = replace(memory, shut_at=None)
    if look.gate_shut:
        return memory, Action.WARM_UP, "the engine answers again"
    if memory.refused >= REFUSALS:
        return memory, Action.WARM_UP, f"{memory.refused} requests of our own were refused"
    if look.token is Asked.PENDING:
        return memory, Action.NOTHING, ""
    action, why = _ask(box, memory, look, waits)
    if action is Action.PRIME:
        return replace(memory, active_at=look.at), action, why
    if action is Action.PROVE:
        asked_at = look.at if memory.asked_at is None else memory.asked_at
        return replace(memory, asked_at=asked_at, off_looks=0), action, why
    return memory, action, why


def _remember(box: Box, memory: Memory, look: Look) -> tuple[bool, Memory]:
    """Whether the GPU counts as idle because nobody can tell of it, and what this look adds."""
    flows = look.served != memory.served
    known = not look.waiting or flows or look.reading or look.gpu_busy is not None
    gpu_known_at = look.at if known else memory.gpu_known_at
    unknown = look.at - gpu_known_at >= box.gpu_unknown_seconds
    idles = look.waiting and not flows and not look.reading and (look.gpu_busy is False or unknown)
    came, refused = look.token is Asked.CAME, look.token is Asked.REFUSED
    moved = came or not idles
    off = look.loaded is not None and (look.loaded.absent or look.loaded.differs)
    return unknown, Memory(
        answered_at=look.at if look.answers else memory.answered_at,
        moved_at=look.at if moved else memory.moved_at,
        active_at=look.at if look.streams else memory.active_at,
        gpu_known_at=gpu_known_at,
        token_at=look.at if came else memory.token_at,
        asked_at=(look.at if look.token is Asked.PENDING else None) if moved else memory.asked_at,
        shut_at=memory.shut_at,
        off_looks=memory.off_looks + off if off or look.loaded is None else 0,
        refused=(0 if came else memory.refused) + refused,
        served=look.served,
    )


def _ask(box: Box, memory: Memory, look: Look, waits: str) -> tuple[Action, str]:
    """What to do with an engine that answers and that nothing of ours waits on."""
    stuck, idle, off = look.at - memory.moved_at, look.at - memory.active_at, memory.off_looks * box.poll_seconds
    if stuck > 0 and stuck >= box.wedge_stuck_seconds - box.token_seconds:
        return Action.PROVE, waits
    if memory.refused:
        return Action.PROVE, "the last request of our own was refused"
    if look.loaded and memory.off_looks >= LOOKS:
        if look.loaded.differs and not look.streams:
            return Action.RECOVER, look.loaded.said
        if look.loaded.absent and (not look.streams or off >= box.unloaded_in_use_seconds):
            return Action.PROVE, look.loaded.said
    if look.at - memory.token_at >= box.prove_seconds:
        return Action.PROVE, f"no token of our own for {look.at - memory.token_at:.0f} s"
    if idle >= box.self_prime_seconds:
        return Action.PRIME, "idle"
    return Action.NOTHING, ""
