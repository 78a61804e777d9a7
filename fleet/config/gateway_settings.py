"""The gateway's settings, as `settings` has those of the fleet: every limit, default and reason in one place.

The `gateway` section of `cdk.json`; without it there is no gateway. `python -m gateway` takes them as JSON.
"""

from dataclasses import dataclass, field
from typing import Literal

from fleet.config.section import Section, amount, number, text

BALANCER_IDLE_SECONDS = 120  # of silence: above the wall, so that nobody but the gateway ends an answer


@dataclass(frozen=True, kw_only=True)
class Budgets(Section):
    """Deadlines of one request at the gateway, seconds since it arrived."""

    first_token_seconds: float = amount(30, le=90, why="measured: 0.21 s of prompt on a primed box, 29.3 s after 5.7 h")
    whole_seconds: float = amount(90, le=600, why="not streaming: the whole answer, or the fallback has its turn")
    wall_seconds: float = amount(98, le=600, why="proxies cut a silent connection at 100 s: 2 of 69 requests died so")
    silence_seconds: float = amount(30, le=300, why="a target that sends no byte for so long is dead")
    comment_seconds: float = amount(20, le=60, why="a stream that stalls still shows that it lives")
    connected_seconds: float = amount(1, le=30, why="until then nobody can be an honest 503")
    last_words_seconds: float = amount(2, le=10, why="a target that said how its answer ended needs no [DONE]")
    fallback_first_token_seconds: float = amount(15, le=90, why="the fallback's own; measured 1 to 6 s")
    fallback_p95_seconds: float = amount(6, le=60, why="what the GPU's budget leaves room for below the wall")


@dataclass(frozen=True, kw_only=True)
class Limits(Section):
    """What needs no model to be refused: nobody steers into the cloud by the size of a request."""

    body_mib: float = amount(20, le=100, why="a few images in base64")
    body_seconds: float = amount(30, le=300, why="a body that arrives a byte at a time")
    max_tokens: int = number(4096, ge=1, le=131072, why="a longer answer outlives every budget")
    default_max_tokens: int = number(1024, ge=1, le=131072, why="an engine's own default is endless")
    prompt_tokens: int = number(8192, ge=1, le=1048576, why="the context, at 4 bytes a token and 1024 an image")
    choices: int = number(4, ge=1, le=16, why="answers to one prompt")
    uncounted: int = number(200, ge=0, le=10000, why="requests of known keys a task lets by while the table is silent")


@dataclass(frozen=True, kw_only=True)
class Retries(Section):
    """What is tried at the GPU once more before the fallback is asked."""

    fresh_connections: int = number(3, ge=1, le=10, why="two boxes overlap in a roll, and the balancer names who left")
    fresh_seconds: float = amount(1, le=10, why="refused for so long says that there is no box")
    retry_after_seconds: float = amount(5, le=30, why="a 429 or 503 that asks for more is not waited for")
    boxes: int = number(3, ge=1, le=10, why="busy ones that are asked one after the other")


@dataclass(frozen=True, kw_only=True)
class Fallback(Section):
    """The cloud model: any OpenAI-compatible endpoint. Without a URL there is none."""

    url: str = field(
        default="",
        metadata=text(
            r"^(https://[^\s/:@]+(:443)?(/[^\s]*[^\s/])?)?$",
            "https://HOST/v1, at port 443, which alone tasks reach; no / last",
        ),
    )
    model: str = ""
    # Its key's name in Secrets Manager; or a signing name of AWS: signed with the task's role, no key at all.
    key_secret: str = field(
        default="", metadata=text(r"^[A-Za-z0-9/_+=.@-]{0,200}$", "a secret's name of letters, digits and /_+=.@-")
    )
    sign_as: Literal["", "bedrock", "bedrock-mantle"] = field(
        default="", metadata={"allowed": "bedrock or bedrock-mantle, or empty"}
    )
    continues: bool = False  # declares that it goes on with a trailing assistant message
    concurrency: int = number(16, ge=1, le=1000, why="requests at once that each task sends it; two tasks run")
    failures: int = number(3, ge=1, le=100, why="in a row, as each task counts them; then it is left alone")
    break_seconds: float = amount(30, le=600, why="so long; requests have the GPU's line meanwhile")
    pause_seconds: float = amount(5, le=120, why="after a 429 of its own that names no time")
    dollars_per_day: float = amount(10, le=100000, why="then it is not asked until midnight UTC, and an alarm mails")
    dollars_per_million_input: float = amount(0.5, le=1000, why="a model of the same size, July 2026")
    dollars_per_million_output: float = amount(1.5, le=1000, why="a model of the same size, July 2026")


def a_day(default: int, why: str) -> int:
    """A count of a UTC day; 0 of requests turns a tier off."""
    return number(default, ge=0, le=1000000, why=why)


def at_once(default: int) -> int:
    """Counted by each task, whichever the balancer picks."""
    return number(default, ge=1, le=1000, why="at once at each of two tasks: nobody makes the line look long")


@dataclass(frozen=True, kw_only=True)
class CallerTier(Section):
    """What callers of one tier may have."""

    requests_per_day: int = a_day(0, "0 turns the tier off")
    fallbacks_per_day: int = a_day(0, "of those, by the cloud")
    parallel: int = at_once(1)


@dataclass(frozen=True, kw_only=True)
class AnonymousTier(CallerTier):
    """Callers without a key, by address."""

    requests_per_day: int = a_day(10, "per address (IPv6: per /64); 0 turns the tier off")
    fallbacks_per_day: int = a_day(0, "nobody without a key steers into the cloud")


@dataclass(frozen=True, kw_only=True)
class FreeTier(CallerTier):
    """Keys that cost their holder nothing."""

    requests_per_day: int = a_day(50, "sized from the slower card")
    fallbacks_per_day: int = a_day(10, "a fifth of them by the cloud")
    parallel: int = at_once(2)


@dataclass(frozen=True, kw_only=True)
class ProTier(CallerTier):
    """Keys of those who pay."""

    requests_per_day: int = a_day(500, "sized from the slower card: 500 of 13.9 s are two hours of it")
    fallbacks_per_day: int = a_day(100, "a fifth of them by the cloud")
    parallel: int = at_once(8)


@dataclass(frozen=True, kw_only=True)
class Tiers(Section):
    """Caps of a UTC day: cost design, not abuse design."""

    anonymous: AnonymousTier = field(default_factory=AnonymousTier)
    free: FreeTier = field(default_factory=FreeTier)
    pro: ProTier = field(default_factory=ProTier)


@dataclass(frozen=True, kw_only=True)
class Gateway(Section):
    """The service in front of the fleet (docs/gateway.md)."""

    public: bool = False  # the balancer faces the internet, and public ranges may be among network.callers
    # Without one the balancer speaks HTTP, to the private ranges and groups that it admits.
    certificate_arn: str | None = field(
        default=None,
        metadata=text(r"^arn:aws[a-z-]*:acm:[a-z0-9-]+:[0-9]{12}:certificate/.+$", "the ARN of a certificate"),
    )
    aliases: tuple[str, ...] = ()  # further names of the model that callers may use
    origins: tuple[str, ...] = ("*",)  # pages that may call; keys travel in a header, never in a cookie
    continues: bool = True  # the engine's chat template goes on with a trailing assistant message
    fixed_sampling: bool = False  # temperature 0 for everybody: what a continuation on another target needs
    trusted_hops: int = number(1, ge=0, le=5, why="proxies of ours in front, each of which appends what it saw")
    keepalive_seconds: float = amount(
        150, le=600, why="above the balancer's 120 s, or it sends into closed connections"
    )
    budgets: Budgets = field(default_factory=Budgets)
    limits: Limits = field(default_factory=Limits)
    retries: Retries = field(default_factory=Retries)
    tiers: Tiers = field(default_factory=Tiers)
    fallback: Fallback = field(default_factory=Fallback)
