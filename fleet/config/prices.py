"""What the fleet pays for beside its boxes: list prices, USD a month; docs/cost.md shows the same. Boxes: `pools`."""

from dataclasses import dataclass

HOURS, DAYS = 730, 30.4  # of a month
AS_OF = {
    "boxes": "July 2026, us-east-2 (g6.xlarge spot as measured, other spot at the same 42 % of on-demand)",
    "the cloud model": "July 2026, a model of the same size",
    "Fargate": "March 2026",
    "balancers, addresses, volumes, metrics, logs": "from memory: compare them with your bill",
}


@dataclass(frozen=True)
class Item:
    """One line of the bill, as docs/cost.md names it."""

    what: str
    month: float


PER_BOX = (
    Item("public IPv4 addresses", 0.005 * HOURS),
    Item("root volume, gp3", 100 * 0.08),
)
FLEET = (
    Item("network load balancer", 0.0225 * HOURS),
    Item("model store", 2 * 18.2 * 0.023),
    Item("alarms, dashboard", 5 * 0.10),
    Item("custom metrics", 35 * 0.30 + 44 * 0.01),
    Item("logs", 0.05 * 0.50),
)
GATEWAY = (
    Item("two tasks on Fargate, arm64", 2 * (0.25 * 0.03238 + 0.5 * 0.00356) * HOURS),
    Item("their public IPv4 addresses", 2 * 0.005 * HOURS),
    Item("application load balancer", 0.0225 * HOURS),
    Item("its alarms", 5 * 0.10),
    Item("its metrics", 20 * 0.30),
)
REQUEST_USD = 12 * 0.625e-6 + 1e-6 * 0.50  # DynamoDB's write units, and a line of 1 KB in the log


def month(items: tuple[Item, ...]) -> float:
    """Of all of them."""
    return sum(item.month for item in items)
