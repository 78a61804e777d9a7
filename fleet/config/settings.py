"""The settings of one fleet: plain dataclasses with every limit, default and reason in one place.

`cdk.json` (context key `fleet`) is the only place where an operator edits. `validation` checks these classes at
synth and in the CLI; the Lambda loads the already checked JSON with the standard library alone.
Field metadata: `ge`/`le`/`pattern` bound a value, `why` is the reason for its default, which docs/settings.md prints,
and `allowed` says in words what a pattern says in signs.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Literal, Self

from fleet.config.gateway_settings import Gateway
from fleet.config.pools import POOLS, Pool
from fleet.config.section import Section, from_plain, number, text

InitialMode = Literal["spot-armed", "on-demand-pinned"]
Quantize = Literal["none", "q8_0", "q4_K_M", "q4_K_S"]  # what `ollama create --quantize` knows
Policy = Literal["alarm", "bridge"]


@dataclass(frozen=True, kw_only=True)
class Capacity(Section):
    """Size of the group, in boxes."""

    min: int = number(1, ge=1, le=20, why="boxes that should serve at all times")
    max: int = number(2, ge=1, le=40, why="above min, so that a successor can launch before its predecessor ends")
    on_demand_base: int = number(0, ge=0, le=20, why="boxes that are always on-demand, below the lever")
    grow_to: int | None = field(
        default=None,
        metadata={"ge": 2, "le": 39, "why": "`min` is all there is; set, the group grows so far while callers wait"},
    )

    @property
    def most(self) -> int:
        """Boxes that may be wanted at once; what is above them up to `max` is room for successors."""
        return self.grow_to or self.min


@dataclass(frozen=True, kw_only=True)
class Watchdog(Section):
    """Thresholds of the watchdog (see docs/watchdog.md and docs/thresholds.md)."""

    alarm_minutes: int = number(
        12, ge=3, le=60, why="a routine reclaim with a warm relaunch is 4 to 9 min and must never trigger a failover"
    )
    grace_seconds: int = number(
        900, ge=300, le=3600, why="a warm boot takes 4 to 6 min; a box that needs longer than this is stuck"
    )
    skip_cap_seconds: int = number(
        1800, ge=600, le=7200, why="a churn loop always has a young box in it, and on-demand is what ends one"
    )
    scan_seconds: int = number(1800, ge=300, le=3600, why="a lit alarm sends no second event: the scan retries")
    rearm_score: int = number(3, ge=1, le=10, why='the provider\'s "moderate"')
    rearm_streak: int = number(2, ge=1, le=10, why="one good score is a flicker, two 30 min apart are a trend")
    cooldown_seconds: int = number(10800, ge=0, le=86400, why="droughts run for hours")
    valve_failovers: int = number(
        2, ge=1, le=10, why="this many failovers in the window: the model of the market is wrong, stop acting on it"
    )
    valve_window_seconds: int = number(86400, ge=3600, le=604800, why="the valve looks back one day")
    rearm_timeout_seconds: int = number(2700, ge=900, le=7200, why="a re-arm that has not ended by then falls back")
    boot_loop_launches: int = number(5, ge=2, le=20, why="this many consecutive failed boots suspend Launch")
    served_percent: int = number(
        70,
        ge=0,
        le=95,
        why="of the window: below, spot sells boxes that do not last, and no drought ever shows; 0: off",
    )
    served_window_seconds: int = number(
        14400, ge=3600, le=82800, why="72 dark minutes of 4 h: no single drought, which the alarm ends, comes near it"
    )
    trial_return_seconds: int = number(
        43200, ge=3600, le=604800, why="after a day off spot, a score that stays low is put to the test twice a day"
    )
    replacements_per_day: int = number(
        12,
        ge=1,
        le=1000,
        why="times `min`; each recommendation is answered with a box: above this, a mail a day says what that costs",
    )
    on_demand_hours_per_day: int = number(
        24, ge=0, le=24, why="no limit; below 24, the fleet is rather degraded than dearer until midnight UTC"
    )

    @property
    def dark_seconds_allowed(self) -> int:
        """Of the served share's window."""
        return self.served_window_seconds * (100 - self.served_percent) // 100


@dataclass(frozen=True, kw_only=True)
class Bridge(Section):
    """Thresholds of the bridge policy (see docs/bridge-policy.md, with a sweep of each)."""

    patience_seconds: int = number(
        30, ge=0, le=900, why="the group's retries after 11 and 22 s; its next one would come at 87 s"
    )
    scan_seconds: int = number(120, ge=60, le=3600, why="a return waits for the reading that shows the bar reached")
    return_after_seconds: int = number(
        2220, ge=0, le=86400, why="spot has sold for that long without a break: then the fleet returns"
    )
    stale_event_seconds: int = number(
        15, ge=5, le=120, why="an event that is told later than this is stale: patience runs from its arrival"
    )
    on_warning: bool = True  # leave ahead of a loss that AWS warns of, while spot sells and so can be bought back
    warning_settles_seconds: int = number(
        6, ge=1, le=60, why="a notice that came with the warning has shut the gate, the group has not yet launched"
    )
    false_warnings: int = number(
        5, ge=1, le=100, why="after so many consecutive warnings without a loss none is believed"
    )
    valve_failovers: int = number(
        10, ge=1, le=40, why="about the degraded minutes of two failovers on the alarm: 5.6 min each instead of 26"
    )


@dataclass(frozen=True, kw_only=True)
class Boot(Section):
    """Budgets of a boot, seconds since launch."""

    warm_budget_seconds: int = number(900, ge=120, le=3600, why="measured 259 to 330 s from launch to serving")
    cold_budget_seconds: int = number(1500, ge=300, le=7200, why="measured 941 s for a 33.6 GB file")
    hook_heartbeat_seconds: int = number(1800, ge=300, le=7200, why="the launch hook outlasts a cold boot")


@dataclass(frozen=True, kw_only=True)
class Drain(Section):
    """Budgets of a way out, seconds. A spot notice gives 120 s in all."""

    budget_seconds: int = number(105, ge=10, le=3600, why="two minutes of notice less the safety margin")
    safety_margin_seconds: int = number(15, ge=5, le=60, why="time to deregister, report and end")
    planned_seconds: int = number(
        600, ge=10, le=6000, why="an end that the group plans is in no hurry: 8000 tokens at 15 a second are 533 s"
    )
    deregistration_delay_seconds: int = number(120, ge=0, le=3600, why="never below the drain budget")
    termination_hook_seconds: int = number(
        960, ge=30, le=7200, why="a planned end: the balancer lets go within 300 s, then the streams, then last words"
    )


@dataclass(frozen=True, kw_only=True)
class Lane(Section):
    """The line before a box's engine."""

    deadline_seconds: int = number(600, ge=10, le=1800, why="whom no gateway speaks for: a program's usual patience")
    inexact_slices: bool = False  # at a temperature a continuation has the same distribution, not the same words


@dataclass(frozen=True, kw_only=True)
class Artifact(Section):
    """One source file in the model store. With a checksum, `fleetctl publish` takes that very file and no other."""

    key: str = field(
        metadata=text(r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,200}$", "an object key of letters, digits, . _ / and -")
    )
    sha256: str = field(default="", metadata=text(r"^([0-9a-f]{64})?$", "64 hexadecimal digits, or empty"))


@dataclass(frozen=True, kw_only=True)
class Model(Section):
    """What the fleet serves, and with which engine."""

    name: str = field(
        metadata=text(r"^[a-z0-9][a-z0-9._-]*(:[a-z0-9][a-z0-9._-]*)?$", "name or name:tag, lower case, as Ollama's")
    )
    engine_version: str = field(metadata=text(r"^[0-9]+\.[0-9]+\.[0-9]+$", "a pinned version such as 0.11.4"))
    engine: Artifact
    gguf: Artifact
    modelfile: Artifact
    quantize: Quantize = field(
        default="none", metadata={"why": "the GGUF is served as it is; else a cold boot quantizes it at its import"}
    )
    context_length: int = number(8192, ge=128, le=1048576, why="set, not left to the engine's default")
    gpu_memory_gib: float = field(
        default=17.6, metadata={"gt": 0, "le": 640, "why": "weights and context of the 31.6B model, measured"}
    )


@dataclass(frozen=True, kw_only=True)
class Network(Section):
    """Where the fleet stands and who may call it."""

    # None: a new VPC. An existing one comes with one subnet per zone, in the order of the zones.
    vpc_id: str | None = field(default=None, metadata=text(r"^vpc-[0-9a-f]{8,17}$", "an id such as vpc-0a1b2c3d"))
    subnet_ids: tuple[str, ...] = ()
    route_table_ids: tuple[str, ...] = ()  # of those subnets; empty: they have an S3 gateway endpoint already
    private_subnets: bool = False  # boxes get no public address: those subnets reach AWS by a NAT or by endpoints
    cidr: str = "10.42.0.0/20"  # of the new VPC
    callers: tuple[str, ...] = ()  # IPv4 ranges or security group ids that may call the balancer
    allow_public: bool = False  # the balancer faces the internet, and public ranges may be among the callers


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """One fleet. Every field is an operator's choice; names and facts live in `names` and `pools`."""

    fleet_name: str = field(
        metadata=text(r"^[a-z][a-z0-9-]{0,17}[a-z0-9]$", "2 to 19 of a-z, 0-9 and -, a letter first, no - last")
    )
    region: str = field(metadata=text(r"^[a-z]{2}(-[a-z]+)+-[0-9]$", "a region such as us-east-2"))
    zones: tuple[str, ...]
    pools: tuple[str, ...] = ("g6.xlarge", "g5.xlarge")
    score_types: tuple[str, ...] = ("g6.xlarge", "g5.xlarge", "g6.2xlarge", "g5.2xlarge")
    own_pools: tuple[Pool, ...] = ()  # types that `pools.POOLS` lacks, or its types at other prices
    capacity: Capacity = field(default_factory=Capacity)
    initial_mode: InitialMode = "spot-armed"
    policy: Policy = "alarm"
    watchdog: Watchdog = field(default_factory=Watchdog)
    bridge: Bridge = field(default_factory=Bridge)
    boot: Boot = field(default_factory=Boot)
    drain: Drain = field(default_factory=Drain)
    lane: Lane = field(default_factory=Lane)
    port: int = number(11434, ge=1024, le=65535, why="Ollama's own")
    model: Model
    # None: the newest deep-learning image, at the price that a new image rolls the fleet by itself.
    ami_id: str | None = field(default=None, metadata=text(r"^ami-[0-9a-f]{8,17}$", "an id such as ami-0a1b2c3d"))
    root_volume_gib: int = number(100, ge=75, le=1000, why="the deep-learning image needs 75")
    ebs_key_arn: str | None = field(
        default=None,
        metadata=text(r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/.+$", "the ARN of a KMS key"),
    )
    network: Network = field(default_factory=Network)
    mail: tuple[str, ...] = ()
    gateway: Gateway | None = None  # None: callers ask the fleet's own balancer

    @property
    def chooses_box(self) -> bool:
        """Whether a gateway chooses among boxes: where one should serve, the balancer leads to it."""
        return self.gateway is not None and self.capacity.most > 1

    @property
    def on_events(self) -> bool:
        """Whether the policy acts on the market's own events, to the second; else on alarm and scans alone."""
        return self.policy == "bridge"

    @property
    def scan_seconds(self) -> int:
        """The policy's: the bridge policy reads the market more often."""
        return self.bridge.scan_seconds if self.on_events else self.watchdog.scan_seconds

    @property
    def valve_failovers(self) -> int:
        """The policy's: a failover of the bridge policy costs a third of the minutes."""
        return self.bridge.valve_failovers if self.on_events else self.watchdog.valve_failovers

    def pool(self, instance_type: str) -> Pool:
        """Facts of one instance type, the operator's own first; KeyError for a type that neither table has."""
        own = {pool.instance_type: pool for pool in self.own_pools}
        return own[instance_type] if instance_type in own else POOLS[instance_type]

    def to_json(self) -> str:
        """The form that travels to the Lambda in one variable; gateway's and lane's sections are no business of it."""
        own = {key: value for key, value in dataclasses.asdict(self).items() if key not in ("gateway", "lane")}
        return json.dumps(own, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote, or the settings whole. Checked values only: this does not validate."""
        settings: Self = from_plain(cls, json.loads(text))
        return settings
