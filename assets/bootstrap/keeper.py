"""Keeps an opened box honest: a thread of the agent that looks at the engine and carries out what `wedge` decides."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Callable, Optional

import engine
import gate
import leave
import line
import names
import paths
import readiness
import sight
import stages
import telemetry
import wedge
from config import Box
from log import say
from systemctl import UnitError, systemctl
from wedge import Action, Asked

YIELD_SECONDS = 0.2  # how soon a self-prime makes room for a caller

Metrics = Callable[[Sequence[dict[str, Any]]], None]


class Keeper:
    """What is remembered between two looks. Once the box leaves it changes nothing any more: streams are ending.
    `metrics` sends some, and may take its time.
    """

    def __init__(self, box: Box, metrics: Metrics) -> None:
        self._box, self._metrics = box, metrics
        self._memory = wedge.fresh(time.monotonic())
        self._told_at = float("-inf")  # of a generation that does not end
        self._recovered_at = float("-inf")
        self._sight = sight.Sight()
        self._token: Optional[readiness.Request] = None
        self._loaded = engine.Loaded()  # said last

    def step(self) -> None:
        """One look, and what it asks for."""
        box = self._box
        if not paths.OPENED.exists():
            self._memory = wedge.fresh(time.monotonic())
            return
        if not readiness.stored(box):
            self._leave("the instance store is empty")  # what is in the GPU's memory answers until the streams end
            return
        token, told = self._token.asked if self._token else None, line.look()
        seen = self._sight.look(box, told, token)
        if told:
            self._report_runaway(seen.at, told)
        if seen.loaded and seen.loaded != self._loaded:
            say(f"ENGINE model: {seen.loaded.said or 'loaded whole'}")
        self._loaded = seen.loaded or self._loaded
        self._memory, action, why = wedge.decide(box, self._memory, seen)
        if self._token and token is not Asked.PENDING:
            if token is not Asked.CAME:
                say(f"ENGINE asked: {self._token.outcome}")
            self._token = None
        if action is not Action.NOTHING and not paths.LEAVING.exists():
            say(f"ENGINE {action.value}: {why}")
            try:
                self._act(action, why)
            except gate.GateError as error:
                say(f"gate: {error}")

    def _report_runaway(self, at: float, told: line.Told) -> None:
        """Tell of a generation that does not end."""
        if told.served_seconds < self._box.runaway_seconds or at - self._told_at < self._box.runaway_report_seconds:
            return
        self._told_at = at
        say(f"GENERATION has run for {told.served_seconds:.0f} s, {told.waiting} callers wait; nothing here ends it")
        data = [telemetry.metric(self._box, names.METRIC_RUNAWAY_GENERATION_SECONDS, told.served_seconds)]
        threading.Thread(target=self._metrics, args=(data,), daemon=True).start()

    def _act(self, action: Action, why: str) -> None:
        box = self._box
        if action is Action.PROVE:
            self._token = readiness.Request(box, readiness.tokens(box, 1), stages.budget("warm_up"))
        elif action is Action.SHUT:
            gate.set_state(gate.DRAINING, box.port, unless_leaving=True)  # a stream that still lives may end
        elif action is Action.RECOVER:
            self._recover(why)
        elif action is Action.PRIME:
            self._prime()
        elif action is Action.WARM_UP:
            self._warm_up(time.monotonic() + stages.budget("warm_up"))

    def _prime(self) -> None:
        outcome = prime(self._box, self._sight)
        now = time.monotonic()  # nobody looked meanwhile
        token_at = now if outcome is Asked.CAME else self._memory.token_at
        self._memory = replace(wedge.fresh(now), token_at=token_at, refused=int(outcome is Asked.REFUSED))
        if outcome is Asked.PENDING:
            self._warm_up(now + stages.budget("warm_up"))  # who comes next would have found out

    def _recover(self, why: str) -> None:
        """End the engine that serves nobody and start it anew, once an hour: never by force, and in bounded time."""
        box, now = self._box, time.monotonic()
        if now - self._recovered_at < box.prove_seconds:
            self._leave(f"again: {why}")
            return
        self._recovered_at = now
        gate.set_state(gate.DRAINING, box.port, unless_leaving=True)
        try:
            systemctl("stop", engine.UNIT)
            engine.start(box, box.restart_seconds)
        except (UnitError, engine.EngineError) as error:
            self._leave(f"the engine was not started anew: {error}")
            return
        self._warm_up(now + box.recovery_seconds)

    def _warm_up(self, deadline: float) -> None:
        """Load the model and prove it behind the gate; streams that live go on."""
        box = self._box
        if self._token:
            self._token.give_up()
            self._token = None
        gate.set_state(gate.DRAINING, box.port, unless_leaving=True)
        try:
            readiness.warm_up(box, deadline - time.monotonic())
        except (engine.EngineError, OSError) as error:  # the store's manifest is read, too
            self._leave(f"the engine did not come back: {error}")
            return
        gate.set_state(gate.OPEN, box.port)
        say("ENGINE warm-up: gate open again")
        self._memory = wedge.fresh(time.monotonic())

    def _leave(self, why: str) -> None:
        if not paths.LEAVING.exists():
            leave.request(why)


def prime(box: Box, seen: sight.Sight) -> Asked:
    """One token through the line, given up as soon as a caller appears; PENDING where it did not come and nothing works
    on it.
    """
    told = line.look()
    if told is None or told.streams:
        return Asked.BUSY
    seen.store.reading(box)  # counted from here
    token = readiness.Request(box, readiness.tokens(box, 1), stages.budget("warm_up"), port=box.port)
    deadline = time.monotonic() + box.token_seconds
    while not token.done.wait(YIELD_SECONDS):
        told = line.look()
        if paths.LEAVING.exists() or (told and told.streams > 1):
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
