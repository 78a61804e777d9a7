"""Preflight check of an existing VPC: subnets where the settings say, with a way to AWS's APIs and their own to S3.

Where a gateway chooses among boxes, their names as well; its tasks' own ways where there is no other.
"""

from collections.abc import Iterator
from typing import Any

from fleet.account.aws_errors import MissingError
from fleet.config.box_config import ENDPOINTS
from fleet.core import names
from fleet.ops.checks import Finding, Ground, failed, passed


def network(ground: Ground) -> Finding:
    """Whether boxes could work in the subnets of the settings."""
    wanted = ground.settings.network
    if wanted.vpc_id is None:
        return passed(f"a VPC of the fleet's own, {wanted.cidr}")
    try:
        subnets = ground.aws.call("ec2", "DescribeSubnets", SubnetIds=list(wanted.subnet_ids))["Subnets"]
    except MissingError as error:
        return failed(error.message, "correct network.subnet_ids in cdk.json")
    if wrong := list(_misplaced(ground, subnets)):
        return failed("; ".join(wrong), "order network.subnet_ids as zones, all of network.vpc_id")
    if ground.settings.chooses_box and (off := _names_off(ground)):
        return failed(
            f"{' and '.join(off)} off in {wanted.vpc_id}: boxes have no names there by which a gateway could choose",
            f"aws ec2 modify-vpc-attribute --vpc-id {wanted.vpc_id} --enable-dns-support; "
            f"aws ec2 modify-vpc-attribute --vpc-id {wanted.vpc_id} --enable-dns-hostnames",
        )
    tables = _route_tables(ground)
    if wanted.private_subnets:
        if found := _no_way_out(ground, tables):
            return found
    elif private := [subnet for subnet, table in tables.items() if not _to_the_internet(table)]:
        return failed(
            f"no route to an internet gateway: {', '.join(private)}",
            "name public subnets in network.subnet_ids, or set network.private_subnets where a NAT or endpoints stand",
        )
    if wanted.route_table_ids:
        services = ("s3", "dynamodb") if ground.settings.gateway else ("s3",)  # for each it makes one
        taken = {table for service in services for table in _tables_with_endpoint(ground, service)}
        if twice := sorted(taken & set(wanted.route_table_ids)):
            return failed(
                f"a gateway endpoint stands in {', '.join(twice)}: AWS takes no second, and the deploy would roll back",
                "the fleet makes one: take those tables from it with "
                f"aws ec2 modify-vpc-endpoint --vpc-endpoint-id ID --remove-route-table-ids {' '.join(twice)}; "
                "or leave network.route_table_ids empty, and add to it what it lacks",
            )
        return passed(f"{len(subnets)} subnets of {wanted.vpc_id}; the fleet makes their S3 endpoint")
    needs_table = ground.settings.gateway and not all(map(_default_route, tables.values()))
    for service, name in (("s3", "S3"), *((("dynamodb", "DynamoDB"),) if needs_table else ())):
        reached = _tables_with_endpoint(ground, service)
        if bare := [subnet for subnet, table in tables.items() if table.get("RouteTableId") not in reached]:
            return failed(
                f"no {name} gateway endpoint: {', '.join(bare)}",
                "name their route tables in network.route_table_ids, and the fleet makes one (it is free)",
            )
    return passed(f"{len(subnets)} subnets of {wanted.vpc_id}, with an S3 gateway endpoint")


def _names_off(ground: Ground) -> list[str]:
    """What the VPC must have on for its resolver to know instances by name (aws-behaviours: box-by-name)."""
    vpc, wanted = (
        ground.settings.network.vpc_id,
        {"enableDnsSupport": "DNS resolution", "enableDnsHostnames": "DNS hostnames"},
    )
    return [
        name
        for attribute, name in wanted.items()
        if not ground.aws.call("ec2", "DescribeVpcAttribute", VpcId=vpc, Attribute=attribute)[
            attribute[0].upper() + attribute[1:]
        ]["Value"]
    ]


def _misplaced(ground: Ground, subnets: list[dict[str, Any]]) -> Iterator[str]:
    wanted = ground.settings.network
    zones = {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in subnets}
    for subnet, zone in zip(wanted.subnet_ids, ground.settings.zones, strict=False):
        if zones[subnet] != zone:
            yield f"{subnet} is in {zones[subnet]}, the settings say {zone}"
    for found in subnets:
        if found["VpcId"] != wanted.vpc_id:
            yield f"{found['SubnetId']} is in {found['VpcId']}, not {wanted.vpc_id}"


def _route_tables(ground: Ground) -> dict[str, dict[str, Any]]:
    """The route table of each subnet: its own, else the VPC's main one."""
    network = ground.settings.network
    here = [{"Name": "vpc-id", "Values": [network.vpc_id]}]
    tables = list(ground.aws.items("ec2", "DescribeRouteTables", "RouteTables", Filters=here))
    links = [(link, table) for table in tables for link in table.get("Associations", [])]
    main: dict[str, Any] = next((table for link, table in links if link.get("Main")), {})
    own = {link["SubnetId"]: table for link, table in links if "SubnetId" in link}
    return {subnet: own.get(subnet, main) for subnet in network.subnet_ids}


def _no_way_out(ground: Ground, tables: dict[str, dict[str, Any]]) -> Finding | None:
    """What a box without a public address lacks: a route that leads on, or an endpoint for each API that it calls."""
    if public := [subnet for subnet, table in tables.items() if _to_the_internet(table)]:
        return failed(
            f"routed to an internet gateway, which takes no private address: {', '.join(public)}",
            "name private subnets in network.subnet_ids, or set network.private_subnets to false",
        )
    if all(_default_route(table) for table in tables.values()):
        return None
    prefix = f"com.amazonaws.{ground.settings.region}."
    found = {
        endpoint["ServiceName"].removeprefix(prefix)
        for endpoint in _endpoints(ground)
        if endpoint.get("VpcEndpointType") == "Interface" and endpoint.get("PrivateDnsEnabled")
    }
    if lacking := [name for name in (*ENDPOINTS, *_of_the_gateway(ground)) if name not in found]:
        return failed(
            f"neither a route to a NAT nor an interface endpoint with private DNS for {', '.join(lacking)}",
            "make those endpoints in network.vpc_id, or a NAT: docs/deploys.md, Private subnets",
        )
    return None


def _of_the_gateway(ground: Ground) -> tuple[str, ...]:
    """Endpoints that its tasks need besides: ECS pulls their image, they read the fallback's key or call Bedrock."""
    gateway = ground.settings.gateway
    if gateway is None:
        return ()
    fallback = {"": "secretsmanager" if gateway.fallback.key_secret else "", "bedrock": "bedrock-runtime"}
    proof = fallback.get(gateway.fallback.sign_as, gateway.fallback.sign_as)
    return ("ecr.api", "ecr.dkr", *((proof,) if proof else ()))


def _default_route(table: dict[str, Any]) -> bool:
    return any(route.get("DestinationCidrBlock") == "0.0.0.0/0" for route in table.get("Routes", []))


def _to_the_internet(table: dict[str, Any]) -> bool:
    return any(
        route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("GatewayId", "").startswith("igw-")
        for route in table.get("Routes", [])
    )


def _tables_with_endpoint(ground: Ground, service: str) -> set[str]:
    """Of somebody else's: the fleet's own comes and goes with network.route_table_ids."""
    name = f"com.amazonaws.{ground.settings.region}.{service}"
    own = {"Key": names.TAG_FLEET, "Value": ground.settings.fleet_name}
    return {
        table
        for endpoint in _endpoints(ground)
        if endpoint["ServiceName"] == name and own not in endpoint.get("Tags", [])
        for table in endpoint.get("RouteTableIds", [])
    }


def _endpoints(ground: Ground) -> list[dict[str, Any]]:
    here = [{"Name": "vpc-id", "Values": [ground.settings.network.vpc_id]}]
    return list(ground.aws.items("ec2", "DescribeVpcEndpoints", "VpcEndpoints", Filters=here))
