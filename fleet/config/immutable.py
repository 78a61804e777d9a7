"""Settings that a standing fleet cannot take: AWS would refuse the deploy, maybe after it has moved something.

Everything else can change on a standing fleet. Pure: the settings of the last deploy travel in with the wanted ones.
"""

from collections.abc import Collection, Iterator

from fleet.config.problem import Problem
from fleet.config.settings import Settings

AGAIN = "to change it: `make destroy`, then as a first deploy, `fleetctl publish` included"


def refused(standing: Settings, wanted: Settings, zones_in_use: Collection[str] = ()) -> tuple[Problem, ...]:
    """What of `wanted` the fleet that stands with `standing` cannot take; `zones_in_use` are those with boxes."""
    return tuple(_refused(standing, wanted, zones_in_use))


def _refused(standing: Settings, wanted: Settings, zones_in_use: Collection[str]) -> Iterator[Problem]:
    old, new = standing.network, wanted.network
    if new.vpc_id != old.vpc_id:  # a balancer and its group stay in their VPC for life
        yield Problem("network.vpc_id", new.vpc_id, f"{old.vpc_id or 'null'} while the fleet stands; {AGAIN}")
        return
    if new.vpc_id is None and new.cidr != old.cidr:
        yield Problem("network.cidr", new.cidr, f"{old.cidr} while the fleet stands; {AGAIN}")
    # aws-behaviours: export-in-use. Its targets are another group, which a gateway among several boxes imports. What a
    # fleet stands with says nothing of a gateway: one that is only now asked for is refused too.
    if wanted.gateway and standing.capacity.most > 1 and wanted.port != standing.port:
        allowed = f"{standing.port} while a gateway chooses among boxes: deploy without `gateway`, then with both"
        yield Problem("port", wanted.port, allowed)
    common = min(len(standing.zones), len(wanted.zones))
    if new.vpc_id is None and wanted.zones[:common] != standing.zones[:common]:  # ranges go by the place in the list
        allowed = f"{', '.join(standing.zones)} with zones added or removed at the end; {AGAIN}"
        yield Problem("zones", wanted.zones, allowed)
    # aws-behaviours: zone-one-subnet-change
    subnets = dict(zip(standing.zones, old.subnet_ids, strict=False))
    for zone, subnet in zip(wanted.zones, new.subnet_ids, strict=False):
        if subnets.get(zone, subnet) != subnet:
            allowed = f"{subnets[zone]} for {zone}: remove that zone, deploy, then add it with the other subnet"
            yield Problem("network.subnet_ids", subnet, allowed)
    # aws-behaviours: zone-removed-cuts
    for zone in sorted(set(standing.zones) - set(wanted.zones)):
        if zone in zones_in_use:
            allowed = f"{zone} among them while a box runs there, whose streams a removal would cut"
            yield Problem("zones", wanted.zones, allowed)
