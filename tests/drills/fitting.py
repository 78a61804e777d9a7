"""What synthetic markets show, and the fit of their parameters to the published figures.

`python -m tests.drills.fitting` writes them to fleet/sim/traces/fitted.json.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.sim.experiments.experiment import quantile
from fleet.sim.markets import synthetic
from fleet.sim.markets.durations import GAP_SECONDS
from fleet.sim.markets.synthetic import DAY_SECONDS, START

ROUNDS, DAYS = 40, 1500.0  # of the fit


@dataclass(frozen=True)
class Observed:
    """What a history of availability shows: the published figures of one zone, or of any zone of a region."""

    available_share: float
    transitions_per_day: float
    up_minutes: tuple[float, ...]
    down_minutes: tuple[float, ...]

    def quantile(self, which: str, share: float) -> float:
        return quantile(self.up_minutes if which == "up" else self.down_minutes, share)


def observe(changes: Iterator[tuple[float, bool]], end: float) -> Observed:
    """Figures of a history; its first and last time are cut off and so left out of the lengths."""
    times: list[tuple[float, bool]] = []
    up_seconds, previous, first = 0.0, None, 0.0
    for at, up in [*changes, (end, False)]:
        if previous is None:
            first = at
        else:
            since, was_up = previous
            up_seconds += (at - since) if was_up else 0.0
            times.append((at - since, was_up))
        previous = (at, up)
    days = (end - first) / DAY_SECONDS
    inner = times[1:-1]
    return Observed(
        up_seconds / (end - first),
        (len(times) - 1) / days,
        tuple(seconds / 60 for seconds, up in inner if up),
        tuple(seconds / 60 for seconds, up in inner if not up),
    )


def observed(region: synthetic.Region, seed: int, days: float) -> dict[str, Observed]:
    """Figures of a synthetic region as a history of it would show them (before notices), and of "any" of its zones."""
    end = START + days * DAY_SECONDS
    histories = {}
    for zone, own in region.zones.items():
        common = region.common.changes(synthetic._stream(seed, region.name, "common"), START, end)
        histories[zone] = list(
            synthetic.both(common, own.changes(synthetic._stream(seed, region.name, zone), START, end))
        )
    steps = sorted((at, zone, up) for zone, changes in histories.items() for at, up in changes)
    figures = {zone: observe(iter(changes), end) for zone, changes in histories.items()}
    figures["any"] = observe(_any(steps), end)
    return figures


def _any(steps: list[tuple[float, str, bool]]) -> Iterator[tuple[float, bool]]:
    up: Counter[str] = Counter()
    last: bool | None = None
    for i, (at, zone, is_up) in enumerate(steps):
        up[zone] = is_up
        if i + 1 < len(steps) and steps[i + 1][0] == at:
            continue
        if (up.total() > 0) != last:
            last = up.total() > 0
            yield at, last


def fit(name: str) -> dict[str, list[float]]:
    """Means (minutes up, minutes down) of the parts, so that the whole shows the published shares and transitions."""
    figures = synthetic.statistics()
    zones = [zone for zone in figures if zone[:-1] == name]
    any_zone = figures[f"{name} (any zone)"]
    share, cycle = 1 - (1 - any_zone["available_share"]) * 0.9, 45 * 1440 / any_zone["outages"]
    parts = {"common": (share, cycle)}  # share up, minutes of a cycle
    for zone in zones:
        own = min(0.985, figures[zone]["available_share"] / share)
        parts[zone] = (own, 2880 / figures[zone]["transitions_per_day"])
    for number in range(ROUNDS):
        means = {part: [share * cycle, (1 - share) * cycle] for part, (share, cycle) in parts.items()}
        shown = observed(synthetic._region(name, means), number, DAYS)
        gain = 0.5 if number < ROUNDS // 2 else 0.2
        for part, (share, cycle) in parts.items():
            figure = shown["any" if part == "common" else part]
            if part == "common":
                wanted_share, wanted_cycle = any_zone["available_share"], 45 * 1440 / any_zone["outages"]
            else:
                wanted_share = figures[part]["available_share"]
                wanted_cycle = 2880 / figures[part]["transitions_per_day"]
            odds = _odds(share) * (_odds(wanted_share) / _odds(figure.available_share)) ** gain
            cycle *= (wanted_cycle / (2880 / figure.transitions_per_day)) ** gain
            parts[part] = (min(odds / (1 + odds), 0.995), min(max(cycle, 4 * GAP_SECONDS / 60), 20000.0))
    return {part: [round(share * cycle, 1), round((1 - share) * cycle, 1)] for part, (share, cycle) in parts.items()}


def _odds(share: float) -> float:
    return share / (1 - share)


if __name__ == "__main__":
    fitted = {name: fit(name) for name in synthetic.regions()}
    (synthetic.FOLDER / "fitted.json").write_text(json.dumps(fitted, indent=1) + "\n")
