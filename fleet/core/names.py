"""Every name that two parts of the fleet must agree on: the app declares it, the Lambda, the box and the CLI use it.

Plain constants and one-line functions, written for Python 3.9, because the box ships this file too.
A name used in one file only does not belong here.
"""

# --- resources, one set per fleet ------------------------------------------------------------------------------


def stack(fleet: str, stack: str) -> str:
    """CloudFormation stack of one stack."""
    return f"{fleet}-{stack}"


def asset_prefix(fleet: str) -> str:
    """Of this fleet's files in the CDK's bucket."""
    return f"{fleet}/"


def group(fleet: str) -> str:
    """Auto Scaling group."""
    return f"{fleet}-gpu"


def lever_parameter(fleet: str) -> str:
    """SSM parameter with the purchase lever: OnDemandPercentageAboveBaseCapacity, 0 to 100."""
    return f"/{fleet}/on-demand-percentage"


def state_parameter(fleet: str) -> str:
    """SSM parameter with the watchdog's state (JSON, at most 4 KB)."""
    return f"/{fleet}/watchdog-state"


def watchdog_function(fleet: str) -> str:
    """Lambda function of the watchdog."""
    return f"{fleet}-watchdog"


LET_GO_SECONDS = (
    300  # at most, a leaving box keeps its gate open for what a balancer still sends: reports say 3 to 5 min
)

WATCHDOG_TIMEOUT_SECONDS = 60  # of one invocation; whoever waits for an answer waits longer


def watchdog_log_group(fleet: str) -> str:
    """Log group with the watchdog's decision records."""
    return f"/aws/lambda/{watchdog_function(fleet)}"


def patience_clock(fleet: str) -> str:
    """State machine that wakes the watchdog to the second."""
    return f"{fleet}-patience"


COMMAND_PATIENCE = "patience"  # what it sends


def no_healthy_target_alarm(fleet: str) -> str:
    """Alarm that wakes the watchdog: fewer targets healthy than should serve."""
    return f"{fleet}-no-healthy-target"


def box_log_group(fleet: str) -> str:
    """Log group with the boxes' BOOTSTAGE lines and agent logs."""
    return f"/{fleet}/box"


STREAM_BOOT = "boot"  # what a box sends when its boot has ended
STREAM_LIVE = "live"  # what CloudWatch's agent sends while it runs
STREAM_LEAVING = "leaving"
LINE_BOOTSTAGE = "BOOTSTAGE"  # a line of the box's log that tells one stage of a boot


def box_log_stream(box: str, of: str) -> str:
    """Log stream of one box: each has its whole log so far."""
    return f"{box}/{of}"


def ask_document(fleet: str) -> str:
    """SSM document that puts one prompt to a box (`fleetctl ask`)."""
    return f"{fleet}-ask"


def lane_document(fleet: str) -> str:
    """SSM document that shows a box's line (`fleetctl lane`)."""
    return f"{fleet}-lane"


def lane_drop_document(fleet: str) -> str:
    """SSM document that ends one request of a box's line (`fleetctl lane drop`)."""
    return f"{fleet}-lane-drop"


def gateway_table(fleet: str) -> str:
    """DynamoDB table with the gateway's keys, caps and ledger: kept when its stack goes, taken up when it returns."""
    return f"{fleet}-gateway"


def gateway_service(fleet: str) -> str:
    """ECS service of the gateway, and the cluster that it alone is in."""
    return f"{fleet}-gateway"


def gateway_log_group(fleet: str) -> str:
    """Log group with one line for each of the gateway's requests."""
    return f"/{fleet}/gateway"


STACKS = ("store", "lever", "group")  # stacks, in the order in which they deploy
STACK_GATEWAY = "gateway"  # the last, where the settings have a gateway
ALL_STACKS = (*STACKS, STACK_GATEWAY)
STACK_FAULTS = "faults"  # of game days: made by `make faults` alone
OUTPUT_BUCKET = "BucketName"  # of the store
OUTPUT_ENDPOINT = "Endpoint"  # of the group, and of the gateway
CACHE_PREFIX = "cache/"  # of the store: what boxes may write; everything else only `fleetctl publish`
RELEASED_PREFIX = "artifacts/released/"  # of the store: which caches boxes may restore
METADATA_SHA256 = "sha256"  # of a published file, in its object's metadata


def cache_manifest(key: str) -> str:
    """Where the manifest of a cache stands in the store."""
    return f"{CACHE_PREFIX}{key}/manifest.json"


def cache_blob(name: str) -> str:
    """Where a blob stands; `name` is its file's, sha256-<digest>."""
    return f"{CACHE_PREFIX}blobs/{name}"


def released(key: str) -> str:
    """Where the digest of the manifest stands that boxes may restore."""
    return f"{RELEASED_PREFIX}{key}"


DLAMI_PARAMETER = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"

NOTICE_SECONDS = 120  # AWS: from a spot interruption notice to the end of the instance

# Of the group while a deploy, a planned roll or the group itself replaces boxes: launch first.
MIN_HEALTHY_PERCENT, MAX_HEALTHY_PERCENT = 100, 200

# vCPU quotas of EC2: "All G and VT Spot Instance Requests", "Running On-Demand G and VT instances".
QUOTA_SPOT, QUOTA_ON_DEMAND = "L-3819A6DF", "L-DB2E81BA"

# Service-linked roles, and the service that creates each.
LINKED_ROLES = {
    "AWSServiceRoleForAutoScaling": "autoscaling.amazonaws.com",
    "AWSServiceRoleForEC2Spot": "spot.amazonaws.com",
    "AWSServiceRoleForElasticLoadBalancing": "elasticloadbalancing.amazonaws.com",
}

LAUNCH_HOOK = "hold-until-serving"
TERMINATION_HOOK = "drain"

# --- tags ------------------------------------------------------------------------------------------------------

TAG_FLEET = "fleet:name"
TAG_BOOT = "fleet:boot"  # set by the box itself once it knows
BOOT_WARM = "warm"
BOOT_COLD = "cold"
BOOT_FAILED = "failed"  # before it gives its launch up: what tells a failed boot from a reclaimed one

TAG_FAULT = "fleet:fault"  # of an experiment's template: which fault it is
FAULT_NOTICE = "notice"
FAULT_DRY = "dry"

# --- metrics ---------------------------------------------------------------------------------------------------

METRIC_NAMESPACE = "SpotFleet"
DIMENSION_FLEET = "Fleet"
DIMENSION_STAGE = "Stage"
METRIC_BOOT_STAGE_SECONDS = "BootStageSeconds"  # dimensions Fleet, Stage; stage "total" is kernel to serving
STAGE_TOTAL = "total"
METRIC_BOOT_STREAMED = "BootStreamed"  # of a warm boot: 1 the engine loaded the model while it arrived, 0 after that
METRIC_BOOT_FAILED = "BootFailed"
METRIC_REPLACEMENT_READY_SECONDS = "ReplacementReadySeconds"  # launch to serving
METRIC_NOTICE_TO_DRAINING_SECONDS = "NoticeToDrainingSeconds"
METRIC_STREAMS_FINISHED = "StreamsFinished"
METRIC_STREAMS_CUT = "StreamsCut"
METRIC_RUNAWAY_GENERATION_SECONDS = "RunawayGenerationSeconds"  # its age, every minute once it is one
METRIC_INTERRUPTIONS = "InterruptionNotices"
METRIC_REBALANCE_RECOMMENDATIONS = "RebalanceRecommendations"
METRIC_LAUNCHES_FAILED = "LaunchesFailed"
METRIC_MODE = "Mode"  # 0 spot-armed, 1 on-demand-failover, 2 on-demand-pinned
METRIC_LEVER = "OnDemandPercentage"
METRIC_FAILOVERS = "Failovers"
METRIC_REARMS = "Rearms"

# The gateway's, as Prometheus text (llm_gateway_requests) and in its log: a request's line is CloudWatch's embedded
# metric format too, so no call is made for them. Dimension sets [Fleet], [Fleet, AnsweredBy] and [Fleet, Reason].
DIMENSION_ANSWERED_BY = "AnsweredBy"  # gpu, fallback, nobody, caller-left
METRIC_REQUESTS = "Requests"  # by AnsweredBy: 1 for each that was admitted
METRIC_FIRST_TOKEN_SECONDS = "FirstTokenSeconds"  # noqa: S105  no secret; by AnsweredBy
METRIC_ANSWER_SECONDS = "AnswerSeconds"  # by AnsweredBy: to the end
DIMENSION_REASON = "Reason"
METRIC_REFUSALS = "Refusals"  # by Reason
METRIC_IN_FLIGHT = "InFlight"
METRIC_ANSWERS_BROKEN = "AnswersBroken"  # 1: after a token was delivered, or by an error of ours
METRIC_NOBODY_ANSWERED = "NobodyAnswered"  # 1: neither GPU nor fallback could in time
METRIC_FALLBACK_DOLLARS = "FallbackDollars"
METRIC_FALLBACK_SPENT = "FallbackSpent"  # 1: the fallback was not asked, since the day's dollars are spent
METRIC_FALLBACK_TOO_MANY = "FallbackTooMany"  # its own 429s
METRIC_FALLBACK_MISCONFIGURED = "FallbackMisconfigured"  # its own 4xx but 408, 429: its key, model or fields
METRIC_STORE_FAILURES = "StoreFailures"  # calls without an answer
METRIC_ATTEMPTS_FAILED = "AttemptsFailed"  # Prometheus alone, by tier and kind; the log's lines name them

# --- what the Lambda finds in its environment ------------------------------------------------------------------

ENV_SETTINGS = "FLEET_SETTINGS"  # the validated settings, JSON
ENV_TOPIC_ARN = "TOPIC_ARN"
ENV_TARGET_GROUP_ARN = "TARGET_GROUP_ARN"
ENV_CLOCK_ARN = "CLOCK_ARN"  # with the bridge policy alone

ENV_GATEWAY = "GATEWAY_CONFIG"  # what the gateway finds in its own: its settings, JSON
GATEWAY_PORT = 8080
GATEWAY_METRICS_PORT = 9100  # Prometheus text; no balancer reaches it

# --- lines operators search for, word for word -----------------------------------------------------------------

LINE_SKIPPED_YOUNG = "failover skipped: instance younger than grace is still warming"
LINE_PINNED = "pinned; nothing to do"

# The lane's, which the box's agent puts every minute.
METRIC_LANE_DEPTH = "LaneDepth"  # waiting and served, now
METRIC_LANE_EXPECTED_WAIT_SECONDS = "LaneExpectedWaitSeconds"  # of a caller who came now
METRIC_LANE_WAIT_SECONDS = "LaneWaitSeconds"  # the mean of those whose turn began in that minute
METRIC_LANE_REFUSALS = "LaneRefusals"  # by Reason
METRIC_LANE_WASTED_TOKENS = "LaneWastedTokens"  # decoded, never delivered

# --- the lane's metrics, Prometheus text ---------------------------------------------------------------------------

LANE_DEPTH = "llm_lane_depth"  # waiting and served
LANE_EXPECTED_WAIT = "llm_lane_expected_wait_seconds"  # of a caller who came now
LANE_WAIT = "llm_lane_wait_seconds"
LANE_REFUSALS = "llm_lane_refusals"
LANE_TOKENS = "llm_lane_tokens"
SPOT_ABORTED_RATIO = "llm_spot_inflight_aborted_ratio"
SPOT_WASTED_TOKENS = "llm_spot_wasted_decode_tokens_total"
SPOT_NOTICE_TO_DRAINING = "llm_spot_notice_to_draining_seconds"  # these two by the box's other programs
SPOT_READY_LATENCY = "llm_spot_replacement_ready_latency_seconds"

# --- on the box --------------------------------------------------------------------------------------------------

ENGINE_PORT = 21434  # loopback alone: behind the lane, which has the serving port
LANE_ADMIN_PORT = 21435  # loopback alone: the line, drops, drain, metrics
LANE_UNIT = "fleet-lane.service"
