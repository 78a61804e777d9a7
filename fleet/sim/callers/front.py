"""The gateway on the simulated clock: its own admission, caps, fallback, breakers, prices; only the waiting is ours."""

import functools
import json
import math
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from fleet.config import cards
from fleet.config.gateway_settings import CallerTier, Gateway
from fleet.sim.callers.queueing_box import QueueingBox
from fleet.sim.callers.request import Request
from fleet.sim.callers.tally import CLOUD, CUT, GPU, NOBODY, REFUSED, Tally
from fleet.sim.callers.traffic import Asked, day_of
from fleet.sim.cloud.virtual_clock import Clock
from gateway import fallback
from gateway.admission import BYTES_PER_TOKEN, Ask, admit
from gateway.breaker import PROBE_SECONDS, Breaker
from gateway.config import Config
from gateway.fallback import SERVER_ERROR, TOO_MANY, Failure, Kind, Situation, Tier
from gateway.ledger import Line, reservation
from gateway.memory import MemoryStore
from gateway.restraint import Restraint
from gateway.store import Verdict
from relay.refusal import Refusal

MODEL = "drill"
MICRO = 1_000_000
T = TypeVar("T")


@dataclass(frozen=True)
class CloudModel:
    """How the fallback behaves: its answer, and what it does instead, in shares of the requests."""

    seconds: tuple[float, float] = cards.CLOUD_SECONDS  # first token and whole alike: no more was measured
    fails: float = 0.0  # with a 500, as late as an answer
    too_many: float = 0.0  # with a 429, at once


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that waits for nothing: the store in memory."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise RuntimeError("it waits")


class Front:
    """One gateway; that there are two tasks, each with breakers of its own, is left out."""

    def __init__(self, clock: Clock, gateway: Gateway, cloud: CloudModel, tally: Tally, draw: Random) -> None:
        self._clock, self._gateway, self._cloud, self._tally, self._draw = clock, gateway, cloud, tally, draw
        config = Config(fleet=MODEL, gpu_url="", models={MODEL: MODEL}, gateway=gateway)
        self._admitted = functools.lru_cache(4096)(functools.partial(_admitted, config))
        self._tiers: dict[str, CallerTier] = vars(gateway.tiers)
        self._parallel = Counter[str]()
        self._store = MemoryStore()
        self._restraint = Restraint(gateway.fallback)
        self._breaker = Breaker()
        self._parked: dict[Request, None] = {}  # back in the line, in order
        self.named: list[QueueingBox] = []  # by the balancer: also, for a while, those that have left

    # --- who is admitted --------------------------------------------------------------------------------------

    def arrive(self, asked: Asked) -> None:
        """A request; the clock stands at its time."""
        self._tally.asked += 1
        tier = self._tiers[asked.tier]
        try:
            if not tier.requests_per_day:
                raise Refusal(403, "", "tier_off")
            ask = self._admitted(asked.prompt_tokens, asked.limit, asked.stream)
            if self._parallel[asked.caller] >= tier.parallel:
                raise Refusal(429, "", "too_many_at_once")
            line = _line(asked.caller)
            outcome = at_once(self._store.admit(line, tier.requests_per_day, "", day_of(asked.at)))
            if outcome is Verdict.CAP_REACHED:
                raise Refusal(429, "", "cap_reached")
        except Refusal as refusal:
            self._tally.refusals[refusal.code] += 1
            self._tally.over(REFUSED, asked.at)
            return
        del self._store.lines[line.id]
        self._parallel[asked.caller] += 1
        budgets = self._gateway.budgets
        cloud_p95 = self._restraint.p95(budgets.fallback_p95_seconds)
        self._step(Request(asked, ask, fallback.local_budget(asked.stream, budgets, cloud_p95)))

    # --- who is asked next ------------------------------------------------------------------------------------

    def _step(self, request: Request) -> None:
        now = self._clock.now
        step = fallback.next_step(
            Situation(
                elapsed=now - request.arrived,
                budget=request.budget,
                failures=tuple(request.failures),
                gpu="" if self._breaker.closed else "no box takes connections",
                cloud=self._restraint.closed(now, continues=False),
                retries=self._gateway.retries,
            )
        )
        match step:
            case fallback.AskTarget(Tier.GPU, fallback.LINE_PAUSE_SECONDS) if request.failures[-1].kind is Kind.BUSY:
                self._park(request)
            case fallback.AskTarget(Tier.GPU, after) if after:
                self._clock.after(after, self._ask_gpu, request)
            case fallback.AskTarget(Tier.GPU):
                self._ask_gpu(request)
            case fallback.AskTarget():
                self._ask_cloud(request)
            case fallback.Wait(seconds):
                self._wait(request, seconds)
            case fallback.Refuse():
                self._over(request, NOBODY)
            case fallback.PassOn():  # of what fails anywhere, admission has let nothing in
                raise AssertionError(step)

    def failed(self, request: Request, failure: Failure) -> None:
        """An attempt came to nothing."""
        request.failures.append(failure)
        refused = [each for each in request.failures if each.kind is Kind.REFUSED]
        if (
            failure.kind is Kind.REFUSED
            and len(refused) >= self._gateway.retries.fresh_connections
            and self._breaker.closed
        ):
            self._breaker = self._breaker.refused(self._clock.now)
            self._probe_later()
        self._step(request)

    def _wait(self, request: Request, seconds: float) -> None:
        """Nobody can be asked: look again."""
        asked_cloud = any(failure.tier is Tier.CLOUD for failure in request.failures)
        if asked_cloud or not self._gateway.fallback.url:
            self._park(request)
        else:
            self._clock.after(seconds, self._step, request)

    def _park(self, request: Request) -> None:
        """Every try until a turn ends, or a box comes, would end as the last one: they are not played one by one."""
        if request not in self._parked:
            self._parked[request] = None
            self._clock.at(request.arrived + request.budget, self._unpark, request)

    def _unpark(self, request: Request) -> None:
        if request in self._parked:
            del self._parked[request]
            self._step(request)

    def freed(self) -> None:
        """Something has changed at a box: whoever is back in the line tries again, each within its own pause."""
        for request in self._parked:
            self._clock.after(self._draw.uniform(0, fallback.LINE_PAUSE_SECONDS), self._again, request)

    def _again(self, request: Request) -> None:
        if request in self._parked and self._breaker.closed:
            del self._parked[request]
            self._ask_gpu(request)

    # --- the GPU ----------------------------------------------------------------------------------------------

    def _ask_gpu(self, request: Request) -> None:
        now = self._clock.now
        box = self._connected()
        if box is None:
            return self.failed(request, Failure(Tier.GPU, Kind.REFUSED, now - request.arrived))
        self._taken()
        request.attempts += 1
        busy = box.arrive(request)
        if busy:
            return self.failed(
                request,
                Failure(
                    Tier.GPU,
                    Kind.BUSY,
                    now - request.arrived,
                    status=fallback.UNAVAILABLE,
                    retry_after_seconds=busy.retry_after_seconds,
                    box=box.id,
                    code=busy.why.value,
                ),
            )
        return self._clock.at(request.arrived + request.budget, self._overdue, request, request.attempts)

    def _connected(self) -> QueueingBox | None:
        """The balancer's choice for a fresh connection; None: it is refused."""
        box = self._draw.choice(self.named) if self.named else None
        return None if box is None or box.shut else box

    def _overdue(self, request: Request, attempt: int) -> None:
        if request.box is None or attempt != request.attempts:
            return
        failure = request.box.overdue(request)
        if failure:
            self.failed(request, failure)

    def _taken(self) -> None:
        closed, self._breaker = self._breaker.closed, self._breaker.taken(self._clock.now)
        if not closed:
            self.freed()

    def serves(self, box: QueueingBox) -> None:
        """The balancer names it from now on."""
        self.named.append(box)
        if not self._breaker.closed:
            self._probe_later()

    def _probe_later(self) -> None:
        """The breaker's next probe; while there is nobody to take it, it need not be played."""
        opened, now = self._breaker.opened_at, self._clock.now
        assert opened is not None  # noqa: S101  it is open
        probes = math.floor((now - opened) / PROBE_SECONDS) + 1
        self._clock.at(opened + probes * PROBE_SECONDS, self._probe, opened)

    def _probe(self, opened: float) -> None:
        if self._breaker.opened_at != opened:
            return
        if self._connected():
            self._taken()
        elif any(not box.shut for box in self.named):
            self._probe_later()

    def answered(self, request: Request, first_token_at: float) -> None:
        """By a box, whole."""
        self._tally.decoded += request.tokens
        request.first_token_at = first_token_at
        self._over(request, GPU)

    def broken(self, request: Request, delivered: int) -> None:
        """A stream of a box ended in the middle: continued where that is declared and sampling is fixed, else cut."""
        self._tally.decoded += delivered
        request.cut_at = delivered
        config = self._gateway
        closed = self._restraint.closed(self._clock.now, continues=True)
        if config.fixed_sampling and config.fallback.continues and not closed:
            self._ask_cloud(request)
        else:
            self._over(request, CUT)

    def wasted(self, tokens: int) -> None:
        """A box decoded them for nobody."""
        self._tally.decoded += tokens
        self._tally.wasted += tokens

    # --- the cloud --------------------------------------------------------------------------------------------

    def _ask_cloud(self, request: Request) -> None:
        now, asked = self._clock.now, request.asked
        elapsed = now - request.arrived
        if not self._reserve(request):
            return self._cloud_failed(request, Failure(Tier.CLOUD, Kind.LIMIT, elapsed))
        self._restraint.in_flight += 1
        fate, seconds = self._draw.random(), self._draw.uniform(*self._cloud.seconds)
        by = request.arrived + fallback.cloud_budget(elapsed, asked.stream, self._gateway.budgets)
        if request.cut_at is not None:
            by = now + self._gateway.budgets.fallback_first_token_seconds
        if fate < self._cloud.too_many:
            return self._cloud_ends(request, Failure(Tier.CLOUD, Kind.STATUS, elapsed, status=TOO_MANY))
        if fate < self._cloud.too_many + self._cloud.fails:
            failure = Failure(Tier.CLOUD, Kind.STATUS, elapsed + seconds, status=SERVER_ERROR)
            return self._clock.after(seconds, self._cloud_ends, request, failure)
        if now + seconds > by:
            failure = Failure(Tier.CLOUD, Kind.SILENT, by - request.arrived)
            return self._clock.at(by, self._cloud_ends, request, failure)
        return self._clock.after(seconds, self._cloud_answers, request, seconds)

    def _reserve(self, request: Request) -> bool:
        """One of the caller's fallbacks, and what it may cost at most, of the day: as `gateway.record` takes them."""
        cloud, day, caller = self._gateway.fallback, day_of(request.arrived), request.asked.caller
        if request.reserved > request.paid:
            return True  # an attempt that cost nothing has left it
        most, first = self._tiers[request.asked.tier].fallbacks_per_day, not request.reserved
        if first and not (most and at_once(self._store.take_fallback(caller, most, day))):
            return False
        micro = self._price(request.ask.prompt_tokens, request.ask.max_tokens)
        if not at_once(self._store.spend(day, micro, round(cloud.dollars_per_day * MICRO))):
            at_once(self._store.give_back(caller, day, request=False, fallback=first, once=""))
            return False
        request.reserved += micro
        return True

    def _cloud_answers(self, request: Request, seconds: float) -> None:
        self._restraint.in_flight -= 1
        self._restraint.judged(self._clock.now, well=True)
        request.paid += self._price(request.asked.prompt_tokens, request.tokens - (request.cut_at or 0))
        if request.cut_at is None:
            self._restraint.took(seconds)
            request.first_token_at = self._clock.now
            self._over(request, CLOUD)
        else:
            self._tally.continued += 1
            self._over(request, GPU)

    def _cloud_ends(self, request: Request, failure: Failure) -> None:
        self._restraint.in_flight -= 1
        if failure.status == TOO_MANY:
            self._restraint.too_many(self._clock.now, None)
        self._restraint.judged(self._clock.now, well=0 < failure.status < SERVER_ERROR)
        if failure.kind is not Kind.STATUS:  # who refuses bills nothing
            request.paid = request.reserved
        self._cloud_failed(request, failure)

    def _cloud_failed(self, request: Request, failure: Failure) -> None:
        if request.cut_at is None:
            self.failed(request, failure)
        else:
            self._over(request, CUT)

    def _price(self, prompt: int, completion: int) -> int:
        cloud = self._gateway.fallback
        return reservation(prompt, completion, cloud.dollars_per_million_input, cloud.dollars_per_million_output)

    # --- the end ----------------------------------------------------------------------------------------------

    def _over(self, request: Request, outcome: str) -> None:
        asked, tally, now = request.asked, self._tally, self._clock.now
        self._parallel[asked.caller] -= 1
        if not self._parallel[asked.caller]:
            del self._parallel[asked.caller]
        self._settle(request, outcome)
        if request.first_token_at is None and outcome == GPU:  # a stream that another target went on with
            request.first_token_at = request.arrived
        if outcome in (GPU, CLOUD) and request.first_token_at is not None:
            first, whole = request.first_token_at - request.arrived, now - request.arrived
            budgets = self._gateway.budgets
            kept = first <= budgets.first_token_seconds if asked.stream else whole <= budgets.whole_seconds
            tally.answered(outcome, asked.at, first, whole, in_budget=kept)
        else:
            tally.over(outcome, asked.at)

    def _settle(self, request: Request, outcome: str) -> None:
        """What was reserved becomes what was used; who got nothing has counts and dollars back."""
        caller, day = request.asked.caller, day_of(request.arrived)
        if request.reserved:
            at_once(self._store.spend(day, request.paid - request.reserved, None))
        self._tally.micro_dollars += request.paid
        nobody, unused = outcome == NOBODY, request.reserved > 0 == request.paid
        if nobody or unused:
            at_once(self._store.give_back(caller, day, request=nobody, fallback=unused, once=""))


@functools.lru_cache(4096)
def _line(caller: str) -> Line:
    """What the store counts by; the rest of a ledger's line is not kept here."""
    return Line(id=caller, caller=caller, began=0, until=0)


def _admitted(config: Config, prompt_tokens: int, limit: int | None, stream: bool) -> Ask:
    """The gateway's own admission of a body of that size; raises Refusal."""
    text = "x" * max(0, (prompt_tokens - 4) * BYTES_PER_TOKEN)  # of one message, which counts 4
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": stream}
    if limit is not None:
        body["max_tokens"] = limit
    return replace(admit(json.dumps(body).encode(), {}, config), body={})
