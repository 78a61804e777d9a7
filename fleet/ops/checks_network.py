"""Preflight check of an existing VPC: subnets where the settings say, public, and with their own way to S3."""

from collections.abc import Iterator
from typing import Any

from fleet.ops.checks import Finding, Ground, failed, passed
from fleet.ops.errors import MissingError


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
    tables = _route_tables(ground)
    private = [subnet for subnet, table in tables.items() if not _to_the_internet(table)]
    if private:
        return failed(
            f"no route to an internet gateway: {', '.join(private)}",
            "name public subnets in network.subnet_ids: a box calls AWS's APIs from its subnet, without NAT",
        )
    if wanted.route_table_ids:
        return passed(f"{len(subnets)} public subnets of {wanted.vpc_id}; the fleet makes their S3 endpoint")
    reached = _tables_with_s3_endpoint(ground)
    bare = [subnet for subnet, table in tables.items() if table.get("RouteTableId") not in reached]
    if bare:
        return failed(
            f"no S3 gateway endpoint: {', '.join(bare)}",
            "name their route tables in network.route_table_ids, and the fleet makes one (it is free)",
        )
    return passed(f"{len(subnets)} public subnets of {wanted.vpc_id}, with an S3 gateway endpoint")


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


def _to_the_internet(table: dict[str, Any]) -> bool:
    return any(
        route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("GatewayId", "").startswith("igw-")
        for route in table.get("Routes", [])
    )


def _tables_with_s3_endpoint(ground: Ground) -> set[str]:
    settings = ground.settings
    wanted = {"vpc-id": settings.network.vpc_id, "service-name": f"com.amazonaws.{settings.region}.s3"}
    filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
    endpoints = ground.aws.items("ec2", "DescribeVpcEndpoints", "VpcEndpoints", Filters=filters)
    return {table for endpoint in endpoints for table in endpoint.get("RouteTableIds", [])}
