"""`make bench-callers`: what callers add to 45 simulated days, in seconds and memory; their waits beside theory.

And what `worth` reckons from curves, beside market and callers lived through together.
"""

import resource
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

import click

from fleet.config import cards
from fleet.config.gateway_settings import Budgets
from fleet.config.settings import Settings
from fleet.sim.callers import worth
from fleet.sim.callers.listener import Callers, Plan
from fleet.sim.callers.tally import GPU
from fleet.sim.callers.traffic import Asked, Traffic
from fleet.sim.drills import scene
from fleet.sim.drills.drill import default_settings
from fleet.sim.experiments import worth_ways
from fleet.sim.experiments.bench import best_seconds
from fleet.sim.experiments.experiment import Job

DAYS, RATES = 45, (300, 600, 1200, 2400)
BUDGET_SECONDS, BUDGET_MB, BUDGET_SHARE = 2.0, 60.0, 0.03
MANY = 100_000
LOADS = (0.3, 0.6, 0.8)
TOGETHER, TOGETHER_DAYS, SEEDS = (300, 1000, 3000), 15, 3
TRIES = 2
ENDLESS = Budgets(first_token_seconds=1e9, whole_seconds=1e9, wall_seconds=2e9)


def seconds(callers: Plan | None, policy: str = "alarm") -> float:
    """Of one core, for the drill."""
    job = Job(scene.named(["us-east-2"], days=DAYS), policy, 0, default_settings(), callers=callers)
    return best_seconds(job.run, TRIES)


def memory() -> float:
    """MB that so many requests add, at the most."""
    settings = worth.without_caps(default_settings())
    traffic = Traffic(a_day=3000, shape="flat")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _live(Plan(traffic), settings, MANY / traffic.a_day * 86400)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def _live(plan: Plan, settings: Settings, length: float) -> Callers:
    callers = Callers(plan, settings)
    for event in worth.always(1, "g5.xlarge", length):
        callers.add(event)
    return callers


def waits(load: float, *, constant: bool) -> tuple[float, float]:
    """The mean wait of so many requests before one box, and what Pollaczek and Khinchine say of it. Seconds."""
    settings = worth.without_caps(default_settings())
    assert settings.gateway is not None  # noqa: S101  it was given one
    settings = replace(settings, gateway=replace(settings.gateway, budgets=ENDLESS))
    card, spread = cards.A10G, 0.0 if constant else cards.SPREAD
    mean = fmean(each for _, each in zip(range(MANY), _services(Traffic(spread=spread)), strict=False))
    traffic = Traffic(a_day=load / mean * 86400, shape="flat", streams=1.0, spread=spread)
    taken = list[float]()

    def counted() -> Iterator[Asked]:
        for asked in traffic.drawn(worth.MONDAY.timestamp(), 0):
            taken.append(cards.PROMPT_SECONDS + asked.tokens * card.token_seconds)
            yield replace(asked)

    wishes = tuple(asked for _, asked in zip(range(MANY), counted(), strict=False))
    tally = _live(Plan(recorded=wishes), settings, wishes[-1].at - worth.MONDAY.timestamp() + 1).tally
    rate = MANY / (wishes[-1].at - worth.MONDAY.timestamp())
    theory = rate * fmean(each * each for each in taken) / (2 * (1 - rate * fmean(taken)))
    return fmean(tally.first) - cards.PROMPT_SECONDS - card.token_seconds, theory


def _services(traffic: Traffic) -> Iterator[float]:
    for asked in traffic.drawn(0.0, 0):
        yield cards.PROMPT_SECONDS + asked.tokens * cards.A10G.token_seconds


def shares() -> Iterator[str]:
    """The GPU's share as `worth` has it, and with market and callers lived through as one."""
    settings, traffic = default_settings(), Traffic()
    options = worth_ways.options(settings, traffic, TOGETHER_DAYS, SEEDS)
    for way, option in zip(worth_ways.ways(settings), options, strict=True):
        for rate in TOGETHER:
            asked = replace(traffic, a_day=rate)
            here = worth_ways.together(way, asked, TOGETHER_DAYS, SEEDS).share(GPU)
            yield f"{way.name}, {rate} a day: {here:.1%} by the GPU together, {option.gpu_share(asked):.1%} by curves"


@click.command()
def main() -> None:
    """Print them, each beside its budget."""
    click.echo(f"{MANY} requests: {memory():.0f} MB (budget {BUDGET_MB:g})")
    without = seconds(None)
    for rate in RATES:
        more = seconds(Plan(Traffic(a_day=rate))) - without
        budget = f" (budget {BUDGET_SECONDS:g})" if rate == RATES[0] else ""
        each = f"{more / rate / DAYS * 1e6:.0f} microseconds a request"
        click.echo(f"{DAYS} days at {rate} a day: {more:.2f} s more than {without:.2f} s{budget}, {each}")
    for constant in (True, False):
        for load in LOADS:
            here, theory = waits(load, constant=constant)
            told = f"load {load}, {'constant' if constant else 'drawn'} lengths"
            click.echo(
                f"{told}: {here:.2f} s, theory {theory:.2f} s ({here / theory - 1:+.1%}, budget {BUDGET_SHARE:.0%})"
            )
    for line in shares():
        click.echo(line)


if __name__ == "__main__":
    main()
