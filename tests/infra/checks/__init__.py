"""What the templates must say: one named check per promise, for the real templates and for thousands of broken ones."""

from tests.infra.checks import box, everywhere, group, load_balancer, monitoring, network, store, template, watchdog
from tests.infra.checks.shared import CHECKS, Check

__all__ = [
    "CHECKS",
    "Check",
    "box",
    "everywhere",
    "group",
    "load_balancer",
    "monitoring",
    "network",
    "store",
    "template",
    "watchdog",
]
