"""`make bench-policy`: all policies on the same markets, boots and seeds; a table of bounds, a picture of the fronts.

Rows are means over seeds; the ratio of two policies is taken per region, then averaged over regions.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import fmean, geometric_mean, quantiles

import click
from rich.console import Console
from rich.table import Table

from fleet.drills import contest, synthetic
from fleet.drills.contest import BASELINES, KNOBS, POLICIES, Outcome


@dataclass(frozen=True)
class Mean:
    """One policy in one region."""

    degraded_minutes: float
    cost_usd: float


class Results:
    """Outcomes of one market and behaviour, by policy and region."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self.outcomes = list(outcomes)
        self.regions = list(dict.fromkeys(o.task.region for o in self.outcomes))
        self.policies = list(dict.fromkeys(o.task.policy for o in self.outcomes))
        self.judged = [p for p in self.policies if p not in BASELINES and not p.startswith(KNOBS)]

    def mean(self, policy: str, region: str) -> Mean:
        chosen = [o for o in self.outcomes if o.task.policy == policy and o.task.region == region]
        return Mean(fmean(o.degraded_minutes for o in chosen), fmean(o.cost_usd for o in chosen))

    def ratios(self, policy: str, against: str) -> dict[str, Mean]:
        """Per region: degraded minutes and cost of `policy`, each in times of `against`."""
        found = {}
        for region in self.regions:
            one, other = self.mean(policy, region), self.mean(against, region)
            found[region] = Mean(one.degraded_minutes / other.degraded_minutes, one.cost_usd / other.cost_usd)
        return found

    def knob_front(self, region: str) -> list[tuple[float, float]]:
        """(cost, degraded minutes) of the fixed knobs that no other undercuts in both, dearest last."""
        front: list[tuple[float, float]] = []
        for cost, minutes in self.points(region, (p for p in self.policies if p.startswith(KNOBS))):
            if not front or minutes < front[-1][1]:
                front.append((cost, minutes))
        return front

    def points(self, region: str, policies: Iterable[str]) -> list[tuple[float, float]]:
        """(cost, degraded minutes) of each, dearest last."""
        means = [self.mean(policy, region) for policy in policies]
        return sorted((mean.cost_usd, mean.degraded_minutes) for mean in means)

    def against_knobs(self, policy: str) -> dict[str, float]:
        """Per region: degraded minutes in times of the fixed knobs' at the same cost; 0 where none is as cheap."""
        means = {region: self.mean(policy, region) for region in self.regions}
        return {
            region: mean.degraded_minutes / interpolated(self.knob_front(region), mean.cost_usd)
            for region, mean in means.items()
        }


def interpolated(front: Sequence[tuple[float, float]], cost: float) -> float:
    """Degraded minutes of the front at that cost, straight between its points. Infinite where it does not reach down to
    that cost; the dearest point's where money is left over.
    """
    if cost < front[0][0]:
        return inf
    for (left, high), (right, low) in pairwise(front):
        if left <= cost <= right:
            return high + (low - high) * (cost - left) / (right - left)
    return front[-1][1]


def table(title: str, results: Results) -> Table:
    """Means per region and policy, and the ratios to the two baselines as degraded minutes @ cost."""
    shown = Table("region", "policy", title=title, title_justify="left")
    for column in ("degraded min", "USD", "x alarm", "x fallback"):
        shown.add_column(column, justify="right")
    for region in results.regions:
        for policy in results.policies:
            mean = results.mean(policy, region)
            ratios = [results.ratios(policy, base)[region] for base in BASELINES if base in results.policies]
            compared = [f"{ratio.degraded_minutes:.2f} @ {ratio.cost_usd:.3f}" for ratio in ratios]
            shown.add_row(region, policy, f"{mean.degraded_minutes:.0f}", f"{mean.cost_usd:.0f}", *compared)
        shown.add_section()
    return shown


def verdicts(results: Results, policy: str) -> list[tuple[str, str, bool]]:
    """(bound, measured, whether it holds) for that policy."""
    alarm, fallback = results.ratios(policy, "alarm"), results.ratios(policy, "fallback")
    minutes = [ratio.degraded_minutes for ratio in alarm.values()]
    costs = [ratio.cost_usd for ratio in alarm.values()]
    found = [
        (
            "alarm: degraded minutes at most 0.5 (geometric mean), worst 0.6, at no higher cost",
            f"{geometric_mean(minutes):.2f}, worst {max(minutes):.2f}, cost {fmean(costs):.3f}, worst {max(costs):.3f}",
            geometric_mean(minutes) <= 0.5 and max(minutes) <= 0.6 and max(costs) <= 1,
        )
    ]
    minutes = [ratio.degraded_minutes for ratio in fallback.values()]
    costs = [ratio.cost_usd for ratio in fallback.values()]
    found.append(
        (
            "fallback: degraded minutes at most 0.65 at cost at most 1.06 (means)",
            f"{fmean(minutes):.2f} at {fmean(costs):.3f}, worst region {max(minutes):.2f} at {max(costs):.3f}",
            fmean(minutes) <= 0.65 and fmean(costs) <= 1.06,
        )
    )
    knobs = results.against_knobs(policy)
    found.append(
        (
            "fixed knobs: on or below their front in every region",
            ", ".join(f"{region} {f'{v:.2f}' if v else 'cheaper than any knob'}" for region, v in knobs.items()),
            all(value <= 1 for value in knobs.values()),
        )
    )
    chosen = [o for o in results.outcomes if o.task.policy == policy]
    late = sorted(seconds for o in chosen for seconds in o.late_seconds)
    early, missed = sum(o.early for o in chosen), sum(o.missed for o in chosen)
    answered, bridges = sum(o.answered for o in chosen), sum(o.bridges for o in chosen)
    spread = f"median {quantiles(late, n=100)[49]:.1f} s, worst {late[-1]:.1f} s" if len(late) > 1 else "no failover"
    found.append(
        (
            "decision at most 20 s after patience runs out, in every drought; none within patience",
            f"{len(late)} failovers: {spread}; early {early}, missed {missed}, "
            f"answered by the market within patience {answered}; moved before the loss of a box {bridges}",
            bool(late) and late[-1] <= 20 and not early and not missed,
        )
    )
    return found


def picture(results: Results, path: Path) -> None:
    """Cost against degraded minutes, one panel a region: the front of the fixed knobs, the baselines, ours."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(results.regions), figsize=(4.6 * len(results.regions), 4), squeeze=False)
    for panel, region in zip(panels[0], results.regions, strict=True):
        knobs = results.points(region, (p for p in results.policies if p.startswith(KNOBS)))
        panel.plot(*zip(*knobs, strict=True), "o-", color="0.6", label="fixed knobs, 10 min to 4 h")
        for policy in BASELINES:
            panel.plot(*results.points(region, [policy])[0], "D", label=policy)
        panel.plot(*zip(*results.points(region, results.judged), strict=True), "o-", label="bridge, bar 30 to 90 min")
        panel.plot(*results.points(region, ["bridge"])[0], "D", color="C2", label="bridge, the default bar")
        panel.set(title=region, xlabel="USD in 45 days", ylabel="degraded minutes in 45 days", ylim=(0, None))
        panel.grid(alpha=0.3)
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


@click.command()
@click.option("--seeds", default=20, show_default=True, help="How many, from --first-seed on.")
@click.option("--first-seed", default=101, show_default=True)
@click.option("--days", default=45.0, show_default=True)
@click.option("--jobs", default=2, show_default=True)
@click.option("--case", "cases", multiple=True, help="market/behaviour; repeatable. Default: all that the bounds name.")
@click.option("--policy", "policies", multiple=True, help="Repeatable. Default: all.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench-policy"), show_default=True)
@click.option("--resume", is_flag=True, help="Take what --out holds already as drilled: right while no policy changes.")
def main(
    seeds: int,
    first_seed: int,
    days: float,
    jobs: int,
    cases: tuple[str, ...],
    policies: tuple[str, ...],
    out: Path,
    *,
    resume: bool,
) -> None:
    """Print the table of all bounds; figures and raw outcomes go to --out."""
    console = Console()
    wanted = [tuple(case.split("/", 1)) for case in cases] or contest.default_cases()
    chosen: Mapping[str, object] = {name: POLICIES[name] for name in policies} or POLICIES
    for market, behaviour in wanted:
        tasks = contest.all_tasks(
            [(market, behaviour)], chosen, synthetic.regions(), range(first_seed, first_seed + seeds), days
        )
        name = f"{market}-{behaviour}".replace(" ", "-")
        known = contest.remembered(out / f"{name}.json") if resume else {}
        known |= {
            done.task: done for done in contest.run_all([task for task in tasks if task not in known], jobs, console)
        }
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.json").write_text(json.dumps([asdict(outcome) for outcome in known.values()]))
        if not {policy for policy in POLICIES if not policy.startswith("bridge ")} <= set(chosen):
            continue  # nothing to compare yet
        results = Results(known[task] for task in tasks)
        title = f"{market} markets, {behaviour}, {seeds} seeds from {first_seed}, {days:g} days"
        console.print(table(title, results))
        picture(results, out / f"{name}.svg")
        for policy in results.judged:
            for bound, measured, holds in verdicts(results, policy):
                console.print(
                    f"{'holds ' if holds else 'BROKEN'} {policy}: {bound}\n       {measured}", highlight=False
                )


if __name__ == "__main__":
    main()
