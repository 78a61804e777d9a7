"""Whether the fleet is worth having: dollars a month and the GPU's share over the rate, beside the cloud model alone.

Pure but for `steady`, which lets callers live before boxes that always serve.
"""

import math
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fleet.config import cards, prices
from fleet.config.gateway_settings import Gateway
from fleet.config.settings import Settings
from fleet.eventlog.events import Event
from fleet.sim.callers.listener import ASSUMED, Callers, Plan
from fleet.sim.callers.tally import GPU
from fleet.sim.callers.traffic import Traffic

LOADS = (0.1, 0.3, 0.5, 0.7, 0.85, 1.0, 1.25, 1.6, 2.2, 3.0, 5.0)  # of what the boxes can do
REQUESTS = 500  # for each
FACTORS = (0.5, 2.0)  # by which an input is turned, to see what moves the answer
MOST_RATE = 10_000_000.0  # requests a day
MONDAY = datetime(2026, 6, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Curve:
    """The share that the GPU answers while the fleet is whole, by requests an hour; between two points in a line."""

    points: tuple[tuple[float, float], ...]  # rate and share, by rate

    def answered(self, rate: float) -> float:
        """Requests an hour that it answers of so many."""
        rates = [each for each, _ in self.points]
        place = bisect(rates, rate)
        if place == 0:
            return rate * self.points[0][1]
        low, share = self.points[place - 1]
        if place == len(rates):  # more than it was asked: no more answers
            return low * share
        high, other = self.points[place]
        return low * share + (high * other - low * share) * (rate - low) / (high - low)

    def share(self, traffic: Traffic) -> float:
        """Of a week's requests: each hour has its own rate."""
        hours = {traffic.a_day / 24 * weight: many for weight, many in traffic.weights.items()}
        return sum(many * self.answered(rate) for rate, many in hours.items()) / (traffic.a_day * 7)


@dataclass(frozen=True)
class Option:
    """One way to run the fleet. `boxes_usd_day`: of box hours.

    `serving`: the share of the time in which none, one, two, ... boxes serve; `curves`: what one, two, ... answer.
    """

    name: str
    boxes: int
    boxes_usd_day: float
    serving: tuple[float, ...]
    curves: tuple[Curve, ...]

    def gpu_share(self, traffic: Traffic) -> float:
        """Of all requests."""
        return sum(time * curve.share(traffic) for time, curve in zip(self.serving[1:], self.curves, strict=True))

    def most(self) -> float:
        """Requests an hour that its GPUs answer at the most."""
        return sum(time * curve.answered(MOST_RATE) for time, curve in zip(self.serving[1:], self.curves, strict=True))

    def fixed_month(self) -> float:
        """USD that it costs without a request."""
        beside = prices.month(prices.FLEET) + prices.month(prices.GATEWAY) + self.boxes * prices.month(prices.PER_BOX)
        return self.boxes_usd_day * prices.DAYS + beside

    def month(self, traffic: Traffic, answer_usd: float) -> float:
        """USD a month; what the GPU does not answer is paid for at the cloud model."""
        requests = traffic.a_day * prices.DAYS
        cloud = (1 - self.gpu_share(traffic)) * answer_usd
        return self.fixed_month() + requests * (prices.REQUEST_USD + cloud)


def answer_usd(traffic: Traffic, gateway: Gateway) -> float:
    """What the cloud model asks for one answer, prompts and answers as they are on average."""
    tokens = traffic.tokens * math.exp(traffic.spread**2 / 2)
    cloud = gateway.fallback
    return (traffic.prompt_tokens * cloud.dollars_per_million_input + tokens * cloud.dollars_per_million_output) / 1e6


def cloud_alone(traffic: Traffic, answer_usd: float) -> float:
    """USD a month: its tokens, and nothing else."""
    return traffic.a_day * prices.DAYS * answer_usd


def times_dearer(option: Option, traffic: Traffic, answer_usd: float) -> float:
    """How many times dearer the cloud model had to be for both to cost the same; below 1 the fleet is cheaper."""
    requests = traffic.a_day * prices.DAYS
    saved = requests * option.gpu_share(traffic) * answer_usd
    return (option.fixed_month() + requests * prices.REQUEST_USD) / saved if saved else math.inf


def break_even(option: Option, traffic: Traffic, answer_usd: float) -> float | None:
    """The least requests a day at which the fleet costs no more than the cloud alone; None: at none."""

    def dearer(rate: float) -> bool:
        return times_dearer(option, replace(traffic, a_day=rate), answer_usd) > 1

    rates = [10 ** (step / 20) for step in range(20 * round(math.log10(MOST_RATE)) + 1)]
    high = next((rate for rate in rates if not dearer(rate)), None)
    if high is None:
        return None
    low = high / 10 ** (1 / 20)
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if dearer(middle) else (low, middle)
    return high


def without_caps(settings: Settings) -> Settings:
    """The same gateway, whose tiers and daily dollars bind nobody: what is asked is what answers cost."""
    gateway = settings.gateway or ASSUMED
    free = {"requests_per_day": 10**9, "fallbacks_per_day": 10**9, "parallel": 10**9}
    tiers: dict[str, Any] = {name: replace(tier, **free) for name, tier in vars(gateway.tiers).items()}
    fallback = replace(gateway.fallback, url="https://cloud", dollars_per_day=1e9, concurrency=10**9)
    return replace(settings, gateway=replace(gateway, tiers=replace(gateway.tiers, **tiers), fallback=fallback))


def steady(traffic: Traffic, settings: Settings, instance_type: str, boxes: int) -> Curve:
    """What so many boxes that always serve answer of the traffic, at rates up to five times what they can do."""
    card = cards.card_of(instance_type)
    tokens = traffic.tokens * math.exp(traffic.spread**2 / 2)
    seconds = traffic.prompt_tokens * card.prompt_token_seconds + tokens * card.token_seconds
    points = []
    for load in LOADS:
        rate = load * boxes * 3600 / seconds
        flat = replace(traffic, shape="flat", a_day=rate * 24)
        callers = Callers(Plan(flat), without_caps(settings))
        for event in always(boxes, instance_type, REQUESTS / rate * 3600):
            callers.add(event)
        points.append((rate, callers.tally.share(GPU)))
    return Curve(tuple(points))


def always(boxes: int, instance_type: str, seconds: float) -> Iterator[Event]:
    """The log of so many boxes that always serve."""
    whole = {"name": "steady", "desired": boxes}
    yield Event(MONDAY, "start", whole)
    for number in range(boxes):
        launched = {"box": str(number), "purchase": "spot", "pool": instance_type, "usd_per_hour": 0.0}
        yield Event(MONDAY, "box.launched", launched)
        yield Event(MONDAY, "box.serving", {"box": str(number)})
    yield Event(MONDAY + timedelta(seconds=seconds), "end", whole)


@dataclass(frozen=True)
class Moved:
    """An input, and how many times dearer the cloud would have to be with half and with twice of it."""

    what: str
    halved: float
    doubled: float

    @property
    def reach(self) -> float:
        """How far the answer goes."""
        return max(self.halved, self.doubled) / min(self.halved, self.doubled)


def movers(option: Option, traffic: Traffic, gateway: Gateway) -> Sequence[Moved]:
    """What moves the answer, the most first. Of longer answers it is left out that a box gives fewer of them."""
    turned = {
        "requests a day": lambda by: (option, replace(traffic, a_day=traffic.a_day * by), 1.0),
        "dollars of a box's hour": lambda by: (replace(option, boxes_usd_day=option.boxes_usd_day * by), traffic, 1.0),
        "the cloud model's price": lambda by: (option, traffic, by),
        "tokens of a prompt": lambda by: (option, _longer(traffic, prompt=by), 1.0),
        "tokens of an answer": lambda by: (option, _longer(traffic, answer=by), 1.0),
    }
    found = []
    for what, turn in turned.items():
        halved, doubled = (
            times_dearer(its, wishes, factor * answer_usd(wishes, gateway))
            for its, wishes, factor in map(turn, FACTORS)
        )
        found.append(Moved(what, halved, doubled))
    return sorted(found, key=lambda moved: -moved.reach)


def _longer(traffic: Traffic, *, prompt: float = 1.0, answer: float = 1.0) -> Traffic:
    tokens = max(1, round(traffic.tokens * answer))
    return replace(traffic, prompt_tokens=max(1, round(traffic.prompt_tokens * prompt)), tokens=tokens)
