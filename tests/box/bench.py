"""`make bench-boot`: what the box's speed claims rest on, paired in one run; a table on the screen and JSON in out/.

    restore     our download, digests included, against `aws s3 cp --recursive` (Debian's CLI, version 2, defaults)
                from the same server, SeaweedFS, through a link shaped to 10 and to 2.5 Gbit/s
    boot        the declared graph against the serial order by the same executor: stages that cannot run here replay
                their measured medians at 1:10, as stand-ins; and a real boot of the test world beside it
    notice      from the poll that saw it to the first refused connection, on both families
    agent       resident memory and CPU at the pace of a real box

Budgets are reported, never asserted. Run it on an idle machine: client and server share its cores.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fleet import box_config, embedded

sys.path.insert(0, str(box_config.BUNDLE))

import graph
import stages

from tests.box import netns, world

OUT = world.CHECKOUT / "out" / "bench-boot.json"
FILES, FILE_BYTES = 8, 256 << 20
ROUNDS = 3
LINKS = {"10 Gbit/s": ("10gbit", 1250.0), "2.5 Gbit/s": ("2500mbit", 312.5)}  # tc's name, MB/s
KEY = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
BUCKET = "bench"
PEER = "aws s3 cp --recursive"
CHECK = "ls -d {target}/* | xargs -P 2 -n 1 sha256sum >/dev/null"
RATIOS = ("times_aws", "times_link")

# Seconds, medians of 27 warm boots; the others were not measured one by one and are what their work costs here.
MEDIANS = {"telemetry": 40.0, "engine": 11.0, "restore": 101.0, "warm": 97.0, "agent": 1.0, "store": 1.0}
ASSUMED = {"gate": 0.1, "register": 1.0, "plan": 0.5, "serve": 2.0, "open": 0.1, "healthy": 5.0, "complete": 1.0}
REPLAY = 10

AGENT_SECONDS = 60
NOTICES = 10


# --- restore --------------------------------------------------------------------------------------------------


@contextmanager
def shaped(folder: Path, rate: str) -> Iterator[tuple[int, str, dict[str, str]]]:
    """A weed server and a client's namespace with a shaped link between them."""
    out, box = netns.new(), netns.new()
    with netns.inside(box):
        holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "sleep", "3600"])
    netns.join(box, holder.pid, out)
    config = {
        "identities": [
            {
                "name": "bench",
                "credentials": [{"accessKey": "bench", "secretKey": "bench"}],  # pragma: allowlist secret
                "actions": ["Admin", "Read", "Write", "List"],
            }
        ]
    }
    (folder / "s3.json").write_text(json.dumps(config))
    (folder / "weed").mkdir(exist_ok=True)
    with netns.inside(out):
        for words in (
            "qdisc add dev out root handle 1: htb default 1",
            f"class add dev out parent 1: classid 1:1 htb rate {rate} burst 1m cburst 1m quantum 200000",
        ):
            subprocess.run(["tc", *words.split()], check=True)
        command = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "weed",
            "server",
            "-s3",
            f"-dir={folder / 'weed'}",
            "-ip=10.77.0.2",
        ]
        command += [
            "-ip.bind=0.0.0.0",
            "-volume.max=0",
            "-master.volumeSizeLimitMB=1024",
            f"-s3.config={folder / 's3.json'}",
        ]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://{netns.OUT_V4}:8333"
    environment = {**os.environ, **KEY, "AWS_DEFAULT_REGION": "us-east-1"}
    try:
        with netns.inside(out):
            world.wait(
                lambda: not subprocess.run(["curl", "-so", "/dev/null", f"{endpoint}/status"], check=False).returncode
            )
        yield box, endpoint, environment
    finally:
        server.kill()
        server.wait()
        holder.kill()
        holder.wait()
        os.close(out)
        os.close(box)


def cpu_seconds() -> float:
    """CPU that this process's ended children used."""
    times = os.times()
    return times.children_user + times.children_system


def succeeds(command: list[str], environment: dict[str, str]) -> bool:
    """Whether a command ends well."""
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


def measure_restore(folder: Path) -> list[dict[str, Any]]:
    """Both clients in turn, through both links."""
    source = folder / "source"
    source.mkdir()
    block = os.urandom(FILE_BYTES // 64)
    names = []
    for number in range(FILES):
        data = b"".join(block[number * 97 + turn :] + block[: number * 97 + turn] for turn in range(64))
        names.append(hashlib.sha256(data).hexdigest())
        (source / f"sha256-{names[-1]}").write_bytes(data)
    target = Path(tempfile.mkdtemp(dir="/dev/shm"))
    results = []
    try:
        for link, (rate, line_rate) in LINKS.items():
            with shaped(folder, rate) as (box, endpoint, environment):
                aws = ["/usr/bin/aws", "--endpoint-url", endpoint, "s3"]
                with netns.inside(box):
                    if subprocess.run([*aws, "ls", f"s3://{BUCKET}"], env=environment, capture_output=True).returncode:
                        subprocess.run([*aws, "mb", f"s3://{BUCKET}"], env=environment, check=True, capture_output=True)
                        upload = [*aws, "cp", "--only-show-errors", "--recursive", str(source), f"s3://{BUCKET}/blobs/"]
                        subprocess.run(upload, env=environment, check=True)
                ours = [sys.executable, str(world.STANDINS / "restore.py"), endpoint, str(target), str(FILE_BYTES)]
                theirs = [*aws, "cp", "--only-show-errors", "--recursive", f"s3://{BUCKET}/blobs/", str(target)]
                clients = {
                    PEER: theirs,
                    f"{PEER}, then sha256sum": ["sh", "-c", f"{shlex.join(theirs)} && {CHECK.format(target=target)}"],
                    "restore, sha256 checked": [*ours, "sha256", *names],
                    "restore, unchecked": [*ours, "unchecked", *names],
                }
                with netns.inside(box):  # a server that has just started on old volumes does not know them all yet
                    world.wait(partial(succeeds, theirs, environment))
                seconds: dict[str, list[float]] = {name: [] for name in clients}
                cpu: dict[str, list[float]] = {name: [] for name in clients}
                for _ in range(ROUNDS):
                    for name, command in clients.items():
                        shutil.rmtree(target)
                        target.mkdir()
                        before, started = cpu_seconds(), time.monotonic()
                        with netns.inside(box):
                            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
                        seconds[name].append(time.monotonic() - started)
                        cpu[name].append(cpu_seconds() - before)
                total = FILES * FILE_BYTES / 1e6
                peer = statistics.median(seconds[PEER])
                for name in clients:
                    took = statistics.median(seconds[name])
                    results.append(
                        {
                            "link": link,
                            "client": name,
                            "seconds": took,
                            "mb_per_s": total / took,
                            "client_cpu_seconds": statistics.median(cpu[name]),
                            "times_aws": statistics.median(
                                theirs / ours for theirs, ours in zip(seconds[PEER], seconds[name], strict=True)
                            ),
                            "times_link": took / (total / line_rate),
                            "rounds": seconds[name],
                            "peer_seconds": peer,
                        }
                    )
    finally:
        shutil.rmtree(target)
    return results


def measure_sha256() -> dict[str, Any]:
    """What one core of this machine hashes, and whether it has the instructions that make it five times that."""
    data = os.urandom(64 << 20)
    started = time.process_time()
    hashlib.sha256(data)
    flags = Path("/proc/cpuinfo").read_text()
    return {"mb_per_s_per_core": 64 * 1.048576 / (time.process_time() - started), "sha_ni": " sha_ni" in flags}


# --- boot -----------------------------------------------------------------------------------------------------


def replay(*, serial: bool) -> tuple[float, list[str], float]:
    """The declared graph with stand-ins for its stages: seconds it took, its critical path, the path's seconds."""

    def stand_in(name: str) -> graph.Body:
        def body() -> graph.Detail:
            time.sleep({**ASSUMED, **MEDIANS}.get(name, 0.0) / REPLAY)
            return {}

        return body

    started = time.monotonic()
    bodies = {stage.name: stand_in(stage.name) for stage in stages.STAGES}
    runs = graph.run(
        stages.STAGES,
        bodies,
        clock=time.monotonic,
        deadline=lambda: started + 600,
        on_end=lambda _: None,
        serial=serial,
    )
    took = next(run.ended for run in runs if run.name == "complete") - started
    path, seconds = graph.critical_path(stages.STAGES, runs)
    return took, path, seconds


def measure_boot(aws: embedded.Aws, target_group: str, sources: dict[str, Path], folder: Path) -> dict[str, Any]:
    """The replay in both orders, and one real warm boot of the test world."""
    took, path, seconds = replay(serial=False)
    serial, _, _ = replay(serial=True)
    with aws.fork(folder / "aws-boot") as copy:
        world.prime_cache(copy, sources, folder / "store")
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


def measure_agent(aws: embedded.Aws, target_group: str, folder: Path) -> dict[str, Any]:
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
    console = Console()
    with tempfile.TemporaryDirectory(prefix="bench-boot-") as name:
        folder = Path(name)
        sources = world.artifacts(folder / "sources")
        with embedded.server(folder / "aws") as aws:
            world.furnish(aws, sources)
            target_group = (folder / "aws" / "target-group").read_text()
            boot = measure_boot(aws, target_group, sources, folder)
            with aws.fork(folder / "aws-agent") as copy:
                agent = measure_agent(copy, target_group, folder)
        result = {"restore": measure_restore(folder), "sha256": measure_sha256(), "boot": boot, "agent": agent}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(result, indent=1))
    rows = [
        [r["link"], r["client"], *(f"{r[key]:.2f}" for key in ("seconds", "mb_per_s", "client_cpu_seconds", *RATIOS))]
        for r in result["restore"]
    ]
    columns = ["link", "client", "seconds", "MB/s", "client CPU s", "times aws", "of link time"]
    console.print(table(f"restore of {FILES * FILE_BYTES / 1e9:.2f} GB, medians of {ROUNDS}", columns, rows))
    sha = result["sha256"]
    console.print(
        f"one core hashes sha256 at {sha['mb_per_s_per_core']:.0f} MB/s here (SHA instructions: {sha['sha_ni']})"
    )
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
