"""Draws the act of real callers: one stem a request, as tall as it took, in the colour of who answered."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from fleet.demo.callers import DARK, END, NOTICE, SERVING, DemoRequest
from fleet.eventlog.timeline import BAD, INK, ON_DEMAND, SPOT, picture

COLORS = {"gpu": SPOT, "fallback": ON_DEMAND}
LABELS = {"gpu": "answered by the GPU", "fallback": "answered by the cloud model"}
PHASES = (
    (0.0, NOTICE, "the box serves", "#EAF3F9"),
    (NOTICE, DARK, "notice: it drains", "#FBF3DC"),
    (DARK, SERVING, "no box", "#EBEBEB"),
    (SERVING, END, "its successor serves", "#EAF3F9"),
)
LEAST_TOP = 26.0  # seconds, of the axis


def draw(everybody: Sequence[DemoRequest], path: Path, scale: float) -> Path:
    """Write the picture (.svg or .png)."""
    well = [asked for asked in everybody if not asked.error]
    slowest = max(well, key=lambda asked: asked.seconds)
    top = max(LEAST_TOP, slowest.seconds * 1.4)
    with picture(path, 11, 4.2) as figure:
        axes = figure.add_subplot()
        axes.spines["bottom"].set_visible(False)
        for start, end, words, color in PHASES:
            axes.axvspan(start / 60, end / 60, color=color, linewidth=0, zorder=0)
            middle = (start + end) / 120
            axes.text(middle, top * 0.94, words, ha="center", va="center", fontsize=10.5, color="#555555")
        for who in COLORS:
            _stems(axes, [asked for asked in well if asked.by == who], who)
        for number, asked in enumerate(asked for asked in everybody if asked.error):
            _error(axes, asked, top * (0.81 - 0.06 * number))
        words = f" the slowest: {slowest.seconds:.0f} s"
        axes.annotate(
            words, (slowest.at / 60, slowest.seconds), (5, 3), textcoords="offset points", fontsize=9, color=INK
        )
        axes.set_xlim(-0.1, END / 60)
        axes.set_ylim(0, top)
        axes.set_xlabel(f"minutes of the fleet; played at 1 : {scale:g}, the gateway's budgets scaled alike")
        axes.set_ylabel("seconds to the whole answer")
        axes.tick_params(length=0)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.6, 0.72), fontsize=9.5)
        axes.set_title(_title(everybody), loc="left", fontsize=12.5, fontweight="bold", pad=10)
    return path


def _stems(axes: Axes, asked: Sequence[DemoRequest], who: str) -> None:
    xs, ys = [each.at / 60 for each in asked], [each.seconds for each in asked]
    axes.vlines(xs, 0, ys, color=COLORS[who], linewidth=2.4, alpha=0.45, zorder=2)
    axes.plot(xs, ys, "o", color=COLORS[who], markersize=7, label=f"{len(asked)} {LABELS[who]}", zorder=3)


def _error(axes: Axes, asked: DemoRequest, height: float) -> None:
    """From when it was asked to when it ended, in a line of its own: it may have lasted minutes."""
    ended = (asked.at + asked.seconds) / 60
    axes.plot([asked.at / 60, ended], [height, height], color=BAD, linewidth=2.4, alpha=0.6, zorder=3)
    axes.plot([ended], [height], "X", color=BAD, markersize=11, markeredgecolor="white", zorder=4)
    words = f"a stream, {asked.error}"
    axes.annotate(words, (ended, height), (10, 0), textcoords="offset points", va="center", fontsize=9, color=BAD)


def _title(everybody: Sequence[DemoRequest]) -> str:
    cut = sum(bool(asked.error and asked.tokens) for asked in everybody)
    left = sum(bool(asked.error) and not asked.tokens for asked in everybody)
    whole = len(everybody) - cut - left
    return f"A GPU is taken: {whole} requests answered, {cut or 'none'} cut in mid-stream, {left or 'none'} refused"
