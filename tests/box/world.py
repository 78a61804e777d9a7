"""One box in a world of its own: namespaces, metadata, an AWS, a caller outside. Everything ends with the test process.

The rendered user data and the real bundle boot on a root of their own. Real: nftables or iptables, the loop device as
instance store, llama.cpp, the AWS CLI, the embedded AWS (moto) behind TLS. Stand-ins, in `standins/`: systemd, Ollama
around llama.cpp, and one-line scripts for what no test machine has (nvidia-smi, CloudWatch's agent, a power switch).
"""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httptools

from fleet import localaws
from fleet.account.access import Aws
from fleet.config import box_config
from fleet.config.settings import Artifact, Model, Settings
from fleet.core import manifest as manifests
from fleet.core import names
from fleet.modelstore import release as built
from tests.box import netns, servers
from tests.box.standins import call, systemd

T = TypeVar("T")

CHECKOUT = Path(__file__).parents[2]
STANDINS = Path(__file__).parent / "standins"
FLEET, BUCKET, ROLE, PORT = "boxes", "boxes-models", "boxes-box", 11434
KERNEL_SECONDS = 15  # from kernel to user data: 20 s at best, measured
PATIENCE_SECONDS = 90.0  # for what takes a few seconds on an idle machine
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")  # however we end
DISK_MB = 320  # the least that XFS formats

# Budgets of a real box would make a test wait: the same code with shorter patience.
QUICK = {
    "poll_seconds": 0.25,
    "health_poll_seconds": 0.2,
    "heartbeat_seconds": 300,
    "let_go_least_seconds": 1.5,
    "let_go_quiet_seconds": 0.5,
    "let_go_most_seconds": 4.0,
    "warm_budget_seconds": 300,
    "cold_budget_seconds": 300,
    "token_seconds": 2.0,
    "wedge_silent_seconds": 3.0,
    "wedge_stuck_seconds": 2.0,
    "wedge_confirm_seconds": 2.0,
    "restart_seconds": 8.0,
    "stream_part_bytes": 16 << 10,
}

SETTINGS = Settings(
    fleet_name=FLEET,
    region=localaws.REGION,
    zones=("us-east-2a", "us-east-2b"),
    port=PORT,
    model=Model(
        name="tiny",
        engine_version="0.13.5",
        engine=Artifact(key="engine/ollama.tgz"),
        gguf=Artifact(key="models/tiny.gguf"),
        modelfile=Artifact(key="models/Modelfile"),
        context_length=256,
    ),
)

AUTHORITY = servers.Authority(netns.OUT_V4)

SCRIPTS = {
    "aws": '#!/bin/sh\nexec /usr/bin/python3 -S -E {standins}/call.py {here}/aws.sock "$@"\n',
    "systemctl": '#!/bin/sh\nexec /usr/bin/python3 -S -E {standins}/call.py {here}/systemd.sock "$@"\n',
    "shutdown": '#!/bin/sh\necho "$*" >>{here}/shutdown\nexec systemctl poweroff\n',
    "nvidia-smi": "#!/bin/sh\ncat {here}/gpu\n",
}
ENGINE = """#!/bin/sh
[ ! -f /opt/standin/env ] || . /opt/standin/env
exec {python} {standins}/ollama.py "$@"
"""
MODPROBE = """
mkdir -p $1/opt/standin
printf '#!/bin/sh\necho "$*" >>/opt/standin/modprobe\n' >$1/usr/bin/nvidia-modprobe
chmod +x $1/usr/bin/nvidia-modprobe
"""  # a `prepare`: the driver's tool, which writes down what it was asked
NO_NFT = "rm -f $1/usr/sbin/nft\n"  # a `prepare`: iptables is all there is
NO_FUSE = "rm $1/dev/fuse\n"  # a `prepare`: a kernel that serves no files of programs
CLOUDWATCH_AGENT = """
agent=$1/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl
mkdir -p ${agent%/*} $1/opt/standin
printf '#!/bin/sh\nwhile [ ! -f /opt/standin/telemetry-up ]; do sleep 0.1; done\n' >$agent
chmod +x $agent
"""  # a `prepare`: CloudWatch's agent, which takes 40 s to start on a real box, here until it is told


def slow_prompts(seconds: float) -> str:
    """A `prepare` that makes the engine read every prompt slowly, the warm-up's too."""
    return f"mkdir -p $1/opt/standin; echo {seconds} >$1/opt/standin/prompt_seconds"


def engine_is(version: str) -> str:
    """A `prepare` that makes the engine one of this version."""
    return f"mkdir -p $1/opt/standin; echo export STANDIN_VERSION={version} >$1/opt/standin/env\n"


def artifacts(folder: Path, seed: int = 0) -> dict[str, Path]:
    """The three source artifacts by key: the stand-in engine as a release tarball, a real tiny model, its Modelfile."""
    from tests.box import tiny_model

    folder.mkdir(parents=True, exist_ok=True)
    tiny_model.write(folder / "tiny.gguf", seed)
    (folder / "Modelfile").write_text("FROM ./tiny.gguf\nTEMPLATE {{ .Prompt }}{{ .Thinking }}\n")  # it thinks
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "ollama"
    program.write_text(ENGINE.format(python=sys.executable, standins=STANDINS))
    program.chmod(0o755)
    subprocess.run(["tar", "-czf", "ollama.tgz", "bin"], cwd=folder, check=True)
    return artifact_paths(folder)


def artifact_paths(folder: Path) -> dict[str, Path]:
    """Where they lie, by key."""
    model = SETTINGS.model
    return {
        model.engine.key: folder / "ollama.tgz",
        model.gguf.key: folder / "tiny.gguf",
        model.modelfile.key: folder / "Modelfile",
    }


def settings_for(sources: dict[str, Path]) -> Settings:
    """The settings, with the checksums of these artifacts."""

    def checked(artifact: Artifact) -> Artifact:
        return dataclasses.replace(artifact, sha256=hashlib.sha256(sources[artifact.key].read_bytes()).hexdigest())

    model = SETTINGS.model
    sums = {name: checked(getattr(model, name)) for name in ("engine", "gguf", "modelfile")}
    return dataclasses.replace(SETTINGS, model=dataclasses.replace(model, **sums))


def furnish(aws: localaws.Aws, sources: dict[str, Path]) -> None:
    """The least a box meets of what the stacks make: bucket with artifacts and bundle, group, target group, log group.

    By hand: every worker of these tests would have to synthesize and deploy the whole fleet for it. What the boxes call
    is held against the synthesized role by `tests.permissions`; launches are held as the group's launch hook does.
    """
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": aws.region})
    for key, path in sources.items():
        s3.upload_file(str(path), BUCKET, key)
    s3.put_object(Bucket=BUCKET, Key="bundle.zip", Body=box_config.bundle())
    ec2 = aws.client("ec2")
    subnet = ec2.describe_subnets()["Subnets"][0]
    template = ec2.create_launch_template(
        LaunchTemplateName=FLEET, LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "g6.xlarge"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    target_group = aws.client("elbv2").create_target_group(
        Name=FLEET, Protocol="TCP", Port=PORT, VpcId=subnet["VpcId"], TargetType="instance"
    )["TargetGroups"][0]["TargetGroupArn"]
    aws.control("hold_launches", on=True)
    autoscaling = aws.client("autoscaling")
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=names.group(FLEET),
        LaunchTemplate={"LaunchTemplateId": template, "Version": "1"},
        MinSize=1,
        MaxSize=2,
        VPCZoneIdentifier=subnet["SubnetId"],
        Tags=[{"Key": names.TAG_FLEET, "Value": FLEET, "PropagateAtLaunch": True}],
    )
    for hook, transition in ((names.LAUNCH_HOOK, "LAUNCHING"), (names.TERMINATION_HOOK, "TERMINATING")):
        autoscaling.put_lifecycle_hook(
            AutoScalingGroupName=names.group(FLEET),
            LifecycleHookName=hook,
            LifecycleTransition=f"autoscaling:EC2_INSTANCE_{transition}",
        )
    aws.client("logs").create_log_group(logGroupName=names.box_log_group(FLEET))
    (aws.log_dir / "target-group").write_text(target_group)


def fill_cache(aws: localaws.Aws, sources: dict[str, Path], folder: Path) -> dict[str, str]:
    """Put into the bucket what a cold boot would, and release it; returns the keys by role: manifest, model, ..."""
    modelfile = sources[SETTINGS.model.modelfile.key]
    environment = {**os.environ, "OLLAMA_MODELS": str(folder)}
    importer = [sys.executable, str(STANDINS / "ollama.py"), "create", SETTINGS.model.name, "-f", str(modelfile)]
    subprocess.run(importer, env=environment, check=True)
    s3 = aws.client("s3")
    etags = {key: s3.head_object(Bucket=BUCKET, Key=key)["ETag"] for key in sources}
    manifest = (folder / "manifests/registry.ollama.ai/library/tiny/latest").read_text()
    key = manifests.cache_key(SETTINGS.model.engine_version, SETTINGS.model.name, SETTINGS.model.quantize, etags)
    keys = {"manifest": names.cache_manifest(key), "released": names.released(key)}
    for blob in (folder / "blobs").iterdir():
        kind = "model" if blob.stat().st_size > 1000 else "config"
        keys[kind] = names.cache_blob(blob.name)
        s3.upload_file(str(blob), BUCKET, keys[kind])
    s3.put_object(Bucket=BUCKET, Key=keys["manifest"], Body=manifest.encode())
    s3.put_object(Bucket=BUCKET, Key=keys["released"], Body=manifests.digest(manifest.encode()))
    return keys


@dataclass
class World:
    """One box and what surrounds it."""

    here: Path
    aws: localaws.Aws
    metadata: servers.Metadata
    front: servers.Front
    instance_id: str
    pid: int  # of the box's process 1, as seen from here
    box: int  # network namespaces
    out: int
    settings: Settings
    overrides: dict[str, Any]
    monotonic_at_kernel: float  # the box's uptime plus this is the monotonic clock
    callers: list["subprocess.Popen[str]"] = field(default_factory=list)

    # --- doing ---

    def boot(self) -> None:
        """Write the rendered user data and run it, as cloud-init does at the first boot."""
        target_group = (self.here / "target-group").read_text()
        quick = {**QUICK, **self.overrides}
        config = box_config.box_config(self.settings, bucket=BUCKET, target_group_arn=target_group, **quick)
        script = box_config.user_data(config, bundle_bucket=BUCKET, bundle_key="bundle.zip")
        (self.here / "user-data").write_text(script)
        # The bundle's compiled parser is for the box's Python; this one's lies beside it.
        beside = self.inside("/opt/fleet/packages/httptools")
        for compiled in Path(httptools.__file__).parent.rglob("*.so"):
            there = beside / compiled.relative_to(Path(httptools.__file__).parent)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(compiled, there)
        assert self.systemctl("cloud-init", str(self.here / "user-data")) == 0, self.journal()

    def systemctl(self, *words: str) -> int:
        """A command to the systemd stand-in."""
        return call.call(str(self.here / "systemd.sock"), list(words))

    def probe(self, *, ask: bool = True, every: float = 0.05) -> Path:
        """Start a caller outside that connects every `every` seconds on both families; returns its log."""
        log = self.here / f"prober-{len(self.callers)}"
        log.touch()
        words = [str(log), netns.BOX_V4, netns.BOX_V6, str(PORT), "ask" if ask else "connect", str(every)]
        self._call([sys.executable, str(STANDINS / "prober.py"), *words])
        return log

    def generate(
        self,
        *,
        tokens: int = 8,
        stream: bool = False,
        address: str = netns.BOX_V4,
        **played: Any,
    ) -> "Call":
        """Start a caller outside with one real request; `played` is for the engine's stand-in."""
        prompt = f"Hello {json.dumps(played)}" if played else "Hello"
        body = {"model": "tiny", "prompt": prompt, "stream": stream, "options": {"num_predict": tokens}}
        url = f"http://[{address}]:{PORT}/api/generate" if ":" in address else f"http://{address}:{PORT}/api/generate"
        curl = ["curl", "--silent", "--show-error", "--no-buffer", "--max-time", "60", "-d", json.dumps(body), url]
        return Call(self._call(curl, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))

    def connect(self) -> socket.socket:
        """A connection of a caller outside."""
        with netns.inside(self.out):
            return socket.create_connection((netns.BOX_V4, PORT), timeout=10)

    def _call(self, command: list[str], **pipes: Any) -> "subprocess.Popen[str]":
        """Start a caller outside, who ends with us."""
        with netns.inside(self.out):
            self.callers.append(subprocess.Popen([*DIES_WITH_US, *command], **pipes))
        return self.callers[-1]

    def notice(self, *, seconds: float = 120, clock_off_seconds: float = 0) -> float:
        """An interruption notice appears; returns when, on the monotonic clock."""
        end = datetime.fromtimestamp(time.time() + seconds + clock_off_seconds, UTC)
        text = json.dumps({"action": "terminate", "time": end.strftime("%Y-%m-%dT%H:%M:%SZ")})
        self.metadata.paths["meta-data/spot/instance-action"] = text
        return time.monotonic()

    def standin(self, name: str, text: str = "") -> None:
        """Tell the engine's stand-in something, for all requests."""
        self.inside("/opt/standin").mkdir(exist_ok=True)
        self.inside(f"/opt/standin/{name}").write_text(text)

    def signal(self, unit: str, name: str) -> None:
        """Signal a unit's process: KILL, STOP, CONT."""
        assert self.systemctl("kill", name, f"fleet-{unit}.service") == 0

    def gate(self, state: str) -> None:
        """Set the gate, as a unit does."""
        inside = ["nsenter", f"--net=/proc/{self.pid}/ns/net", f"--root=/proc/{self.pid}/root", "sh", "-c"]
        subprocess.run([*inside, f"cd / && /usr/bin/python3 /opt/fleet/gate.py {state}"], check=True)

    # --- seeing ---

    def inside(self, path: str) -> Path:
        """A path of the box, as seen from here."""
        return Path(f"/proc/{self.pid}/root{path}")

    def log(self) -> str:
        """The box's own log so far."""
        path = self.inside("/var/log/fleet/box.log")
        return path.read_text() if path.exists() else ""

    def journal(self) -> str:
        """What a journal would hold."""
        return (self.here / "journal").read_text()

    def pid_of(self, program: str) -> int:
        """A process of the box, as seen from here."""
        space = Path(f"/proc/{self.pid}/ns/pid").readlink()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if (entry / "ns/pid").readlink() == space and program in (entry / "cmdline").read_text():
                    return int(entry.name)
            except OSError:
                continue
        raise LookupError(program)

    def wait_for(self, pattern: str, seconds: float = PATIENCE_SECONDS) -> "re.Match[str]":
        """Wait until the box's log has a line."""
        return wait(
            lambda: re.search(pattern, self.log(), re.MULTILINE), seconds, lambda: f"{pattern}\n{self.journal()}"
        )

    def calls(self, action: str) -> list[dict[str, Any]]:
        """The box's calls of one action, as the embedded AWS logged them."""
        return [call for call in self.aws.requests() if call["action"] == action and call["principal"] == ROLE]

    def lifecycle(self) -> str:
        """The box's state in its group; "" once it is out of it."""
        groups = self.aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        states = {box["InstanceId"]: box["LifecycleState"] for box in groups[0]["Instances"]}
        return states.get(self.instance_id, "")

    def tag(self) -> str | None:
        """What the box said of its boot."""
        found = self.aws.client("ec2").describe_tags(Filters=[{"Name": "resource-id", "Values": [self.instance_id]}])
        return {tag["Key"]: tag["Value"] for tag in found["Tags"]}.get(names.TAG_BOOT)

    def cloudwatch_log(self, stream: str) -> list[str]:
        """Lines that the box shipped to one of its streams."""
        logs, group = self.aws.client("logs"), names.box_log_group(FLEET)
        name = f"{self.instance_id}/{stream}"
        if not logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=name)["logStreams"]:
            return []
        events = logs.get_log_events(logGroupName=group, logStreamName=name)["events"]
        return [event["message"] for event in events]

    def metrics(self, name: str) -> list[dict[str, Any]]:
        """Data of one metric that reached CloudWatch, each with its dimensions and value."""
        cloudwatch = self.aws.client("cloudwatch")
        found = cloudwatch.list_metrics(Namespace=names.METRIC_NAMESPACE, MetricName=name)["Metrics"]
        data = []
        for metric in found:
            statistics = cloudwatch.get_metric_statistics(
                Namespace=names.METRIC_NAMESPACE,
                MetricName=name,
                Dimensions=metric["Dimensions"],
                StartTime=datetime.fromtimestamp(time.time() - 3600, UTC),
                EndTime=datetime.fromtimestamp(time.time() + 3600, UTC),
                Period=7200,
                Statistics=["Sum"],
            )["Datapoints"]
            dimensions = {each["Name"]: each["Value"] for each in metric["Dimensions"]}
            data += [{"Dimensions": dimensions, "Value": point["Sum"]} for point in statistics]
        return data

    def manifest(self) -> dict[str, Any]:
        """The model's manifest on the box's instance store."""
        path = "/var/lib/fleet/nvme/fleet/models/manifests/registry.ollama.ai/library/tiny/latest"
        found: dict[str, Any] = json.loads(self.inside(path).read_text())
        return found

    def model(self) -> Path:
        """The model's file, as the engine opens it."""
        return self.inside(f"/var/lib/fleet/nvme/fleet/models/blobs/sha256-{self.settings.model.gguf.sha256}")

    def model_is_right(self) -> bool:
        """Whether it is the very one."""
        return f"sha256-{hashlib.sha256(self.model().read_bytes()).hexdigest()}" == self.model().name

    def streamed_metric(self) -> list[float]:
        """What was told of whether the model was loaded while it arrived."""
        return [metric["Value"] for metric in self.metrics(names.METRIC_BOOT_STREAMED)]

    def cache_is_whole(self) -> bool:
        """Whether a manifest is there and every blob it names is what its digest says."""
        s3 = self.aws.client("s3")
        found = {item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET, Prefix=names.CACHE_PREFIX)["Contents"]}
        (manifest,) = [key for key in found if key.endswith("manifest.json")]
        raw = json.loads(s3.get_object(Bucket=BUCKET, Key=manifest)["Body"].read())
        for entry in [raw["config"], *raw["layers"]]:
            key = f"{names.CACHE_PREFIX}blobs/{entry['digest'].replace(':', '-')}"
            data = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() if key in found else b""
            if f"sha256:{hashlib.sha256(data).hexdigest()}" != entry["digest"]:
                return False
        return True

    def engine_answers(self) -> bool:
        """Whether loopback reaches the engine: a refusal outside then is the gate's."""
        with netns.inside(self.box):
            words = ["curl", "--silent", "--max-time", "2", f"http://127.0.0.1:{names.ENGINE_PORT}/api/version"]
            return subprocess.run(words, check=False, capture_output=True).returncode == 0

    def shutdown_asked(self) -> bool:
        """Whether the box powered itself off."""
        return (self.here / "shutdown").exists()


@dataclass
class Call:
    """A caller's request on its way."""

    process: "subprocess.Popen[str]"

    def end(self, seconds: float = 30) -> tuple[int, str]:
        """Wait for its end: curl's exit status and what came back."""
        out, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, out


def release(box: World) -> None:
    """What an operator does once a first box has filled the cache: `fleetctl publish --built`."""
    operator = Aws(box.aws.region, box.aws.environment())
    built.release(operator, BUCKET, built.find(operator, BUCKET, box.settings))


def wait(condition: Callable[[], T], seconds: float = PATIENCE_SECONDS, why: Callable[[], str] = str) -> T:
    """Wait until something is so; fails with the reason otherwise."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"not in {seconds} s: {why()}"
        time.sleep(0.05)


def last(log: Path) -> str:
    """What a prober saw last; "" before it saw anything."""
    seen = probes(log)
    return str(seen[-1]["outcome"]) if seen else ""


def probes(log: Path) -> list[dict[str, Any]]:
    """What a prober saw so far."""
    return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]


def _loop_device(here: Path) -> tuple[int, int]:
    """A loop device that the kernel frees with the last file that holds it: its number and such a file."""
    image = here / "instance-store"
    with image.open("wb") as file:
        file.truncate(DISK_MB << 20)
    device = subprocess.run(
        ["losetup", "-f", "--show", image], check=True, capture_output=True, text=True
    ).stdout.strip()
    holder = os.open(device, os.O_RDONLY)
    subprocess.run(["losetup", "-d", device], check=True)  # in use: detached once nobody holds it
    image.unlink()
    return int(device.removeprefix("/dev/loop")), holder


def _first_child(parent: int) -> int:
    def child() -> int:
        return int((Path(f"/proc/{parent}/task/{parent}/children").read_text().split() or ["0"])[0])

    return wait(child, 5)


@cache
def _aws_cli() -> "subprocess.Popen[str]":
    """The AWS CLI of all boxes, which is told of each."""
    command = [*DIES_WITH_US, "/usr/bin/python3", str(STANDINS / "aws_cli.py")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env={"PATH": systemd.PATH, "LANG": "C.UTF-8"}, text=True)


@contextmanager
def world(
    here: Path,
    aws: localaws.Aws,
    target_group: str,
    settings: Settings,
    *,
    number: int = 0,
    prepare: str = "",
    disk: bool = True,
    **overrides: Any,
) -> Iterator[World]:
    """The group's box with this number, before its first boot. `prepare` is shell that runs on its root ($1)."""
    here.mkdir(parents=True, exist_ok=True)
    (here / "target-group").write_text(target_group)
    (here / "gpu").write_text("0\n")
    (here / "bin").mkdir()
    for name, text in SCRIPTS.items():
        script = here / "bin" / name
        script.write_text(text.format(standins=STANDINS, here=here))
        script.chmod(0o755)
    if prepare:
        (here / "prepare.sh").write_text(prepare)
    loop, holder = _loop_device(here) if disk else ("none", -1)
    front = servers.Front(aws.endpoint)
    groups = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    instance_id = groups[0]["Instances"][number]["InstanceId"]
    document = {"pendingTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "instanceId": instance_id}
    metadata = servers.Metadata(
        {
            "meta-data/instance-id": instance_id,
            "dynamic/instance-identity/document": json.dumps(document),
            "meta-data/iam/security-credentials/": ROLE,
            f"meta-data/iam/security-credentials/{ROLE}": servers.role_credentials(aws.environment(ROLE)),
            "meta-data/placement/region": aws.region,
            "meta-data/placement/availability-zone": f"{aws.region}a",
        }
    )
    enter = [str(STANDINS / "enter.sh"), str(here), str(CHECKOUT), sys.executable, str(loop)]
    # the box's kernel "started" a quarter of a minute ago
    offset = int(KERNEL_SECONDS - time.clock_gettime(time.CLOCK_BOOTTIME))
    since_kernel = f"--boottime={offset}"
    at_kernel = time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME) - offset
    unshare = [  # takes the namespaces along when it dies
        *DIES_WITH_US,
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--time",
        since_kernel,
        "--fork",
        "--kill-child=SIGKILL",
        "--",
        "bash",
        *enter,
    ]
    trusted = str(AUTHORITY.certificate(here))
    environment = {"PATH": systemd.PATH, "LANG": "C.UTF-8", "AWS_ENDPOINT_URL": f"https://{netns.OUT_V4}:8000"}
    environment |= {"SSL_CERT_FILE": trusted, "AWS_CA_BUNDLE": trusted}
    with (here / "journal").open("wb") as journal:
        process = subprocess.Popen(unshare, env=environment, stdout=journal, stderr=journal)
    callers: list[subprocess.Popen[str]] = []
    try:
        pid = _first_child(process.pid)
        wait((here / "systemd.sock").exists, why=(here / "journal").read_text)
        print(pid, here / "aws.sock", file=_aws_cli().stdin, flush=True)
        wait((here / "aws.sock").exists)
        box, out = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), netns.new()
        netns.join(box, pid, out)
        running = [
            front.serve(AUTHORITY.listener(netns.listener(out, netns.OUT_V4, 8000))),
            metadata.serve(netns.listener(box, "169.254.169.254", 80)),
        ]
        yield World(here, aws, metadata, front, instance_id, pid, box, out, settings, overrides, at_kernel, callers)
        for server in running:
            server.shutdown()
            server.server_close()
        os.close(box)
        os.close(out)
    finally:
        for caller in callers:
            caller.kill()
            caller.wait()
        process.kill()  # the kernel ends everything that the box started
        process.wait()
        if holder >= 0:
            os.close(holder)
