"""Stand-in for Ollama's scheduler: which model is loaded, with which context, until when, and who waits.

Time is passed in. Written from Ollama's documents (docs/box.md names them) and as unkind as they say:

- A request's `keep_alive` replaces the server's and holds from then on; 0 unloads as soon as the request has ended. The
  expiry is set when the last request ends: until then `/api/ps` tells an older one.
- Options that shape a load (`num_ctx`, `num_gpu`) and differ from the loaded ones load the model anew, once its
  requests have ended; meanwhile everybody waits, `max_queue` of them, and the others are turned away.
- A context too large for the GPU leaves part of the model to the processor. One above the model's own is cut to it.
- While it loads, newer engines do not answer `/api/ps` at all, older ones list the model as if it were loaded.
- Who waits for another context has the loaded model's time ended, once: whoever is admitted after that with a
  `keep_alive` of its own undoes it, and the one in the queue waits on (ollama/ollama, issue 7779).
- A caller who leaves during its load ends the load.
"""

import math
from collections import deque
from dataclasses import dataclass, field

FOR_GOOD = math.inf
CENTURIES_SECONDS = 292 * 365.25 * 86400  # what "for good" comes to, in nanoseconds of 63 bits


@dataclass(eq=False)
class Request:
    """One request's part that the scheduler sees. `context` 0 and `keep_alive` None: it does not say."""

    context: int = 0
    keep_alive: float | None = None
    num_gpu: int = -1
    empty: bool = False
    admitted: bool = False
    error: str = ""
    asked_to_unload: "Loaded | None" = None


@dataclass(eq=False)
class Loaded:
    """The one runner."""

    context: int
    num_gpu: int
    keep_alive: float
    expires_at: float | None = None  # not before its first request has ended
    requests: list[Request] = field(default_factory=list)


@dataclass
class Scheduler:
    """`gpu_context`: the largest that fits the GPU beside the weights; `model_context`: that of the training."""

    default_context: int
    model_context: int
    gpu_context: int
    size: int
    max_queue: int = 3
    default_keep_alive: float = FOR_GOOD
    newer: bool = True  # `/api/ps` does not answer during a load
    loaded: Loaded | None = None
    loading: Request | None = None
    pending: deque[Request] = field(default_factory=deque)

    def arrive(self, request: Request, now: float) -> bool:
        """A request; False where the queue is full."""
        if self.loaded and not self.loading and self._fits(request, self.loaded):
            self._admit(request)
        elif len(self.pending) >= self.max_queue:
            return False
        else:
            self.pending.append(request)
        self.tick(now)
        return True

    def unload(self, now: float) -> None:
        """An empty prompt with a `keep_alive` of 0."""
        if self.loaded:
            self.loaded.keep_alive, self.loaded.expires_at = 0.0, now
        self.tick(now)

    def ended(self, request: Request, now: float) -> None:
        """A request was answered, or its caller is gone."""
        if request in self.pending:
            self.pending.remove(request)
        elif request is self.loading:
            self.loading = self.loaded = None
        elif self.loaded and request in self.loaded.requests:
            self.loaded.requests.remove(request)
            if not self.loaded.requests:
                self.loaded.expires_at = now + min(self.loaded.keep_alive, CENTURIES_SECONDS)
        self.tick(now)

    def load_ended(self, now: float, error: str = "") -> None:
        """The load that was begun is over."""
        request, self.loading = self.loading, None
        if request is None:
            return
        if error:
            request.error, self.loaded = error, None
        else:
            self._admit(request)
        self.tick(now)

    def crash(self, now: float, error: str) -> None:
        """The runner ends, and everybody's request in it."""
        for request in self.loaded.requests if self.loaded else ():
            request.error = error
        self.loaded = self.loading = None
        self.tick(now)

    def tick(self, now: float) -> None:
        """Unload what has expired, and begin the load that the first in the queue needs."""
        loaded = self.loaded
        if loaded and not self.loading and not loaded.requests:
            expired = loaded.expires_at is not None and now >= loaded.expires_at
            self.loaded = None if expired or loaded.keep_alive <= 0 else loaded
        while self.pending and not self.loading:
            first = self.pending[0]
            if self.loaded and self._fits(first, self.loaded):
                self._admit(self.pending.popleft())
            elif self.loaded and first.asked_to_unload is self.loaded:
                return
            elif self.loaded and self.loaded.requests:
                self.loaded.keep_alive, first.asked_to_unload = 0.0, self.loaded
                return
            else:
                self.loading = self.pending.popleft()
                keep_alive = self.default_keep_alive if first.keep_alive is None else first.keep_alive
                self.loaded = Loaded(self._context(first), first.num_gpu, keep_alive)

    @property
    def serving(self) -> Request | None:
        """Whose turn it is: one at a time, in the order of admission."""
        return next((each for each in self.loaded.requests if not each.empty), None) if self.loaded else None

    def running(self, now: float) -> list[tuple[int, int, float]] | None:
        """Context, bytes in GPU memory and expiry of what is loaded; None where `/api/ps` does not answer."""
        loaded = self.loaded
        if self.loading and self.newer:
            return None
        if loaded is None:
            return []
        whole = loaded.context <= self.gpu_context and loaded.num_gpu < 0
        expires = loaded.expires_at
        if expires is None:
            expires = now + min(loaded.keep_alive, CENTURIES_SECONDS)
        return [(loaded.context, self.size if whole else self.size // 2, expires)]

    def _context(self, request: Request) -> int:
        return min(request.context or self.default_context, self.model_context)

    def _fits(self, request: Request, loaded: Loaded) -> bool:
        return (self._context(request), request.num_gpu) == (loaded.context, loaded.num_gpu)

    def _admit(self, request: Request) -> None:
        assert self.loaded
        request.admitted = True
        self.loaded.requests.append(request)
        if request.keep_alive is not None:
            self.loaded.keep_alive = request.keep_alive
