"""`make bench-leave`: boxes that leave under load, more often than the tests; a table and JSON in out/.

planned     replacements behind a balancer as unkind as AWS's (replacing.py): every caller has his answer
notices     amid keep-alive and streaming traffic (leaving.py): who had time to end was not cut, who was is counted
"""

import dataclasses
import json
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fleet import localaws
from fleet.config import box_config
from fleet.core import names

sys.path.insert(0, str(box_config.BUNDLE))

from tests.box import leaving, replacing, world

OUT = world.CHECKOUT / "out" / "bench-leave.json"
REPLACEMENTS, NOTICES, AT_A_TIME = 20, 500, 10


def planned(folder: Path) -> Counter[str]:
    """Two boxes that serve, and their replacements."""
    sources = world.artifacts(folder / "sources")
    with localaws.server(folder / "aws") as aws, ExitStack() as stack:
        world.furnish(aws, sources)
        world.fill_cache(aws, sources, folder / "store")
        aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName=names.group(world.FLEET), DesiredCapacity=2)
        target_group, settings = (folder / "aws" / "target-group").read_text(), world.settings_for(sources)
        boxes = []
        for number in range(2):
            made = world.world(
                folder / f"box-{number}", aws, target_group, settings, number=number, **replacing.TIMINGS
            )
            boxes.append(stack.enter_context(made))
            boxes[-1].boot()
            boxes[-1].wait_for("BOOTPATH")
        return replacing.planned(boxes, REPLACEMENTS)


def main() -> None:
    """Measure, print, write JSON."""
    with tempfile.TemporaryDirectory(prefix="bench-leave-") as name:
        callers = planned(Path(name))
    told = leaving.many(NOTICES, AT_A_TIME)
    result = {"planned": {"replacements": REPLACEMENTS, **callers}, "notices": dataclasses.asdict(told)}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(result, indent=1))
    console = Console(width=None if sys.stdout.isatty() else 160)
    for title, row in result.items():
        table = Table(*row, title=title, title_justify="left")
        table.add_row(*map(str, row.values()))
        console.print(table)
    console.print(f"JSON: {OUT.relative_to(world.CHECKOUT)}")


if __name__ == "__main__":
    main()
