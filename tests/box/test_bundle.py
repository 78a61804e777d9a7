"""What travels to the box: user data, units and programs, checked without starting anything."""

import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import disk
import engine
import fuse
import line
import pytest
import stages

from fleet.config import box_config
from fleet.core import names
from tests.box import world
from tests.box.conftest import a_box
from tests.source import imported, too_new_for_the_box

UNITS = sorted((box_config.BUNDLE / "units").glob("*.service"))
# The boot mounts for everybody, and changes its user so that the engine's own client does not import as root.
MOST_EXPOSED = {"fleet-agent.service": 4.0, "fleet-engine.service": 2.0, "fleet-boot.service": 5.2}
MOST_EXPOSED |= {"fleet-stream.service": 4.2, "fleet-lane.service": 2.0}
UNITS_OF_A_LOAD = ("stream", "boot", "engine")


def rendered() -> str:
    """User data with names as long as AWS makes them."""
    arn = "arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/" + "t" * 32 + "/" + "0" * 16
    config = box_config.box_config(world.SETTINGS, bucket="b" * 63, target_group_arn=arn)
    return box_config.user_data(config, bundle_bucket="b" * 63, bundle_key="k" * 80 + ".zip")


def words(unit: Path, key: str) -> set[str]:
    """What a unit's file says there."""
    lines = [line.partition("=") for line in unit.read_text().splitlines()]
    return {word for name, _, value in lines if name == key for word in value.split()}


def test_user_data_fits() -> None:
    assert len(rendered().encode()) <= 16_384  # raw bytes, AWS's limit; `make lint` has shellcheck read it


def test_user_data_carries_tokens_untouched_and_settings_the_box_can_read(tmp_path: Path) -> None:
    import config

    unresolved = "${Token[TOKEN.123]}"
    raw = box_config.box_config(world.SETTINGS, bucket=unresolved, target_group_arn=unresolved)
    script = box_config.user_data(raw, bundle_bucket=unresolved, bundle_key="k")
    text = script.split("<<'BOX'\n")[1].split("\nBOX\n")[0]
    (tmp_path / "box.json").write_text(text)
    box = config.load(tmp_path / "box.json")
    assert (box.bucket, box.target_group_arn, box.model) == (unresolved, unresolved, "tiny")
    (tmp_path / "box.json").write_text(json.dumps({**json.loads(text), "unknown": 1}))
    with pytest.raises(TypeError, match="unknown"):
        config.load(tmp_path / "box.json")


def run_user_data(tmp_path: Path, copy: str) -> "subprocess.CompletedProcess[str]":
    """Run it with stand-ins for all that it would change; `copy` is what the AWS CLI does once its call is told."""
    for name, text in (
        ("aws", f"echo $* >>{tmp_path}/calls; {copy}"),
        ("curl", "case $* in *token-ttl*) echo secret;; *'token: secret'*instance-id) echo i-0box;; esac"),
        ("timeout", 'shift; exec /usr/bin/timeout 0.2 "$@"'),
        ("sleep", ":"),
        ("install", ":"),
        ("id", ":"),
        ("systemctl", f"echo $* >>{tmp_path}/started"),
        ("shutdown", f"echo $* >{tmp_path}/off"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = rendered().replace("/etc/fleet/box.json", f"{tmp_path}/box.json").replace("/opt/fleet", str(tmp_path))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=30)


def test_user_data_starts_the_bundle_that_was_synthesized_and_no_other(tmp_path: Path) -> None:
    bundle = tmp_path / "in-the-bucket"
    bundle.write_bytes(box_config.bundle())
    copy = f"[ $1 != s3 ] || cp {bundle} {tmp_path}/bundle.zip"
    assert run_user_data(tmp_path, copy).returncode == 0
    assert (tmp_path / "started").read_text().endswith("start --no-block fleet-boot.service\n")
    (tmp_path / "started").unlink()
    with zipfile.ZipFile(bundle, "a") as archive:
        archive.writestr("units/attack.service", "[Service]\nExecStart=/bin/sh -c attack\n")
    assert run_user_data(tmp_path, copy).returncode != 0
    assert not (tmp_path / "started").exists()
    assert (tmp_path / "off").read_text() == "-h now\n"


@pytest.mark.parametrize("copy", ["exit 1", "exec /bin/sleep 60"], ids=["refused", "hanging"])
def test_user_data_that_cannot_fetch_the_bundle_gives_the_launch_hook_back_and_powers_the_machine_off(
    tmp_path: Path, copy: str
) -> None:
    assert run_user_data(tmp_path, copy).returncode != 0
    assert (tmp_path / "off").read_text() == "-h now\n"
    *copies, tagged, abandoned = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[:2] for call in copies] == [["s3", "cp"]] * 7
    assert all("--cli-connect-timeout 5 --cli-read-timeout 20" in one for one in (*copies, tagged, abandoned))
    assert tagged.startswith("ec2 create-tags --resources i-0box --tags Key=fleet:boot,Value=failed ")
    assert abandoned.startswith(
        f"autoscaling complete-lifecycle-action --auto-scaling-group-name {names.group(world.SETTINGS.fleet_name)} "
        f"--lifecycle-hook-name {names.LAUNCH_HOOK} --lifecycle-action-result ABANDON --instance-id i-0box "
    )


@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_unit_is_what_systemd_understands(unit: Path, tmp_path: Path) -> None:
    for program in ("usr/bin/python3", "var/lib/fleet/store/engine/bin/ollama"):
        (tmp_path / program).parent.mkdir(parents=True)
        shutil.copy("/bin/true", tmp_path / program)
    shutil.copytree(box_config.BUNDLE / "units", tmp_path / "etc/systemd/system")
    targets = tmp_path / "usr/lib/systemd/system"
    targets.mkdir(parents=True)
    for target in Path("/usr/lib/systemd/system").glob("*.target"):
        shutil.copy(target, targets)
    command = ["systemd-analyze", "verify", "--man=no", f"--root={tmp_path}", unit.name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_unit_starts_after_what_it_requires(unit: Path) -> None:
    required, after = words(unit, "Requires"), words(unit, "After")
    assert required <= after
    if "char-nvidia*" in words(unit, "DeviceAllow"):  # resolved when the unit starts: the devices must be there
        assert "fleet-gpu.service" in (required | words(unit, "Wants")) & after


def test_gate_is_shut_at_every_start_of_the_machine_before_the_network() -> None:
    """With default dependencies it would wait for basic.target, and the network does not."""
    lines = (box_config.BUNDLE / "units" / "fleet-gate.service").read_text().splitlines()
    for wanted in (
        "DefaultDependencies=no",
        "After=local-fs.target",
        "Before=network-pre.target",
        "Wants=network-pre.target",
        "ExecStart=/usr/bin/python3 /opt/fleet/gate.py closed",
        "WantedBy=multi-user.target",
    ):
        assert wanted in lines
    assert "\nsystemctl enable fleet-gate.service " in rendered()


def test_engine_may_write_the_model_store_alone_wherever_the_boot_puts_it() -> None:
    unit = box_config.BUNDLE / "units" / "fleet-engine.service"
    models = [mount / "fleet" / "models" for mount in (disk.IMAGE_MOUNT, disk.OWN_MOUNT)]
    assert words(unit, "ReadWritePaths") == {f"-{path}" for path in models}
    assert words(unit, "User") == {engine.USER}
    assert f"for user in {engine.USER} fleet-lane; do\n" in rendered()


def test_lane_begins_behind_the_gate_off_the_boots_path_and_outlives_the_engine() -> None:
    unit = keys(box_config.BUNDLE / "units" / names.LANE_UNIT)
    assert (unit["Type"], unit["WatchdogSec"], unit["TimeoutStopSec"]) == ("notify", "10", "65")
    assert unit["Restart"] == "always"  # one that hung, too
    assert float(unit["TimeoutStopSec"]) > line.STOPPING_SECONDS
    assert unit["Requires"] == unit["After"] == "fleet-gate.service"  # neither the engine nor the boot takes it along
    assert unit["BindReadOnlyPaths"] == "/run/systemd/notify /run/fleet/figures"  # or systemd never hears of it
    assert (unit["MemoryMax"], unit["OOMPolicy"]) == ("1G", "stop")  # what it reads must not end the engine
    needs = {stage.name: stage.needs for stage in stages.STAGES}
    assert (needs["lane"], needs["warm_up"]) == (("gate",), ("import", "lane"))


def test_engine_is_on_loopback_and_its_start_ends_nobody_who_is_in_line() -> None:
    unit = box_config.BUNDLE / "units" / engine.UNIT
    assert engine.environment(a_box())["OLLAMA_HOST"] == f"127.0.0.1:{names.ENGINE_PORT}"
    assert (words(unit, "IPAddressAllow"), words(unit, "IPAddressDeny")) == ({"localhost"}, {"any"})
    assert "ExecStartPre=+/usr/bin/python3 /opt/fleet/gate.py draining" in unit.read_text()
    assert (words(unit, "TimeoutStopSec"), words(unit, "SendSIGKILL")) == ({"65"}, {"no"})
    assert words(unit, "Restart") == {"always"}


# systemd.exec(5): each of these gives a unit a mount namespace of its own, which what it mounts does not leave.
OWN_MOUNTS = ("Bind", "DynamicUser", "Exec", "Inaccessible", "MountFlags", "NoExec", "PrivateDevices", "PrivateMounts")
OWN_MOUNTS += ("PrivateTmp", "ProcSubset", "ProtectControlGroups", "ProtectHome", "ProtectKernel", "ProtectProc")
OWN_MOUNTS += ("ProtectSystem", "ReadOnly", "ReadWrite", "Root", "TemporaryFileSystem")
COMMANDS = ("ExecStart",)  # begins like ExecPaths


def keys(unit: Path) -> dict[str, str]:
    """What a unit's file sets."""
    lines = [line.partition("=") for line in unit.read_text().splitlines() if not line.startswith("#")]
    return {name: value for name, separator, value in lines if separator and name not in COMMANDS}


def test_models_file_can_be_mounted_by_the_units_as_they_stand_and_seen_by_the_engine() -> None:
    """No stand-in applies all of it; without the device, every real box would download first."""
    server, boot, engines = (keys(box_config.BUNDLE / "units" / f"fleet-{name}.service") for name in UNITS_OF_A_LOAD)
    for unit in (server, boot):  # who mounts, and who takes a mount away
        assert [key for key in unit if key.startswith(OWN_MOUNTS)] == []
        assert "CAP_SYS_ADMIN" in unit["CapabilityBoundingSet"].split()
        assert "@mount" in unit["SystemCallFilter"].split()
    assert (server["DevicePolicy"], server["DeviceAllow"]) == ("closed", f"{fuse.DEVICE} rw")
    assert not {"PrivateMounts", "MountFlags"} & engines.keys()  # else nothing that is mounted later reaches it


def test_server_of_the_models_file_outlives_the_boot_and_is_killed_by_nobody_but_by_name() -> None:
    server, boot, _ = (keys(box_config.BUNDLE / "units" / f"fleet-{name}.service") for name in UNITS_OF_A_LOAD)
    bonds = {"BindsTo", "PartOf", "Requires", "Requisite", "StopPropagatedFrom", "Conflicts"}
    assert not bonds & server.keys()
    assert "fleet-stream" not in "".join(boot.values())
    assert server["Restart"] == "on-failure"
    assert float(server["TimeoutStopSec"]) <= 10  # who hangs in a read hangs so long


@pytest.mark.parametrize(("unit", "most"), MOST_EXPOSED.items())
def test_unit_is_sandboxed(unit: str, most: float) -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={most * 10 - 1:.0f}"]
    done = subprocess.run([*command, str(box_config.BUNDLE / "units" / unit)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-200:]


def test_programs_are_python_3_9_and_standard_library_alone() -> None:
    programs = sorted(box_config.BUNDLE.glob("*.py"))
    assert too_new_for_the_box(programs) == ""
    own = {program.stem for program in programs}
    for program in programs:
        assert imported(program) <= own | sys.stdlib_module_names, program.name


def test_every_metric_has_one_writer() -> None:
    """Two would count the same notice twice."""
    programs = [*box_config.BUNDLE.glob("*.py"), *(world.CHECKOUT / "lambdas").rglob("*.py")]
    sources = {path: path.read_text() for path in programs if path.name != "names.py"}
    gateway = world.CHECKOUT / "assets" / "gateway"  # one process, whose files share its counts
    sources[gateway] = "".join(path.read_text() for path in gateway.glob("*.py"))
    metrics = {name for name in vars(names) if name.startswith("METRIC_")} - {"METRIC_NAMESPACE"}
    for metric in metrics:
        writers = [path.name for path, text in sources.items() if f"names.{metric}" in text]
        assert len(writers) == 1, f"{metric}: {writers}"


def test_bundle_holds_what_the_box_runs_and_nothing_else() -> None:
    assert (box_config.BUNDLE / "names.py").resolve() == Path(names.__file__).resolve()
    packed = zipfile.ZipFile(io.BytesIO(box_config.bundle())).namelist()
    for unit in UNITS:
        for found in unit.read_text().splitlines():
            if found.startswith("Exec") and "/opt/fleet/" in found:
                assert found.split("/opt/fleet/")[1].split()[0] in packed
    assert {"lane/__main__.py", "relay/sse.py", "packages/httptools/__init__.py"} <= set(packed)
    assert "user_data.sh.j2" not in packed


def test_lane_has_the_pinned_packages_for_the_boxs_python_and_machine() -> None:
    packed = zipfile.ZipFile(io.BytesIO(box_config.bundle())).namelist()
    compiled = [name for name in packed if name.endswith(".so")]
    assert {Path(name).name.partition(".")[0] for name in compiled} == {"parser", "url_parser"}
    assert all(name.endswith(".cpython-39-x86_64-linux-gnu.so") for name in compiled)
    lock = (world.CHECKOUT / "requirements-lane.lock").read_text()
    pinned = {name.replace("-", "_") for name in re.findall(r"^([a-z-]+)==", lock, re.MULTILINE)}
    assert {path.name.partition("-")[0] for path in box_config.PACKAGES.glob("*.dist-info")} == pinned
    assert not [name for name in packed if ".dist-info/" in name and "LICENSE" not in name and "NOTICE" not in name]
