"""When the cloud model is left alone, by what came of asking it. Pure; times on one clock that never goes back."""

from collections import deque

from fleet.config.gateway_settings import Fallback

ENOUGH = 20  # answers, before their p95 says anything
REMEMBERED = 100  # whole answers of the cloud, of which the p95 is taken


class Restraint:
    """Requests that are with it, its pauses, its failures in a row, and how long it takes."""

    def __init__(self, config: Fallback) -> None:
        self._config = config
        self._pause_until = 0.0
        self._failed = 0
        self._took: deque[float] = deque(maxlen=REMEMBERED)
        self.in_flight = 0

    def closed(self, now: float, *, continues: bool) -> str:
        """Why it is not asked now; empty: it may be. `continues`: the request ends in part of an answer."""
        if not self._config.url:
            return "none is configured"
        if continues and not self._config.continues:
            return "it does not continue an answer"
        if self.in_flight >= self._config.concurrency:
            return f"{self._config.concurrency} requests are with it already"
        if now < self._pause_until:
            return "it failed or asked for a pause a moment ago"
        return ""

    def p95(self, otherwise: float) -> float:
        """Seconds to its whole answer, as measured here; `otherwise` while that is too little to tell."""
        return sorted(self._took)[len(self._took) * 95 // 100] if len(self._took) >= ENOUGH else otherwise

    def took(self, seconds: float) -> None:
        """It was asked so long ago, and its whole answer is here; a first token would say nothing of that."""
        self._took.append(seconds)

    def judged(self, now: float, *, well: bool) -> None:
        """Its breaker: what fails again and again is not asked by every request in turn."""
        self._failed = 0 if well else self._failed + 1
        if self._failed >= self._config.failures:
            self._failed = 0
            self._pause(now + self._config.break_seconds)

    def too_many(self, now: float, retry_after_seconds: float | None) -> None:
        """It answered with a 429."""
        self._pause(now + (retry_after_seconds or self._config.pause_seconds))

    def _pause(self, until: float) -> None:
        """A shorter one ends none that it asked for."""
        self._pause_until = max(self._pause_until, until)
