"""What is counted: gathered while a request runs, told once at its end, as Prometheus text and as a line of the log.

The line is JSON that says what came of a request, never what was asked or answered. CloudWatch makes metrics of it
(embedded metric format) under the same names, whose home is `fleet.core.names`. What did not happen is left out.
"""

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from fleet.core import names
from relay import sse

LATENCY_BUCKETS = (0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 45, 60, 90, 100)


@dataclass
class Told:
    """One request's counts and facts so far."""

    facts: dict[str, Any]  # who, what and how it ended, for the log alone
    arrived: float = field(default_factory=time.monotonic)
    answered_by: str = ""  # gpu, fallback, nobody, caller-left; empty: refused, or no chat completion
    reason: str = ""  # of a refusal
    failed: list[tuple[str, str]] = field(default_factory=list)  # tier and kind of attempts in vain, each once
    values: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by metric

    @property
    def seconds(self) -> float:
        """Since it arrived."""
        return time.monotonic() - self.arrived


PLAIN = {
    names.METRIC_ANSWERS_BROKEN: "answers broken after a token was delivered, or by an error of the gateway's own",
    names.METRIC_NOBODY_ANSWERED: "requests that neither GPU nor fallback answered in time",
    names.METRIC_FALLBACK_DOLLARS: "dollars paid to the fallback",
    names.METRIC_FALLBACK_SPENT: "fallbacks refused by the day's dollars",
    names.METRIC_FALLBACK_TOO_MANY: "the fallback's own 429s",
    names.METRIC_FALLBACK_MISCONFIGURED: "requests of a kind that the fallback never takes: its key, model or fields",
    names.METRIC_STORE_FAILURES: "store calls without an answer",
}
TIMED = {
    names.METRIC_FIRST_TOKEN_SECONDS: "seconds to the first token",
    names.METRIC_ANSWER_SECONDS: "seconds to the end",
}


def prometheus(metric: str) -> str:
    """How Prometheus spells a metric's name: FirstTokenSeconds is llm_gateway_first_token_seconds."""
    return "llm_gateway" + "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in metric)


class Metrics:
    """One process's counts."""

    def __init__(self, fleet: str) -> None:
        self._fleet = fleet
        self.registry = CollectorRegistry()
        self.requests = self._counter(names.METRIC_REQUESTS, "requests by who answered", "answered_by")
        self.refusals = self._counter(names.METRIC_REFUSALS, "requests refused", "reason")
        self.failures = self._counter(names.METRIC_ATTEMPTS_FAILED, "requests by how they were failed", "tier", "kind")
        self.in_flight = 0
        gauge = Gauge(prometheus(names.METRIC_IN_FLIGHT), "requests under way", registry=self.registry)
        gauge.set_function(lambda: self.in_flight)
        self._plain = {name: self._counter(name, what) for name, what in PLAIN.items()}
        self._timed = {
            name: Histogram(prometheus(name), what, ("answered_by",), buckets=LATENCY_BUCKETS, registry=self.registry)
            for name, what in TIMED.items()
        }

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(prometheus(name), what, labels, registry=self.registry)

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
        metrics = [_directive([{"Name": names.METRIC_IN_FLIGHT, "Unit": "Count"}, *plain])]
        values: dict[str, Any] = {names.METRIC_IN_FLIGHT: self.in_flight, **told.values}
        dimensions = {names.DIMENSION_FLEET: self._fleet}
        if told.answered_by:
            timed = [{"Name": name, "Unit": "Seconds"} for name in told.values if name in self._timed]
            counted = {"Name": names.METRIC_REQUESTS, "Unit": "Count"}
            metrics.append(_directive([counted, *timed], names.DIMENSION_ANSWERED_BY))
            values[names.METRIC_REQUESTS] = 1
            dimensions[names.DIMENSION_ANSWERED_BY] = told.answered_by
        if told.reason:
            metrics.append(_directive([{"Name": names.METRIC_REFUSALS, "Unit": "Count"}], names.DIMENSION_REASON))
            values[names.METRIC_REFUSALS] = 1
            dimensions[names.DIMENSION_REASON] = told.reason
        head = {"_aws": {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": metrics}}
        failed = {"failed": [f"{tier} {kind}" for tier, kind in told.failed]} if told.failed else {}
        return sse.ENCODER.encode({**head, **dimensions, **values, **told.facts, **failed})

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)


def _directive(metrics: list[dict[str, str]], *further: str) -> dict[str, Any]:
    return {
        "Namespace": names.METRIC_NAMESPACE,
        "Dimensions": [[names.DIMENSION_FLEET, *further]],
        "Metrics": metrics,
    }
