"""Who asks, when, and for how much: drawn from a rate with the shape of a day and a week."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from fleet.config import cards
from fleet.config.section import Section, amount, number

DAY_SECONDS = 86400.0
# Assumed: an office's hours, UTC. The weight of each hour, and of a Saturday or Sunday beside a weekday.
HOURS = (1, 1, 1, 1, 1, 2, 4, 8, 14, 18, 20, 18, 15, 18, 20, 19, 17, 14, 10, 8, 6, 4, 3, 2)
WEEKEND = 0.4
MEAN = sum(HOURS) / 24 * (5 + 2 * WEEKEND) / 7
# Each hour's weight beside the mean, from the epoch on, which was a Thursday.
WEEK = tuple(hour * (WEEKEND if day in {2, 3} else 1.0) / MEAN for day in range(7) for hour in HOURS)
Tier = Literal["anonymous", "free", "pro"]
MOST_TOKENS = 1_048_576


@dataclass(slots=True)
class Asked:
    """One request as its caller sends it. `at` in epoch seconds."""

    at: float
    caller: str = "1"
    tier: Tier = "pro"
    kind: Literal["interactive", "background"] = "interactive"
    stream: bool = True
    prompt_tokens: int = number(cards.PROMPT_TOKENS, ge=1, le=MOST_TOKENS, why="of the prompt")
    tokens: int = number(cards.ANSWER_TOKENS, ge=1, le=MOST_TOKENS, why="that an answer to it has")
    limit: int | None = field(default=None, metadata={"ge": 1, "le": MOST_TOKENS, "why": "the gateway's default"})


def share(default: float, why: str) -> float:
    """A part of all requests."""
    value: float = field(default=default, metadata={"ge": 0, "le": 1, "why": why})
    return value


@dataclass(frozen=True, kw_only=True)
class Traffic(Section):
    """What is drawn. Lengths are those of the fleet, unless they are given."""

    a_day: float = amount(300, le=1_000_000, why="requests, the mean over a week")
    at_once: int = number(1, ge=1, le=1000, why="requests that come in the same moment")
    keys: int = number(30, ge=1, le=100_000, why="callers, who ask alike often")
    tier: Tier = field(default="pro", metadata={"allowed": "anonymous, free or pro", "why": "of all keys"})
    streams: float = share(0.5, "of the requests, the others wait for the whole")
    background: float = share(0.0, "of the requests, for whose answer nobody waits")
    shape: Literal["week", "flat"] = field(
        default="week", metadata={"allowed": "week or flat", "why": "office hours, assumed"}
    )
    prompt_tokens: int = number(cards.PROMPT_TOKENS, ge=1, le=MOST_TOKENS, why="0.21 s of prompt on a primed box")
    tokens: int = number(cards.ANSWER_TOKENS, ge=1, le=131_072, why="of an answer, the median: 9.4 s of an A10G")
    spread: float = field(
        default=cards.SPREAD, metadata={"ge": 0, "le": 2, "why": "of their logarithm: a p95 of 13.5 s of an A10G"}
    )

    @property
    def weights(self) -> Counter[float]:
        """How many hours of a week have which rate, beside the mean."""
        return Counter(WEEK) if self.shape == "week" else Counter({1.0: len(WEEK)})

    def drawn(self, start: float, seed: int) -> Iterator[Asked]:
        """Requests from `start` on, without an end; the same seed, the same requests."""
        draw = Random(f"{seed}/callers")  # noqa: S311  a simulation, no secret
        weekly = self.shape != "flat"
        most = max(WEEK) if weekly else 1.0
        rate, at = self.a_day / DAY_SECONDS / self.at_once * most, start
        while True:
            at += draw.expovariate(rate)
            if weekly and draw.random() * most > WEEK[int(at / 3600) % len(WEEK)]:
                continue
            first = draw.randrange(self.keys)
            for nth in range(self.at_once):
                yield Asked(
                    at,
                    caller=str((first + nth) % self.keys),
                    tier=self.tier,
                    kind="background" if draw.random() < self.background else "interactive",
                    stream=draw.random() < self.streams,
                    prompt_tokens=self.prompt_tokens,
                    tokens=max(1, round(self.tokens * draw.lognormvariate(0, self.spread))),
                )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the page says of them."""
        mean = self.tokens * math.exp(self.spread**2 / 2)
        shape = "office hours in UTC, weekends at 40 % (assumed)" if self.shape == "week" else "the same at every hour"
        once = f", {self.at_once} at once" if self.at_once > 1 else ""
        return (
            f"{self.a_day:g} requests a day{once}, {shape}, from {self.keys} callers of the {self.tier} tier; "
            f"{self.streams:.0%} stream, {self.background:.0%} are background",
            f"Prompts of {self.prompt_tokens} tokens, answers of {self.tokens} (median; mean {mean:.0f}): "
            f"{cards.A10G.name} {cards.A10G.answer_seconds} s, {cards.L4.name} {cards.L4.answer_seconds} s for one of "
            f"{cards.ANSWER_TOKENS}, alone; the seconds are measured, the tokens are not",
        )


def day_of(at: float) -> str:
    """The UTC day that caps and spend count by."""
    return str(int(at // DAY_SECONDS))
