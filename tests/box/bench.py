"""`make bench-boot`: what the box's speed claims rest on, paired in one run; a table on the screen and JSON in out/.

    load        a model that is read while it arrives, against one that is downloaded before (bench_stream.py)
    restore     our download, digests included, through shaped links (bench_restore.py)
    boot        the declared graph against the serial order by the same executor: stages that cannot run here replay
                their measured medians at 1:10, as stand-ins; and a real boot of the test world beside it
    notice      from the poll that saw it to the first refused connection, on both families
    agent       resident memory and CPU at the pace of a real box

Budgets are reported, never asserted. Run it on an idle machine: client and server share its cores.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fleet import localaws
from fleet.config import box_config
from fleet.core import boot_length

sys.path.insert(0, str(box_config.BUNDLE))

import graph
import log
import stages

from tests.box import bench_restore, bench_stream, world

OUT = world.CHECKOUT / "out" / "bench-boot.json"

# Seconds: medians of 27 warm boots, or what a stage's work costs here; load as modelled at the network's baseline.
STREAMED = boot_length.Streamed(boot_length.BASELINE)
MEDIANS = {name: boot_length.MEDIANS[name] for name in ("telemetry", "engine")}
ASSUMED = {"gate": 0.1, "agent": 1.0, "store": 1.0, "register": 1.0, "plan": 0.5, "restore": 0.5, "healthy": 5.0}
ASSUMED |= {"start_engine": 2.0, "warm_up": 2.0, "open": 0.1, "complete": 1.0}
ASSUMED |= {"load": STREAMED.arrived - STREAMED.engine}
REPLAY = 10

AGENT_SECONDS = 60
NOTICES = 10


# --- boot -----------------------------------------------------------------------------------------------------


def replay(*, serial: bool) -> tuple[float, list[str], float]:
    """The declared graph with stand-ins for its stages: seconds it took, its critical path, the path's seconds."""

    def stand_in(name: str) -> graph.Body:
        return lambda: time.sleep({**ASSUMED, **MEDIANS}.get(name, 0.0) / REPLAY)

    table, started = stages.STAGES, log.uptime()
    if serial:
        table = (table[0], *(replace(stage, needs=(before.name,)) for before, stage in pairwise(table)))
    bodies = {stage.name: stand_in(stage.name) for stage in table}
    runs = list(graph.run(table, bodies, lambda: started + 600))
    took = next(run.ended for run in runs if run.name == "complete") - started
    path, seconds = graph.critical_path(stages.STAGES, runs)
    return took, path, seconds


def measure_boot(aws: localaws.Aws, target_group: str, sources: dict[str, Path], folder: Path) -> dict[str, Any]:
    """The replay in both orders, and one real warm boot of the test world."""
    took, path, seconds = replay(serial=False)
    serial, _, _ = replay(serial=True)
    with aws.fork(folder / "aws-boot") as copy:
        world.fill_cache(copy, sources, folder / "store")
        with world.world(folder / "boot", copy, target_group, world.settings_for(sources), poll_seconds=5.0) as box:
            box.boot()
            real = box.wait_for(r"BOOTPATH (.*) = ([\d.]+) s of ([\d.]+) s")
            footprint = measure_footprint(box)
    return {
        "footprint": footprint,
        "replay": {
            "scale": f"1:{REPLAY}",
            "seconds": took,
            "path": path,
            "path_seconds": seconds,
            "times_path": took / seconds,
            "serial_seconds": serial,
            "serial_times_graph": serial / took,
            "measured_medians": MEDIANS,
            "assumed": ASSUMED,
        },
        "real": {
            "path": real[1].split(" > "),
            "path_seconds": float(real[2]),
            "seconds": float(real[3]),
            "times_path": float(real[3]) / float(real[2]),
        },
    }


# --- the agent ------------------------------------------------------------------------------------------------

LISTENER = f"""
import socket
s = socket.create_server(("::", {world.PORT}), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096)
while True:
    s.accept()[0].close()
"""


def measure_agent(aws: localaws.Aws, target_group: str, folder: Path) -> dict[str, Any]:
    """The agent alone in a box past its boot: notices, against a caller every millisecond."""
    with world.world(folder / "agent", aws, target_group, world.SETTINGS, disk=False, **{**world.QUICK}) as box:
        inside = ["nsenter", f"--net=/proc/{box.pid}/ns/net", f"--root=/proc/{box.pid}/root"]
        inside += ["sh", "-c", 'cd / && exec "$@"', "sh"]
        config = box_config.box_config(
            world.SETTINGS, bucket=world.BUCKET, target_group_arn=target_group, **world.QUICK
        )
        for name in ("opt/fleet", "etc/fleet", "run/fleet"):
            box.inside(f"/{name}").mkdir(parents=True, exist_ok=True)
        box.inside("/etc/fleet/box.json").write_text(json.dumps(config))
        for path in box_config.BUNDLE.rglob("*"):
            if path.suffix in (".py", ".service"):
                copy = box.inside("/opt/fleet") / path.relative_to(box_config.BUNDLE)
                copy.parent.mkdir(exist_ok=True)
                copy.write_bytes(path.read_bytes())
                if path.suffix == ".service":
                    (box.inside("/etc/systemd/system") / path.name).write_bytes(path.read_bytes())
        # leaving is not what is measured, and would end the box
        (box.inside("/etc/systemd/system") / "fleet-leave.service").write_text("[Service]\nExecStart=/bin/true\n")
        listener = subprocess.Popen([*inside, "/usr/bin/python3", "-c", LISTENER])
        box.callers.append(listener)  # type: ignore[arg-type]
        milliseconds: list[float] = []
        for _ in range(NOTICES):
            milliseconds += one_notice(box, inside)
    return {
        "notice_to_refused_ms": {
            "median": statistics.median(milliseconds),
            "max": max(milliseconds),
            "all": milliseconds,
        },
    }


def measure_footprint(box: world.World) -> dict[str, float]:
    """The agent of a serving box: memory, and CPU over a minute of polling every 5 s, the tools it starts included."""
    pid = box.pid_of("agent.py")

    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(int(fields[index]) for index in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(AGENT_SECONDS)
    status = Path(f"/proc/{pid}/status").read_text()
    resident = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
    return {"resident_mb": resident, "percent_of_a_core": 100 * (used() - before) / AGENT_SECONDS}


def one_notice(box: world.World, inside: list[str]) -> list[float]:
    """Milliseconds from the answer that carried the notice to the first refusal, per family."""
    box.metadata.paths.pop("meta-data/spot/instance-action", None)
    for mark in ("leaving", "notice", "why", "gate"):
        box.inside(f"/run/fleet/{mark}").unlink(missing_ok=True)
    box.inside("/run/fleet/completed").write_text("")
    subprocess.run([*inside, "/usr/bin/python3", "/opt/fleet/gate.py", "open"], check=True)
    count = box.log().count("watching for notices")
    box.systemctl("start", "fleet-agent")
    world.wait(lambda: box.log().count("watching for notices") > count)
    log = box.probe(ask=False, every=0.001)
    world.wait(lambda: len(world.probes(log)) > 50)
    box.metadata.asked.clear()
    box.notice()
    world.wait(lambda: world.probes(log)[-1]["outcome"] == "refused")
    time.sleep(0.3)
    seen = next(at for at, path, status in box.metadata.asked if path.endswith("instance-action") and status == 200)
    probes = world.probes(log)
    box.callers[-1].kill()
    box.systemctl("stop", "fleet-agent")
    return [
        1000 * (next(p["at"] for p in probes if p["family"] == family and p["outcome"] == "refused") - seen)
        for family in (4, 6)
    ]


# --- report ---------------------------------------------------------------------------------------------------


def table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """A table for the screen."""
    made = Table(*columns, title=title, title_justify="left")
    for row in rows:
        made.add_row(*row)
    return made


def main() -> None:
    """Measure everything, print tables, write JSON."""
    console = Console(width=None if sys.stdout.isatty() else 160)  # a table in a file is not folded
    with tempfile.TemporaryDirectory(prefix="bench-boot-") as name:
        folder = Path(name)
        sources = world.artifacts(folder / "sources")
        with localaws.server(folder / "aws") as aws:
            world.furnish(aws, sources)
            target_group = (folder / "aws" / "target-group").read_text()
            boot = measure_boot(aws, target_group, sources, folder)
            with aws.fork(folder / "aws-agent") as copy:
                agent = measure_agent(copy, target_group, folder)
        result = {"load": bench_stream.measure(), "restore": bench_restore.measure(), "boot": boot, "agent": agent}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(result, indent=1))
    bench_stream.report(console, result["load"])
    bench_restore.report(console, result["restore"])
    played, real = boot["replay"], boot["real"]
    console.print(
        table(
            "boot",
            ["", "seconds", "critical path", "of path", "serial order"],
            [
                [name, *(f"{run[key]:.2f}" for key in ("seconds", "path_seconds", "times_path")), ratio]
                for name, run, ratio in (
                    (f"stand-ins at 1:{REPLAY}", played, f"{played['serial_times_graph']:.2f} times"),
                    ("test world, real", real, ""),
                )
            ],
        )
    )
    notice, footprint = agent["notice_to_refused_ms"], boot["footprint"]
    console.print(
        table(
            "agent",
            ["measure", "value", "budget"],
            [
                ["notice seen to refused, median", f"{notice['median']:.0f} ms", ""],
                ["notice seen to refused, worst", f"{notice['max']:.0f} ms", "200 ms"],
                ["resident memory", f"{footprint['resident_mb']:.1f} MB", "30 MB"],
                ["CPU, polling every 5 s", f"{footprint['percent_of_a_core']:.2f} % of a core", "0.5 %"],
            ],
        )
    )
    console.print(f"JSON: {OUT.relative_to(world.CHECKOUT)}")


if __name__ == "__main__":
    main()
