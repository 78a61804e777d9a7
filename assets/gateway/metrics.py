"""What is counted, as Prometheus text. The names' home is `fleet.names`."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fleet import names

LATENCY_BUCKETS = (0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 45, 60, 90, 100)


class Metrics:
    """One process's counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        by, why = ("answered_by",), ("reason",)
        self.requests = Counter(names.GATEWAY_REQUESTS, "requests by who answered", by, registry=self.registry)
        self.refusals = Counter(names.GATEWAY_REFUSALS, "requests refused", why, registry=self.registry)
        self.failures = Counter(
            names.GATEWAY_FAILURES, "attempts that came to nothing", ("tier", "kind"), registry=self.registry
        )
        self.broken = Counter(names.GATEWAY_BROKEN, "streams broken after their first token", registry=self.registry)
        self.first_token = Histogram(
            names.GATEWAY_BEGUN, "seconds to the first token", by, buckets=LATENCY_BUCKETS, registry=self.registry
        )
        self.whole = Histogram(
            names.GATEWAY_WHOLE, "seconds to the end", by, buckets=LATENCY_BUCKETS, registry=self.registry
        )
        self.in_flight = Gauge(names.GATEWAY_IN_FLIGHT, "requests under way", registry=self.registry)
        self.spend = Counter(names.GATEWAY_SPEND, "dollars paid to the fallback", registry=self.registry)
        self.cloud_429 = Counter(names.GATEWAY_FALLBACK_429, "the fallback's own 429s", registry=self.registry)
        self.store_failures = Counter(
            names.GATEWAY_STORE_FAILURES, "store calls without an answer", registry=self.registry
        )

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)
