"""Draws an event log as a swim-lane timeline: boxes by kind and pool, serving, alarm, mode, lever, mails."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.dates as mdates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from PIL import Image

from fleet.core.untrusted import printable
from fleet.eventlog.spans import Life, Mark, Span, Spans

# Okabe and Ito's colours: told apart by every eye.
SPOT, ON_DEMAND, GOOD, BAD, PARTLY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#F0E442"
QUIET, INK, REFUSES = "#DDDDDD", "#222222", "#BBBBBB"
ALARM = {"OK": GOOD, "ALARM": BAD, "INSUFFICIENT_DATA": QUIET}
MODE = {"spot-armed": SPOT, "on-demand-failover": ON_DEMAND, "on-demand-pinned": "#CC79A7"}
LANE = 0.72  # height of a lane's bars
ROWS_OF_BOXES = 24  # so many rows are as high as the others; more of them share that height
LEAST_ROW = 0.2  # of a row's height
LEAST_LANE = 0.8  # of a row's height: the name of a pool needs that much, however thin its boxes are
LEGEND_COLUMNS = 8  # more would be wider than the picture
DAY_SECONDS = 86400.0
LABELS_AT_MOST = 12
CLOSE_SECONDS = 2 * 3600  # a picture of less has room for explanations
LONG_SECONDS = 3 * DAY_SECONDS  # one of more names what was done: why stands in the pictures of its windows
NOTE_ROWS = 6
LATE = "it tells of the minutes before: callers are served again"
MINOR_ACTS = ("skipped", "failed", "on-demand-dry")
NEXT_BOX = "re-arm"  # of several boxes: again for each that is given back, which the lever's strip shows as well
TICKS = ["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"]  # of a year's first month, a month's first day, midnight, ...
OFFSETS = ["UTC", "%Y, UTC", "%b %Y, UTC", "%d %b %Y, UTC", "%d %b %Y, UTC", "%d %b %Y %H:%M, UTC"]

STYLE: Any = {
    "font.size": 9,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "svg.hashsalt": "spot-gpu-fleet",  # the same log draws the same bytes
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "hatch.linewidth": 0.5,
    "text.parse_math": False,  # an outsider's dollar signs are dollars
}


@contextmanager
def picture(path: Path, width: float, height: float, *, left_spine: bool = False) -> Iterator[Figure]:
    """A figure of that size (inches) in the style of all pictures; once it is drawn, a .svg or .png file."""
    with mpl.rc_context({**STYLE, "axes.spines.left": left_spine}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})


def save(spans: Spans, path: Path, *, title: str, start: float | None = None, end: float | None = None) -> Path:
    """Draw from `start` to `end` (epoch seconds; default all of it) into a .svg or .png file."""
    lanes = _Lanes(spans, spans.start if start is None else start, spans.end if end is None else end)
    with picture(path, 12, 1.2 + 0.34 * lanes.rows_high) as figure:
        axes = figure.add_subplot()
        lanes.draw(axes)
        axes.set_title(printable(title), loc="left", fontsize=12, fontweight="bold")
        handles = _legend(several=spans.desired > 1)
        columns = len(handles) if len(handles) <= LEGEND_COLUMNS else -(-len(handles) // 2)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    if path.suffix == ".png":  # a third of the bytes: it stands inside a page
        with Image.open(path) as drawn:
            drawn.convert("RGB").quantize(method=Image.Quantize.FASTOCTREE).save(path, optimize=True)
    return path


def _legend(*, several: bool) -> list[Patch | Line2D]:
    return [
        Patch(facecolor=SPOT, label="spot, serving"),
        Patch(facecolor=ON_DEMAND, label="on-demand, serving"),
        Patch(facecolor="white", edgecolor=INK, hatch="////", label="booting"),
        Patch(facecolor=QUIET, edgecolor=INK, label="noticed or draining"),
        Patch(facecolor="#F3F3F3", edgecolor=REFUSES, hatch="xx", label="market refuses"),
        Patch(facecolor=GOOD, label="callers served"),
        *[Patch(facecolor=PARTLY, label="boxes missing")] * several,
        Patch(facecolor=BAD, label="degraded, alarm"),
        Line2D([], [], linestyle="", marker="v", color=BAD, label="notice: two minutes are left"),
    ]


class _Lanes:
    """Rows from top to bottom: callers; pools, spot first, more than one row where boxes overlap; alarm to mails."""

    def __init__(self, spans: Spans, start: float, end: float) -> None:
        self._log, self._start, self._end = spans, start, end
        self._rows: list[tuple[str, str, list[Life]]] = []
        lanes: list[tuple[str, str, list[list[Life]]]] = []
        for pool, purchase in spans.lanes():
            lives = [life for life in spans.lives.values() if (life.pool, life.purchase) == (pool, purchase)]
            lives = [life for life in lives if life.launched < end and (life.ended is None or life.ended > start)]
            refuses = [s for s in spans.refusals(pool, purchase) if s.start < end and s.end > start]
            lanes.append((pool, purchase, _stack(lives) or [[]] * bool(refuses)))
        boxes = sum(len(rows) for _, _, rows in lanes)
        self._thin = max(min(1.0, ROWS_OF_BOXES / max(boxes, 1)), LEAST_ROW)
        for pool, purchase, rows in lanes:
            rows += [[]] * (math.ceil(LEAST_LANE / self._thin) - len(rows)) * bool(rows)
            for number, row in enumerate(rows):
                self._rows.append((pool if number == 0 else "", purchase, row))
        self._strips = [name for name in ("alarm", "mode", "lever") if name in spans.strips]
        shown = [mark for mark in spans.marks if start <= mark.at <= end]
        self._refused = [mark for mark in shown if mark.kind == "launch.failed"]
        acts = [mark for mark in spans.acts() if start <= mark.at <= end]
        if end - start > LONG_SECONDS:
            acts = [replace(mark, text=mark.detail) for mark in acts]
        mails = [mark for mark in shown if mark.kind == "mail"]
        self._notes = [("watchdog", *self._staggered(acts)), ("mail", *self._staggered(mails))]
        self._silent = bool(spans.decisions) and not mails
        self.rows_high = 1 + len(self._rows) * self._thin + bool(self._refused) + len(self._strips)
        self.rows_high += self._silent + sum(len(rows) for _, rows, _ in self._notes)

    def draw(self, axes: Axes) -> None:
        labels = {0.0: "callers"}
        self._serving(axes, 0)
        y, above = 1.0 - (1 - self._thin) / 2, ""
        for pool, purchase, lives in self._rows:
            above = pool or above
            labels[y] = f"{pool} {purchase}" if pool else ""
            self._market(axes, y, above, purchase)
            for life in lives:
                self._life(axes, y, life)
            y += self._thin
        y += (1 - self._thin) / 2
        if self._refused:
            dates = [_date(mark.at) for mark in self._refused]
            axes.plot(dates, [y] * len(dates), linestyle="", marker="x", color=BAD, markersize=5)
            labels[y], y = "launch refused", y + 1
        for name in self._strips:
            self._strip(axes, y, name)
            labels[y], y = name, y + 1
        for heading, rows, left_out in self._notes:
            for number, marks in enumerate(rows):
                for mark in marks:
                    self._note(axes, y, mark)
                labels[y] = "" if number else f"{heading} (+{left_out} more)" if left_out else heading
                y += 1
        if self._silent:
            axes.text(0.01, y, "none", transform=axes.get_yaxis_transform(), va="center", fontsize=8)
            labels[y], y = "mail", y + 1
        axes.set_yticks(list(labels), list(labels.values()))
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(y - 0.45, -0.75)
        axes.set_xlim(_date(self._start), _date(self._end))
        self._time_axis(axes)

    def _time_axis(self, axes: Axes) -> None:
        locator = mdates.AutoDateLocator(minticks=5, maxticks=14, tz=UTC)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        formatter = mdates.ConciseDateFormatter(  # type: ignore[no-untyped-call]
            locator, tz=UTC, zero_formats=TICKS, offset_formats=OFFSETS
        )
        axes.xaxis.set_major_formatter(formatter)
        axes.grid(axis="x", color="#EEEEEE", linewidth=0.8)
        axes.set_axisbelow(True)

    def _bars(self, axes: Axes, y: float, spans: Sequence[Span], height: float = LANE, **style: Any) -> None:
        shown = [(max(s.start, self._start), min(s.end, self._end)) for s in spans]
        ranges = [(_date(start), (end - start) / DAY_SECONDS) for start, end in shown if end > start]
        if ranges:
            axes.broken_barh(ranges, (y - height / 2, height), **style)

    def _text(self, axes: Axes, y: float, span: Span, text: str, color: str = "white", share: float = 0.008) -> None:
        """A label inside a span, if there is room for it."""
        start, end = max(span.start, self._start), min(span.end, self._end)
        if end - start > share * len(text) * (self._end - self._start):
            middle = _date((start + end) / 2)
            axes.text(middle, y, text, ha="center", va="center", color=color, fontsize=8, clip_on=True)

    def _serving(self, axes: Axes, y: float) -> None:
        desired = self._log.desired
        spans = self._log.strips.get("serving", [])
        for color, kept in (
            (GOOD, [s for s in spans if int(s.value) >= desired]),
            (PARTLY, [s for s in spans if 0 < int(s.value) < desired]),
            (BAD, [s for s in spans if int(s.value) == 0 < desired]),
        ):
            self._bars(axes, y, kept, facecolor=color)
        windows = [s for s in self._log.degraded() if s.end > self._start and s.start < self._end]
        labelled: list[float] = []
        for span in sorted(windows, key=lambda s: s.start - s.end)[:LABELS_AT_MOST]:
            middle = (max(span.start, self._start) + min(span.end, self._end)) / 2
            if any(abs(middle - other) < 0.06 * (self._end - self._start) for other in labelled):
                continue
            labelled.append(middle)
            text = f"{(span.end - span.start) / 60:.1f} min"
            axes.text(_date(middle), y - 0.42, text, ha="center", va="bottom", fontsize=8, color=BAD, clip_on=False)
        if not windows:
            self._text(axes, y, Span(self._start, self._end, ""), "served throughout")

    def _market(self, axes: Axes, y: float, pool: str, purchase: str) -> None:
        refuses = self._log.refusals(pool, purchase)
        style = {"facecolor": "#F3F3F3", "edgecolor": REFUSES, "hatch": "xx", "linewidth": 0}
        self._bars(axes, y, refuses, height=0.98 * self._thin, zorder=0.5, **style)

    def _life(self, axes: Axes, y: float, life: Life) -> None:
        color = SPOT if life.purchase == "spot" else ON_DEMAND
        ended = self._end if life.ended is None else life.ended
        whole, high = Span(life.launched, ended, ""), LANE * self._thin
        self._bars(axes, y, [whole], high, facecolor=QUIET, edgecolor=INK, linewidth=0.6 * self._thin)
        first = life.served[0][0] if life.served else ended
        booting = Span(life.launched, min(first, ended), "")
        self._bars(axes, y, [booting], high, facecolor="white", edgecolor=color, hatch="////", linewidth=0.8)
        for start, end in life.served:
            span = Span(start, ended if end is None else end, "")
            self._bars(axes, y, [span], high, facecolor=color, edgecolor=INK, linewidth=0.6 * self._thin)
        if life.noticed is not None and self._start <= life.noticed <= self._end:
            size, edge = (6, "white") if self._thin == 1 else (2, BAD)
            axes.plot([_date(life.noticed)], [y], marker="v", color=BAD, markersize=size, markeredgecolor=edge)

    def _strip(self, axes: Axes, y: float, name: str) -> None:
        spans = self._log.strips[name]
        for number, span in enumerate(spans):
            if span.end <= self._start or span.start >= self._end:
                continue
            if name == "lever":
                color, text = (SPOT, "0 % on-demand") if span.value == "0" else (ON_DEMAND, f"{span.value} % on-demand")
            else:
                color, text = (ALARM if name == "alarm" else MODE).get(span.value, QUIET), span.value
            self._bars(axes, y, [span], height=0.5, facecolor=color, alpha=0.85)
            ink = INK if color in (QUIET, ON_DEMAND) else "white"
            self._text(axes, y, span, text, color=ink)
            if span.value == "ALARM" and self._served_at(span.start) and self._end - self._start < CLOSE_SECONDS:
                self._late(axes, y, span, [*spans[:number][-1:], *spans[number + 1 :][:1]])

    def _late(self, axes: Axes, y: float, alarm: Span, beside: Sequence[Span]) -> None:
        """Why an alarm is lit while callers are served: in the span before it or after it that has the room."""
        for span in beside:
            if min(span.end, self._end) - max(span.start, self._start) > 0.6 * (self._end - self._start):
                before = span.start < alarm.start
                at, side, says = (alarm.start, "right", f"{LATE} ▸") if before else (alarm.end, "left", f"◂ {LATE}")
                axes.text(_date(at), y, says, ha=side, va="center", color="white", fontsize=7.5, clip_on=True)
                return

    def _served_at(self, at: float) -> bool:
        return any(
            s.start <= at < s.end and int(s.value) >= self._log.desired for s in self._log.strips.get("serving", [])
        )

    def _staggered(self, marks: list[Mark]) -> tuple[list[list[Mark]], int]:
        """Rows in which no two texts overlap, and how many marks found no room: what moved the lever goes first."""
        rows: list[list[Mark]] = []
        left_out = 0
        again = {after.at for before, after in pairwise(marks) if before.detail == after.detail == NEXT_BOX}
        for mark in sorted(marks, key=lambda mark: mark.detail in MINOR_ACTS or mark.at in again):
            start, end = self._extent(mark)
            for row in rows:
                if all(until <= start or since >= end for since, until in map(self._extent, row)):
                    row.append(mark)
                    break
            else:
                if len(rows) < NOTE_ROWS:
                    rows.append([mark])
                else:
                    left_out += 1
        return rows, left_out

    def _extent(self, mark: Mark) -> tuple[float, float]:
        """Where a mark and its text begin and end, in seconds."""
        width = self._end - self._start
        text = width * (0.02 + 0.0054 * len(_short(mark.text)))
        return (mark.at - text, mark.at + 0.006 * width) if self._on_the_left(mark) else (mark.at, mark.at + text)

    def _on_the_left(self, mark: Mark) -> bool:
        """Late marks have their text on the left, or it would leave the picture."""
        return mark.at + 0.0054 * len(_short(mark.text)) * (self._end - self._start) > self._end

    def _note(self, axes: Axes, y: float, mark: Mark) -> None:
        left = self._on_the_left(mark)
        axes.plot(
            [_date(mark.at)], [y], linestyle="", marker="s" if mark.kind == "act" else "o", color=INK, markersize=4
        )
        axes.annotate(
            _short(mark.text),
            (_date(mark.at), y),
            xytext=(-6 if left else 6, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=7.5,
            clip_on=True,
        )


def _stack(lives: list[Life]) -> list[list[Life]]:
    """Rows in which no two boxes overlap."""
    rows: list[list[Life]] = []
    for life in lives:
        for row in rows:
            last = row[-1].ended
            if last is not None and last <= life.launched:
                row.append(life)
                break
        else:
            rows.append([life])
    return rows


def _date(seconds: float) -> float:
    """matplotlib's days since 1970."""
    return seconds / DAY_SECONDS


def _short(text: str, limit: int = 72) -> str:
    text = re.sub(r"\bi-0{9,}", "i-", text)  # a simulated box
    return text if len(text) <= limit else text[: limit - 1] + "…"


def clock(seconds: float) -> str:
    """A moment as a reader of the report wants it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %b %H:%M:%S")
