"""How the simulated cloud behaves: every lag, limit and habit of AWS that a drill may turn, each with its source.

Ranges `(low, high)` in seconds are drawn uniformly from a seeded stream of their own; equal ends make them exact.
"""

from dataclasses import dataclass, field

from fleet.core import boot_length, names

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Boots:
    """Launch to serving. A recorded boot is taken first, in order of launches; `None` in it draws as usual."""

    launch_to_kernel: boot_length.Spread = boot_length.LAUNCH_TO_KERNEL
    kernel_to_serving: boot_length.Spread = boot_length.KERNEL_TO_SERVING
    recorded_kernel_to_serving: tuple[float | None, ...] = ()
    factor: float = 1.0  # 2.0: boots twice as slow
    stuck_share: float = 0.0  # boots that never end: the hook's heartbeat ends them
    failed_share: float = 0.0  # boots that give up halfway and abandon their launch
    failed_first: int = 0  # this many first boots give up: a boot loop
    dies_first: int = 0  # this many first boxes power off in their user data, and give no hook back
    dies_after: float = 30.0  # kernel to that
    cancelled_share: float = 0.0  # launches that got their box, which ends at once with a client error
    cancelled_with: str = "Client.InternalError"  # the state reason: here, no grant on the disk's key
    cold_first: bool = False  # the first boot builds the model store
    cold_kernel_to_serving: float = boot_length.COLD_KERNEL_TO_SERVING


@dataclass(frozen=True, kw_only=True)
class AlarmModel:
    """The no-healthy-target alarm: lit after `watchdog.alarm_minutes` whole periods without one, and told `lag` later.

    From the last healthy second to ALARM it took 16 min 4 s, 21 min 6 s and 21 min 38 s: 12 periods, up to one for
    alignment, and this lag. OK was told 6 min after the target was healthy again: the same lag plus alignment.
    """

    period_seconds: float = 60
    lag: Range = (184, 540)
    missing_breaches: bool = True  # False: the default of healthy_host_count(), which never fires without a target
    recorded: tuple[tuple[float | None, str], ...] | None = None  # a history's own transitions; None: told by the model


@dataclass(frozen=True, kw_only=True)
class Events:
    """EventBridge and the asynchronous invocation behind it: best effort, at least once, in no order."""

    delay: Range = (0.8, 1.6)  # the failover of 22 July acted 2 s after its alarm
    lost_share: float = 0.0
    doubled_share: float = 0.0
    doubled_after: Range = (1, 60)
    late_share: float = 0.0
    late_by: Range = (30, 600)
    retries_after: tuple[float, ...] = (60, 120)  # two retries of a failed asynchronous invocation
    max_age_seconds: float = 900


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Spot placement scores per zone: high where a pool sells, low where none does, wrong in a share of answers."""

    sells: tuple[int, int] = (3, 9)
    refuses: tuple[int, int] = (1, 2)
    wrong_share: float = 0.05
    late_seconds: float = 0  # by how much an answer is of the past: not known, and nothing unless turned
    # (time, score by zone id; "" where only the best was recorded). Good to 5 min; drawn elsewhere.
    recorded: tuple[tuple[float, dict[str, int]], ...] = ()

    @property
    def zones(self) -> frozenset[str]:
        """Zone ids that were recorded."""
        return frozenset(zone for _, scores in self.recorded for zone in scores if zone)


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """One AWS. The defaults are the measured one, in its launch-first configuration."""

    boots: Boots = field(default_factory=Boots)
    alarm: AlarmModel = field(default_factory=AlarmModel)
    events: Events = field(default_factory=Events)
    scores: Scores = field(default_factory=Scores)

    # Retry gaps of a group that cannot launch, measured in a drought; the last repeats.
    launch_retry_gaps: tuple[float, ...] = (11, 11, 65, 65, 120, 120, 240, 480, 600)
    first_attempt: Range = (1, 3)  # a member has gone
    flip_attempt: Range = (6, 9)  # measured: a lever flip makes the group try again at once
    rebalance_attempt: Range = (10, 15)  # a replacement launched 15 s after the notice of 21 July

    notice_seconds: float = names.NOTICE_SECONDS
    agent_poll: Range = (1, 5)  # the drain agent hears the notice and shuts the gate
    gone_without_rebalancing: Range = (30, 120)  # without capacity rebalancing nothing holds a noticed box
    capacity_rebalancing: bool = True
    recommendation_ahead_share: float = 0.3  # sometimes minutes ahead, sometimes with the notice, sometimes never
    recommendation_with_notice_share: float = 0.4
    recommendation_ahead: Range = (60, 600)
    takes_first: str = "random"  # which of several boxes a shrinking pool takes: oldest, newest, random

    launch_hook: bool = True  # False: a box is InService as soon as it runs
    judges_held: bool = False  # True: the group sees by itself that a box has died which its launch hook holds
    terminates_held: bool = False  # True: TerminateInstanceInAutoScalingGroup takes such a box
    running_after: Range = (8, 8)  # launch to running; the swap of 16 July took 8.7 s
    hook_poll: Range = (1, 10)  # the box asks the balancer about itself
    warmup_seconds: float = 60  # default instance warm-up: in service to counted
    last_words_seconds: float = 5  # of a box that the group ends, after the deregistration delay
    replaces_wrong_kind: bool = True  # after a flip, launch first; groups were also seen to leave the box alone
    refresh_timeout_seconds: float = 3600  # a refresh that makes no progress fails
    cancel_seconds: float = 5
    suspended_after_failing_seconds: float | None = None  # 86400: administrative suspension

    register_after_kernel: Range = (30, 40)  # the box registers itself early, so this overlaps the boot
    registration: Range = (60, 300)  # the balancer starts to check
    probes: Range = (10, 20)  # two checks, 10 s apart
    unhealthy_after: Range = (30, 40)  # a wedged box is taken out
    health_grace_seconds: float = 300  # of the group, from in service

    abandoned_listed: float = 60  # seconds for which the group still lists a box whose launch was abandoned
    known_after_end: float = 3600  # EC2 describes an instance that long after its end, tags and all
    spot_refused_with: str = ""  # a code with which every launch is refused, whatever the market sells
    on_demand_refused_with: str = ""
    spot_vcpu_quota: int | None = None  # None: never in the way
    on_demand_vcpu_quota: int | None = None
