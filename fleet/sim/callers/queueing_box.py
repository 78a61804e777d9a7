"""One box on the simulated clock: the lane's own line (or a strict one) before an engine that serves one at a time."""

from itertools import count
from typing import TYPE_CHECKING

from fleet.config.cards import Card
from fleet.sim.callers.request import Request
from fleet.sim.cloud.virtual_clock import Clock
from gateway.fallback import UNAVAILABLE, Failure, Kind, Tier
from lane.config import LLAMA_CPP, Config
from lane.estimates import Estimates
from lane.line import LOOK_SECONDS, Busy, Line
from lane.order import Entry

if TYPE_CHECKING:
    from fleet.sim.callers.front import Front

CONFIG = Config(engine_url="", engine=LLAMA_CPP, model="", context_length=1 << 20, port=0, admin_port=0, gateway=True)


class StrictLine:
    """A box without a lane: first come, first served; it tells nobody to go elsewhere."""

    def __init__(self) -> None:
        self.running: Entry | None = None
        self.waiting: list[Entry] = []

    def arrive(self, entry: Entry, now: float) -> None:
        """Whoever comes waits."""
        self.waiting.append(entry)

    def take(self, now: float) -> Entry | None:
        """The first, once nobody is served."""
        if self.running is None and self.waiting:
            self.running = self.waiting.pop(0)
            self.running.began = now
            return self.running
        return None

    def leave(self, entry: Entry, now: float, how: str) -> None:
        """It is over."""
        if entry is self.running:
            self.running = None
        elif entry in self.waiting:
            self.waiting.remove(entry)

    def handed_back(self, now: float) -> list[Entry]:
        """Nobody, before the end."""
        return []


class QueueingBox:
    """From the first probe that passes to its end. `shut`: its gate takes no connection."""

    def __init__(self, id: str, card: Card, clock: Clock, front: "Front", *, lane: bool) -> None:
        self.id, self._card, self._clock, self._front = id, card, clock, front
        self._lane = Line(CONFIG, Estimates(CONFIG)) if lane else None
        self.line = self._lane or StrictLine()
        self._requests: dict[str, Request] = {}
        self._numbers = count()
        self._turn = 0  # of the engine: what was scheduled for an earlier one is stale
        self._first_token_at = 0.0
        self.shut = False

    # --- requests ---------------------------------------------------------------------------------------------

    def arrive(self, request: Request) -> Busy | None:
        """Into the line, with the deadline that the gateway gives; or the line's no."""
        now, asked, ask = self._clock.now, request.asked, request.ask
        entry = Entry(
            id=str(next(self._numbers)),
            caller=asked.caller,
            kind=asked.kind,
            arrived=now,
            deadline=min(request.arrived + request.budget, now + CONFIG.deadline_most_seconds),
            stream=asked.stream,
            limit=ask.max_tokens,
            prompt_tokens=ask.prompt_tokens,
        )
        self._look()
        busy = self.line.arrive(entry, now)
        if busy is None:
            request.box, request.entry = self, entry
            self._requests[entry.id] = request
            self._advance()
        return busy

    def overdue(self, request: Request) -> Failure | None:
        """The gateway's patience is at its end; None: a first token is out, and the stream may go on."""
        entry, now = request.entry, self._clock.now
        assert entry is not None  # noqa: S101  it is here
        if entry is self.line.running and entry.stream and now >= self._first_token_at:
            return None
        waits = entry.began is None and self._lane is not None  # which then says so itself
        self._drop(request, "deadline" if waits else "caller_left")
        self._advance()
        elapsed = now - request.arrived
        if waits:
            return Failure(Tier.GPU, Kind.BUSY, elapsed, status=UNAVAILABLE, box=self.id, code="deadline")
        return Failure(Tier.GPU, Kind.SILENT, elapsed)

    def _advance(self) -> None:
        now = self._clock.now
        entry = self.line.take(now)
        if entry is None:
            return
        request, card = self._requests[entry.id], self._card
        self._turn += 1
        self._first_token_at = now + request.asked.prompt_tokens * card.prompt_token_seconds + card.token_seconds
        ends = self._first_token_at + (request.tokens - 1) * card.token_seconds
        self._clock.at(ends, self._finish, self._turn)

    def _finish(self, turn: int) -> None:
        entry = self.line.running
        if turn != self._turn or entry is None:
            return
        request, card, now = self._requests[entry.id], self._card, self._clock.now
        entry.decoded = request.tokens
        if self._lane:
            prompt = request.asked.prompt_tokens * card.prompt_token_seconds
            rest = (request.tokens - 1) * card.token_seconds
            estimates = self._lane.estimates
            estimates.answered(
                prompt_tokens=entry.prompt_tokens, prompt_seconds=prompt, tokens=request.tokens, token_seconds=rest
            )
            if request.tokens < entry.limit:
                estimates.length(request.tokens)
        self._drop(request, "answered", whole=True)
        self._front.answered(request, self._first_token_at if entry.stream else now)
        self._advance()
        self._front.freed()

    def _drop(self, request: Request, how: str, *, whole: bool = False) -> None:
        """Out of the line; what was decoded for nobody is counted."""
        entry = request.entry
        assert entry is not None  # noqa: S101  it is here
        self._look()
        if entry is self.line.running:
            self._turn += 1
            if not (whole or entry.stream):
                self._front.wasted(self._decoded())
        self.line.leave(entry, self._clock.now, how)
        del self._requests[entry.id]
        request.box = request.entry = None

    def _decoded(self) -> int:
        """Tokens of the running request so far."""
        since = self._clock.now - self._first_token_at
        return 0 if since < 0 else 1 + int(since / self._card.token_seconds)

    def _look(self) -> None:
        """What the lane sees of a stream that is served; a whole answer tells nothing on the way."""
        running = self.line.running
        if running is not None and running.stream and (decoded := self._decoded()):
            running.first_token = self._first_token_at
            running.decoded = running.delivered = min(decoded, self._requests[running.id].tokens)

    # --- the way out ------------------------------------------------------------------------------------------

    def leave(self, seconds: float) -> None:
        """It goes in so long: the lane hands back who cannot finish."""
        if self._lane:
            self._lane.leaving(self._clock.now + seconds)
        self._clock.after(seconds, self.die)
        self._hand_back()

    def _hand_back(self) -> None:
        if not self._requests:
            return
        self._look()
        for entry in self.line.handed_back(self._clock.now):
            self._fail(self._requests[entry.id], "draining")
        self._advance()
        self._clock.after(LOOK_SECONDS, self._hand_back)

    def die(self) -> None:
        """Whoever is still here gets nothing more."""
        self._look()
        for request in list(self._requests.values()):
            self._fail(request, "")

    def _fail(self, request: Request, code: str) -> None:
        entry, elapsed = request.entry, self._clock.now - request.arrived
        assert entry is not None  # noqa: S101  it is here
        self._drop(request, code or "engine")
        if entry.keeps_its_place:
            self._front.broken(request, entry.delivered)
        elif code:
            failure = Failure(Tier.GPU, Kind.BUSY, elapsed, status=UNAVAILABLE, box=self.id, code=code)
            self._front.failed(request, failure)
        else:
            self._front.failed(request, Failure(Tier.GPU, Kind.RESET, elapsed))
