"""Draws the pictures that the README and the docs show; a test holds them to what this draws now."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from fleet.eventlog import spans, timeline
from fleet.eventlog.events import Event
from fleet.eventlog.timeline import INK, SPOT
from fleet.sim.drills import drill, replay
from fleet.sim.drills.drill import Drill
from fleet.sim.drills.scene import Scene
from fleet.sim.experiments.experiment import Job, Variation
from fleet.sim.policies import catalogue
from fleet.sim.policies.catalogue import watchdog

Moment = tuple[int, int, int]  # day of July, hour, minute
FOLDER = Path(__file__).parents[3] / "docs" / "pictures"
BOOT_SECONDS = (330, 200, 110)  # the slower of measured boots; without a second way of the model; as modelled
BOOT_DAYS, BOOT_MARKETS = 10, 4


def night_of_28_july(folder: Path) -> Path:
    """The seventh reclaim: the market refuses for six minutes, the successor serves before the alarm fires."""
    title = "The night of 28 July 2026: a reclaim, a market that refuses, a box that serves before the alarm fires"
    return _draw("07-27", folder / "night-of-28-july.svg", title, (28, 1, 58), (28, 2, 27))


def drought_of_22_july(folder: Path) -> Path:
    """The second reclaim of four: nothing sells, the watchdog fails over to on-demand."""
    title = "22 July 2026: nothing sells after a reclaim, the watchdog fails over to on-demand"
    return _draw("07-21", folder / "drought-of-22-july.svg", title, (22, 0, 5), (22, 0, 55))


def boot_lengths(folder: Path) -> Path:
    """Degraded minutes of the same markets and luck, with boots of three lengths."""
    settings, path = catalogue.without_valve(drill.default_settings()), folder / "boot-lengths.svg"
    means = []
    for seconds in BOOT_SECONDS:
        variation = Variation(kernel_to_serving_seconds=seconds)
        scene = Scene(region="us-east-2", days=BOOT_DAYS)
        results = [Job(scene, "alarm", seed, settings, variation).run() for seed in range(BOOT_MARKETS)]
        means.append([result.measure.degraded_minutes for result in results])
    with timeline.picture(path, 9, 3) as figure:
        axes = figure.add_subplot()
        for number, minutes in enumerate(means):
            axes.barh(number, fmean(minutes), 0.6, color=SPOT)
            axes.plot(minutes, [number] * len(minutes), "o", color=INK, markersize=4)
            axes.text(5, number, f"{fmean(minutes):.0f} min", color="white", va="center", fontweight="bold")
        axes.set_yticks(range(len(BOOT_SECONDS)), [f"{seconds} s" for seconds in BOOT_SECONDS])
        axes.invert_yaxis()
        axes.set_ylabel("kernel to serving")
        axes.set_xlabel(
            f"degraded minutes in {BOOT_DAYS} days; bar: mean of {BOOT_MARKETS} markets, points: each of them"
        )
        axes.set_title(
            "Shorter boots on the same markets (us-east-2, alarm policy, valve off)", loc="left", fontsize=11
        )
    return path


def _draw(name: str, path: Path, title: str, start: Moment, end: Moment) -> Path:
    log: list[Event] = []
    drill.run(Drill(replay.load(name), emit=log.append), watchdog)
    first, last = (datetime(2026, 7, *moment, tzinfo=UTC).timestamp() for moment in (start, end))
    return timeline.save(spans.read(log), path, title=title, start=first, end=last)


Draw = Callable[[Path], Path]
PICTURES: tuple[Draw, ...] = (night_of_28_july, drought_of_22_july, boot_lengths)

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES:
        picture(FOLDER)
