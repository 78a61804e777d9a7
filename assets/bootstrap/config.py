"""The box's own few values, read once from box.json by every program on the box.

Every timing stands here with its reason; `box_config` writes the fields without a default, and may override the
others. A new mail address or watchdog threshold is not among them, so it rolls no GPU.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import names
import paths


@dataclass(frozen=True)
class Artifact:
    """One source file in the model store; `sha256` is empty where the operator named none."""

    key: str
    sha256: str


@dataclass(frozen=True)
class Box:
    """What this box serves and for whom. Times in seconds."""

    fleet: str
    region: str
    bucket: str
    target_group_arn: str
    port: int
    model: str
    quantize: str
    context_length: int
    engine_version: str
    engine: Artifact
    gguf: Artifact
    modelfile: Artifact
    warm_budget_seconds: float
    cold_budget_seconds: float
    drain_budget_seconds: float
    safety_margin_seconds: float
    planned_seconds: float
    gateway: bool  # nobody else is admitted: the lane believes its headers
    lane_deadline_seconds: float
    lane_inexact_slices: bool
    # AWS: notices are to be polled every 5 s.
    poll_seconds: float = 5.0
    # A balancer sends new connections to a deregistered target for about 2 min, reports say 3 to 5.
    let_go_least_seconds: float = 120.0
    let_go_most_seconds: float = float(names.LET_GO_SECONDS)
    # Without a new connection; the gaps between callers of a box that serves are shorter, at 4 requests a minute.
    let_go_quiet_seconds: float = 30.0
    # The launch hook's heartbeat timeout is 30 min: six beats inside it.
    heartbeat_seconds: float = 300.0
    # Balancer probes come every 10 s at the fastest; one CLI call costs 0.8 s of a core.
    health_poll_seconds: float = 3.0
    # After 25 idle minutes the first request cost nothing, after 5.7 h it cost 46 s.
    self_prime_seconds: float = 1200.0
    # One token of an engine that works: 46 s was the worst, after hours of idling.
    token_seconds: float = 60.0
    # `/api/version` is answered by a thread that no generation blocks.
    wedge_silent_seconds: float = 30.0
    # The longest gap between tokens of a healthy engine is a long prompt, and that keeps the GPU busy. Within this
    # time the engine is also asked for a token of its own: the request may be one that its caller never finished.
    wedge_stuck_seconds: float = 120.0
    # A GPU of which nobody can tell counts as busy for so long: 8000 tokens that are not streamed, at 15 a second, take
    # 533 s without a byte.
    gpu_unknown_seconds: float = 900.0
    # Parts in which the model arrives: S3 lets every range wait for its first byte.
    stream_part_bytes: int = 8 << 20  # the last ones arrive together, and the engine still has to read them then
    # Without a byte from the store, before the engine is told that its file cannot be read; half of a download's
    # minute, since the download is what follows.
    stream_stall_seconds: float = 30.0
    # The model's copy on the disk, made beside the callers: a third of the network's baseline (312 MB/s), half of what
    # the disk takes (219 MB/s, measured); 18 GB take three minutes.
    stream_copy_bytes_per_second: float = 100e6
    # A load that a caller waits for took up to 128 s. An engine whose loads fail answers every caller with an error,
    # fast, for ever.
    unloaded_in_use_seconds: float = 150.0
    # A load reads 18 GB from the instance store at 188 MB/s, measured; what else is read there while the box serves is
    # a cold boot's upload of the cache, for 71 s.
    load_bytes_per_second: float = 10e6
    # Only a token of our own is a sign of life: an engine that answers every caller with an error looks busy.
    prove_seconds: float = 3600.0
    # 4096 tokens, the most that the lane lets pass, take 273 s at 15 a second: who takes three times that is slow for a
    # reason.
    runaway_seconds: float = 900.0
    # How often a generation that does not end is told: a metric has a resolution of a minute.
    runaway_report_seconds: float = 60.0
    # A shut gate gives a wedged engine this long to come back by itself before it is ended and started anew.
    wedge_confirm_seconds: float = 60.0
    # That in all: its end (65 s), a start, a load and a proof. A box that needs longer is replaced.
    recovery_seconds: float = 420.0
    # Until it answers at all; two seconds, measured.
    restart_seconds: float = 60.0


def load(path: Path = paths.BOX_JSON) -> Box:
    """Read box.json. Unknown or missing keys raise TypeError naming them: a half-understood box must not boot."""
    raw = json.loads(path.read_text())
    for name in ("engine", "gguf", "modelfile"):
        raw[name] = Artifact(**raw[name])
    return Box(**raw)
