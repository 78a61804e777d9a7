"""Draws the pictures that the README and the docs show; a test holds them to what this draws now."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from fleet import story, timeline
from fleet.drills import drill, history
from fleet.drills.drill import Drill
from fleet.drills.policies import Watchdog
from fleet.events import Event

Moment = tuple[int, int, int]  # day of July, hour, minute
FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


def night_of_28_july(folder: Path) -> Path:
    """The seventh reclaim: the market refuses for six minutes, the successor serves before the alarm fires."""
    title = "The night of 28 July 2026: a reclaim, a market that refuses, a box that serves before the alarm fires"
    return _draw("07-27", folder / "night-of-28-july.svg", title, (28, 1, 58), (28, 2, 27))


def drought_of_22_july(folder: Path) -> Path:
    """The second reclaim of four: nothing sells, the watchdog fails over to on-demand."""
    title = "22 July 2026: nothing sells after a reclaim, the watchdog fails over to on-demand"
    return _draw("07-21", folder / "drought-of-22-july.svg", title, (22, 0, 5), (22, 0, 55))


def _draw(name: str, path: Path, title: str, start: Moment, end: Moment) -> Path:
    log: list[Event] = []
    drill.run(Drill(history.load(name), emit=log.append), Watchdog())
    first, last = (datetime(2026, 7, *moment, tzinfo=UTC).timestamp() for moment in (start, end))
    return timeline.save(story.read(log), path, title=title, start=first, end=last)


Draw = Callable[[Path], Path]
PICTURES: tuple[Draw, ...] = (night_of_28_july, drought_of_22_july)

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES:
        picture(FOLDER)
