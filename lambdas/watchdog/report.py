"""Writes the decision record as one structured log line, and its metrics, with AWS's own library for Lambda."""

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from fleet.core import names
from lambdas.watchdog.record import Record
from lambdas.watchdog.signals import Wake
from lambdas.watchdog.state import Kind, Mode

COUNTED_ACTIONS = {Kind.FAILOVER: names.METRIC_FAILOVERS, Kind.REARM: names.METRIC_REARMS}
COUNTED_SIGNALS = {
    Wake.INTERRUPTION: names.METRIC_INTERRUPTIONS,
    Wake.REBALANCE: names.METRIC_REBALANCE_RECOMMENDATIONS,
    Wake.LAUNCH_FAILED: names.METRIC_LAUNCHES_FAILED,
}

logger = Logger(service="watchdog")


def emit(record: Record, fleet: str) -> None:
    """One log line (the reason is its message, so that operators find it), then the metrics."""
    log = logger.error if record["outcome"].startswith("failed") else logger.info
    log(record["reason"], extra={"decision": record})
    values = {}
    if mode := record.get("mode"):
        values[names.METRIC_MODE] = list(Mode).index(Mode(mode))
    if (percentage := record.get("lever")) is not None:
        values[names.METRIC_LEVER] = percentage
    if name := COUNTED_ACTIONS.get(record["action"]):
        values[name] = 1
    if record["action"] != "ignored" and (name := COUNTED_SIGNALS.get(record["signal"]["wake"])):
        values[name] = 1
    if values:
        metrics = EphemeralMetrics(namespace=names.METRIC_NAMESPACE)
        metrics.add_dimension(names.DIMENSION_FLEET, fleet)
        for name, value in values.items():
            metrics.add_metric(name, MetricUnit.NoUnit, value)
        metrics.flush_metrics()
