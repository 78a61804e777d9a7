"""Seeded synthetic markets, shaped by the published statistics of a region: zones of their own, and outages in common.

A zone sells while it is up itself and its region has no common outage; that is what correlates pools. `fit` finds the
parameters whose markets have the published shares and transitions; they are kept in `markets/fitted.json`.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from fleet.core import names
from fleet.core.errors import UserError
from fleet.sim.markets.durations import GAP_SECONDS, Renewal, from_quantiles
from fleet.sim.markets.market import PLENTY, Market, Step, merged, pool, with_notice

FOLDER = Path(__file__).parents[1] / "traces"
START = 1_782_864_000.0  # 2026-07-01T00:00Z; files and made-up markets have no date of their own
DAY_SECONDS = 86400.0


@dataclass(frozen=True)
class Region:
    """Parameters of one synthetic region. `common` is up while the region has no common outage."""

    name: str
    common: Renewal
    zones: dict[str, Renewal]


def market(region: Region, seed: int, *, days: float = 45, supply: int = PLENTY) -> Market:
    """A market of that region. `supply` is how many boxes a pool carries while it sells."""
    end = START + days * DAY_SECONDS

    def read() -> Iterator[Step]:
        return merged(_pool(region, zone, seed, end, supply) for zone in region.zones)

    pools = tuple(pool("g6.xlarge", zone, zone) for zone in region.zones)
    return Market(f"{region.name}, seed {seed}", pools, START, end, read)


def _pool(region: Region, zone: str, seed: int, end: float, supply: int) -> Iterator[Step]:
    common = region.common.changes(_stream(seed, region.name, "common"), START, end)
    own = region.zones[zone].changes(_stream(seed, region.name, zone), START, end)
    changes = ((at, supply if up else 0) for at, up in both(common, own))
    return (Step(at, zone, sold) for at, sold in with_notice(changes, names.NOTICE_SECONDS))


def both(one: Iterator[tuple[float, bool]], other: Iterator[tuple[float, bool]]) -> Iterator[tuple[float, bool]]:
    """Up while both are: changes only, in order of time."""
    end = (float("inf"), False)
    a, b = next(one, end), next(other, end)
    up_a = up_b = False
    last: bool | None = None
    while (at := min(a[0], b[0])) != float("inf"):
        if a[0] == at:
            up_a, a = a[1], next(one, end)
        if b[0] == at:
            up_b, b = b[1], next(other, end)
        if (up_a and up_b) != last:
            last = up_a and up_b
            yield at, last


def _stream(seed: int, *names: str) -> Random:
    return Random("/".join(("market", str(seed), *names)))  # noqa: S311 - a simulation, no secret


# --- statistics and the fit ------------------------------------------------------------------------------------------


def statistics() -> dict[str, Any]:
    """The published figures, by zone and by "<region> (any zone)"."""
    raw: dict[str, Any] = json.loads((FOLDER / "market-statistics.json").read_text())
    return raw


def regions() -> list[str]:
    return [name.removesuffix(" (any zone)") for name in statistics() if name.endswith(" (any zone)")]


def region(name: str) -> Region:
    """The fitted region of that name; raises UserError."""
    if name not in regions():
        raise UserError(f"region {name!r} is not in market-statistics.json; there are {', '.join(regions())}")
    fitted = json.loads((FOLDER / "fitted.json").read_text())[name]
    return _region(name, fitted)


def _region(name: str, means: dict[str, list[float]]) -> Region:
    """Shapes from the statistics, means (minutes up, minutes down) from the fit."""
    figures = statistics()
    up, down = means["common"]
    best = max((zone for zone in means if zone != "common"), key=lambda zone: figures[zone]["available_share"])
    common = Renewal(
        from_quantiles(figures[best]["up_minutes"], up),
        from_quantiles(figures[f"{name} (any zone)"]["outage_minutes"], down),
    )
    zones = {
        zone: Renewal(
            from_quantiles(figures[zone]["up_minutes"], means[zone][0]),
            from_quantiles(figures[zone]["down_minutes"], means[zone][1]),
        )
        for zone in means
        if zone != "common"
    }
    return Region(name, common, zones)


@dataclass(frozen=True)
class Observed:
    """What a history of availability shows: the published figures of one zone, or of any zone of a region."""

    available_share: float
    transitions_per_day: float
    up_minutes: tuple[float, ...]
    down_minutes: tuple[float, ...]

    def quantile(self, which: str, share: float) -> float:
        lengths = sorted(self.up_minutes if which == "up" else self.down_minutes)
        return lengths[min(int(share * len(lengths)), len(lengths) - 1)] if lengths else 0.0


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


def observed(region: Region, seed: int, days: float) -> dict[str, Observed]:
    """Figures of a synthetic region as a history of it would show them (before notices), and of "any" of its zones."""
    end = START + days * DAY_SECONDS
    histories = {}
    for zone, own in region.zones.items():
        common = region.common.changes(_stream(seed, region.name, "common"), START, end)
        histories[zone] = list(both(common, own.changes(_stream(seed, region.name, zone), START, end)))
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


def fit(name: str, *, rounds: int = 40, days: float = 1500) -> dict[str, list[float]]:
    """Means (minutes up, minutes down) of the parts, so that the whole shows the published shares and transitions."""
    figures = statistics()
    zones = [zone for zone in figures if zone[:-1] == name]
    any_zone = figures[f"{name} (any zone)"]
    share, cycle = 1 - (1 - any_zone["available_share"]) * 0.9, 45 * 1440 / any_zone["outages"]
    parts = {"common": (share, cycle)}  # share up, minutes of a cycle
    for zone in zones:
        own = min(0.985, figures[zone]["available_share"] / share)
        parts[zone] = (own, 2880 / figures[zone]["transitions_per_day"])
    for number in range(rounds):
        means = {part: [share * cycle, (1 - share) * cycle] for part, (share, cycle) in parts.items()}
        shown = observed(_region(name, means), number, days)
        gain = 0.5 if number < rounds // 2 else 0.2
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


def stretched(base: Region, *, up: float = 1.0, down: float = 1.0) -> Region:
    """A region of other parameters: every up and down time longer or shorter by these factors."""
    if up == down == 1:
        return base

    def part(renewal: Renewal) -> Renewal:
        return Renewal(
            replace(renewal.up, mean=renewal.up.mean * up), replace(renewal.down, mean=renewal.down.mean * down)
        )

    zones = {zone: part(own) for zone, own in base.zones.items()}
    return Region(f"{base.name}, up x{up:g}, down x{down:g}", part(base.common), zones)


if __name__ == "__main__":
    fitted = {name: fit(name) for name in regions()}
    (FOLDER / "fitted.json").write_text(json.dumps(fitted, indent=1) + "\n")
