"""Draws what a comparison or a sweep came to: cost against degraded minutes, and how long the windows were."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from fleet.core.untrusted import printable
from fleet.eventlog.timeline import INK, ON_DEMAND, QUIET, SPOT, picture
from fleet.sim.experiments.benchmark_matrix import OURS, TIMERS
from fleet.sim.experiments.experiment import Row, front
from fleet.sim.experiments.ratios import Compared, minutes, usd
from fleet.sim.policies.catalogue import POLICIES

# Spot's and on-demand's own colours belong to the two policies that buy nothing else.
OWN = {POLICIES["spot-only"].name: SPOT, POLICIES["on-demand"].name: ON_DEMAND}
COLORS = ("#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#777777", "#882255", "#999933")
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
LEAST = 0.1  # minutes, on a logarithmic axis
WIDE = 20  # times: values further apart than this are drawn on one


def cost_against_degraded(rows: Sequence[Row], path: Path, *, title: str, with_front: bool = False) -> Path:
    """One point per row with its 95 % interval, small points per seed; left and low is better."""
    values = [r.degraded_minutes.value for r in rows]
    wide = max(values) > WIDE * min(filter(None, values), default=1)

    def shown(minutes: float) -> float:
        return max(minutes, LEAST) if wide else minutes  # a logarithm has no place for none

    with _panel(path, title) as axes:
        for color, row in zip(_colors(rows), rows, strict=True):
            seeds = [(r.measure.cost_usd, shown(r.measure.degraded_minutes)) for r in row.results]
            axes.plot(*zip(*seeds, strict=True), ".", color=color, alpha=0.25, markersize=5)
            cost, degraded = row.cost_usd, row.degraded_minutes
            low = min(degraded.half_width, degraded.value * 0.95)
            axes.errorbar(
                cost.value,
                shown(degraded.value),
                xerr=cost.half_width,
                yerr=[[low], [degraded.half_width]],
                fmt="o",
                color=color,
                markersize=8,
                markeredgecolor=INK,
                capsize=3,
                label=row.name,
            )
        if with_front:
            best = front(rows)
            xs, ys = [r.cost_usd.value for r in best], [shown(r.degraded_minutes.value) for r in best]
            axes.step(xs, ys, where="post", color=INK, linewidth=1, linestyle=":", label="Pareto front")
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        if wide:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(PLAIN)
        axes.set_xlabel("cost, USD")
        of_all = " of the whole fleet" if rows[0].desired > 1 else ""
        axes.set_ylabel(
            f"degraded minutes{of_all}" + (f" (none is drawn at {LEAST})" if wide and min(values) < LEAST else "")
        )
        axes.margins(x=0.2, y=0.12)
        axes.set_xlim(left=max(0, axes.get_xlim()[0]))
    return path


def windows(rows: Sequence[Row], path: Path, *, title: str, alarm_minutes: int) -> Path:
    """The share of degraded windows that were at most so long; a line where the alarm looks."""
    with _panel(path, title) as axes:
        longest = 0.0
        for number, (color, row) in enumerate(zip(_colors(rows), rows, strict=True)):
            lengths = sorted(row.window_minutes)
            longest = max([longest, *lengths])
            shares = [i / len(lengths) for i in range(len(lengths) + 1)] if lengths else []
            label = f"{row.name}: {len(lengths) / len(row.results):.0f}"
            width = 1.4 + 0.8 * (len(rows) - 1 - number)  # one that lies under another still shows
            axes.step([*lengths[:1], *lengths], shares, where="post", color=color, label=label, linewidth=width)
        axes.axvline(alarm_minutes, color=QUIET, linewidth=1, zorder=0)
        side = "right" if alarm_minutes > longest / 2 else "left"
        axes.text(alarm_minutes, 1.02, " the alarm's window ", fontsize=8, color="#777777", ha=side)
        if longest > 120:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(PLAIN)
        else:
            axes.set_xlim(left=0)
        axes.set_ylim(0, 1.08)
        axes.set_xlabel("length of a degraded window, minutes")
        axes.set_ylabel("share of windows at most this long")
        axes.legend(frameon=False, loc="lower right", title="windows per market")
    return path


def fronts(cases: Mapping[str, Compared], path: Path) -> Path:
    """Cost against degraded minutes, a row of panels a case, one a region: the timers' front, the rivals, ours."""
    rows = {case: found for case, found in cases.items() if found.complete}
    most = max(len(found.outcomes) for found in rows.values())
    with picture(path, 4.4 * most, 3.9 * len(rows), left_spine=True) as figure:
        panels = figure.subplots(len(rows), most, squeeze=False)
        for line, (case, found) in zip(panels, rows.items(), strict=True):
            for axes, place in zip(line, found.outcomes, strict=True):
                timers = sorted((found.mean(place, name, usd), found.mean(place, name, minutes)) for name in TIMERS)
                axes.plot(*zip(*timers, strict=True), "o-", color="#999999", label="fixed timer, 0 to 24 h")
                for color, name in zip(COLORS, ("alarm", "fallback", OURS), strict=False):
                    at = found.mean(place, name, usd), found.mean(place, name, minutes)
                    axes.plot(*at, "D", color=color, label=POLICIES[name].name, markeredgecolor=INK)
                axes.set_title(f"{place}, {case}", loc="left", fontsize=10, fontweight="bold")
                axes.set_xlabel("USD in 45 days")
                axes.set_ylabel("degraded minutes in 45 days")
                axes.set_ylim(bottom=0)
                axes.grid(color="#EEEEEE", linewidth=0.8)
        panels[0][0].legend(fontsize=8, frameon=False)
    return path


@contextmanager
def _panel(path: Path, title: str) -> Iterator[Axes]:
    with picture(path, 8, 4.6, left_spine=True) as figure:
        axes = figure.add_subplot()
        axes.grid(color="#EEEEEE", linewidth=0.8)
        axes.set_axisbelow(True)
        yield axes
        axes.set_title(printable(title), loc="left", fontsize=11, fontweight="bold")


def _colors(rows: Sequence[Row]) -> list[str]:
    others = cycle(COLORS)
    return [OWN.get(row.name) or next(others) for row in rows]
