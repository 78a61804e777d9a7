"""The one table of wrong uses: what somebody typed, and every word of the answer. Run by unit/test_wrong_uses.py."""

from typing import Any

from fleet.config.pools import POOLS

ABSENT = object()  # the key is left out
OWN_POOL = {"instance_type": "g6e.xlarge", "gpu_memory_gib": 44.5, "vcpus": 4, "on_demand_usd": 1.861, "spot_usd": 0.8}
TWIN = "another file name than that of model.gguf.key: the box keeps both in one folder"
NOT_RESERVED = "a name that does not begin with aws, ssm, amazon, amzn, sthree-, xn--: AWS keeps those to itself"
NO_DOTS = "a key without empty parts, . and ..: the box makes paths of it"
ELSEWHERE = "arn:aws:kms:eu-west-1:123456789012:key/0a1b2c3d"

CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/0a1b2c3d-0000-0000-0000-000000000000"
BEDROCK, WEST = (f"bedrock-runtime.{region}.amazonaws.com" for region in ("us-east-2", "us-west-2"))
SIGNED = "gateway.fallback.sign_as signs for that service in the fleet's region; any other takes a key (key_secret)"
ONE_OF_THEM = "either this, a key's name in Secrets Manager, or gateway.fallback.sign_as: one of them"


# The tests' cdk.json with some keys (dotted) of the fleet replaced, and the lines that answer.
SETTINGS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a name that no AWS resource takes": (
        {"fleet_name": "My_Fleet"},
        ('fleet_name = "My_Fleet": 2 to 19 of a-z, 0-9 and -, a letter first, no - last',),
    ),
    "a name that AWS keeps to itself": (
        {"fleet_name": "ssm"},
        (f'fleet_name = "ssm": {NOT_RESERVED}',),
    ),
    "a port that the box needs itself": (
        {"port": 21434},
        ("port = 21434: none of 21434, 21435: engine and lane have them on loopback",),
    ),
    "a required key left out": (
        {"model.gguf": ABSENT},
        ("model.gguf: missing; an object with key, sha256",),
    ),
    "a key that does not exist": (
        {"watchdog": {"grace": 900}},
        (
            "watchdog.grace = 900: unknown key; allowed are alarm_minutes, grace_seconds, skip_cap_seconds, scan_seconds, "
            "rearm_score, rearm_streak, cooldown_seconds, valve_failovers, valve_window_seconds, rearm_timeout_seconds, "
            "boot_loop_launches, served_percent, served_window_seconds, trial_return_seconds, replacements_per_day, "
            "on_demand_hours_per_day",
        ),
    ),
    "a number in quotation marks": (
        {"capacity.max": "2"},
        ('capacity.max = "2": a whole number from 1 to 40',),
    ),
    "a fraction where a whole number belongs": (
        {"watchdog": {"scan_seconds": 1800.5}},
        ("watchdog.scan_seconds = 1800.5: a whole number from 300 to 3600",),
    ),
    "true where a number belongs": (
        {"watchdog": {"cooldown_seconds": True}},
        ("watchdog.cooldown_seconds = true: a whole number from 0 to 86400",),
    ),
    "a number out of bounds": (
        {"port": 80},
        ("port = 80: a whole number from 1024 to 65535",),
    ),
    "one string where a list belongs": (
        {"pools": "g6.xlarge"},
        ('pools = "g6.xlarge": a list, each a string',),
    ),
    "a number in a list of strings": (
        {"zones": ["us-east-2a", 2]},
        ("zones[1] = 2: a string",),
    ),
    "a section that is no object": (
        {"drain": 105},
        (
            "drain = 105: an object with budget_seconds, safety_margin_seconds, planned_seconds, deregistration_delay_seconds, "
            "termination_hook_seconds",
        ),
    ),
    "a mode that a fleet cannot start in": (
        {"initial_mode": "on-demand-failover"},
        ('initial_mode = "on-demand-failover": one of spot-armed, on-demand-pinned',),
    ),
    "an engine version that floats": (
        {"model.engine_version": "latest"},
        ('model.engine_version = "latest": a pinned version such as 0.11.4',),
    ),
    "a checksum cut short": (
        {"model.gguf.sha256": "abc123"},
        ('model.gguf.sha256 = "abc123": 64 hexadecimal digits, or empty',),
    ),
    "an image that is no id": (
        {"ami_id": "latest"},
        ('ami_id = "latest": an id such as ami-0a1b2c3d',),
    ),
    "a pool that nobody knows": (
        {"pools": ["g6.xlarge", "p9.xlarge"], "score_types": ["g6.xlarge", "p9.xlarge", "g5.xlarge"]},
        (f'pools[1] = "p9.xlarge": one of {", ".join(sorted(POOLS))}, or a type described in own_pools',),
    ),
    "no pool": (
        {"pools": []},
        ("pools = []: at least one instance type",),
    ),
    "a model that does not fit one of the pools": (
        {"pools": ["g6.xlarge", "g4dn.xlarge"], "score_types": ["g6.xlarge", "g4dn.xlarge", "g5.xlarge"]},
        ("model.gpu_memory_gib = 17.6: at most the GPU memory of pool g4dn.xlarge (15.0 GiB)",),
    ),
    "an own pool whose spot price is above on-demand": (
        {"own_pools": [{**OWN_POOL, "spot_usd": 2.5}]},
        ("own_pools[0].spot_usd = 2.5: at most on_demand_usd (1.861)",),
    ),
    "one own pool described twice": (
        {"own_pools": [OWN_POOL, {**OWN_POOL, "spot_usd": 0.9}]},
        ('own_pools = "g6e.xlarge": each only once',),
    ),
    "an own pool of another architecture than the image": (
        {"own_pools": [{**OWN_POOL, "instance_type": "g5g.xlarge"}]},
        ('own_pools[0].instance_type = "g5g.xlarge": an x86_64 type, as the image is',),
    ),
    "three score types of which two are the same": (
        {"score_types": ["g6.xlarge", "g5.xlarge", "g6.xlarge"]},
        (
            'score_types = ["g6.xlarge", "g5.xlarge", "g6.xlarge"]: at least three differently named types: with fewer '
            "the placement-score API always answers low",
            'score_types = "g6.xlarge": each only once',
        ),
    ),
    "score types that leave out a pool": (
        {"score_types": ["g6.xlarge", "g6.2xlarge", "g5.2xlarge"]},
        (
            'score_types = ["g6.xlarge", "g6.2xlarge", "g5.2xlarge"]: every pool among them (missing: g5.xlarge): '
            "a score holds for the types it was asked for",
        ),
    ),
    "no room for launch-first": (
        {"capacity.max": 1},
        ("capacity.max = 1: above capacity.min (1), or no successor can launch before its predecessor ends",),
    ),
    "growth that grows nothing": (
        {"capacity": {"min": 2, "grow_to": 2, "max": 4}},
        ("capacity.grow_to = 2: above capacity.min (2), or null",),
    ),
    "growth into the successors' room": (
        {"capacity.grow_to": 2},
        ("capacity.grow_to = 2: below capacity.max (2), or no successor of a grown group can launch first",),
    ),
    "more on-demand base than boxes": (
        {"capacity.on_demand_base": 2},
        ("capacity.on_demand_base = 2: at most capacity.min (1)",),
    ),
    "grace below the warm boot budget": (
        {"watchdog": {"grace_seconds": 600}},
        ("watchdog.grace_seconds = 600: at least boot.warm_budget_seconds (900), or a healthy boot is called stuck",),
    ),
    "skip cap not above grace": (
        {"watchdog": {"skip_cap_seconds": 900}},
        ("watchdog.skip_cap_seconds = 900: above watchdog.grace_seconds (900)",),
    ),
    "a scan that no schedule can run": (
        {"watchdog": {"scan_seconds": 1810}},
        ("watchdog.scan_seconds = 1810: whole minutes, as the schedule's rate",),
    ),
    "a valve that can never close": (
        {"watchdog": {"valve_failovers": 9}},
        (
            "watchdog.valve_window_seconds = 86400: above 8 times watchdog.cooldown_seconds (10800), or 9 failovers never "
            "fall into one window",
        ),
    ),
    "a served share that one drought misses": (
        {"watchdog": {"served_percent": 83, "alarm_minutes": 12, "skip_cap_seconds": 1800}},
        (
            "watchdog.served_percent = 83: at most 82, or less of watchdog.served_window_seconds is dark than in one drought, "
            "whose alarm waits for its window and the skip cap (2520 s)",
        ),
    ),
    "a window that is all taken up by the skip cap": (
        {"watchdog": {"served_window_seconds": 3600, "skip_cap_seconds": 7200}},
        (
            "watchdog.served_percent = 70: at most 0, or less of watchdog.served_window_seconds is dark than in one drought, "
            "whose alarm waits for its window and the skip cap (7920 s)",
        ),
    ),
    "trials before the cooldown is over": (
        {"watchdog": {"trial_return_seconds": 7200}},
        ("watchdog.trial_return_seconds = 7200: at least watchdog.cooldown_seconds (10800)",),
    ),
    "a re-arm that no cold boot can make": (
        {"watchdog": {"rearm_timeout_seconds": 1200}},
        (
            "watchdog.rearm_timeout_seconds = 1200: at least boot.cold_budget_seconds (1500), or no cold successor can "
            "finish",
        ),
    ),
    "a cold boot quicker than a warm one": (
        {"boot": {"cold_budget_seconds": 600}},
        ("boot.cold_budget_seconds = 600: at least boot.warm_budget_seconds (900)",),
    ),
    "a launch hook that gives up before a cold boot": (
        {"boot": {"hook_heartbeat_seconds": 1000}},
        ("boot.hook_heartbeat_seconds = 1000: at least boot.cold_budget_seconds (1500)",),
    ),
    "a deregistration delay below the drain budget": (
        {"drain": {"deregistration_delay_seconds": 60}},
        ("drain.deregistration_delay_seconds = 60: at least drain.budget_seconds (105), or streams are cut",),
    ),
    "a termination hook shorter than the deregistration delay": (
        {"drain": {"termination_hook_seconds": 110}},
        (
            "drain.termination_hook_seconds = 110: at least drain.deregistration_delay_seconds (120)",
            "drain.termination_hook_seconds = 110: at least 915: 300 until the balancer has let go, drain.planned_seconds "
            "(600) and drain.safety_margin_seconds (15), or streams are cut",
        ),
    ),
    "one zone": (
        {"zones": ["us-east-2a"]},
        ('zones = ["us-east-2a"]: at least two different zones: one zone\'s market is one market',),
    ),
    "a zone of another region": (
        {"zones": ["us-east-2a", "us-west-2b"]},
        ('zones[1] = "us-west-2b": a zone of region us-east-2, such as us-east-2a',),
    ),
    "subnets without their VPC": (
        {"network.subnet_ids": ["subnet-0a1b2c3d"]},
        (
            'network.subnet_ids = ["subnet-0a1b2c3d"]: empty unless network.vpc_id names the existing VPC they belong to',
        ),
    ),
    "a VPC without its subnets": (
        {"network.vpc_id": "vpc-0a1b2c3d"},
        ("network.subnet_ids = []: one subnet of network.vpc_id per zone, in order",),
    ),
    "a subnet that is no id, and one route table for three": (
        {
            "network.vpc_id": "vpc-0a1b2c3d",
            "network.subnet_ids": ["subnet-0a1b2c3d", "mine", "subnet-0a1b2c3f"],
            "network.route_table_ids": ["rtb-0a1b2c3d"],
        },
        (
            'network.route_table_ids = ["rtb-0a1b2c3d"]: one per subnet, in order, or empty where an S3 gateway endpoint '
            "exists",
            'network.subnet_ids[1] = "mine": an id such as subnet-0a1b2c3d',
        ),
    ),
    "one subnet for two zones": (
        {
            "network.vpc_id": "vpc-0a1b2c3d",
            "network.subnet_ids": ["subnet-0a1b2c3d", "subnet-0a1b2c3d", "subnet-0a1b2c3f"],
        },
        ('network.subnet_ids = "subnet-0a1b2c3d": each only once',),
    ),
    "private subnets of no VPC": (
        {"network.private_subnets": True},
        (
            "network.private_subnets = true: false unless network.vpc_id names a VPC whose subnets reach AWS by a NAT or "
            "by endpoints",
        ),
    ),
    "a public balancer in private subnets": (
        {
            "network.vpc_id": "vpc-0a1b2c3d",
            "network.subnet_ids": ["subnet-0a1b2c3d", "subnet-0a1b2c3e", "subnet-0a1b2c3f"],
            "network.private_subnets": True,
            "network.allow_public": True,
        },
        ("network.allow_public = true: false with network.private_subnets: callers could not come in",),
    ),
    "more zones than there are ranges": (
        {"zones": [f"us-east-2{letter}" for letter in "abcdefghi"]},
        (
            'zones = ["us-east-2a", "us-east-2b", "us-east-2c", "us-east-2d", "us-east-2e", "us-east-2f", "us-east-2g", '
            '"us-east-2h", "us-east-2i"]: at most 8: that many ranges are cut from network.cidr',
        ),
    ),
    "a VPC range that is public": (
        {"network.cidr": "8.8.0.0/16"},
        ('network.cidr = "8.8.0.0/16": a private IPv4 range from /16 to /24, such as 10.42.0.0/20',),
    ),
    "ranges with a netmask, which Python knows and AWS does not": (
        {"network.cidr": "10.42.0.0/255.255.240.0", "network.callers": ["10.0.0.0/255.255.0.0"]},
        (
            'network.cidr = "10.42.0.0/255.255.240.0": a private IPv4 range from /16 to /24, such as 10.42.0.0/20',
            'network.callers[0] = "10.0.0.0/255.255.0.0": an IPv4 range such as 10.0.0.0/16 (the balancer is IPv4 only), '
            "or a security group id",
        ),
    ),
    "half of the internet as callers, unasked": (
        {"network.callers": ["10.0.0.0/8", "128.0.0.0/1"]},
        ('network.callers[1] = "128.0.0.0/1": a private range; public ones only with network.allow_public = true',),
    ),
    "the whole internet as callers, asked for": (
        {
            "network.callers": ["0.0.0.0/0", "128.0.0.0/1", "203.0.0.0/15", "203.0.113.0/24"],
            "network.allow_public": True,
        },
        tuple(
            f'network.callers[{number}] = "{caller}": a public range of /16 or narrower: prompts travel in the clear, no '
            "key is asked"
            for number, caller in enumerate(("0.0.0.0/0", "128.0.0.0/1", "203.0.0.0/15"))
        ),
    ),
    "a caller that is neither range nor group": (
        {"network.callers": ["::/0", "10.0.0.1"]},
        (
            'network.callers[0] = "::/0": an IPv4 range such as 10.0.0.0/16 (the balancer is IPv4 only), or a security '
            "group id",
            'network.callers[1] = "10.0.0.1": an IPv4 range such as 10.0.0.0/16 (the balancer is IPv4 only), or a '
            "security group id",
        ),
    ),
    "a mail address with a blank": (
        {"mail": ["on call@example.org", "oncall@example.org", "oncall@example.org"]},
        (
            'mail[0] = "on call@example.org": a mail address such as oncall@example.org',
            'mail = "oncall@example.org": each only once',
        ),
    ),
    "a disk key of another region": (
        {"ebs_key_arn": ELSEWHERE},
        (f'ebs_key_arn = "{ELSEWHERE}": a key of region us-east-2',),
    ),
    "two artifacts of one file name": (
        {"model.modelfile.key": "other/model.gguf"},
        (f'model.modelfile.key = "other/model.gguf": {TWIN}',),
    ),
    "artifacts that a path would leave their folder by": (
        {"model.gguf.key": "a/../../etc/cron.d/x", "model.modelfile.key": "a/./Modelfile"},
        (
            f'model.gguf.key = "a/../../etc/cron.d/x": {NO_DOTS}',
            f'model.modelfile.key = "a/./Modelfile": {NO_DOTS}',
        ),
    ),
    "an artifact that is a folder": (
        {"model.gguf.key": "a//b/"},
        (f'model.gguf.key = "a//b/": {NO_DOTS}',),
    ),
    "an artifact where every box may write": (
        {"model.gguf.key": "cache/model.gguf"},
        ('model.gguf.key = "cache/model.gguf": outside cache/, where every box may write',),
    ),
    "an engine of another version than the pinned one": (
        {"model.engine_version": "0.12.0"},
        (
            'model.engine.key = "artifacts/ollama-linux-amd64-0.11.4.tgz": a key that names model.engine_version '
            "(0.12.0), or one version hides another",
        ),
    ),
    "an engine that does not tell its context": (
        {"model.engine_version": "0.9.6", "model.engine.key": "artifacts/ollama-0.9.6.tgz"},
        (
            'model.engine_version = "0.9.6": 0.10.0 or newer: older engines do not tell which context they loaded, '
            "and no box would open",
        ),
    ),
    "more settings than a function's environment holds": (
        {"mail": [f"somebody-with-a-long-name-{number}@example.org" for number in range(60)]},
        ('(all) = "4560 bytes": at most 3700 bytes as JSON, its quotes escaped: a function\'s environment is small',),
    ),
    "a gateway whose budgets outlive the wall and the balancer's patience": (
        {"gateway": {"budgets": {"wall_seconds": 120, "whole_seconds": 120, "comment_seconds": 60}}},
        (
            "gateway.budgets.whole_seconds = 120.0: below gateway.budgets.wall_seconds (120), where proxies cut a silent "
            "connection",
            "gateway.budgets.wall_seconds = 120.0: below the balancer's idle time-out (120 s), which would cut the answer "
            "first",
        ),
    ),
    "a gateway whose wall stands before every budget": (
        {"gateway": {"budgets": {"wall_seconds": 1}}},
        tuple(
            f"gateway.budgets.{name}_seconds = {value}: below gateway.budgets.wall_seconds (1), where proxies cut a silent "
            "connection"
            for name, value in (
                ("first_token", 30),
                ("whole", 90),
                ("comment", 20),
                ("connected", 1),
                ("fallback_first_token", 15),
                ("fallback_p95", 6),
            )
        ),
    ),
    "a gateway that comments too late and keeps connections for less than its balancer": (
        {
            "gateway": {
                "budgets": {"wall_seconds": 20, "first_token_seconds": 10, "whole_seconds": 15},
                "keepalive_seconds": 60,
            }
        },
        (
            "gateway.budgets.comment_seconds = 20: below gateway.budgets.wall_seconds (20), where proxies cut a silent "
            "connection",
            "gateway.keepalive_seconds = 60.0: above the balancer's idle time-out (120 s), or it sends into closed connections",
        ),
    ),
    "a gateway that tries the GPU again for longer than the GPU has": (
        {"gateway": {"budgets": {"first_token_seconds": 4}, "retries": {"fresh_seconds": 4}}},
        (
            "gateway.retries.fresh_seconds = 4.0: below gateway.budgets.first_token_seconds (4), by when the GPU must have "
            "begun",
            "gateway.retries.retry_after_seconds = 5: below gateway.budgets.first_token_seconds (4), by when the GPU must "
            "have begun",
        ),
    ),
    "a token limit below its own default, and a tier with more fallbacks than requests": (
        {
            "gateway": {
                "limits": {"max_tokens": 512},
                "tiers": {"free": {"requests_per_day": 5, "fallbacks_per_day": 6}},
            }
        },
        (
            "gateway.limits.default_max_tokens = 1024: at most gateway.limits.max_tokens (512)",
            "gateway.tiers.free.fallbacks_per_day = 6: at most gateway.tiers.free.requests_per_day (5)",
        ),
    ),
    "a fallback without model and key": (
        {"gateway": {"fallback": {"url": "https://example.org/v1"}}},
        (
            'gateway.fallback.model = "": the name that gateway.fallback.url knows its model by',
            f'gateway.fallback.key_secret = "": {ONE_OF_THEM}',
        ),
    ),
    **{
        name: (
            {"gateway": {"fallback": {"url": url, "model": "m", "key_secret": "k"}}},
            (f'gateway.fallback.url = "{url}": https://HOST/v1, at port 443, which alone tasks reach; no / last',),
        )
        for name, url in (
            ("a fallback at a port that the tasks' group does not let out", "https://example.org:8443/v1"),
            ("a fallback in the clear", "http://example.org/v1"),
        )
    },
    "a fallback with a key and a signature": (
        {
            "gateway": {
                "fallback": {"url": f"https://{BEDROCK}/v1", "model": "m", "key_secret": "k", "sign_as": "bedrock"}
            }
        },
        (f'gateway.fallback.key_secret = "k": {ONE_OF_THEM}',),
    ),
    "a fallback signed for the fleet's region, asked in another": (
        {"gateway": {"fallback": {"url": f"https://{WEST}/v1", "model": "m", "sign_as": "bedrock"}}},
        (f'gateway.fallback.url = "https://{WEST}/v1": https://{BEDROCK}/..., since {SIGNED}',),
    ),
    "a signature of the role's for somebody else": (
        {"gateway": {"fallback": {"url": "https://example.org/v1", "model": "m", "sign_as": "bedrock-mantle"}}},
        (
            'gateway.fallback.url = "https://example.org/v1": https://bedrock-mantle.us-east-2.api.aws/..., since '
            f"{SIGNED}",
        ),
    ),
    "a fallback without its URL, signed as nobody knows": (
        {"gateway": {"fallback": {"model": "m", "sign_as": "s3"}}},
        ('gateway.fallback.sign_as = "s3": bedrock or bedrock-mantle, or empty',),
    ),
    "a fallback's model without its URL": (
        {"gateway": {"fallback": {"model": "m"}}},
        ('gateway.fallback.model = "m": empty without gateway.fallback.url',),
    ),
    "aliases that are no other names": (
        {"gateway": {"aliases": ["gpt", "house-model:31b-q4", "gpt"]}},
        (
            'gateway.aliases[1] = "house-model:31b-q4": another name than model.name (house-model:31b-q4), which callers '
            "may use anyway",
            'gateway.aliases = "gpt": each only once',
        ),
    ),
    "a public door beside the gateway's": (
        {"network.allow_public": True, "gateway": {}},
        (
            "network.allow_public = true: false with a gateway, which alone may call the fleet's own balancer: "
            "gateway.public opens its",
        ),
    ),
    "public callers of a gateway that is not": (
        {"network.callers": ["0.0.0.0/0"], "gateway": {}},
        ('network.callers[0] = "0.0.0.0/0": a private range; public ones only with gateway.public = true',),
    ),
    "a public gateway without a certificate, where nobody could come in": (
        {
            "network.vpc_id": "vpc-0a1b2c3d",
            "network.subnet_ids": ["subnet-0a1b2c3d", "subnet-0a1b2c3e", "subnet-0a1b2c3f"],
            "network.private_subnets": True,
            "gateway": {"public": True},
        },
        (
            "gateway.certificate_arn = null: the ARN of a certificate, since gateway.public: keys must not travel in the "
            "clear",
            "gateway.public = true: false with network.private_subnets: callers could not come in",
        ),
    ),
    "a certificate of another region": (
        {"gateway": {"certificate_arn": CERTIFICATE}},
        (f'gateway.certificate_arn = "{CERTIFICATE}": a certificate of region us-east-2',),
    ),
    "several at once: all are told, and none twice": (
        {"capacity.max": 1, "watchdog": {"grace_seconds": "soon", "skip_cap_seconds": 700}, "model.gpu_memory_gib": 40},
        (
            'watchdog.grace_seconds = "soon": a whole number from 300 to 3600',
            "model.gpu_memory_gib = 40: at most the GPU memory of pool g6.xlarge (22.5 GiB)",
            "model.gpu_memory_gib = 40: at most the GPU memory of pool g5.xlarge (22.5 GiB)",
            "capacity.max = 1: above capacity.min (1), or no successor can launch before its predecessor ends",
        ),
    ),
}


# A cdk.json that is no settings file at all, and the lines that answer; None: it is not there.
FILES: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "no file": (
        None,
        ("(file) = \"cdk.json\": a readable JSON file ([Errno 2] No such file or directory: 'cdk.json')",),
    ),
    "no JSON": (
        "{fleet: llm}",
        ('(file) = "line 1 column 2": JSON; Expecting property name enclosed in double quotes',),
    ),
    "no fleet": (
        '{"context": {}}',
        ("context.fleet = null: an object with the settings of one fleet",),
    ),
    "a key twice": (
        '{"context": {"fleet": 1, "fleet": 2}}',
        (
            '(file) = "fleet": a key once in its object: the last would win in silence',
            "context.fleet = 2: an object with the settings of one fleet",
        ),
    ),
    "a list": (
        "[]",
        ("context.fleet = null: an object with the settings of one fleet",),
    ),
}


def usage(command: str, error: str, arguments: str = "[OPTIONS]") -> tuple[str, ...]:
    """How click answers a wrong use of a command."""
    program = f"fleetctl {command}".strip()
    return (f"Usage: {program} {arguments}", f"Try '{program} --help' for help.", "", error)


# What somebody typed after `fleetctl`, and the lines that answer.
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "an unknown command": (
        ("stauts",),
        usage("", "Error: No such command 'stauts'. Did you mean 'status'?", "[OPTIONS] COMMAND [ARGS]..."),
    ),
    "an operator command without a reason": (
        ("pin",),
        usage("pin", "Error: Missing option '--why'."),
    ),
    "an operator command with a reason of blanks": (
        ("arm", "--why", "  ", "--yes"),
        ("arm: --why is blank; allowed: a reason in words, for whoever reads the log later",),
    ),
    "a settings file that is not there": (
        ("--settings", "nowhere.json", "status"),
        (
            "nowhere.json: 1 problem in the settings of the fleet",
            "  (file) = \"nowhere.json\": a readable JSON file ([Errno 2] No such file or directory: 'nowhere.json')",
        ),
    ),
    "a folder for the record of the probes, which a flip and a prompt came before": (
        ("probe", "--all", "--yes", "--why", "x", "--record", "."),
        usage("probe", "Error: Invalid value for '--record': File '.' is a directory."),
    ),
    "a folder for a review's comment": (
        ("review", "--out", "."),
        usage("review", "Error: Invalid value for '--out': File '.' is a directory."),
    ),
    "watching as JSON": (
        ("status", "--watch", "--json"),
        ("status: --watch draws on the terminal; allowed: --watch or --json, not both",),
    ),
    "no prompt": (
        ("ask",),
        usage("ask", "Error: Missing argument 'PROMPT'.", "[OPTIONS] PROMPT"),
    ),
    "a prompt of blanks": (
        ("ask", " \n "),
        ("ask: the prompt is empty; allowed: 1 to 4096 bytes of text",),
    ),
    "a prompt that is too long": (
        ("ask", "x" * 4097),
        ("ask: the prompt has 4097 bytes; allowed: 1 to 4096 bytes of text",),
    ),
    "an image id that is none": (
        ("pin-ami", "--ami", "ubuntu", "--yes"),
        ("pin-ami: --ami is 'ubuntu'; allowed: an id such as ami-0a1b2c3d",),
    ),
    "no days": (
        ("history", "--days", "0"),
        usage("history", "Error: Invalid value for '--days': 0 is not in the range 1<=x<=42."),
    ),
    "an endpoint without --live": (
        ("game-day", "--endpoint", "http://x"),
        ("game-day: --endpoint is for a live account; allowed: --live --endpoint URL",),
    ),
    "an endpoint that no load can reach": (
        ("game-day", "--live", "--endpoint", "ftp://x", "--yes"),
        ("game-day: --endpoint is ftp://x; allowed: an address such as http://HOST:11434",),
    ),
    "a scenario without --live": (
        ("game-day", "--scenario", "1"),
        ("game-day: --scenario is for a live account; allowed: --live --scenario N (here: `make chaos`)",),
    ),
    "a fifth scenario": (
        ("game-day", "--live", "--scenario", "5"),
        usage("game-day", "Error: Invalid value for '--scenario': 5 is not in the range 1<=x<=4."),
    ),
    "nothing to publish": (
        ("publish",),
        ("publish: no file given; allowed: one or more of --engine, --gguf, --modelfile; or --built alone",),
    ),
    "weights that are not there": (
        ("publish", "--gguf", "nowhere.gguf"),
        ("publish: nothing was uploaded", "  --gguf nowhere.gguf: no such file; a readable file is needed"),
    ),
    "a record of one probe": (
        ("probe", "--why", "x", "--record", "y.json"),
        ("probe: --record without --all; allowed: both, or neither",),
    ),
    "a folder that cannot be made": (
        ("history", "--out", "/proc/x"),
        (
            "history: --out is /proc/x; allowed: a folder that can be made and written ([Errno 2] No such file or directory: '/proc/x')",
        ),
    ),
    "a review of no assembly": (
        ("review", "--assembly", "nowhere"),
        (
            "nowhere: not a cloud assembly ([Errno 2] No such file or directory: 'nowhere/manifest.json'); run `make synth` first",
        ),
    ),
    "a file where a folder belongs": (
        ("history", "--out", "cdk.json"),
        usage("history", "Error: Invalid value for '--out': Directory 'cdk.json' is a file."),
    ),
}
