"""Decides what a running box does about its engine: nothing, load, prime, prove, shut the gate, warm, or be replaced.

Pure; all times in seconds on the monotonic clock: the keeper looks every few seconds, this judges. What callers may ask
of an engine shuts no gate: a model that their `keep_alive` or `num_ctx` has unloaded or changed is loaded again beside
the open gate, and a load in progress and a GPU at work are no wedge, however long a request waits. Only a token of our
own is a sign of life: bytes to callers may be errors, an open request may be one that its caller has not finished.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Optional

from config import Box
from engine import Loaded

LOOKS = 2  # running, before the model is called not loaded: one look may fall between two of a caller's loads
REFUSALS = 3  # running, of our own requests: one may have been in a runner that a caller's request ended


class Action(Enum):
    """What the keeper does next."""

    NOTHING = "nothing"
    LOAD = "load"  # the model is gone, about to go, or of a caller's context: an empty prompt loads it for good
    RELOAD = "reload"  # it is there in part or is another one: unload it, then load it
    UNLOAD = "unload"  # nothing moves: whoever waits for another context may wait for a model that nobody unloads
    PRIME = "prime"  # idle for long: keep the GPU's graphs built
    PROVE = "prove"  # ask for a token
    SHUT = "shut"  # wedged: nobody new may wait on it
    WARM = "warm"  # it answers, but is shut or refuses: load and prove it behind the gate, then open
    REPLACE = "replace"  # stayed wedged


class Asked(Enum):
    """What became of a request of our own."""

    PENDING = "pending"
    CAME = "came"
    BUSY = "busy"  # turned away by a full queue, or given up: it says nothing of the engine
    REFUSED = "refused"  # answered with an error


@dataclass(frozen=True)
class Look:
    """One look at the engine. `gpu_busy` is None where it is unknown: busy for a while, then idle."""

    at: float
    answers: bool  # `/api/version`
    loaded: Optional[Loaded]  # as `/api/ps` tells; None where it did not say
    gate_shut: bool
    active: bool  # a request outstanding or bytes out in the last seconds
    waiting: bool  # a request outstanding
    gpu_busy: Optional[bool]
    reading: bool = False  # the instance store is being read: a load in progress
    load: Optional[Asked] = None  # of LOAD and RELOAD; None where nothing was asked
    token: Optional[Asked] = None  # of PROVE
    flowing: bool = False  # bytes out on any connection since the last look; errors, too
    peers: frozenset[str] = frozenset()  # whose requests are outstanding

    @property
    def pending(self) -> bool:
        """Whether a request of our own waits."""
        return Asked.PENDING in (self.load, self.token)


@dataclass(frozen=True)
class Memory:
    """Since when, and how often running."""

    answered_at: float
    moved_at: float
    active_at: float
    gpu_known_at: float  # or no request has waited since
    token_at: float  # when one of ours came
    asked_at: Optional[float] = None  # the first request of ours since anything moved, or when it moved last
    busy_at: float = float("-inf")  # when one of ours was turned away
    shut_at: Optional[float] = None
    off_looks: int = 0  # at which the model was absent, another or not whole
    refused: int = 0  # requests of ours, since a token came
    in_vain: int = 0  # loads after which it still was not whole, with nobody served
    unloaded: bool = False  # since anything moved
    held: str = ""  # the expiry that a LOAD has answered
    peers: frozenset[str] = frozenset()


def fresh(at: float) -> Memory:
    """Nothing is known from before."""
    return Memory(answered_at=at, moved_at=at, active_at=at, gpu_known_at=at, token_at=at)


def decide(box: Box, memory: Memory, look: Look) -> tuple[Memory, Action, str]:
    """The next action with its reason, and what to remember."""
    unknown, memory = _remember(box, memory, look)
    silent, stuck = look.at - memory.answered_at, look.at - memory.moved_at
    unproven = memory.asked_at is not None and look.at - memory.asked_at >= box.token_seconds
    gpu = "nobody can tell of the GPU" if unknown else "the GPU is idle"
    waits = f"a request is open without a byte for {stuck:.0f} s and {gpu}"
    wedged = ""
    if silent >= box.wedge_silent_seconds:
        wedged = f"the engine has been silent for {silent:.0f} s"
    elif unproven and stuck >= (box.wedge_stuck_seconds if look.waiting else box.token_seconds):
        wedged = waits
    if wedged and memory.shut_at is None:
        return replace(memory, shut_at=look.at), Action.SHUT, wedged
    if wedged and memory.shut_at is not None and look.at - memory.shut_at >= box.wedge_confirm_seconds:
        return memory, Action.REPLACE, wedged
    if wedged or not look.answers:
        return memory, Action.NOTHING, wedged
    if memory.shut_at is not None:
        memory = replace(memory, shut_at=None)
    if look.gate_shut:
        return memory, Action.WARM, "the engine answers again"
    if memory.refused >= REFUSALS:
        return memory, Action.WARM, f"{memory.refused} requests of our own were refused"
    if memory.in_vain >= REFUSALS:
        return memory, Action.WARM, f"after {memory.in_vain} loads the model is not whole in GPU memory"
    waited = 0.0 if memory.asked_at is None else look.at - memory.asked_at
    if look.waiting and waited >= box.token_seconds / 2 and not memory.unloaded:
        return replace(memory, unloaded=True), Action.UNLOAD, waits
    if look.pending:
        return memory, Action.NOTHING, ""
    action, why = _ask(box, memory, look, waits)
    if action is Action.NOTHING:
        return memory, action, why
    if action is Action.PRIME:
        return replace(memory, active_at=look.at), action, why
    held = look.loaded.expires if look.loaded and action is Action.LOAD else memory.held
    asked_at = look.at if memory.asked_at is None else memory.asked_at
    return replace(memory, asked_at=asked_at, off_looks=0, held=held), action, why


def _remember(box: Box, memory: Memory, look: Look) -> tuple[bool, Memory]:
    """Whether the GPU counts as idle because nobody can tell of it, and what this look adds."""
    waits = look.waiting or look.pending
    known = not waits or look.flowing or look.reading or look.gpu_busy is not None or memory.peers - look.peers
    gpu_known_at = look.at if known else memory.gpu_known_at
    unknown = look.at - gpu_known_at >= box.gpu_unknown_seconds
    idles = waits and not look.reading and (look.gpu_busy is False or unknown)
    came, refused = look.token is Asked.CAME, Asked.REFUSED in (look.token, look.load)
    moved = came or not idles
    off = look.loaded is not None and (look.loaded.absent or look.loaded.differs)
    said = look.loaded is not None
    in_vain = memory.in_vain if off or not said else 0
    return unknown, Memory(
        answered_at=look.at if look.answers else memory.answered_at,
        moved_at=look.at if moved else memory.moved_at,
        active_at=look.at if look.active else memory.active_at,
        gpu_known_at=gpu_known_at,
        token_at=look.at if came else memory.token_at,
        asked_at=(look.at if look.pending else None) if moved else memory.asked_at,
        busy_at=look.at if Asked.BUSY in (look.token, look.load) else memory.busy_at,
        shut_at=memory.shut_at,
        off_looks=memory.off_looks + off if off or not said else 0,
        refused=(0 if came else memory.refused) + refused,
        in_vain=in_vain + (off and look.load is Asked.CAME and not look.active),
        unloaded=memory.unloaded and not moved,
        held="" if look.load in (Asked.BUSY, Asked.REFUSED) else memory.held,
        peers=look.peers,
    )


def _ask(box: Box, memory: Memory, look: Look, waits: str) -> tuple[Action, str]:
    """What to ask of an engine that answers and that nothing of ours waits on."""
    stuck, idle, off = look.at - memory.moved_at, look.at - memory.active_at, memory.off_looks * box.poll_seconds
    if look.at - memory.busy_at < box.token_seconds:
        return Action.NOTHING, ""  # callers are many: ours would be turned away again
    if stuck > 0 and stuck >= box.wedge_stuck_seconds - box.token_seconds:
        return Action.PROVE, waits
    if memory.refused:
        return Action.PROVE, "the last request of our own was refused"
    if look.loaded and look.loaded.absent and memory.off_looks >= LOOKS:
        if not look.active or off >= box.unloaded_in_use_seconds:
            return Action.LOAD, look.loaded.said
    elif look.loaded and not look.active:  # or who waits for another context would wait for ever, see `warm.load`
        if look.loaded.differs and memory.off_looks >= LOOKS:
            return Action.RELOAD, look.loaded.said
        if look.loaded.resized and idle >= box.resized_idle_seconds:
            return Action.LOAD, look.loaded.said
        if look.loaded.expires and look.loaded.expires != memory.held:
            return Action.LOAD, look.loaded.said
    if look.at - memory.token_at >= box.prove_seconds:
        return Action.PROVE, f"no token of our own for {look.at - memory.token_at:.0f} s"
    if idle >= box.self_prime_seconds:
        return Action.PRIME, "idle"
    return Action.NOTHING, ""
