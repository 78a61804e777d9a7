"""Decides what a running box does about its engine: nothing, prime, prove, shut the gate, warm, or be replaced.

Pure: the keeper looks every few seconds, this judges. Busy is not wedged: one request runs at a time, so a request may
wait long without a byte while the GPU works on another. Nor is an engine that answers a token of ours: the open request
is then one that its caller has not finished.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Optional

from config import Box

UNLOADED_LOOKS = 2  # running, while nobody is served


class Action(Enum):
    """What the keeper does next."""

    NOTHING = "nothing"
    PRIME = "prime"  # idle for long: keep the GPU's graphs built
    PROVE = "prove"  # a request waits and the GPU idles: ask for a token
    SHUT = "shut"  # wedged: nobody new may wait on it
    WARM = "warm"  # it answers, but is shut or without its model: load it, then open
    REPLACE = "replace"  # stayed wedged


@dataclass(frozen=True)
class Look:
    """One look at the engine. `gpu_busy` is None where it is unknown: busy for a while, then idle."""

    at: float  # monotonic seconds
    answers: bool  # `/api/version`
    loaded: Optional[bool]  # `/api/ps` lists the model; None where it did not say
    gate_shut: bool
    active: bool  # a request outstanding or bytes out in the last seconds
    waiting: bool  # a request outstanding and no bytes out on any connection since the last look
    gpu_busy: Optional[bool]
    proven: bool = False  # the token that PROVE asked for has come
    peers: frozenset[str] = frozenset()  # whose requests are outstanding


@dataclass(frozen=True)
class Memory:
    """Since when. All on the monotonic clock."""

    answered_at: float
    moved_at: float
    active_at: float
    gpu_known_at: float  # or no request has waited since
    shut_at: Optional[float] = None
    proof_at: Optional[float] = None  # PROVE; None again once something moved
    unloaded_looks: int = 0  # running
    peers: frozenset[str] = frozenset()


def fresh(at: float) -> Memory:
    """Nothing is known from before."""
    return Memory(answered_at=at, moved_at=at, active_at=at, gpu_known_at=at)


def decide(box: Box, memory: Memory, look: Look) -> tuple[Memory, Action, str]:
    """The next action with its reason, and what to remember."""
    if look.answers:
        memory = replace(memory, answered_at=look.at)
    if not look.waiting or look.gpu_busy is not None or memory.peers - look.peers:
        memory = replace(memory, gpu_known_at=look.at)
    unknown = look.at - memory.gpu_known_at >= box.gpu_unknown_seconds
    idles = look.waiting and (look.gpu_busy is False or unknown)
    if look.proven or not idles:
        memory = replace(memory, moved_at=look.at, proof_at=None)
    if look.active:
        memory = replace(memory, active_at=look.at)
    unloaded_looks = {True: 0, None: memory.unloaded_looks, False: memory.unloaded_looks + 1}[look.loaded]
    memory = replace(memory, unloaded_looks=unloaded_looks, peers=look.peers)
    silent, stuck = look.at - memory.answered_at, look.at - memory.moved_at
    unproven = memory.proof_at is not None and look.at - memory.proof_at >= box.token_seconds
    gpu = "nobody can tell of the GPU" if unknown else "the GPU is idle"
    wedged, waits = "", f"a request is open without a byte for {stuck:.0f} s and {gpu}"
    if silent >= box.wedge_silent_seconds:
        wedged = f"the engine has been silent for {silent:.0f} s"
    elif stuck >= box.wedge_stuck_seconds and unproven:
        wedged = waits
    if wedged and memory.shut_at is None:
        return replace(memory, shut_at=look.at), Action.SHUT, wedged
    if wedged and memory.shut_at is not None and look.at - memory.shut_at >= box.wedge_confirm_seconds:
        return memory, Action.REPLACE, wedged
    if wedged or not look.answers:
        return memory, Action.NOTHING, wedged
    memory = replace(memory, shut_at=None)
    if look.gate_shut:
        return memory, Action.WARM, "the engine answers again"
    unloaded_seconds = memory.unloaded_looks * box.poll_seconds
    if memory.unloaded_looks >= UNLOADED_LOOKS and (not look.active or unloaded_seconds >= box.unloaded_in_use_seconds):
        return memory, Action.WARM, "the model is not loaded"
    if stuck > 0 and stuck >= box.wedge_stuck_seconds - box.token_seconds and memory.proof_at is None:
        return replace(memory, proof_at=look.at), Action.PROVE, waits
    if look.at - memory.active_at >= box.self_prime_seconds:
        return replace(memory, active_at=look.at), Action.PRIME, "idle"
    return memory, Action.NOTHING, ""
