"""What is counted: gathered while a request runs, told once at its end, as Prometheus text and as a line of the log.

The line is JSON that says what came of a request, never what was asked or answered. CloudWatch makes metrics of it
(embedded metric format) under the same names, whose home is `fleet.names`. What did not happen is left out.
"""

import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fleet import names

LATENCY_BUCKETS = (0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 45, 60, 90, 100)


@dataclass
class Told:
    """One request's counts and facts so far."""

    facts: dict[str, Any]  # who, what and how it ended, for the log alone
    arrived: float = field(default_factory=time.monotonic)
    answered_by: str = ""  # gpu, fallback, nobody, caller-left; empty: refused, or no chat completion
    reason: str = ""  # of a refusal
    failed: list[tuple[str, str]] = field(default_factory=list)  # tier and kind of each attempt that came to nothing
    values: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by metric

    @property
    def seconds(self) -> float:
        """Since it arrived."""
        return time.monotonic() - self.arrived


class Metrics:
    """One process's counts."""

    def __init__(self, fleet: str) -> None:
        self._fleet = fleet
        self.registry = CollectorRegistry()
        by = ("answered_by",)
        self.requests = self._counter(names.GATEWAY_REQUESTS, "requests by who answered", *by)
        self.refusals = self._counter(names.GATEWAY_REFUSALS, "requests refused", "reason")
        self.failures = self._counter(names.GATEWAY_FAILURES, "attempts that came to nothing", "tier", "kind")
        self.in_flight = 0
        gauge = Gauge(names.GATEWAY_IN_FLIGHT, "requests under way", registry=self.registry)
        gauge.set_function(lambda: self.in_flight)
        self._plain = {
            names.GATEWAY_ERRORS: self._counter(names.GATEWAY_ERRORS, "errors of the gateway's own"),
            names.GATEWAY_BROKEN: self._counter(names.GATEWAY_BROKEN, "streams broken after their first token"),
            names.GATEWAY_SPEND: self._counter(names.GATEWAY_SPEND, "dollars paid to the fallback"),
            names.GATEWAY_LIMIT: self._counter(names.GATEWAY_LIMIT, "fallbacks refused by the day's dollars"),
            names.GATEWAY_FALLBACK_429: self._counter(names.GATEWAY_FALLBACK_429, "the fallback's own 429s"),
            names.GATEWAY_STORE_FAILURES: self._counter(names.GATEWAY_STORE_FAILURES, "store calls without an answer"),
        }
        self._timed = {
            names.GATEWAY_BEGUN: self._histogram(names.GATEWAY_BEGUN, "seconds to the first token", *by),
            names.GATEWAY_WHOLE: self._histogram(names.GATEWAY_WHOLE, "seconds to the end", *by),
        }

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self.registry)

    def _histogram(self, name: str, what: str, *labels: str) -> Histogram:
        return Histogram(name, what, labels, buckets=LATENCY_BUCKETS, registry=self.registry)

    def ended(self, told: Told) -> str:
        """Count a request; its line for the log."""
        if told.answered_by:
            self.requests.labels(told.answered_by).inc()
        if told.reason:
            self.refusals.labels(told.reason).inc()
        for tier, kind in told.failed:
            self.failures.labels(tier, kind).inc()
        for name, value in told.values.items():
            if name in self._timed:
                self._timed[name].labels(told.answered_by).observe(value)
            else:
                self._plain[name].inc(value)
        return self._line(told)

    def _line(self, told: Told) -> str:
        plain = [{"Name": name, "Unit": "None"} for name in told.values if name in self._plain]
        metrics = [_directive([{"Name": names.GATEWAY_IN_FLIGHT, "Unit": "Count"}, *plain])]
        values: dict[str, Any] = {names.GATEWAY_IN_FLIGHT: self.in_flight, **told.values}
        dimensions = {names.DIMENSION_FLEET: self._fleet}
        if told.answered_by:
            timed = [{"Name": name, "Unit": "Seconds"} for name in told.values if name in self._timed]
            counted = {"Name": names.GATEWAY_REQUESTS, "Unit": "Count"}
            metrics.append(_directive([counted, *timed], names.DIMENSION_ANSWERED_BY))
            values[names.GATEWAY_REQUESTS] = 1
            dimensions[names.DIMENSION_ANSWERED_BY] = told.answered_by
        if told.reason:
            metrics.append(_directive([{"Name": names.GATEWAY_REFUSALS, "Unit": "Count"}], names.DIMENSION_REASON))
            values[names.GATEWAY_REFUSALS] = 1
            dimensions[names.DIMENSION_REASON] = told.reason
        head = {"_aws": {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": metrics}}
        failed = {"failed": [f"{tier} {kind}" for tier, kind in told.failed]} if told.failed else {}
        return json.dumps({**head, **dimensions, **values, **told.facts, **failed}, separators=(",", ":"))

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)


def _directive(metrics: list[dict[str, str]], *further: str) -> dict[str, Any]:
    return {
        "Namespace": names.METRIC_NAMESPACE,
        "Dimensions": [[names.DIMENSION_FLEET, *further]],
        "Metrics": metrics,
    }
