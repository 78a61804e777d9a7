"""Cross-field rules: settings that are fine alone and wrong together. `validation` tries every rule at synth.

Each rule is a pure function from settings to problems; a problem names the key to change, its value and what is allowed
beside the others. A value that the schema has refused is absent, and a rule that asks for it is not judged.
"""

import ipaddress
import json
import operator
import re
from collections.abc import Callable, Iterator
from functools import partial

from fleet.config.gateway_cross_field_rules import GATEWAY_RULES
from fleet.config.pools import POOLS
from fleet.config.problem import Problem, distinct
from fleet.config.settings import Settings
from fleet.core import names

SECURITY_GROUP = re.compile(r"sg-[0-9a-f]{8,17}")
MAIL = re.compile(r"[^@\s,;<>\"]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
# Ranges that no public address lies in: an internal balancer's callers come from these.
PRIVATE_RANGES = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
WIDEST_PUBLIC_CALLER = 16  # what one owner may have; wider, and 0.0.0.0/0 above all, is the world
VPC_PREFIX_LENGTHS = range(16, 25)  # AWS allows /28; below /24 two subnets cannot hold a balancer and boxes in comfort
ZONE_BITS = 3  # of the new VPC's range: room for 8 zones, more than any region has, whatever the first deploy asks for
# No SSM parameter may begin with aws or ssm, no SSM document with amazon or amzn, no bucket with the rest.
RESERVED_NAMES = ("aws", "ssm", "amazon", "amzn", "sthree-", "xn--")
# The letters after the generation: a g among them is Graviton (g5g, c7gn), whose image and engine are other ones.
ARM = re.compile(r"[a-z]+[0-9]+[a-z-]*g")
OLDEST_ENGINE = (0, 10, 0)  # `/api/ps` tells the loaded context since then (ollama/ollama, pull request 11331)
# Of the 4096 that a function's whole environment may have; Lambda measures it as JSON, so a quote in a value is two.
SETTINGS_BYTES = 3700


# One setting beside another: the one to change, how it must stand to the other, and what is wrong where it does not.
ORDER = (
    ("capacity.max", "above", "capacity.min", "or no successor can launch before its predecessor ends"),
    ("capacity.on_demand_base", "at most", "capacity.min", ""),
    ("watchdog.grace_seconds", "at least", "boot.warm_budget_seconds", "or a healthy boot is called stuck"),
    ("watchdog.skip_cap_seconds", "above", "watchdog.grace_seconds", ""),
    ("watchdog.trial_return_seconds", "at least", "watchdog.cooldown_seconds", ""),
    ("watchdog.rearm_timeout_seconds", "at least", "boot.cold_budget_seconds", "or no cold successor can finish"),
    ("boot.cold_budget_seconds", "at least", "boot.warm_budget_seconds", ""),
    ("boot.hook_heartbeat_seconds", "at least", "boot.cold_budget_seconds", ""),
    ("drain.deregistration_delay_seconds", "at least", "drain.budget_seconds", "or streams are cut"),
    # aws-behaviours: delay-beside-hook
    ("drain.termination_hook_seconds", "at least", "drain.deregistration_delay_seconds", ""),
    *(
        (f"gateway.budgets.{name}", "below", "gateway.budgets.wall_seconds", "where proxies cut a silent connection")
        for name in (
            *("first_token_seconds", "whole_seconds", "comment_seconds", "connected_seconds"),
            *("fallback_first_token_seconds", "fallback_p95_seconds"),
        )
    ),
    *(
        (f"gateway.retries.{name}", "below", "gateway.budgets.first_token_seconds", "by when the GPU must have begun")
        for name in ("fresh_seconds", "retry_after_seconds")
    ),
    ("gateway.limits.default_max_tokens", "at most", "gateway.limits.max_tokens", ""),
)
HOLDS = {"above": operator.gt, "at least": operator.ge, "at most": operator.le, "below": operator.lt}


def _ordered(key: str, how: str, other: str, why: str, s: Settings) -> Iterator[Problem]:
    value, bound = (operator.attrgetter(name)(s) for name in (key, other))
    if not HOLDS[how](value, bound):
        yield Problem(key, value, f"{how} {other} ({bound:.10g}){', ' * bool(why)}{why}")


def _fleet_name(s: Settings) -> Iterator[Problem]:
    if s.fleet_name.startswith(RESERVED_NAMES):
        allowed = f"a name that does not begin with {', '.join(RESERVED_NAMES)}: AWS keeps those to itself"
        yield Problem("fleet_name", s.fleet_name, allowed)


def _port(s: Settings) -> Iterator[Problem]:
    taken = (names.ENGINE_PORT, names.LANE_ADMIN_PORT)
    if s.port in taken:
        yield Problem("port", s.port, f"none of {', '.join(map(str, taken))}: engine and lane have them on loopback")


def _scan(s: Settings) -> Iterator[Problem]:
    for section, seconds in (("watchdog", s.watchdog.scan_seconds), ("bridge", s.bridge.scan_seconds)):
        if seconds % 60:
            yield Problem(f"{section}.scan_seconds", seconds, "whole minutes, as the schedule's rate")


def _valve(s: Settings) -> Iterator[Problem]:
    w = s.watchdog
    if w.valve_window_seconds <= (w.valve_failovers - 1) * w.cooldown_seconds:
        allowed = (
            f"above {w.valve_failovers - 1} times watchdog.cooldown_seconds ({w.cooldown_seconds}), "
            f"or {w.valve_failovers} failovers never fall into one window"
        )
        yield Problem("watchdog.valve_window_seconds", w.valve_window_seconds, allowed)


def _served_share(s: Settings) -> Iterator[Problem]:
    w = s.watchdog
    dark = w.served_window_seconds * (100 - w.served_percent) // 100
    needed = w.alarm_minutes * 60 + w.skip_cap_seconds
    if w.served_percent and dark <= needed:
        most = max(99 - 100 * needed // w.served_window_seconds, 0)
        allowed = (
            f"at most {most}, or less of watchdog.served_window_seconds is dark than in one drought, whose alarm waits "
            f"for its window and the skip cap ({needed} s)"
        )
        yield Problem("watchdog.served_percent", w.served_percent, allowed)


def _termination_hook(s: Settings) -> Iterator[Problem]:
    hook = s.drain.termination_hook_seconds
    least = names.LET_GO_SECONDS + s.drain.planned_seconds + s.drain.safety_margin_seconds
    if hook < least:
        allowed = (
            f"at least {least}: {names.LET_GO_SECONDS} until the balancer has let go, drain.planned_seconds "
            f"({s.drain.planned_seconds}) and drain.safety_margin_seconds ({s.drain.safety_margin_seconds}), "
            "or streams are cut"
        )
        yield Problem("drain.termination_hook_seconds", hook, allowed)


def _growth(s: Settings) -> Iterator[Problem]:
    capacity = s.capacity
    if capacity.grow_to is None:
        return
    if capacity.grow_to <= capacity.min:
        yield Problem("capacity.grow_to", capacity.grow_to, f"above capacity.min ({capacity.min}), or null")
    if capacity.max <= capacity.grow_to:
        allowed = f"below capacity.max ({capacity.max}), or no successor of a grown group can launch first"
        yield Problem("capacity.grow_to", capacity.grow_to, allowed)


def _pools_known(s: Settings) -> Iterator[Problem]:
    known = sorted({*POOLS, *(pool.instance_type for pool in s.own_pools)})
    if not s.pools:
        yield Problem("pools", s.pools, "at least one instance type")
    for index, name in enumerate(s.pools):
        if name not in known:
            yield Problem(f"pools[{index}]", name, f"one of {', '.join(known)}, or a type described in own_pools")
    yield from distinct("pools", s.pools)


def _model_fits(s: Settings) -> Iterator[Problem]:
    facts = {**POOLS, **{pool.instance_type: pool for pool in s.own_pools}}
    for name in s.pools:
        if name in facts and facts[name].gpu_memory_gib < s.model.gpu_memory_gib:
            allowed = f"at most the GPU memory of pool {name} ({facts[name].gpu_memory_gib} GiB)"
            yield Problem("model.gpu_memory_gib", s.model.gpu_memory_gib, allowed)


def _score_types(s: Settings) -> Iterator[Problem]:
    if len(set(s.score_types)) < 3:  # aws-behaviours: score-needs-three-types
        allowed = "at least three differently named types: with fewer the placement-score API always answers low"
        yield Problem("score_types", s.score_types, allowed)
    yield from distinct("score_types", s.score_types)


def _score_types_cover_pools(s: Settings) -> Iterator[Problem]:
    missing = [name for name in s.pools if name not in s.score_types]
    if missing:
        allowed = f"every pool among them (missing: {', '.join(missing)}): a score holds for the types it was asked for"
        yield Problem("score_types", s.score_types, allowed)


def _own_pools(s: Settings) -> Iterator[Problem]:
    for index, pool in enumerate(s.own_pools):
        if ARM.match(pool.instance_type.partition(".")[0]):
            yield Problem(f"own_pools[{index}].instance_type", pool.instance_type, "an x86_64 type, as the image is")
        if pool.spot_usd > pool.on_demand_usd:
            yield Problem(
                f"own_pools[{index}].spot_usd", pool.spot_usd, f"at most on_demand_usd ({pool.on_demand_usd})"
            )
    yield from distinct("own_pools", tuple(pool.instance_type for pool in s.own_pools))


def _zones(s: Settings) -> Iterator[Problem]:
    if len(set(s.zones)) < 2:
        yield Problem("zones", s.zones, "at least two different zones: one zone's market is one market")
    if len(s.zones) > 2**ZONE_BITS:
        yield Problem("zones", s.zones, f"at most {2**ZONE_BITS}: that many ranges are cut from network.cidr")
    for index, zone in enumerate(s.zones):
        if not re.fullmatch(re.escape(s.region) + "[a-z]", zone):
            yield Problem(f"zones[{index}]", zone, f"a zone of region {s.region}, such as {s.region}a")
    yield from distinct("zones", s.zones)


def _existing_vpc(s: Settings) -> Iterator[Problem]:
    network = s.network
    if network.vpc_id is None:
        for name in ("subnet_ids", "route_table_ids"):
            if getattr(network, name):
                allowed = "empty unless network.vpc_id names the existing VPC they belong to"
                yield Problem(f"network.{name}", getattr(network, name), allowed)
        if network.private_subnets:
            allowed = "false unless network.vpc_id names a VPC whose subnets reach AWS by a NAT or by endpoints"
            yield Problem("network.private_subnets", True, allowed)
    elif len(network.subnet_ids) != len(s.zones):
        yield Problem("network.subnet_ids", network.subnet_ids, "one subnet of network.vpc_id per zone, in order")
    if network.vpc_id and len(network.route_table_ids) not in (0, len(network.subnet_ids)):
        allowed = "one per subnet, in order, or empty where an S3 gateway endpoint exists"
        yield Problem("network.route_table_ids", network.route_table_ids, allowed)
    if network.private_subnets and network.allow_public:
        yield Problem("network.allow_public", True, "false with network.private_subnets: callers could not come in")
    yield from distinct("network.subnet_ids", network.subnet_ids)


def _ids(s: Settings) -> Iterator[Problem]:
    for name, prefix in (("subnet_ids", "subnet"), ("route_table_ids", "rtb")):
        for index, value in enumerate(getattr(s.network, name)):
            if not re.fullmatch(prefix + "-[0-9a-f]{8,17}", value):
                yield Problem(f"network.{name}[{index}]", value, f"an id such as {prefix}-0a1b2c3d")


def _cidr(s: Settings) -> Iterator[Problem]:
    network = _ipv4(s.network.cidr)
    if network is None or network.prefixlen not in VPC_PREFIX_LENGTHS or not _private(network):
        yield Problem("network.cidr", s.network.cidr, "a private IPv4 range from /16 to /24, such as 10.42.0.0/20")


def _callers(s: Settings) -> Iterator[Problem]:
    for index, caller in enumerate(s.network.callers):
        key, network = f"network.callers[{index}]", _ipv4(caller)
        if network is None and not SECURITY_GROUP.fullmatch(caller):
            allowed = "an IPv4 range such as 10.0.0.0/16 (the balancer is IPv4 only), or a security group id"
            yield Problem(key, caller, allowed)
        elif network is not None and not _private(network) and s.gateway is not None:
            if not s.gateway.public:
                yield Problem(key, caller, "a private range; public ones only with gateway.public = true")
        elif network is not None and not _private(network) and not s.network.allow_public:
            yield Problem(key, caller, "a private range; public ones only with network.allow_public = true")
        elif network is not None and not _private(network) and network.prefixlen < WIDEST_PUBLIC_CALLER:
            allowed = (
                f"a public range of /{WIDEST_PUBLIC_CALLER} or narrower: prompts travel in the clear, no key is asked"
            )
            yield Problem(key, caller, allowed)
    yield from distinct("network.callers", s.network.callers)


def _mail(s: Settings) -> Iterator[Problem]:
    for index, address in enumerate(s.mail):
        if not MAIL.fullmatch(address):
            yield Problem(f"mail[{index}]", address, "a mail address such as oncall@example.org")
    yield from distinct("mail", s.mail)


def _ebs_key(s: Settings) -> Iterator[Problem]:
    if s.ebs_key_arn and s.ebs_key_arn.split(":")[3] != s.region:
        yield Problem("ebs_key_arn", s.ebs_key_arn, f"a key of region {s.region}")


def _artifacts(s: Settings) -> Iterator[Problem]:
    keys = {name: getattr(s.model, name).key for name in ("engine", "gguf", "modelfile")}
    for name, key in keys.items():
        if key.startswith(names.CACHE_PREFIX):
            allowed = f"outside {names.CACHE_PREFIX}, where every box may write"
            yield Problem(f"model.{name}.key", key, allowed)
        if {"", ".", ".."} & set(key.split("/")):
            yield Problem(f"model.{name}.key", key, "a key without empty parts, . and ..: the box makes paths of it")
        twins = [other for other, value in keys.items() if _file_name(value) == _file_name(key) and other < name]
        if twins:
            allowed = f"another file name than that of model.{twins[0]}.key: the box keeps both in one folder"
            yield Problem(f"model.{name}.key", key, allowed)


def _file_name(key: str) -> str:
    return key.rpartition("/")[2]


def _engine(s: Settings) -> Iterator[Problem]:
    if tuple(map(int, re.findall("[0-9]+", s.model.engine_version))) < OLDEST_ENGINE:
        oldest = ".".join(map(str, OLDEST_ENGINE))
        allowed = f"{oldest} or newer: older engines do not tell which context they loaded, and no box would open"
        yield Problem("model.engine_version", s.model.engine_version, allowed)
    if s.model.engine_version not in s.model.engine.key:
        allowed = f"a key that names model.engine_version ({s.model.engine_version}), or one version hides another"
        yield Problem("model.engine.key", s.model.engine.key, allowed)


def _fits_the_function(s: Settings) -> Iterator[Problem]:
    size = len(json.dumps(s.to_json()))
    if size > SETTINGS_BYTES:
        allowed = f"at most {SETTINGS_BYTES} bytes as JSON, its quotes escaped: a function's environment is small"
        yield Problem("(all)", f"{size} bytes", allowed)


def _ipv4(text: str) -> ipaddress.IPv4Network | None:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        return None
    return network if str(network) == text else None  # Python takes 10.0.0.0/255.0.0.0 too, AWS does not


def _private(network: ipaddress.IPv4Network) -> bool:
    return any(network.subnet_of(private) for private in PRIVATE_RANGES)


RULES: tuple[Callable[[Settings], Iterator[Problem]], ...] = (
    _fleet_name,
    _port,
    _zones,
    _pools_known,
    _model_fits,
    _score_types,
    _score_types_cover_pools,
    _own_pools,
    *(partial(_ordered, *row) for row in ORDER),
    _growth,
    _scan,
    _valve,
    _served_share,
    _termination_hook,
    _existing_vpc,
    _ids,
    _cidr,
    _callers,
    _mail,
    _ebs_key,
    _artifacts,
    _engine,
    _fits_the_function,
    *GATEWAY_RULES,
)
