"""What a pool (instance type) is: GPU memory, vCPUs, prices. Checks settings; says what a decision costs."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pool:
    """One instance type. GPU memory is what the driver reports, a little below the label on the card.

    Prices in USD per hour, Linux, us-east-2, July 2026; the setting `own_pools` overrides them.
    """

    instance_type: str = field(
        metadata={"pattern": r"^[a-z0-9-]+\.[a-z0-9-]+$", "allowed": "an instance type such as g6.xlarge"}
    )
    gpu_memory_gib: float = field(metadata={"gt": 0, "le": 2048})
    vcpus: int = field(metadata={"ge": 1, "le": 512})
    on_demand_usd: float = field(metadata={"gt": 0, "le": 500})
    spot_usd: float = field(metadata={"gt": 0, "le": 500})


# Spot prices: g6.xlarge measured 0.33 to 0.35; the others at the same 42 % of on-demand.
POOLS = {
    pool.instance_type: pool
    for pool in (
        Pool("g6.xlarge", 22.5, 4, 0.8048, 0.34),
        Pool("g6.2xlarge", 22.5, 8, 0.9776, 0.41),
        Pool("g5.xlarge", 22.5, 4, 1.006, 0.42),
        Pool("g5.2xlarge", 22.5, 8, 1.212, 0.51),
        Pool("g4dn.xlarge", 15.0, 4, 0.526, 0.22),
    )
}
