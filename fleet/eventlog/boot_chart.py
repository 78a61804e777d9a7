"""Draws boots by stage: a row per stage, a bar per box, seconds of the box's own uptime. For the page of a report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet.eventlog.events import Event
from fleet.eventlog.timeline import BAD, picture

BOXES_AT_MOST = 8  # the latest: more bars in a row tell nothing apart
COLORS = ("#009E73", "#CC79A7", "#56B4E9", "#F0E442", "#999999", "#222222", "#882255", "#999933")


def save(stages: Sequence[Event], path: Path) -> Path:
    """Draw `boot.stage` events, of which there is at least one, into a .svg file."""
    boxes = list(dict.fromkeys(event.fields["box"] for event in stages))[-BOXES_AT_MOST:]
    shown = sorted((event for event in stages if event.fields["box"] in boxes), key=lambda event: event.fields["start"])
    rows = list(dict.fromkeys(event.fields["stage"] for event in shown))
    height = 0.8 / len(boxes)
    with picture(path, 12, 1.2 + 0.34 * len(rows)) as figure:
        axes = figure.add_subplot()
        for event in shown:
            number, told = boxes.index(event.fields["box"]), event.fields
            failed: Any = {} if told["outcome"] == "done" else {"edgecolor": BAD, "hatch": "////"}
            y = rows.index(told["stage"]) - 0.4 + height * (number + 0.5)
            width = max(told["end"] - told["start"], 0.5)  # an instant is seen too
            axes.barh(y, width, height, left=told["start"], color=COLORS[number], **failed)
        for number, box in enumerate(boxes):
            axes.barh(0, 0, color=COLORS[number], label=box)
        axes.set_yticks(range(len(rows)), rows)
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.grid(axis="x", color="#EEEEEE", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_xlabel("seconds since the kernel started")
        axes.set_title("Boots by stage", loc="left", fontsize=12, fontweight="bold")
        figure.legend(loc="outside lower center", ncols=len(boxes), frameon=False, fontsize=8)
    return path
