"""Keeps an opened box honest: a thread of the agent that looks at the engine and carries out what `wedge` decides."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Callable, Optional

import engine
import gate
import leave
import names
import paths
import runaway
import sight
import stages
import streams
import telemetry
import warm
import wedge
from config import Box
from log import say
from wedge import Action, Asked

YIELD_SECONDS = 0.2  # how soon a self-prime makes room for a caller

Metrics = Callable[[Sequence[dict[str, Any]]], None]


def keep(box: Box, metrics: Metrics) -> None:
    """Look and act until the box leaves. `metrics` sends some, and may take its time."""
    keeper = Keeper(box, metrics)
    while not paths.LEAVING.exists():
        keeper.step()
        time.sleep(box.poll_seconds)


class Keeper:
    """What is remembered between two looks. Once the box leaves it changes nothing any more: streams are ending."""

    def __init__(self, box: Box, metrics: Metrics) -> None:
        self._box, self._metrics = box, metrics
        self._memory = wedge.fresh(time.monotonic())
        self._runs = runaway.Memory()
        self._told_at = float("-inf")  # of a generation that does not end
        self._sight, self._watch = sight.Sight(), streams.Watch(box.port)
        self._asked_for = streams.Counters()
        self._load: Optional[warm.Request] = None
        self._token: Optional[warm.Request] = None
        self._loaded = engine.Loaded()  # said last

    def step(self) -> None:
        """One look, and what it asks for."""
        box = self._box
        if not paths.OPENED.exists():
            self._memory = wedge.fresh(time.monotonic())
            return
        if not sight.stored(box):
            self._leave("the instance store is empty")  # what is in the GPU's memory answers until the streams end
            return
        load, token = asked(self._load), asked(self._token)
        if token is Asked.CAME:
            self._watch.answered(self._asked_for)
        live = sight.connections(box, self._watch)
        seen = sight.look(box, live, self._sight, load, token)
        self._tell(seen, live)
        if seen.loaded and seen.loaded != self._loaded:
            say(f"ENGINE model: {seen.loaded.said or 'loaded whole, for good'}")
        self._loaded = seen.loaded or self._loaded
        self._memory, action, why = wedge.decide(box, self._memory, seen)
        self._forget(load, token)
        if action is not Action.NOTHING and not paths.LEAVING.exists():
            say(f"ENGINE {action.value}: {why}")
            try:
                self._act(action, why)
            except gate.GateError as error:
                say(f"gate: {error}")

    def _forget(self, load: Optional[Asked], token: Optional[Asked]) -> None:
        """Requests whose end was looked at."""
        for request, seen in ((self._load, load), (self._token, token)):
            if request and seen in (Asked.BUSY, Asked.REFUSED):
                say(f"ENGINE asked: {request.outcome}")
        self._load = self._load if load is Asked.PENDING else None
        self._token = self._token if token is Asked.PENDING else None

    def _tell(self, seen: wedge.Look, live: Sequence[streams.Connection]) -> None:
        """Tell of a generation that does not end."""
        self._runs, running = runaway.look(self._runs, seen.at, live, works=seen.gpu_busy is not False)
        if running is None or running.seconds < self._box.runaway_seconds:
            return
        if seen.at - self._told_at < self._box.runaway_tell_seconds:
            return
        self._told_at = seen.at
        say(f"GENERATION has run for {running.seconds:.0f} s, {running.waiting} callers wait; nothing here ends it")
        data = [telemetry.metric(self._box, names.METRIC_RUNAWAY_GENERATION_SECONDS, running.seconds)]
        threading.Thread(target=self._metrics, args=(data,), daemon=True).start()

    def _act(self, action: Action, why: str) -> None:
        box = self._box
        patience = stages.budget("warm")
        if action is Action.PROVE:
            self._token, self._asked_for = warm.Request(box, [warm.tokens(box, 1)], patience), self._watch.unsure()
        elif action is Action.LOAD:
            self._load = warm.Request(box, [warm.load(box)], patience)
        elif action is Action.UNLOAD:
            self._load = warm.Request(box, [warm.unload(box)], patience)
        elif action is Action.RELOAD:
            self._load = warm.Request(box, [warm.unload(box), warm.load(box)], patience)
        elif action is Action.SHUT:
            gate.set_state(gate.DRAINING, box.port, unless_leaving=True)  # a stream that still lives may end
        elif action is Action.REPLACE:
            self._leave(why)
        elif action is Action.PRIME:
            self._prime()
        elif action is Action.WARM:
            self._warm()

    def _prime(self) -> None:
        outcome = prime(self._box, self._sight)
        if outcome is Asked.PENDING:
            self._warm()  # who comes next would have found out
        now = time.monotonic()  # nobody looked meanwhile
        token_at = now if outcome is Asked.CAME else self._memory.token_at
        self._memory = replace(wedge.fresh(now), token_at=token_at, refused=int(outcome is Asked.REFUSED))

    def _warm(self) -> None:
        """Load the model and prove it behind the gate, as patiently as the boot does; streams that live go on, and may
        ask for another context in between.
        """
        box, deadline = self._box, time.monotonic() + stages.budget("warm")
        for request in (self._load, self._token):
            if request:
                request.give_up()
        self._load = self._token = None
        gate.set_state(gate.DRAINING, box.port, unless_leaving=True)
        while True:
            try:
                warm.warm(box, deadline - time.monotonic())
                break
            except (engine.EngineError, OSError) as error:  # the store's manifest is read, too
                if isinstance(error, warm.UnprovedError) and sight.connections(box) and time.monotonic() < deadline:
                    continue
                self._leave(f"the engine did not come back: {error}")
                return
        gate.set_state(gate.OPEN, box.port)
        say("ENGINE warm: gate open again")
        self._memory = wedge.fresh(time.monotonic())

    def _leave(self, why: str) -> None:
        if not paths.LEAVING.exists():
            leave.request(why)


def asked(request: Optional[warm.Request]) -> Optional[Asked]:
    """What became of a request of ours, where there is one."""
    return request.asked if request else None


def prime(box: Box, seen: sight.Sight) -> Asked:
    """One token, given up as soon as a caller appears; PENDING where it did not come and nothing works on it."""
    if any(found.stream for found in sight.connections(box)):
        return Asked.BUSY
    seen.store.reading(box)  # counted from here
    token = warm.Request(box, [warm.tokens(box, 1)], stages.budget("warm"))
    deadline = time.monotonic() + box.token_seconds
    while not token.done.wait(YIELD_SECONDS):
        if any(found.outstanding for found in sight.connections(box)):
            token.give_up()
            say("ENGINE prime: made room for a caller")
            return Asked.BUSY
        if time.monotonic() >= deadline:
            if seen.gpu.busy() is not True and not seen.store.reading(box):
                token.give_up()
                say(f"ENGINE prime: no token in {box.token_seconds:.0f} s")
                return Asked.PENDING
            deadline = time.monotonic() + box.poll_seconds
    say(f"ENGINE prime: {token.outcome}")
    return token.asked
