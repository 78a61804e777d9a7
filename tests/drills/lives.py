"""Lives drawn at random, exported as receipts and replayed under the policy that they were lived under."""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from rich.console import Console
from rich.progress import track

from fleet.config.settings import Capacity, Settings
from fleet.eventlog.events import Event
from fleet.ops import receipt
from fleet.sim.cloud.behaviour import Behaviour, Boots, Events
from fleet.sim.drills import drill, replay
from fleet.sim.drills.drill import Drill, Result
from fleet.sim.markets import levels, synthetic
from fleet.sim.markets.market import PLENTY, Market
from fleet.sim.policies.catalogue import watchdog

DAYS = 0.6
SIZES = ((1, 2, 0), (1, 2, 0), (2, 4, 0), (3, 6, 1))  # desired, max, on-demand base


@dataclass(frozen=True)
class Life:
    """One drawn life: everything is of its number."""

    number: int

    def live(self) -> tuple[Settings, list[Event], Result]:
        luck = Random(f"life {self.number}")  # noqa: S311 - a simulation, no secret
        low, high, base = luck.choice(SIZES)
        capacity = Capacity(min=low, max=high, on_demand_base=base)
        settings = replace(drill.default_settings(), policy=("alarm", "bridge")[self.number % 2], capacity=capacity)
        behaviour = Behaviour(
            boots=Boots(
                factor=luck.choice([0.5, 1, 2]), stuck_share=luck.choice([0, 0.1]), failed_share=luck.choice([0, 0.2])
            ),
            recommendation_ahead_share=luck.choice([0, 0.3, 1]),
            takes_first=luck.choice(["random", "oldest"]),
            # of a fleet of one also events late, twice or never; of several their order in a second is not recorded
            events=Events(
                doubled_share=luck.choice([0, 0.3]),
                late_share=luck.choice([0, 0.2]),
                lost_share=self.number % 5 // 4 / 5,
            )
            if low == 1
            else Events(),
        )
        log: list[Event] = []
        lived = drill.run(Drill(self._market(luck), settings, behaviour, self.number, emit=log.append), watchdog)
        return settings, log, lived

    def _market(self, luck: Random) -> Market:
        region, supply = luck.choice(synthetic.regions()), luck.choice([1, 2, PLENTY])
        if luck.random() < 0.3:
            return levels.market(region, self.number, days=DAYS)
        shorter = luck.choice([0.3, 1])
        stretched = synthetic.stretched(synthetic.region(region), up=shorter, down=shorter)
        return synthetic.market(stretched, self.number, days=DAYS, supply=supply)


def windows(result: Result) -> list[tuple[int, int]]:
    """Start and length, to the second."""
    return [(round(window.start), round(window.seconds)) for window in result.measure.windows]


def decided(log: list[Event]) -> list[tuple[str, str, str]]:
    """Every decision with its second and its reason."""
    return [
        (f"{event.at:%d %H:%M:%S}", event.fields["action"], event.fields.get("reason", ""))
        for event in log
        if event.kind == "decision"
    ]


def replayed(settings: Settings, log: list[Event], path: Path) -> tuple[Drill, list[Event], Result]:
    """The receipt of that log, read again and lived through."""
    path.write_text(receipt.receipt(log, settings).dumps(), encoding="utf-8")
    again: list[Event] = []
    scene = Drill(replay.load(path), settings, emit=again.append)
    return scene, again, drill.run(scene, watchdog)


def differing(numbers: range, folder: Path) -> Iterator[str]:
    """What does not come out of its own receipt."""
    for number in numbers:
        settings, log, lived = Life(number).live()
        _, again, result = replayed(settings, log, folder / "receipt.json")
        if windows(lived) != windows(result):
            yield f"life {number}: windows {windows(lived)} became {windows(result)}"
        first = next((pair for pair in zip(decided(log), decided(again), strict=False) if pair[0] != pair[1]), None)
        if first or len(decided(log)) != len(decided(again)):
            yield f"life {number}: decided {first}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        many = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
        found = [odd for n in track(range(many)) for odd in differing(range(n, n + 1), Path(where))]
    Console().print("\n".join([*found, f"{many} lives, {len({odd.split(':')[0] for odd in found})} do not replay"]))
