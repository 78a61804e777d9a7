"""The restore's part of `make bench-boot`: our download, digests included, through links of 10 and 2.5 Gbit/s.

The servers' work takes from the client's cores here, as S3's does not on a box:

    SeaweedFS   an S3 server, plain and over TLS; the AWS CLI is the peer: `aws s3 cp --recursive`, version 2, defaults
    busybox     its httpd sends plain ranges and costs the least; `curl` into nothing shows what the link itself takes
"""

import hashlib
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.box import netns, world

FILES, FILE_BYTES = 8, 256 << 20
MEGABYTES = FILES * FILE_BYTES / 1e6
ROUNDS = 3
LINKS = {"10 Gbit/s": ("10gbit", 1250.0), "2.5 Gbit/s": ("2500mbit", 312.5)}  # tc's name, MB/s
KEY = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1"}
BUCKET = "bench"
SEAWEED, SEAWEED_TLS, BUSYBOX = "SeaweedFS", "SeaweedFS, TLS", "busybox"
PORTS = {SEAWEED: 8333, SEAWEED_TLS: 8433, BUSYBOX: 8334}
PEER = "aws s3 cp --recursive"
S3_CONFIG = {
    "identities": [
        {
            "name": "bench",
            "credentials": [{"accessKey": "bench", "secretKey": "bench"}],  # pragma: allowlist secret
            "actions": ["Admin", "Read", "Write", "List"],
        }
    ]
}


def measure() -> dict[str, Any]:
    """Every client on its server, in turns, through each link; and what this machine's cores hash."""
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        folder, target = Path(name), Path(memory) / "restored"
        digests = write_source(folder / BUCKET / "blobs")
        clients = commands(target, digests)
        trusted = str(world.AUTHORITY.certificate(folder))
        environment = {**os.environ, **KEY, "AWS_CA_BUNDLE": trusted, "SSL_CERT_FILE": trusted}
        with served(folder) as (box, out), netns.inside(box):
            fill(folder, environment)
            target.mkdir()
            world.wait(partial(succeeds, clients[SEAWEED, PEER], environment))  # new volumes show up one by one
            runs = [run for link in LINKS for run in measure_link(link, out, clients, target, environment)]
    return {"rounds": ROUNDS, "megabytes": MEGABYTES, "runs": runs, "sha256": measure_sha256()}


def write_source(folder: Path, files: int = FILES, size: int = FILE_BYTES) -> list[str]:
    """The files under the names that blobs have; returns their digests."""
    folder.mkdir(parents=True)
    block = os.urandom(size // 64)
    digests = []
    for number in range(files):
        data = b"".join(block[number * 97 + turn :] + block[: number * 97 + turn] for turn in range(64))
        digests.append(hashlib.sha256(data).hexdigest())
        (folder / f"sha256-{digests[-1]}").write_bytes(data)
    return digests


def commands(target: Path, digests: list[str]) -> dict[tuple[str, str], list[str]]:
    """The clients by server and name."""

    def ours(server: str, check: str) -> list[str]:
        program = str(world.STANDINS / "restore.py")
        return [sys.executable, program, endpoint(server), str(target), str(FILE_BYTES), check, *digests]

    def theirs(server: str) -> list[str]:
        return [*aws("cp", server), "--recursive", f"s3://{BUCKET}/blobs/", str(target)]

    check = f"ls -d {target}/* | xargs -P {os.cpu_count()} -n 1 openssl dgst -sha256 >/dev/null"  # the library we use
    into_nothing = [word for digest in digests for word in ("-o", "/dev/null", url(BUSYBOX, digest))]
    return {
        (SEAWEED, PEER): theirs(SEAWEED),
        (SEAWEED, f"{PEER}, then openssl"): ["sh", "-c", f"{shlex.join(theirs(SEAWEED))} && {check}"],
        (SEAWEED, "restore, sha256 checked"): ours(SEAWEED, "sha256"),
        (SEAWEED, "restore, unchecked"): ours(SEAWEED, "unchecked"),
        (SEAWEED_TLS, PEER): theirs(SEAWEED_TLS),
        (SEAWEED_TLS, "restore, sha256 checked"): ours(SEAWEED_TLS, "sha256"),
        (SEAWEED_TLS, "restore, unchecked"): ours(SEAWEED_TLS, "unchecked"),
        (BUSYBOX, "restore, sha256 checked"): ours(BUSYBOX, "sha256"),
        (BUSYBOX, "restore, unchecked"): ours(BUSYBOX, "unchecked"),
        (BUSYBOX, "curl, into nothing"): ["curl", "--no-progress-meter", "--parallel", *into_nothing],
    }


def endpoint(server: str) -> str:
    """Where a server listens."""
    return f"http{'s' * (server == SEAWEED_TLS)}://{netns.OUT_V4}:{PORTS[server]}"


def url(server: str, digest: str) -> str:
    """Where a blob stands on a server."""
    return f"{endpoint(server)}/{BUCKET}/blobs/sha256-{digest}"


def aws(verb: str, server: str) -> list[str]:
    """The peer, as far as its verb."""
    return ["/usr/bin/aws", "--endpoint-url", endpoint(server), "s3", verb, *["--only-show-errors"] * (verb == "cp")]


def listing() -> list[str]:
    """What succeeds once every file is there."""
    return [*aws("ls", SEAWEED), f"s3://{BUCKET}/blobs/"]


def fill(folder: Path, environment: dict[str, str]) -> None:
    """Put the files into the S3 server, once it answers."""
    make = ["/usr/bin/aws", "--endpoint-url", endpoint(SEAWEED), "s3", "mb", f"s3://{BUCKET}"]
    world.wait(partial(succeeds, make, environment))
    upload = [*aws("cp", SEAWEED), "--recursive", str(folder / BUCKET / "blobs"), f"s3://{BUCKET}/blobs/"]
    subprocess.run(upload, env=environment, check=True)


def succeeds(command: list[str], environment: dict[str, str]) -> bool:
    """Whether a command ends well."""
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    """Both servers, a namespace for their client and one for them, with a link between."""
    out, box = netns.new(), netns.new()
    running = []
    (folder / "s3.json").write_text(json.dumps(S3_CONFIG))
    (folder / "weed").mkdir()
    weed = ["weed", "server", "-s3", f"-s3.config={folder / 's3.json'}", f"-dir={folder / 'weed'}"]
    weed += [f"-ip={netns.OUT_V4}", "-ip.bind=0.0.0.0", "-volume.max=0", "-master.volumeSizeLimitMB=1024"]
    world.AUTHORITY.server.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    weed += [f"-s3.port.https={PORTS[SEAWEED_TLS]}", f"-s3.cert.file={folder / 'server.pem'}"]
    weed += [f"-s3.key.file={folder / 'server.pem'}"]
    httpd = ["busybox", "httpd", "-f", "-p", str(PORTS[BUSYBOX]), "-h", str(folder)]
    try:
        with netns.inside(box):
            running.append(start(["sleep", "infinity"]))
        netns.join(box, running[0].pid, out)
        with netns.inside(out):
            tc("qdisc add dev out root handle 1: htb default 1")
            running += [start(weed), start(httpd)]
        yield box, out
    finally:
        for process in running:
            process.kill()
            process.wait()
        os.close(out)
        os.close(box)


def start(command: list[str]) -> "subprocess.Popen[bytes]":
    """A quiet process that ends with us."""
    return subprocess.Popen([*world.DIES_WITH_US, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def tc(words: str) -> None:
    """The `tc` command, in this thread's namespace."""
    subprocess.run(["tc", *words.split()], check=True)


def measure_link(
    link: str, out: int, clients: dict[tuple[str, str], list[str]], target: Path, environment: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """What every client takes through one link: medians of `ROUNDS`."""
    rate, line_rate = LINKS[link]
    with netns.inside(out):
        tc(f"class replace dev out parent 1: classid 1:1 htb rate {rate} burst 1m cburst 1m quantum 200000")
    seconds: dict[tuple[str, str], list[float]] = {client: [] for client in clients}
    cpu: dict[tuple[str, str], list[float]] = {client: [] for client in clients}
    for client, command in track(list(clients.items()) * ROUNDS, f"restore at {link}"):
        shutil.rmtree(target)
        target.mkdir()
        before, started = cpu_seconds(), time.monotonic()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds[client].append(time.monotonic() - started)
        cpu[client].append(cpu_seconds() - before)
    for server, name in clients:
        rounds, peer = seconds[server, name], seconds.get((server, PEER))
        yield {
            "link": link,
            "server": server,
            "client": name,
            "seconds": statistics.median(rounds),
            "mb_per_s": MEGABYTES / statistics.median(rounds),
            "client_cpu_seconds": statistics.median(cpu[server, name]),
            "times_aws": peer and statistics.median(theirs / ours for theirs, ours in zip(peer, rounds, strict=True)),
            "of_link_time": statistics.median(rounds) * line_rate / MEGABYTES,
            "rounds": rounds,
        }


def cpu_seconds() -> float:
    """CPU that this process's ended children used."""
    times = os.times()
    return times.children_user + times.children_system


def measure_sha256() -> dict[str, Any]:
    """What one core hashes and what all of them do at once, and whether they have the instructions for it."""
    data, cores = os.urandom(64 << 20), os.cpu_count() or 1

    def rate(threads: int) -> float:
        hashing = [threading.Thread(target=hashlib.sha256, args=(data,)) for _ in range(threads)]
        started = time.monotonic()
        for thread in hashing:
            thread.start()
        for thread in hashing:
            thread.join()
        return threads * len(data) / 1e6 / (time.monotonic() - started)

    return {
        "mb_per_s_one_core": statistics.median(rate(1) for _ in range(5)),
        "mb_per_s_all_cores": statistics.median(rate(cores) for _ in range(5)),
        "cores": cores,
        "sha_ni": " sha_ni" in Path("/proc/cpuinfo").read_text(),
    }


def report(console: Console, result: dict[str, Any]) -> None:
    """The table, and the ceiling that this machine's cores put on it."""
    columns = ("link", "server", "client", "seconds", "MB/s", "client CPU s", "times the CLI", "of link time")
    table = Table(*columns, title=f"restore of {MEGABYTES / 1000:.2f} GB, medians of {ROUNDS}", title_justify="left")
    figures = ("seconds", "mb_per_s", "client_cpu_seconds", "times_aws", "of_link_time")
    for run in result["runs"]:
        told = ["" if run[figure] is None else f"{run[figure]:.2f}" for figure in figures]
        table.add_row(run["link"], run["server"], run["client"], *told)
    console.print(table)
    sha, fast = result["sha256"], next(iter(LINKS))
    peer = next(run["mb_per_s"] for run in result["runs"] if (run["link"], run["client"]) == (fast, PEER))
    ceiling = sha["mb_per_s_all_cores"]
    console.print(
        f"sha256 here: {sha['mb_per_s_one_core']:.0f} MB/s on one core, {ceiling:.0f} on all {sha['cores']} (SHA"
        f" instructions: {sha['sha_ni']}): if they did nothing else, {ceiling / peer:.2f} times the CLI at {fast}."
    )
