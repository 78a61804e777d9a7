"""Seeded synthetic markets, shaped by the published statistics of a region: zones of their own, and outages in common.

A zone sells while it is up itself and its region has no common outage; that is what correlates pools. The parameters
whose markets have the published shares and transitions are kept in `traces/fitted.json` (`tests.drills.fitting`).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from fleet.sim.markets.durations import Renewal, from_quantiles
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
    return with_notice(zone, ((at, supply if up else 0) for at, up in both(common, own)))


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


# --- statistics and parameters ---------------------------------------------------------------------------------------


def statistics() -> dict[str, Any]:
    """The published figures, by zone and by "<region> (any zone)"."""
    raw: dict[str, Any] = json.loads((FOLDER / "market-statistics.json").read_text())
    return raw


def regions() -> list[str]:
    return [name.removesuffix(" (any zone)") for name in statistics() if name.endswith(" (any zone)")]


def region(name: str) -> Region:
    """The fitted region of that name."""
    return _region(name, json.loads((FOLDER / "fitted.json").read_text())[name])


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
