"""Boots of the real bundle by its rendered user data, against real parts (see `world`)."""

import dataclasses
import json
import re
import urllib.request

from fleet.core import names
from tests.box import netns, world
from tests.box.conftest import GRANTED, Base, MakeWorld, Serving, called

LANE_METRICS = f"http://127.0.0.1:{names.LANE_ADMIN_PORT}/metrics"  # as seen from within a box


def stage(box: world.World, name: str) -> dict[str, str]:
    """The fields of a stage's BOOTSTAGE line."""
    line = re.search(rf"^.*BOOTSTAGE stage={name} .*$", box.log(), re.MULTILINE)
    assert line, box.journal()
    return dict(re.findall(r"(\w+)=(\S+)", line[0]))


def monotonic(box: world.World, uptime: str) -> float:
    """An uptime of the box on the prober's clock."""
    return float(uptime) + box.monotonic_at_kernel


def ended(probe: dict[str, object]) -> float:
    """When a caller knew what became of it; on a busy machine it may have begun long before it connected."""
    return float(str(probe["at"])) + float(str(probe["ms"])) / 1000


def check_gate(box: world.World, seen: list[dict[str, object]]) -> None:
    """Refused on both families until the warm-up returned, then answered; nothing hung and nothing came early."""
    warmed, opened = monotonic(box, stage(box, "warm_up")["end"]), monotonic(box, stage(box, "open")["end"])
    for family in (4, 6):
        early = [probe for probe in seen if probe["family"] == family and ended(probe) < warmed]
        late = [probe for probe in seen if probe["family"] == family and float(str(probe["at"])) > opened]
        assert len(early) > 20
        assert len(late) > 5
        assert {probe["outcome"] for probe in early} == {"refused"}
        assert {probe["outcome"] for probe in late} == {"answered"}
    assert {probe["outcome"] for probe in seen} == {"refused", "answered"}


def test_warm_boot_refuses_until_the_warm_up_returned_then_serves(make: MakeWorld) -> None:
    box = make(prepare=world.slow_prompts(1) + world.MODPROBE)
    log = box.probe()
    box.boot()
    box.wait_for("stage=start_engine outcome=done")
    assert box.inside("/opt/standin/modprobe").read_text() == "-u -c=0\n"  # the GPU's devices, before the engine
    assert box.engine_answers()  # so that a refusal outside is the gate's
    box.wait_for("BOOTPATH")
    check_gate(box, world.probes(log))
    status, answer = box.generate(address=netns.BOX_V6).end()
    assert status == 0
    assert json.loads(answer)["response"] == ""  # the model thinks: few tokens are thoughts alone, the warm-up's, too
    assert json.loads(answer)["thinking"].isprintable()
    assert len(json.loads(answer)["thinking"]) > 0
    assert box.lifecycle() == "InService"


def test_telemetry_agent_delays_nothing_and_the_box_registers_before_it_serves(make: MakeWorld) -> None:
    box = make(prepare=world.CLOUDWATCH_AGENT + world.slow_prompts(5))
    box.boot()
    box.wait_for("stage=complete outcome=done")
    assert "stage=telemetry" not in box.log()  # still starting, while the box serves
    assert box.generate(prompt_seconds=0).end()[0] == 0
    box.standin("telemetry-up")
    box.wait_for("BOOTPATH")
    assert float(stage(box, "telemetry")["end"]) > float(stage(box, "complete")["end"])
    assert float(stage(box, "register")["end"]) < float(stage(box, "open")["start"])
    assert float(stage(box, "healthy")["start"]) >= float(stage(box, "open")["end"])
    assert float(stage(box, "complete")["start"]) >= float(stage(box, "healthy")["end"])


def test_boot_reports_every_stage_its_graph_and_path_in_log_metrics_and_cloudwatch(serving: Serving) -> None:
    box = serving()
    for name in (
        "gate",
        "agent",
        "register",
        "store",
        "plan",
        "engine",
        "start_engine",
        "restore",
        "load",
        "warm_up",
        "open",
        "complete",
    ):
        fields = stage(box, name)
        assert float(fields["end"]) - float(fields["start"]) <= float(fields["seconds"]) + 0.02
        assert world.KERNEL_SECONDS < float(fields["end"]) < 200  # the instance's own uptime
    assert int(stage(box, "load")["bytes"]) > 500_000
    assert float(stage(box, "load")["mb_per_s"]) > 0
    path = box.wait_for(r"BOOTPATH (.*) = ([\d.]+) s of ([\d.]+) s")
    assert path[1].endswith("healthy > complete")
    shipped = world.wait(lambda: box.cloudwatch_log("boot"))
    assert any("BOOTPATH" in line for line in shipped)
    metrics = world.wait(lambda: box.metrics(names.METRIC_BOOT_STAGE_SECONDS))
    stages = {metric["Dimensions"][names.DIMENSION_STAGE] for metric in metrics}
    assert {"gate", "restore", "warm_up", names.STAGE_TOTAL} <= stages
    assert box.metrics(names.METRIC_REPLACEMENT_READY_SECONDS)
    with netns.inside(box.box), urllib.request.urlopen(LANE_METRICS, timeout=10) as answer:
        assert f"\n{names.SPOT_READY_LATENCY} " in answer.read().decode()
    secrets = json.loads(box.metadata.paths[f"meta-data/iam/security-credentials/{world.ROLE}"])
    for text in (box.log(), box.journal(), "\n".join(shipped)):
        for secret in (secrets["SecretAccessKey"], secrets["Token"], "Signature=", *box.metadata.tokens):
            assert secret not in text


def test_cold_boot_serves_before_it_primes_and_the_next_box_boots_warm_from_it(
    make: MakeWorld, serving: Serving
) -> None:
    cold = make(cached=False, heartbeat_seconds=1)
    log = cold.probe()
    cold.boot()
    cold.wait_for("BOOTPATH")
    check_gate(cold, world.probes(log))
    assert stage(cold, "plan")["boot"] == "cold"
    assert float(stage(cold, "upload_cache")["start"]) >= float(stage(cold, "complete")["end"])
    writes = [path for _, method, path, _ in cold.front.requests if method == "PUT" and "/cache/" in path]
    assert [path.endswith("manifest.json") for path in writes] == [False, False, False, True]
    assert cold.tag() == names.BOOT_COLD
    cold.notice()
    world.wait(lambda: not cold.lifecycle())
    # made by a failed upload of a large blob only; and what makes a missing object 404 instead of 403
    unseen = {"s3:AbortMultipartUpload", "s3:ListBucket"}
    world.wait(lambda: GRANTED - called(cold.aws) == unseen, why=cold.journal)  # the log is shipped last
    world.release(cold)
    warm = serving(aws=cold.aws)
    assert stage(warm, "plan")["boot"] == "warm"
    assert stage(warm, "upload_cache")["outcome"] == "skipped"
    assert warm.tag() == names.BOOT_WARM


def test_gguf_quantized_at_its_import_is_served_and_cached_as_what_it_became(serving: Serving, base: Base) -> None:
    model = dataclasses.replace(base.settings.model, quantize="q4_K_M")
    settings = dataclasses.replace(base.settings, model=model)
    cold = serving(cached=False, settings=settings)
    layers = cold.manifest()["layers"]
    assert f"sha256:{model.gguf.sha256}" not in [layer["digest"] for layer in layers]
    assert cold.cache_is_whole()
    cold.notice()
    world.wait(lambda: not cold.lifecycle())
    world.release(cold)
    warm = serving(aws=cold.aws, settings=settings)
    assert stage(warm, "restore")["outcome"] == "done"
    assert warm.manifest()["layers"] == layers


def test_gate_holds_on_both_families_with_iptables_where_nft_is_absent(make: MakeWorld, base: Base) -> None:
    older = dataclasses.replace(
        base.settings.model, engine_version="0.11.4"
    )  # whose models answer unless told to think
    settings = dataclasses.replace(base.settings, model=older)
    prepare = world.NO_NFT + world.engine_is("0.11.4") + world.slow_prompts(1)
    box = make(prepare=prepare, settings=settings)
    log = box.probe()
    box.boot()
    box.wait_for("BOOTPATH")
    check_gate(box, world.probes(log))
    assert json.loads(box.generate().end()[1])["response"].isprintable()


def test_instance_store_that_the_image_mounted_is_reused(serving: Serving) -> None:
    mounted = "mkdir -p $1/opt/dlami/nvme; mount -t tmpfs tmpfs $1/opt/dlami/nvme"
    box = serving(prepare=mounted, disk=False)
    assert stage(box, "store")["how"] == "reused-the-image's-mount"


def test_disk_mounted_elsewhere_is_reused_where_the_engine_may_write_and_without_fuse_the_model_is_downloaded(
    serving: Serving,
) -> None:
    """An image of somebody's own."""
    mounted = "mkdir $1/mnt/disk; chroot $1 sh -c 'mkfs.xfs -q /dev/loop*; mount /dev/loop* /mnt/disk'\n"
    box = serving(prepare=mounted + world.NO_FUSE)
    assert stage(box, "store")["how"] == "reused-a-mount"
    assert box.inside("/mnt/disk/fleet/models/blobs").is_dir()
    assert box.manifest()["layers"]  # read under /var/lib/fleet, which the units' sandbox leaves open

    box.wait_for("WARNING the model does not load while it arrives: /dev/fuse: No such file")
    assert stage(box, "restore")["how"] == "downloaded"
    assert stage(box, "load")["outcome"] == "skipped"
    assert world.wait(box.streamed_metric) == [0]
    assert box.model_is_right()


LVM_LABEL = """
import sys, zlib
body = (32).to_bytes(4, "little") + b"LVM2 001" + b"0" * 32 + bytes(448)
checksum = ~zlib.crc32(body, ~0xF597A6CF & 0xFFFFFFFF) & 0xFFFFFFFF
with open(sys.argv[1], "r+b") as disk:
    disk.seek(512)
    disk.write(b"LABELONE" + (1).to_bytes(8, "little") + checksum.to_bytes(4, "little") + body)
"""


def test_disk_with_a_label_of_lvm_and_no_mount_is_wiped(serving: Serving) -> None:
    label = f"python3 -c '{LVM_LABEL}' $1/dev/loop*; blkid --probe $1/dev/loop* | grep LVM2_member"
    box = serving(prepare=label)
    assert stage(box, "store")["how"] == "wiped-and-formatted"
