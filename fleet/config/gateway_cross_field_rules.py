"""The gateway's cross-field rules: fine alone, wrong beside the rest, as in `fleet.config.cross_field_rules`.

Without a `gateway` section no rule says anything.
"""

from collections.abc import Callable, Iterator
from typing import Any

from fleet.config.gateway_settings import BALANCER_IDLE_SECONDS, Gateway
from fleet.config.problem import Problem, distinct

SIGNED_AT = {"bedrock": "bedrock-runtime.{}.amazonaws.com", "bedrock-mantle": "bedrock-mantle.{}.api.aws"}


def _balancer(g: Gateway, s: Any) -> Iterator[Problem]:
    if g.budgets.wall_seconds >= BALANCER_IDLE_SECONDS:
        allowed = f"below the balancer's idle time-out ({BALANCER_IDLE_SECONDS} s), which would cut the answer first"
        yield Problem("gateway.budgets.wall_seconds", g.budgets.wall_seconds, allowed)


def _keepalive(g: Gateway, s: Any) -> Iterator[Problem]:
    if g.keepalive_seconds <= BALANCER_IDLE_SECONDS:
        allowed = f"above the balancer's idle time-out ({BALANCER_IDLE_SECONDS} s), or it sends into closed connections"
        yield Problem("gateway.keepalive_seconds", g.keepalive_seconds, allowed)


def _fallback(g: Gateway, s: Any) -> Iterator[Problem]:
    url, model, secret, sign_as = g.fallback.url, g.fallback.model, g.fallback.key_secret, g.fallback.sign_as
    if url and not model:
        yield Problem("gateway.fallback.model", model, "the name that gateway.fallback.url knows its model by")
    if url and bool(secret) is bool(sign_as):
        allowed = "either this, a key's name in Secrets Manager, or gateway.fallback.sign_as: one of them"
        yield Problem("gateway.fallback.key_secret", secret, allowed)
    if url and sign_as and not url.startswith(host := f"https://{SIGNED_AT[sign_as].format(s.region)}/"):
        why = (
            "gateway.fallback.sign_as signs for that service in the fleet's region; any other takes a key (key_secret)"
        )
        yield Problem("gateway.fallback.url", url, f"{host}..., since {why}")
    if not url:
        for name, value in (("model", model), ("key_secret", secret), ("sign_as", sign_as)):
            if value:
                yield Problem(f"gateway.fallback.{name}", value, "empty without gateway.fallback.url")


def _tiers(g: Gateway, s: Any) -> Iterator[Problem]:
    for name in ("anonymous", "free", "pro"):
        tier = getattr(g.tiers, name)
        if tier.requests_per_day and tier.fallbacks_per_day > tier.requests_per_day:  # 0: off, and all is said
            allowed = f"at most gateway.tiers.{name}.requests_per_day ({tier.requests_per_day})"
            yield Problem(f"gateway.tiers.{name}.fallbacks_per_day", tier.fallbacks_per_day, allowed)


def _aliases(g: Gateway, s: Any) -> Iterator[Problem]:
    for index, alias in enumerate(g.aliases):
        if not alias or alias == s.model.name:
            allowed = f"another name than model.name ({s.model.name}), which callers may use anyway"
            yield Problem(f"gateway.aliases[{index}]", alias, allowed)
    yield from distinct("gateway.aliases", g.aliases)


def _one_public_endpoint(g: Gateway, s: Any) -> Iterator[Problem]:
    if s.network.allow_public:
        allowed = "false with a gateway, which alone may call the fleet's own balancer: gateway.public opens its"
        yield Problem("network.allow_public", True, allowed)


def _public(g: Gateway, s: Any) -> Iterator[Problem]:
    if g.public and not g.certificate_arn:
        allowed = "the ARN of a certificate, since gateway.public: keys must not travel in the clear"
        yield Problem("gateway.certificate_arn", g.certificate_arn, allowed)
    if g.public and s.network.private_subnets:
        yield Problem("gateway.public", True, "false with network.private_subnets: callers could not come in")


def _certificate(g: Gateway, s: Any) -> Iterator[Problem]:
    if g.certificate_arn and g.certificate_arn.split(":")[3] != s.region:
        yield Problem("gateway.certificate_arn", g.certificate_arn, f"a certificate of region {s.region}")


def _of(rule: Callable[[Gateway, Any], Iterator[Problem]]) -> Callable[[Any], Iterator[Problem]]:
    def judged(s: Any) -> Iterator[Problem]:
        if s.gateway is not None:
            yield from rule(s.gateway, s)

    return judged


GATEWAY_RULES = tuple(
    map(_of, (_balancer, _keepalive, _fallback, _tiers, _aliases, _one_public_endpoint, _public, _certificate))
)
