"""`make bench-changes`: a user changes port, zones and callers on a standing fleet, by docs/deploys.md alone, timed.

The fleet is deployed by the README's lines. After each deploy `cdk diff` must be empty, and nothing is lost: store,
lever, state and group are the same, and a box serves.
"""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from fleet import localaws
from fleet.config import validation
from fleet.core import names
from fleet.localaws.deployed import Deployed
from tests.e2e import walk
from tests.synth import ROOT

OUT = ROOT / "out" / "bench" / "changes.json"
HEADING = "## What a standing fleet takes"


def lines() -> list[str]:
    """The page's own commands."""
    section = (ROOT / "docs/deploys.md").read_text().split(HEADING)[1].split("\n## ")[0]
    (block,) = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return str(block).splitlines()


def kept(aws: localaws.Aws, checkout: Path) -> dict[str, Any]:
    """What a change of settings must not touch."""
    fleet = Deployed(aws, validation.load(checkout / "cdk.json"))
    return {
        "bucket": fleet.output("store", names.OUTPUT_BUCKET),
        "lever": fleet.lever(),
        "state": fleet.state()["mode"],
        "group": fleet.group()["AutoScalingGroupARN"],
        "serving": len(fleet.boxes()),
    }


def main() -> int:
    """1 where a line fails, a diff after a deploy is not empty, or something is lost."""
    load, wrong = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory() as folder:
        checkout = walk.linked(Path(folder) / "checkout")
        with walk.cloud(checkout) as aws, walk.terminal(checkout) as enter:
            first = walk.lines()[1]
            until = max(number for number, line in enumerate(first) if line.startswith("make deploy"))
            for line in first[: until + 1]:
                enter(line)
            before, typed = kept(aws, checkout), []
            for line in lines():
                typed.append(enter(line))
                if typed[-1].code:
                    wrong.append(f"{line} ended with {typed[-1].code}: {typed[-1].said[-500:]}")
                if line.startswith("make deploy"):
                    said = enter("make diff").said
                    if said.count("There were no differences") != len(names.STACKS):
                        wrong.append(f"the diff after deploy {line!r} is not empty: {said[-1500:]}")
                    if kept(aws, checkout) != before:
                        wrong.append(f"lost: {before} became {kept(aws, checkout)}")
    walk.tell(OUT, typed, load, wrong=wrong)
    click.echo("\n".join(wrong) or "nothing lost, every diff after a deploy empty")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
