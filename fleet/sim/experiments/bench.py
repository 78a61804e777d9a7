"""`make bench-drills`: what simulated days cost on one core, whether time is linear in events, and memory flat."""

import json
import time
import tracemalloc
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from fleet.eventlog.events import Event
from fleet.sim.drills.drill import Drill, default_settings, run
from fleet.sim.markets import files, synthetic
from fleet.sim.markets.durations import GAP_SECONDS
from fleet.sim.markets.market import PLENTY
from fleet.sim.policies import catalogue

REGION = "us-west-2"  # three pools; the public history's ticks of 195 s
DAYS = (15, 45, 135, 405)
ROUNDS = 3
BOUND_DAYS, BOUND_SECONDS = 45, 1.0
BRIDGE_SECONDS = 4.0  # the same days under the bridge policy, which wakes every two minutes


def live(days: float, seed: int, policy: str = "alarm") -> int:
    """The watchdog under one policy, its valve off, so that it stays as busy as it can; the number of events."""
    count = 0

    def emit(event: Event) -> None:
        nonlocal count
        count += 1

    market = synthetic.market(synthetic.region(REGION), seed, days=days)
    settings = catalogue.without_valve(default_settings())
    run(Drill(market, settings, seed=seed, emit=emit), catalogue.POLICIES[policy])
    return count


def main() -> None:
    """Best of the rounds each, taken in turn, so that a busy machine slows all sizes alike."""
    console = Console()
    live(1, 0)
    seconds: dict[int, float] = dict.fromkeys(DAYS, float("inf"))
    events: dict[int, int] = {}
    for _ in range(ROUNDS):
        for days in DAYS:
            began = time.process_time()
            events[days] = live(days, 1)
            seconds[days] = min(seconds[days], time.process_time() - began)
    table = Table(title=f"{REGION}: three pools, alarm watchdog, one core, best of {ROUNDS}", title_justify="left")
    for column in ("days", "events", "seconds", "µs an event", "peak MB"):
        table.add_column(column, justify="right")
    peaks = {days: _peak_megabytes(days) for days in DAYS}
    for days in DAYS:
        each = seconds[days] / events[days] * 1e6
        table.add_row(str(days), str(events[days]), f"{seconds[days]:.2f}", f"{each:.0f}", f"{peaks[days]:.2f}")
    console.print(table)
    ticks = _seconds_of_tick_files()
    console.print(f"{BOUND_DAYS} days read from three availability files of 195-second ticks: {ticks:.2f} s")
    bridge = best_seconds(lambda: live(BOUND_DAYS, 1, "bridge"))
    console.print(f"{BOUND_DAYS} days under the bridge policy, every scan of it decided: {bridge:.2f} s")
    bounds = [(f"{BOUND_DAYS} days", seconds[BOUND_DAYS], BOUND_SECONDS), ("the same from files", ticks, BOUND_SECONDS)]
    for what, took, bound in (*bounds, ("the same under the bridge policy", bridge, BRIDGE_SECONDS)):
        console.print(f"bound {bound:g} s for {what}: {'met' if took < bound else 'MISSED'}")
    for less, more in pairwise(DAYS):
        growth = (seconds[more] / seconds[less]) / (events[more] / events[less])
        console.print(f"{less} to {more} days: time per event x{growth:.2f}, memory x{peaks[more] / peaks[less]:.2f}")


def best_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Of one core, the best of the rounds: other work on the machine only adds."""
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def _seconds_of_tick_files() -> float:
    """Reading and living through a market written out reading by reading."""
    market = synthetic.market(synthetic.region(REGION), 1, days=BOUND_DAYS)
    readings = int((market.end - market.start) / GAP_SECONDS)
    with TemporaryDirectory() as folder:
        paths = []
        for pool in market.pools:
            changes = [(step.at, step.supply) for step in market.steps() if step.pool == pool.label]
            ticks = [market.start + i * GAP_SECONDS for i in range(readings)]
            data = [changes[max(bisect_right(changes, (at, PLENTY)) - 1, 0)][1] for at in ticks]
            path = Path(folder) / f"{pool.label}.json"
            path.write_text(json.dumps({"metadata": {"gap_seconds": GAP_SECONDS}, "data": data}))
            paths.append(path)
        settings = catalogue.without_valve(default_settings())
        return best_seconds(lambda: run(Drill(files.load(paths), settings, seed=1), catalogue.watchdog))


def _peak_megabytes(days: float) -> float:
    tracemalloc.start()
    live(days, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


if __name__ == "__main__":
    main()
