"""What the templates must say: one named check per promise, for the real templates and for thousands of broken ones."""

from tests.infra.checks import box, door, everywhere, group, monitoring, network, store, template, watchdog
from tests.infra.checks.shared import CHECKS, Check

__all__ = [
    "CHECKS",
    "Check",
    "box",
    "door",
    "everywhere",
    "group",
    "monitoring",
    "network",
    "store",
    "template",
    "watchdog",
]
