"""What a request will take: learned on this box, and decaying, so that another card or model is soon known. Pure."""

import math
from collections import deque
from dataclasses import dataclass
from operator import mul

from lane.config import Config

# Until something was measured: an L4 of the fleet, and answers of 9.4 to 13.9 s at it.
PRIOR_TOKEN_SECONDS = 1 / 15
PRIOR_PROMPT_SECONDS = 0.0005  # a token of the prompt
PRIOR_TOKENS = 150
PRIOR_SPREAD = 0.25  # of the logarithm of a length
PRIOR_WEIGHT = 3.0  # measurements that the prior counts as
LEAST_PROMPT_TOKENS = 100  # a shorter prompt takes no less: what every request costs the engine
FAR = 4.0  # times the longest prompt that was read here: beyond it no pace of short ones is believed
SLOW = 20.0  # times the prior: a pace that a longer prompt surely has
ODD = 2.0  # times what was expected: what one prompt takes beyond it is an engine that idled for hours, or a load
KEPT = 0.95  # of every older measurement's weight: half is forgotten after 14 answers
REMEMBERED = 200  # lengths
ENOUGH = 30  # lengths seen: what was drawn around the first of them is forgotten
QUANTILES = (-1.6, -1.0, -0.6, -0.3, 0.0, 0.3, 0.6, 1.0, 1.6)  # of a normal distribution
Z95 = 1.645


@dataclass(frozen=True)
class Span:
    """Seconds that are not known yet: their mean and variance."""

    mean: float = 0.0
    variance: float = 0.0

    def __add__(self, other: "Span") -> "Span":
        return Span(self.mean + other.mean, self.variance + other.variance)

    def minus(self, seconds: float) -> "Span":
        """What is left after so long; never nothing that could be negative."""
        return Span(max(0.0, self.mean - seconds), self.variance)

    @property
    def p95(self) -> float:
        """In 19 of 20 cases it is no longer than this."""
        return self.mean + Z95 * math.sqrt(self.variance)


class Rate:
    """Seconds for one of something: a decaying ratio of sums, so that long samples count for more."""

    def __init__(self, prior: float, weight: float) -> None:
        self._seconds, self._count = prior * weight, weight

    def learn(self, seconds: float, count: float) -> None:
        """So long for so many."""
        if count > 0 and 0 <= seconds < math.inf:
            self._seconds, self._count = self._seconds * KEPT + seconds, self._count * KEPT + count

    @property
    def seconds(self) -> float:
        """For one."""
        return self._seconds / self._count


class Estimates:
    """Rates and lengths of one box."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._token = Rate(PRIOR_TOKEN_SECONDS, PRIOR_WEIGHT)
        self._prompt = Rate(PRIOR_PROMPT_SECONDS, PRIOR_WEIGHT)
        self._lengths: deque[int] = deque(_drawn(PRIOR_TOKENS), maxlen=REMEMBERED)
        self._own = 0
        self._longest = LEAST_PROMPT_TOKENS
        self._left: dict[tuple[int, int], tuple[float, float]] = {}  # by limit and decoded, until a length is learned

    @property
    def token_seconds(self) -> float:
        """From one token to the next."""
        return self._token.seconds

    def answered(self, *, prompt_tokens: int, prompt_seconds: float, tokens: int, token_seconds: float) -> None:
        """One whole answer: its prompt took so long, its tokens after the first so long together."""
        counted = max(LEAST_PROMPT_TOKENS, prompt_tokens)
        most = ODD * counted * max(self._prompt.seconds, PRIOR_PROMPT_SECONDS)  # a slower card is known soon
        self._prompt.learn(min(prompt_seconds, most), counted)
        if prompt_seconds <= most:  # else its pace is not known yet
            self._longest = max(self._longest, counted)
        if tokens > 1:
            self._token.learn(token_seconds, tokens - 1)

    def length(self, tokens: int) -> None:
        """An answer ended by itself after so many."""
        if not self._own:
            self._lengths = deque(_drawn(tokens), maxlen=REMEMBERED)
        self._own += 1
        if self._own == ENOUGH:
            for _ in QUANTILES:
                self._lengths.popleft()
        self._lengths.append(tokens)
        self._left.clear()

    def prompt(self, tokens: int) -> Span:
        """Seconds for a prompt."""
        seconds = self._prompt.seconds * max(LEAST_PROMPT_TOKENS, tokens)
        return Span(seconds, (0.2 * seconds) ** 2)

    def unmeasured(self, tokens: int) -> float:
        """Seconds that a prompt may take since none nearly as long was read here; 0: one was."""
        return SLOW * PRIOR_PROMPT_SECONDS * tokens if tokens > FAR * self._longest else 0.0

    def tokens_left(self, limit: int, decoded: int) -> tuple[float, float]:
        """Mean and variance of what is still to come of an answer: of the lengths seen, those that are longer still."""
        asked = limit, decoded
        if asked not in self._left:
            self._left[asked] = self._tokens_left(limit, decoded)
        return self._left[asked]

    def _tokens_left(self, limit: int, decoded: int) -> tuple[float, float]:
        left = [(length if length < limit else limit) - decoded for length in self._lengths if length > decoded]
        if not left:  # longer than any: it may end at any moment, or at its limit
            half = max(0, limit - decoded) / 2
            half = min(half, max(self._lengths) / 2)
            return half, half * half / 3
        mean = sum(left) / len(left)
        return mean, max(0.0, sum(map(mul, left, left)) / len(left) - mean * mean)

    def answer(self, limit: int, decoded: int = 0) -> Span:
        """Seconds until its last token."""
        mean, variance = self.tokens_left(limit, decoded)
        each = self.token_seconds
        return Span(mean * each, variance * each * each)

    def slice_tokens(self) -> int:
        """What fits into a slice."""
        return max(1, int(self._config.slice_seconds / self.token_seconds))


def _drawn(median: int) -> list[int]:
    return [max(1, round(median * math.exp(PRIOR_SPREAD * z))) for z in QUANTILES]
