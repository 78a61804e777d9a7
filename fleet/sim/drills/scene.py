"""What to drill: a recorded history, market files or a synthetic region, as a small value that a worker can build."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.core.errors import UserError
from fleet.sim.drills import replay as history
from fleet.sim.drills.replay import History
from fleet.sim.markets import files, levels, synthetic
from fleet.sim.markets.market import PLENTY, Market


@dataclass(frozen=True)
class Scene:
    """One of three. `build` reads and checks it."""

    history: str = ""
    files: tuple[Path, ...] = ()
    region: str = ""
    levels: bool = False  # the region by `levels`: markets of another build
    days: float = 45
    supply: int = PLENTY  # boxes that each pool of a synthetic region carries while it sells
    up: float = 1.0  # factors on the lengths of a region's up and down times: markets of other parameters
    down: float = 1.0

    @property
    def seeded(self) -> bool:
        """Whether another seed is another market."""
        return bool(self.region)

    def build(self, seed: int) -> Market | History:
        """The market or history; raises UserError with the place of whatever is odd."""
        if self.history:
            return history.load(self.history)
        if self.files:
            return files.load(self.files)
        if self.levels:
            return levels.market(self.region, seed, days=self.days)
        region = synthetic.stretched(synthetic.region(self.region), up=self.up, down=self.down)
        return synthetic.market(region, seed, days=self.days, supply=self.supply)


def named(words: Sequence[str], *, days: float, supply: int = PLENTY) -> Scene:
    """The scene that an operator asks for: REGION or REGION/levels, history (any unique part of its name), or files."""
    region, _, build = words[0].partition("/") if len(words) == 1 else ("", "", "")
    if region in synthetic.regions() and build in ("", "levels"):
        return Scene(region=region, levels=bool(build), days=days, supply=supply)
    paths = tuple(Path(word) for word in words)
    if any(path.suffix in (".json", ".csv", ".market") for path in paths):
        if len(paths) == 1 and files.is_history(paths[0]):
            return Scene(history=str(paths[0]))
        return Scene(files=paths)
    if len(words) != 1:
        raise UserError(f"{' '.join(words)!r}: one history or region, or files; known are {', '.join(known())}")
    found = [name for name in history.names() if words[0] in name]
    if len(found) != 1:
        what = "matches several histories" if found else "is no history, region or file"
        raise UserError(f"{words[0]!r} {what}; known are {', '.join(known())}")
    return Scene(history=found[0])


def known() -> list[str]:
    """Names that need no file."""
    regions = synthetic.regions()
    return [*history.names(), *regions, *(f"{region}/levels" for region in regions)]
