"""The settings of one fleet: plain dataclasses with every limit, default and reason in one place.

`cdk.json` (context key `fleet`) is the only place where an operator edits. `fleet.validation` checks these classes at
synth and in the CLI; the Lambda loads the already checked JSON with the standard library alone.
Field metadata: `ge`/`le`/`pattern` bound a value, `description` is the reason, which the README's table prints.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal, Self

Mode = Literal["spot-armed", "on-demand-failover", "on-demand-pinned"]


def _threshold(default: int, *, ge: int, le: int, why: str) -> int:
    """A bounded whole number with its reason; typed as its value, as dataclasses.field is."""
    value: int = field(default=default, metadata={"ge": ge, "le": le, "description": why})
    return value


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Size of the group, in boxes."""

    min: int = _threshold(1, ge=0, le=20, why="boxes that should serve at all times")
    max: int = _threshold(2, ge=1, le=40, why="above min, so that a successor can launch before its predecessor ends")
    on_demand_base: int = _threshold(0, ge=0, le=20, why="boxes that are always on-demand, below the lever")


@dataclass(frozen=True, kw_only=True)
class Watchdog:
    """Thresholds of the watchdog (see docs/decisions)."""

    alarm_minutes: int = _threshold(
        12, ge=3, le=60, why="a routine reclaim with a warm relaunch is 4 to 9 min and must never trigger a failover"
    )
    grace_seconds: int = _threshold(
        900, ge=300, le=3600, why="a warm boot takes 4 to 6 min; a box that needs longer than this is stuck"
    )
    skip_cap_seconds: int = _threshold(
        1800, ge=600, le=7200, why="a churn loop always has a young box in it, and on-demand is what ends one"
    )
    scan_seconds: int = _threshold(1800, ge=300, le=3600, why="a lit alarm sends no second event: the scan retries")
    rearm_score: int = _threshold(3, ge=1, le=10, why='the provider\'s "moderate"')
    rearm_streak: int = _threshold(2, ge=1, le=10, why="one good score is a flicker, two 30 min apart are a trend")
    cooldown_seconds: int = _threshold(10800, ge=0, le=86400, why="droughts run for hours")
    valve_failovers: int = _threshold(
        2, ge=1, le=10, why="this many failovers in the window: the model of the market is wrong, stop acting on it"
    )
    valve_window_seconds: int = _threshold(86400, ge=3600, le=604800, why="the valve looks back one day")
    rearm_timeout_seconds: int = _threshold(2700, ge=900, le=7200, why="a re-arm that has not ended by then falls back")
    boot_loop_launches: int = _threshold(5, ge=2, le=20, why="this many abandoned launches running suspend Launch")


@dataclass(frozen=True, kw_only=True)
class Boot:
    """Budgets of a boot, seconds since launch."""

    warm_budget_seconds: int = _threshold(900, ge=120, le=3600, why="measured 259 to 330 s from launch to serving")
    cold_budget_seconds: int = _threshold(1500, ge=300, le=7200, why="measured 941 s for a 33.6 GB file")
    hook_heartbeat_seconds: int = _threshold(1800, ge=300, le=7200, why="the launch hook outlasts a cold boot")


@dataclass(frozen=True, kw_only=True)
class Drain:
    """Budgets of a way out, seconds. A spot notice gives 120 s in all."""

    budget_seconds: int = _threshold(105, ge=10, le=3600, why="two minutes of notice less the safety margin")
    safety_margin_seconds: int = _threshold(15, ge=5, le=60, why="time to deregister, report and end")
    deregistration_delay_seconds: int = _threshold(120, ge=0, le=3600, why="never below the drain budget")
    termination_hook_seconds: int = _threshold(150, ge=30, le=7200, why="delay plus the box's own last words")


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One source file in the model store."""

    key: str = field(metadata={"pattern": r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,200}$"})
    sha256: str = field(default="", metadata={"pattern": r"^([0-9a-f]{64})?$"})


@dataclass(frozen=True, kw_only=True)
class Model:
    """What the fleet serves, and with which engine."""

    name: str = field(metadata={"pattern": r"^[a-z0-9][a-z0-9._-]*(:[a-z0-9][a-z0-9._-]*)?$"})
    engine_version: str = field(metadata={"pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"})
    engine: Artifact
    gguf: Artifact
    modelfile: Artifact
    context_length: int = _threshold(8192, ge=128, le=1048576, why="set, not left to the engine's default")
    gpu_memory_gib: float = field(default=17.6, metadata={"gt": 0, "le": 640})  # weights and context, measured


@dataclass(frozen=True, kw_only=True)
class Network:
    """Where the fleet stands and who may call it."""

    vpc_id: str | None = field(default=None, metadata={"pattern": r"^vpc-[0-9a-f]{8,17}$"})  # None: a new VPC
    subnet_ids: tuple[str, ...] = ()  # public subnets of the existing VPC, in the order of zones
    route_table_ids: tuple[str, ...] = ()  # of those subnets, for the S3 gateway endpoint
    cidr: str = "10.42.0.0/20"  # of the new VPC
    callers: tuple[str, ...] = ()  # CIDRs or security group ids
    allow_public: bool = False  # 0.0.0.0/0 and ::/0 among the callers only with this


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One fleet. Every field is an operator's choice; names and facts live in `names` and `pools`."""

    fleet_name: str = field(metadata={"pattern": r"^[a-z][a-z0-9-]{0,17}[a-z0-9]$"})
    region: str = field(metadata={"pattern": r"^[a-z]{2}(-[a-z]+)+-[0-9]$"})
    zones: tuple[str, ...]
    pools: tuple[str, ...] = ("g6.xlarge", "g5.xlarge")
    score_types: tuple[str, ...] = ("g6.xlarge", "g5.xlarge", "g6.2xlarge", "g5.2xlarge")
    capacity: Capacity = field(default_factory=Capacity)
    initial_mode: Mode = "spot-armed"
    watchdog: Watchdog = field(default_factory=Watchdog)
    boot: Boot = field(default_factory=Boot)
    drain: Drain = field(default_factory=Drain)
    port: int = _threshold(11434, ge=1024, le=65535, why="Ollama's own")
    model: Model
    ami_id: str | None = field(default=None, metadata={"pattern": r"^ami-[0-9a-f]{8,17}$"})  # None: the DLAMI parameter
    root_volume_gib: int = _threshold(100, ge=75, le=1000, why="the deep-learning image needs 75")
    ebs_key_arn: str | None = field(default=None, metadata={"pattern": r"^arn:aws[a-z-]*:kms:.+$"})
    network: Network = field(default_factory=Network)
    mail: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The form that travels to the Lambda in one variable."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Checked values only: this does not validate."""
        raw: dict[str, Any] = json.loads(text)
        sections = {"capacity": Capacity, "watchdog": Watchdog, "boot": Boot, "drain": Drain, "network": Network}
        for name, section in sections.items():
            raw[name] = section(**_tuples(raw[name]))
        model = raw["model"]
        artifacts = {name: Artifact(**model[name]) for name in ("engine", "gguf", "modelfile")}
        raw["model"] = Model(**{**model, **artifacts})
        return cls(**_tuples(raw))


def _tuples(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
