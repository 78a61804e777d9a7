"""What a pool (instance type) is: GPU memory, vCPUs, prices. Checks settings; says what a decision costs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pool:
    """One instance type. Prices in USD per hour, Linux, us-east-2, July 2026; a setting can override them."""

    instance_type: str
    gpu_memory_gib: float
    vcpus: int
    on_demand_usd: float
    spot_usd: float


# Spot prices: g6.xlarge measured 0.33 to 0.35; the others at the same 42 % of on-demand.
POOLS = {
    pool.instance_type: pool
    for pool in (
        Pool("g6.xlarge", 24, 4, 0.8048, 0.34),
        Pool("g6.2xlarge", 24, 8, 0.9776, 0.41),
        Pool("g5.xlarge", 24, 4, 1.006, 0.42),
        Pool("g5.2xlarge", 24, 8, 1.212, 0.51),
        Pool("g4dn.xlarge", 16, 4, 0.526, 0.22),
    )
}
