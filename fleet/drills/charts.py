"""Draws what a comparison or a sweep came to: cost against degraded minutes, and how long the windows were."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from fleet.drills.compare import Row, front
from fleet.timeline import INK, QUIET, STYLE

COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#777777", "#F0E442")
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
WARM_RELAUNCH_MINUTES = 5.5  # a boot
ALARM_MINUTES = 12
LEAST = 0.1  # minutes


def cost_against_degraded(rows: Sequence[Row], path: Path, *, title: str, with_front: bool = False) -> Path:
    """One point per row with its 95 % interval, small points per seed; left and low is better."""

    def draw(axes: Axes) -> None:
        for color, row in zip(_colors(rows), rows, strict=True):
            seeds = [(r.measure.cost_usd, _shown(r.measure.degraded_minutes)) for r in row.results]
            axes.plot(*zip(*seeds, strict=True), ".", color=color, alpha=0.25, markersize=5)
            cost, degraded = row.cost_usd, row.degraded_minutes
            low = min(degraded.half_width, degraded.value * 0.95)
            axes.errorbar(
                cost.value,
                _shown(degraded.value),
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
            xs, ys = [r.cost_usd.value for r in best], [_shown(r.degraded_minutes.value) for r in best]
            axes.step(xs, ys, where="post", color=INK, linewidth=1, linestyle=":", label="Pareto front")
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        values = [_shown(r.degraded_minutes.value) for r in rows]
        if max(values) > 20 * min(values):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(PLAIN)
        axes.set_xlabel("cost, USD")
        axes.set_ylabel("degraded minutes" + (f" (none is drawn at {LEAST})" if min(values) <= LEAST else ""))
        axes.margins(x=0.2, y=0.12)

    return _save(path, title, draw)


def windows(rows: Sequence[Row], path: Path, *, title: str) -> Path:
    """The share of degraded windows that were at most so long."""

    def draw(axes: Axes) -> None:
        longest = 0.0
        for color, row in zip(_colors(rows), rows, strict=True):
            lengths = sorted(row.window_minutes)
            if not lengths:
                continue
            longest = max(longest, lengths[-1])
            shares = [(i + 1) / len(lengths) for i in range(len(lengths))]
            label = f"{row.name} ({len(lengths) / len(row.results):.0f} windows)"
            axes.step([lengths[0], *lengths], [0, *shares], where="post", color=color, label=label, linewidth=1.8)
        for minutes, text in ((WARM_RELAUNCH_MINUTES, "a boot"), (ALARM_MINUTES, "alarm line")):
            axes.axvline(minutes, color=QUIET, linewidth=1, zorder=0)
            axes.text(minutes, 1.02, text, fontsize=8, color="#777777", ha="center")
        if longest > 120:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(PLAIN)
        axes.set_ylim(0, 1.08)
        axes.set_xlabel("length of a degraded window, minutes")
        axes.set_ylabel("share of windows at most this long")
        axes.legend(frameon=False, loc="lower right")

    return _save(path, title, draw)


def _save(path: Path, title: str, draw: Callable[[Axes], None]) -> Path:
    with mpl.rc_context({**STYLE, "axes.spines.left": True}):
        figure = Figure(figsize=(8, 4.6), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(color="#EEEEEE", linewidth=0.8)
        axes.set_axisbelow(True)
        draw(axes)
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
    return path


def _shown(minutes: float) -> float:
    """A tenth of a minute at least: a logarithm has no place for none."""
    return max(minutes, LEAST)


def _colors(rows: Sequence[Row]) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(len(rows))]
