"""A day of an engine and its callers on a simulated clock, looked at as the keeper looks and judged by `wedge`.

The engine is the stand-in's own scheduler (`standins/scheduler.py`), with the times of a big model. The keeper sees
`/api/ps` as that tells it, connections as the kernel counts them, and whether GPU, processor and store are at work.
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import config
import engine
import runaway
import sight
import streams
import wedge
from wedge import Action, Asked

from tests.box.standins.scheduler import FOR_GOOD, Request, Scheduler

START = datetime(2026, 7, 28, tzinfo=UTC).timestamp()
LOAD_SECONDS = 113  # the slowest warm one measured
GATE = (Action.SHUT, Action.WARM, Action.REPLACE)  # what a caller must never bring about
ON_THE_PROCESSOR = 8  # times slower


@dataclass(frozen=True)
class Caller:
    """Calls every so often. Seconds; `tokens` come at 15 a second."""

    name: str
    every: float
    first: float = 0.0
    until: float = math.inf
    context: int = 0
    keep_alive: float | None = None
    num_gpu: int = -1
    empty: bool = False
    prompt: float = 1.0
    tokens: float = 200.0
    stream: bool = True
    patience: float = math.inf
    half: bool = False  # its request is never sent whole
    times: int = 1  # at once


@dataclass(eq=False)
class Call:
    """One request on its way, and its connection's counters."""

    caller: Caller
    peer: str
    began: float
    request: Request
    worked: float = 0.0
    sent: int = 0
    sent_at: float = 0.0
    done: bool = False
    gone: bool = False  # the caller is

    def connection(self, now: float) -> streams.Connection:
        """As the kernel counts."""
        since_sent = now - self.sent_at if self.sent else now - self.began
        return streams.Connection(self.peer, self.sent, 300, since_sent, now - self.began)


@dataclass
class Day:
    """One box's engine from midnight on. The faults are set by tests, at any time."""

    box: config.Box
    callers: Sequence[Caller] = ()
    newer: bool = True
    now: float = 0.0
    silent: bool = False  # nothing answers
    hung: bool = False  # the runner makes nothing any more
    failing: bool = False  # every request but an empty one is answered with an error
    load_fails: bool = False
    load_hangs: bool = False
    gpu_told: bool = True
    told: list[tuple[float, Action, str]] = field(default_factory=list)
    loads: int = 0
    seen: engine.Loaded = field(default_factory=engine.Loaded)  # last
    runaways: list[list[runaway.Generation]] = field(default_factory=list)  # each as it grew

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.box.context_length, 131072, 16384, 18_200_000_000, newer=self.newer)
        self._load_began = 0.0
        self._loaded_by: Request | None = None
        self._calls: list[Call] = []
        self._due = sorted((caller.first, number) for number, caller in enumerate(self.callers))
        self._peers = itertools.count(1)
        self._ours: dict[str, Call] = {}
        self._outcomes: dict[str, Asked] = {}
        self._memory, self._runs = wedge.fresh(0), runaway.Memory()
        self._working = self._on_the_processor = False
        self._ask("load")
        while self._ours:
            self._second()
        self._outcomes.clear()
        self._memory = wedge.fresh(self.now)

    def run(self, seconds: float, *, until: Sequence[Action] = ()) -> "Day":
        """Let time pass; stops at one of these actions."""
        end = self.now + seconds
        while self.now < end:
            self._second()
            if self.now % self.box.poll_seconds == 0 and self._look() in until:
                break
        return self

    def actions(self) -> Counter[Action]:
        """How often each was asked for."""
        return Counter(action for _, action, _ in self.told)

    def ended(self) -> list[runaway.Generation]:
        """The generations that were told of, as they were in the end."""
        return [grown[-1] for grown in self.runaways]

    # --- engine and callers ---

    def _second(self) -> None:
        self.now += 1
        while self._due and self._due[0][0] <= self.now:
            _, number = heapq.heappop(self._due)
            caller = self.callers[number]
            if self.now < caller.until:
                heapq.heappush(self._due, (self.now + caller.every, number))
                for _ in range(caller.times):
                    self._call(caller)
        scheduler = self.scheduler
        scheduler.tick(self.now)
        if scheduler.loading is not self._loaded_by:
            self._loaded_by, self._load_began = scheduler.loading, self.now
            self.loads += scheduler.loading is not None
        self._working = self._on_the_processor = False
        if scheduler.loading and not self.load_hangs:
            if self.load_fails:
                scheduler.load_ended(self.now, "no memory")
            elif self.now - self._load_began >= LOAD_SECONDS:
                scheduler.load_ended(self.now)
        for call in [*self._calls, *self._ours.values()]:
            if not call.done:
                self._serve(call)
        self._calls = [
            call for call in self._calls if not call.gone and not (call.done and self.now > call.sent_at + 60)
        ]

    def _call(self, caller: Caller) -> None:
        request = Request(caller.context, caller.keep_alive, caller.num_gpu, caller.empty)
        call = Call(caller, f"10.0.0.9:{next(self._peers)}", self.now, request)
        self._calls.append(call)
        if not caller.half and not self.scheduler.arrive(request, self.now):
            self._answer(call)

    def _serve(self, call: Call) -> None:
        """A second of one request's life."""
        request, caller = call.request, call.caller
        if self.now - call.began > caller.patience:
            self.scheduler.ended(request, self.now)
            call.done = call.gone = True
        elif request.error or (request.empty and request.admitted):
            self._answer(call)
        elif request is self.scheduler.serving and not self.hung:
            if self.failing:
                request.error = "the runner has terminated"
                return self._answer(call)
            whole = self.scheduler.running(self.now) or [(0, self.scheduler.size, 0.0)]
            on_the_gpu = whole[0][1] == self.scheduler.size
            self._working, self._on_the_processor = on_the_gpu, not on_the_gpu
            call.worked += 1 if on_the_gpu else 1 / ON_THE_PROCESSOR
            if call.worked > caller.prompt and caller.stream:
                call.sent, call.sent_at = call.sent + 100, self.now
            if call.worked >= caller.prompt + caller.tokens / 15:
                self._answer(call)
        return None

    def _answer(self, call: Call) -> None:
        call.sent, call.sent_at, call.done = call.sent + 500, self.now, True
        self.scheduler.ended(call.request, self.now)
        for name in [name for name, ours in self._ours.items() if ours is call]:
            del self._ours[name]
            self._outcomes[name] = Asked.REFUSED if call.request.error else Asked.CAME

    # --- the keeper ---

    def _ask(self, name: str) -> None:
        request = Request(keep_alive=FOR_GOOD, empty=True) if name == "load" else Request()
        call = Call(Caller("ours", 0, prompt=0, tokens=1), "127.0.0.1:1", self.now, request)
        self._ours[name] = call
        if not self.scheduler.arrive(request, self.now):
            del self._ours[name]
            self._outcomes[name] = Asked.BUSY

    def _asked(self, name: str) -> Asked | None:
        return Asked.PENDING if name in self._ours else self._outcomes.pop(name, None)

    def _look(self) -> Action:
        live = [call.connection(self.now) for call in self._calls if not (call.done and self.now - call.began > 1e9)]
        seen = sight.told(
            self.box,
            self.now,
            live,
            answers=not self.silent,
            loaded=None if self.silent else self._loaded(),
            gate_shut=False,
            load=self._asked("load"),
            token=self._asked("token"),
        )
        busy = (self._working if self.gpu_told else None) if seen.waiting or seen.pending else None
        if seen.loaded and seen.loaded.partial and not busy:
            busy = True if self._on_the_processor else None
        reading = self.scheduler.loading is not None and not self.load_hangs
        seen = replace(seen, gpu_busy=busy, reading=reading)
        self._runs, running = runaway.look(self._runs, self.now, live, works=busy is not False)
        if running and running.seconds >= self.box.runaway_seconds:
            if not self.runaways or running.seconds < self.runaways[-1][-1].seconds:
                self.runaways.append([])
            self.runaways[-1].append(running)
        self.seen = seen.loaded or self.seen
        self._memory, action, why = wedge.decide(self.box, self._memory, seen)
        if action is not Action.NOTHING:
            self.told.append((self.now, action, why))
        self._act(action)
        return action

    def _loaded(self) -> engine.Loaded | None:
        found = self.scheduler.running(self.now)
        if found is None:
            return None
        models: list[dict[str, Any]] = [
            {
                "name": engine.full_name(self.box.model),
                "digest": "d",
                "size": self.scheduler.size,
                "size_vram": vram,
                "context_length": context,
                "expires_at": datetime.fromtimestamp(START + expires, UTC).isoformat(),
            }
            for context, vram, expires in found
        ]
        return engine.loaded(self.box, "d", {"models": models}, 2026)

    def _act(self, action: Action) -> None:
        if action in (Action.PROVE, Action.PRIME):
            self._ask("token")
            self._memory = replace(self._memory, asked_at=self._memory.asked_at or self.now)
        elif action is Action.LOAD:
            self._ask("load")
        elif action is Action.UNLOAD:
            self.scheduler.unload(self.now)
        elif action is Action.RELOAD:
            self.scheduler.unload(self.now)
            self._ask("load")
