"""Fallback: who is asked next, from what has failed so far. Pure: a Situation in, a Step out.

The order: the GPU; once more where that may help; the cloud; back into the GPU's line for what is left of the budget;
then the truth. Only for what another target can mend, only before the first token, never from cloud to cloud.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.config.gateway_settings import Budgets, Retries

FRESH_PAUSE_SECONDS = 0.25  # between two fresh connections
LINE_PAUSE_SECONDS = 0.15  # between two tries of a request that is back in the line: no GPU idles for longer beside it
DEFAULT_RETRY_AFTER_SECONDS = 30
RETRY_AFTER_HONOURED_SECONDS = 120  # SDKs that are told to wait longer give up
# These fail the same anywhere, or are the caller's own affair.
FAILS_ANYWHERE = frozenset({400, 401, 403, 405, 409, 411, 413, 414, 415, 422, 451})
BAD_REQUEST, TIMED_OUT, TOO_MANY, SERVER_ERROR, UNAVAILABLE = 400, 408, 429, 500, 503


class Tier(StrEnum):
    """Who is asked."""

    GPU = "gpu"
    CLOUD = "fallback"


class Kind(StrEnum):
    """How a target failed."""

    REFUSED = "refused"  # no connection
    RESET = "reset"  # lost before the answer began
    SILENT = "silent"  # nothing in time
    STATUS = "status"  # an error of the target's own
    BUSY = "busy"  # a lane's estimate is beyond the budget
    BROKEN = "broken"  # an answer that began and is none: cut, malformed, an error under status 200
    LIMIT = "limit"  # the caller's allowance or the day's dollars are used up


@dataclass(frozen=True)
class Failure:
    """One attempt that came to nothing. `at` is seconds since the request arrived."""

    tier: Tier
    kind: Kind
    at: float
    status: int = 0
    retry_after_seconds: float | None = None
    box: str = ""
    message: str = ""
    code: str = ""

    @property
    def word(self) -> str:
        """For log and ledger: never the target's own words, which may repeat a prompt."""
        return f"{self.kind} {self.status}" if self.status else str(self.kind)

    @property
    def was_sent(self) -> bool:
        """Whether a target may have worked on it."""
        return self.kind not in {Kind.REFUSED, Kind.LIMIT}

    @property
    def never_taken(self) -> bool:
        """Whether the cloud takes no such request, now or later: a key, a model or a field that it does not know."""
        told = self.tier is Tier.CLOUD and BAD_REQUEST <= self.status < SERVER_ERROR
        return told and self.status not in {TIMED_OUT, TOO_MANY}


@dataclass(frozen=True)
class Situation:
    """One request before its first token. Times in seconds since it arrived."""

    elapsed: float
    budget: float  # by when the GPU must have answered
    failures: tuple[Failure, ...] = ()
    gpu: str = ""  # why the GPU is not asked now; empty: it may be
    cloud: str = ""  # why the cloud may not be asked; empty: it may
    gpu_back_in: float | None = None  # while no box takes connections: until a box should serve again
    retries: Retries = field(default_factory=Retries)
    once: bool = False  # not to be sent a second time once a target may have worked on it


@dataclass(frozen=True)
class AskTarget:
    """Ask a target after a pause; `fresh`: over a new connection, so that the balancer chooses anew."""

    tier: Tier
    after_seconds: float = 0.0
    fresh: bool = False


@dataclass(frozen=True)
class Wait:
    """Nobody can be asked now; look again."""

    seconds: float


@dataclass(frozen=True)
class PassOn:
    """The caller gets the target's own answer."""

    failure: Failure


@dataclass(frozen=True)
class Refuse:
    """Nobody could answer in time."""

    retry_after_seconds: int
    why: str


Step = AskTarget | Wait | PassOn | Refuse


def next_step(now: Situation) -> Step:
    """What to do next."""
    last = now.failures[-1] if now.failures else None
    if last and last.tier is Tier.GPU and last.status in FAILS_ANYWHERE:
        return PassOn(last)
    if last and now.once and last.was_sent:
        return _refuse(now, "it may have had effects already, and its caller wants it sent once")
    asked_cloud = any(failure.tier is Tier.CLOUD for failure in now.failures)
    if not asked_cloud:
        again = _gpu_again(now, last)
        if again:
            return again
        if not now.cloud:
            return AskTarget(Tier.CLOUD)
    return _back_in_line(now)


def _gpu_again(now: Situation, last: Failure | None) -> AskTarget | None:
    """The GPU, first or once more; None: another must answer."""
    if now.gpu or now.elapsed >= now.budget:
        return None
    if last is None:
        return AskTarget(Tier.GPU)
    same = [failure for failure in now.failures if failure.kind is last.kind]
    if last.kind is Kind.REFUSED:
        return None if all_refused(now.failures, now.retries) else AskTarget(Tier.GPU, FRESH_PAUSE_SECONDS, True)
    if last.kind is Kind.BUSY:
        boxes = [failure.box for failure in same]
        new = last.box and len(set(boxes)) == len(boxes) < now.retries.boxes
        return AskTarget(Tier.GPU, fresh=True) if new else None
    if last.kind is Kind.RESET or last.status == SERVER_ERROR:
        crashes = [failure for failure in now.failures if failure.kind is Kind.RESET or failure.status == SERVER_ERROR]
        return AskTarget(Tier.GPU, fresh=True) if len(crashes) == 1 else None
    if last.status in {TOO_MANY, UNAVAILABLE} and last.retry_after_seconds is not None:
        polite = [failure for failure in same if failure.status in {TOO_MANY, UNAVAILABLE}]
        wait = last.retry_after_seconds
        fits = wait <= now.retries.retry_after_seconds and now.elapsed + wait < now.budget
        return AskTarget(Tier.GPU, wait) if fits and len(polite) == 1 else None
    return None


def all_refused(failures: Sequence[Failure], retries: Retries) -> bool:
    """Whether every fresh connection that a request has was refused, one after the other: no box takes any.

    Where nobody even refuses, each lasts until it is given up, and there is no time for a third.
    """
    asked = (failure for failure in reversed(failures) if failure.tier is Tier.GPU)
    at = [failure.at for failure in itertools.takewhile(lambda failure: failure.kind is Kind.REFUSED, asked)]
    over = bool(at) and at[0] - at[-1] + FRESH_PAUSE_SECONDS > retries.fresh_seconds
    return over or len(at) >= retries.fresh_connections


def _back_in_line(now: Situation) -> Step:
    """The GPU's line again, with the age of the request's arrival, for what is left of its budget; then the truth."""
    if now.elapsed + LINE_PAUSE_SECONDS >= now.budget:
        return _refuse(now, _what_failed(now))
    if now.gpu:
        if (now.gpu_back_in or 0.0) > now.budget - now.elapsed and any(each.never_taken for each in now.failures):
            return _refuse(now, _what_failed(now))  # neither can in time, whatever is waited for
        return Wait(LINE_PAUSE_SECONDS)
    return AskTarget(Tier.GPU, LINE_PAUSE_SECONDS if now.failures else 0.0, True)


def _refuse(now: Situation, why: str) -> Refuse:
    asked = [failure.retry_after_seconds for failure in now.failures if failure.retry_after_seconds]
    when = min([*asked, *([now.gpu_back_in] if now.gpu_back_in else [])], default=DEFAULT_RETRY_AFTER_SECONDS)
    return Refuse(min(math.ceil(when), RETRY_AFTER_HONOURED_SECONDS), why)


def _what_failed(now: Situation) -> str:
    last = {failure.tier: failure for failure in now.failures}
    gpu = last[Tier.GPU].message if Tier.GPU in last else now.gpu
    cloud = last[Tier.CLOUD].message if Tier.CLOUD in last else now.cloud
    return f"the GPU: {gpu or 'no answer in time'}; the fallback: {cloud or 'not asked'}"


def local_budget(stream: bool, budgets: Budgets, fallback_p95: float) -> float:
    """By when the GPU must have begun (streaming) or ended (not), so that the fallback still fits below the wall."""
    if stream:
        return budgets.first_token_seconds
    return min(budgets.whole_seconds, max(0.0, budgets.wall_seconds - fallback_p95))


def cloud_budget(elapsed: float, stream: bool, budgets: Budgets) -> float:
    """By when the fallback must have begun or ended, seconds since the request arrived."""
    if stream:
        return elapsed + budgets.fallback_first_token_seconds
    return budgets.wall_seconds
