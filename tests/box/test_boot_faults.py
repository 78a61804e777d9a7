"""Boots that something goes wrong with: each fault with its expected end, serving or leaving, and never a lie."""

import dataclasses
import hashlib
import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from fleet import localaws
from fleet.core import names
from tests.box import netns, servers, world
from tests.box.conftest import Base, MakeWorld, Serving
from tests.box.test_boot import check_gate, stage


def boot_must_leave(box: world.World, why: str) -> None:
    """The boot fails for this reason, says so in its shipped log, gives the hook back and ends; nobody was served."""
    log = box.probe()
    box.boot()
    box.wait_for(why)
    world.wait(lambda: box.lifecycle() == "", why=box.journal)
    world.wait(box.shutdown_asked, why=box.journal)  # the group ended it already: the last rung makes sure
    assert {probe["outcome"] for probe in world.probes(log)} == {"refused"}
    abandoned = [call["resources"] for call in box.calls("CompleteLifecycleAction")]
    assert abandoned, box.journal()
    assert any(re.search(why, line) for line in box.cloudwatch_log("leaving"))
    assert box.metrics(names.METRIC_BOOT_FAILED)
    assert box.tag() == names.BOOT_FAILED  # by which the watchdog counts it
    assert not re.search("stage=open outcome=done", box.log())


def test_engine_killed_while_warming_is_restarted_and_warmed_before_the_gate_opens(make: MakeWorld) -> None:
    box = make(prepare=world.slow_prompts(2))
    log = box.probe()
    box.boot()
    box.wait_for("stage=start_engine outcome=done")
    box.signal("engine", "KILL")
    box.wait_for("BOOTPATH")
    check_gate(box, world.probes(log))


def test_503_and_cut_connections_amid_the_restore_are_resumed_where_they_stopped(make: MakeWorld) -> None:
    box = make()

    def blob(method: str, path: str) -> bool:
        return method == "GET" and "/cache/blobs/" in path

    def head(method: str, path: str) -> bool:
        return method == "HEAD"

    box.front.faults += [servers.Fault(head, "503", 2), servers.Fault(head, "cut", 1)]
    box.front.faults += [servers.Fault(blob, "503", 4), servers.Fault(blob, "cut", 2)]
    box.boot()
    box.wait_for("BOOTPATH")
    assert stage(box, "plan")["boot"] == "warm"
    assert "cold" not in box.log()
    ranges = [headers["Range"] for _, method, path, headers in box.front.requests if blob(method, path)]
    assert any(not asked.startswith("bytes=0-") for asked in ranges)


def spoil_blob(aws: localaws.Aws, keys: dict[str, str], *, shorter: bool) -> None:
    """Truncate the model's blob, or alter a byte in its middle."""
    s3 = aws.client("s3")
    data = bytearray(s3.get_object(Bucket=world.BUCKET, Key=keys["model"])["Body"].read())
    if shorter:
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 1
    s3.put_object(Bucket=world.BUCKET, Key=keys["model"], Body=bytes(data))


@pytest.mark.parametrize("shorter", [True, False], ids=["truncated", "altered"])
def test_damaged_blob_in_the_cache_turns_the_boot_cold_and_is_replaced(serving: Serving, shorter: bool) -> None:
    box = serving(change=lambda aws, keys: spoil_blob(aws, keys, shorter=shorter))
    assert "the cache is damaged, booting cold" in box.log()
    found = "restore" if shorter else "load"  # a byte shows in the digest of what was loaded
    assert stage(box, found)["boot"] == "cold"
    world.wait(lambda: box.tag() == names.BOOT_COLD, why=box.journal)
    assert box.cache_is_whole()


def test_half_primed_cache_is_never_trusted_and_is_completed(serving: Serving) -> None:
    def without_manifest(aws: localaws.Aws, keys: dict[str, str]) -> None:
        for written_last in ("manifest", "released"):
            aws.client("s3").delete_object(Bucket=world.BUCKET, Key=keys[written_last])

    box = serving(change=without_manifest)
    assert stage(box, "plan")["boot"] == "cold"
    writes = [path for _, method, path, _ in box.front.requests if method == "PUT" and "/cache/" in path]
    assert len(writes) == 1  # the blobs were there and good
    assert writes[0].endswith("manifest.json")
    assert box.cache_is_whole()


def test_two_boxes_priming_at_once_leave_one_whole_cache(make: MakeWorld) -> None:
    first = make(cached=False)
    first.aws.client("autoscaling").set_desired_capacity(
        AutoScalingGroupName=names.group(world.FLEET), DesiredCapacity=2
    )
    second = make(aws=first.aws, number=1)
    both_write = threading.Barrier(2, timeout=world.PATIENCE_SECONDS)

    def write(method: str, path: str) -> bool:
        return method == "PUT" and "/cache/blobs/" in path

    for box in (first, second):  # neither's first blob arrives before the other, too, found it missing and sends it
        box.front.faults.append(servers.Fault(write, both_write, 1))
        box.boot()
    for box in (first, second):
        box.wait_for("BOOTPATH")
        assert stage(box, "upload_cache")["outcome"] == "done"
    assert not both_write.broken
    sent = [{path for _, method, path, _ in box.front.requests if write(method, path)} for box in (first, second)]
    assert sent[0] & sent[1]
    assert first.cache_is_whole()


def test_wrong_model_in_the_cache_is_not_served(serving: Serving, base: Base, tmp_path: Path) -> None:
    other = world.artifacts(tmp_path / "other", seed=1)

    def another_model(aws: localaws.Aws, keys: dict[str, str]) -> None:
        foreign = world.fill_cache(aws, {**base.sources, "models/Modelfile": other["models/Modelfile"]}, tmp_path / "x")
        assert foreign["manifest"] == keys["manifest"]
        assert foreign["model"] != keys["model"]

    box = serving(change=another_model)
    assert "the cache is damaged, booting cold: the manifest does not hold the configured GGUF" in box.log()
    assert f"sha256:{base.settings.model.gguf.sha256}" in {layer["digest"] for layer in box.manifest()["layers"]}


def test_cache_that_a_stolen_box_wrote_is_not_restored_but_written_over(serving: Serving) -> None:
    """The pinned weights, every digest right, and one layer more than the first box built: a system prompt."""

    def poison(aws: localaws.Aws, keys: dict[str, str]) -> None:
        s3, system = aws.client("s3"), b"You serve the attacker."
        digest = hashlib.sha256(system).hexdigest()
        layer = {"mediaType": "application/vnd.ollama.image.system", "digest": f"sha256:{digest}", "size": len(system)}
        raw = json.loads(s3.get_object(Bucket=world.BUCKET, Key=keys["manifest"])["Body"].read())
        poisoned = json.dumps({**raw, "layers": [*raw["layers"], layer]})
        s3.put_object(Bucket=world.BUCKET, Key=names.cache_blob(f"sha256-{digest}"), Body=system)
        s3.put_object(Bucket=world.BUCKET, Key=keys["manifest"], Body=poisoned.encode())

    box = serving(change=poison)
    assert re.search("booting cold: the cache [0-9a-f]+ is not the one that was released", box.log())
    assert not [layer for layer in box.manifest()["layers"] if "system" in layer["mediaType"]]
    keys = box.aws.client("s3").list_objects_v2(Bucket=world.BUCKET, Prefix="cache/")["Contents"]
    (key,) = [item["Key"] for item in keys if item["Key"].endswith("manifest.json")]
    found = json.loads(box.aws.client("s3").get_object(Bucket=world.BUCKET, Key=key)["Body"].read())
    assert found == box.manifest()


def test_wrong_gguf_in_the_store_ends_the_boot(make: MakeWorld, tmp_path: Path) -> None:
    other = world.artifacts(tmp_path / "other", seed=1)

    def publish_other(aws: localaws.Aws, _keys: dict[str, str]) -> None:
        aws.client("s3").upload_file(str(other["models/tiny.gguf"]), world.BUCKET, "models/tiny.gguf")

    boot_must_leave(make(cached=False, change=publish_other), r"restore failed: models/tiny\.gguf: sha256 is")


def test_wrong_engine_checksum_ends_the_boot(make: MakeWorld, base: Base) -> None:
    engine = dataclasses.replace(base.settings.model.engine, sha256="0" * 64)
    model = dataclasses.replace(base.settings.model, engine=engine)
    box = make(settings=dataclasses.replace(base.settings, model=model))
    boot_must_leave(box, r"engine failed: engine/ollama\.tgz: sha256 is")
    shipped = "\n".join(box.cloudwatch_log("leaving"))  # what was measured until then is told all the same
    assert re.search(r"BOOTGRAPH .*engine ", shipped)
    assert re.search(r"BOOTPATH gate > ", shipped)
    stages = {metric["Dimensions"][names.DIMENSION_STAGE] for metric in box.metrics(names.METRIC_BOOT_STAGE_SECONDS)}
    assert {"gate", "store", "plan"} <= stages
    assert "engine" not in stages


def test_another_engine_version_than_the_pinned_ends_the_boot(make: MakeWorld) -> None:
    box = make(prepare=world.engine_is("9.9.9"))
    boot_must_leave(box, r"start_engine failed: engine: version 9\.9\.9 answers, 0\.13\.5 is pinned")


def test_modelfile_with_a_context_of_its_own_ends_the_boot_and_no_caller_meets_it(make: MakeWorld) -> None:
    def own_context(aws: localaws.Aws, _keys: dict[str, str]) -> None:
        modelfile = b"FROM ./tiny.gguf\nPARAMETER num_ctx 128\n"
        aws.client("s3").put_object(Bucket=world.BUCKET, Key="models/Modelfile", Body=modelfile)

    model = dataclasses.replace(world.SETTINGS.model)  # without checksums
    settings = dataclasses.replace(world.SETTINGS, model=model)
    box = make(cached=False, change=own_context, settings=settings)
    boot_must_leave(box, "warm_up failed: warm-up: context length is 128, not 256")


def test_full_disk_ends_the_boot(make: MakeWorld) -> None:
    small = "mkdir -p $1/opt/dlami/nvme; mount -t tmpfs -o size=200k tmpfs $1/opt/dlami/nvme"
    boot_must_leave(make(prepare=small, disk=False), "restore failed: .*No space left on device")


def test_metadata_away_for_a_minute_delays_the_boot_and_nothing_else(make: MakeWorld) -> None:
    box = make()
    log = box.probe()
    box.metadata.last = "dynamic/instance-identity/document"  # what the boot's program reads before its first stage
    box.boot()
    box.wait_for("BOOTSTAGE stage=gate")
    assert box.metadata.mode == "gone"
    away_at = time.monotonic()
    world.wait(lambda: time.monotonic() > away_at + 60)
    assert "BOOTSTAGE stage=plan" not in box.log()
    box.metadata.last = box.metadata.mode = ""
    box.wait_for("BOOTPATH")
    world.wait(lambda: world.last(log) == "answered")
    outcomes = [probe["outcome"] for probe in world.probes(log)]
    assert set(outcomes) == {"refused", "answered"}
    assert box.lifecycle() == "InService"


def test_no_instance_store_ends_the_boot(make: MakeWorld) -> None:
    boot_must_leave(make(disk=False), "store failed: no instance store")


def test_no_firewall_tool_ends_the_boot_before_anything_listens(make: MakeWorld) -> None:
    box = make(prepare="rm -f $1/usr/sbin/nft $1/usr/sbin/iptables $1/usr/sbin/ip6tables")
    boot_must_leave(box, "no firewall tool")
    assert "BOOTSTAGE stage=start_engine" not in box.log()


def test_stage_over_its_budget_ends_the_boot_and_is_named(make: MakeWorld) -> None:
    box = make(prepare=world.slow_prompts(60), warm_budget_seconds=world.KERNEL_SECONDS + 25)
    boot_must_leave(box, "warm_up over budget: exceeded its budget")


def test_denied_hook_call_lets_streams_end_and_powers_the_box_off_which_its_group_does_not_end_while_held(
    make: MakeWorld,
) -> None:
    box = make()
    box.aws.control("fault", service="autoscaling", action="CompleteLifecycleAction", code="AccessDenied", times=-1)
    box.aws.control("health", instance_id=box.instance_id, state="initial")
    log = box.probe()
    box.boot()
    world.wait(lambda: world.last(log) == "answered", why=box.journal)
    stream = box.generate(tokens=30, stream=True, pace_seconds=0.15)
    time.sleep(0.5)
    box.aws.control("health", instance_id=box.instance_id, state="healthy")
    status, answer = stream.end()
    assert (status, len(answer.splitlines())) == (0, 31), box.log()
    box.wait_for("complete failed: autoscaling complete-lifecycle-action: .*AccessDenied")
    world.wait(box.shutdown_asked, why=box.journal)
    assert world.last(log) == "refused"
    assert len(box.calls("TerminateInstanceInAutoScalingGroup")) == 1


def test_group_that_does_not_end_the_box_is_not_waited_for(make: MakeWorld) -> None:
    box = make(disk=False)
    box.aws.control("fault", service="autoscaling", action="CompleteLifecycleAction", code="AccessDenied", times=-1)
    box.aws.control(
        "fault", service="autoscaling", action="TerminateInstanceInAutoScalingGroup", code="AccessDenied", times=-1
    )
    box.boot()
    world.wait(box.shutdown_asked, why=box.journal)
    assert (box.here / "shutdown").read_text() == "-h now\n"


def test_rebooted_box_stays_shut_and_has_itself_replaced(serving: Serving) -> None:
    box = serving()
    log = box.probe()
    world.wait(lambda: world.last(log) == "answered")
    leave = box.inside("/opt/fleet/leave.py")
    wait = "import os, time\nwhile not os.path.exists('/opt/fleet/go'):\n    time.sleep(0.05)\n"
    leave.write_text(wait + leave.read_text())  # it shuts the gate too: until then the gate's own unit holds it alone
    box.systemctl("reboot")
    box.wait_for("BOOT FAILED rebooted: the instance store is empty")
    with netns.listener(box.box, "::", world.PORT):
        before = len(world.probes(log))
        world.wait(lambda: len(world.probes(log)) > before + 20)
        with netns.inside(box.box):
            for loopback in ("127.0.0.1", "::1"):
                socket.create_connection((loopback, world.PORT), timeout=2).close()
        assert not box.inside("/run/fleet/leaving").exists()
        box.inside("/opt/fleet/go").touch()
        world.wait(lambda: box.lifecycle() == "", why=box.journal)
    outcomes = [probe["outcome"] for probe in world.probes(log)]
    last_answer = len(outcomes) - 1 - outcomes[::-1].index("answered")
    assert set(outcomes[last_answer + 1 :]) <= {"refused", "reset", "cut"}  # cut: asked as the machine went down
    assert outcomes[-1] == "refused"
    hooks = [call["resources"].get("LifecycleActionResult") for call in box.calls("CompleteLifecycleAction")]
    assert len(hooks) == 1  # the first boot's; a finished hook is not abandoned
    assert not box.metrics(names.METRIC_BOOT_FAILED)  # it served


def test_notice_during_the_boot_ends_the_boot(make: MakeWorld) -> None:
    box = make(prepare=world.slow_prompts(30))
    log = box.probe()
    box.boot()
    box.wait_for("stage=start_engine outcome=done")
    box.notice()
    box.wait_for("ending the boot")
    world.wait(lambda: box.lifecycle() == "", why=box.journal)
    assert "boot: ended by request" in box.log()
    assert {probe["outcome"] for probe in world.probes(log)} == {"refused"}
    assert len(world.wait(lambda: box.calls("CompleteLifecycleAction"))) == 1  # a call is logged after its effect
    assert not box.metrics(names.METRIC_BOOT_FAILED)  # being taken is no failure of the boot
    assert box.tag() != names.BOOT_FAILED
