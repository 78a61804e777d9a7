"""Decides what a running box does about its engine: nothing, prime it, shut the gate, warm it, or have it replaced.

Pure: the keeper looks every few seconds, this judges. Busy is not wedged: one request runs at a time, so a request may
wait long without a byte while the GPU works on another.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Optional

from config import Box


class Action(Enum):
    """What the keeper does next."""

    NOTHING = "nothing"
    PRIME = "prime"  # idle for long: keep the GPU's graphs built
    SHUT = "shut"  # wedged: nobody new may wait on it
    WARM = "warm"  # shut, but it answers: prove it and open again
    REPLACE = "replace"  # stayed wedged


@dataclass(frozen=True)
class Look:
    """One look at the engine. `gpu_busy` is None where it is unknown, which never counts as idle."""

    at: float  # monotonic seconds
    answers: bool  # `/api/version`
    loaded: bool  # `/api/ps` lists the model
    gate_closed: bool
    active: bool  # a request outstanding or bytes out in the last seconds
    waiting: bool  # a request outstanding and no bytes out on any connection since the last look
    gpu_busy: Optional[bool]


@dataclass(frozen=True)
class Memory:
    """Since when. All on the monotonic clock."""

    answered_at: float
    moved_at: float
    active_at: float
    shut_at: Optional[float] = None


def decide(box: Box, memory: Memory, look: Look) -> tuple[Memory, Action, str]:
    """The next action with its reason, and what to remember."""
    if look.answers:
        memory = replace(memory, answered_at=look.at)
    if not (look.waiting and look.gpu_busy is False):
        memory = replace(memory, moved_at=look.at)
    if look.active:
        memory = replace(memory, active_at=look.at)
    silent, stuck = look.at - memory.answered_at, look.at - memory.moved_at
    wedged = ""
    if silent >= box.wedge_silent_seconds:
        wedged = f"the engine has been silent for {silent:.0f} s"
    elif stuck >= box.wedge_stuck_seconds:
        wedged = f"a request is open without a byte for {stuck:.0f} s and the GPU is idle"
    if wedged and memory.shut_at is None:
        return replace(memory, shut_at=look.at), Action.SHUT, wedged
    if wedged and memory.shut_at is not None and look.at - memory.shut_at >= box.wedge_confirm_seconds:
        return memory, Action.REPLACE, wedged
    if wedged or not look.answers:
        return memory, Action.NOTHING, wedged
    if look.gate_closed or not look.loaded:
        return replace(memory, shut_at=None), Action.WARM, "the engine answers again"
    if look.at - memory.active_at >= box.self_prime_seconds:
        return replace(memory, active_at=look.at), Action.PRIME, "idle"
    return memory, Action.NOTHING, ""
