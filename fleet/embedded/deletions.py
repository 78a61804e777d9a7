"""Deletions that moto's CloudFormation leaves out: internet gateways and route tables (the VPC's own then fails)."""

from typing import Any

from moto.ec2.models.internet_gateways import InternetGateway
from moto.ec2.models.route_tables import RouteTable

from fleet.embedded.loopback import client


def _delete_gateway(gateway: Any, account: str, region: str) -> None:
    ec2 = client("ec2", region)
    if gateway.vpc:
        ec2.detach_internet_gateway(InternetGatewayId=gateway.id, VpcId=gateway.vpc.id)
    ec2.delete_internet_gateway(InternetGatewayId=gateway.id)


def _delete_route_table(table: Any, account: str, region: str) -> None:
    ec2 = client("ec2", region)
    for association in list(table.associations):
        ec2.disassociate_route_table(AssociationId=association)
    ec2.delete_route_table(RouteTableId=table.id)


InternetGateway.delete = _delete_gateway  # type: ignore[attr-defined]
RouteTable.delete = _delete_route_table  # type: ignore[attr-defined]
