"""Deletions that moto's CloudFormation leaves out (the VPC's own then fails), or makes where something stands."""

from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.internet_gateways import InternetGateway
from moto.ec2.models.route_tables import RouteTable
from moto.ec2.models.security_groups import SecurityGroupIngress
from moto.ec2.models.subnets import Subnet
from moto.ecs.models import Cluster
from moto.elbv2.models import elbv2_backends
from moto.iam.models import ManagedPolicy, Role, iam_backends

from fleet.localaws import in_place
from fleet.localaws.loopback import client
from fleet.localaws.patching import extend


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


def _delete_subnet(subnet: Any, account: str, region: str) -> None:
    """A subnet in which a box or a balancer stands cannot be deleted."""
    boxes = [
        box.id
        for box in ec2_backends[account][region].all_instances()
        if box.subnet_id == subnet.id and box._state.name not in ("shutting-down", "terminated")
    ]
    balancers = [
        each.name
        for each in elbv2_backends[account][region].load_balancers.values()
        if subnet.id in [found.id for found in each.subnets]
    ]
    if boxes or balancers:
        raise ValueError(f"The subnet '{subnet.id}' has dependencies and cannot be deleted: {boxes} {balancers}")
    client("ec2", region).delete_subnet(SubnetId=subnet.id)


def _delete_ingress(rule: Any, account: str, region: str) -> None:
    properties = rule.resolved_properties
    client("ec2", region).revoke_security_group_ingress(
        GroupId=properties["GroupId"], IpPermissions=[in_place.permission(properties)]
    )


def _delete_policy(policy: Any, account: str, region: str) -> None:
    client("iam", region).delete_policy(PolicyArn=policy.arn)


@extend(Role, "delete_from_cloudformation_json")
def delete_role(original: Any, cls: Any, name: str, template: Any, account: str, region: str) -> None:
    """CloudFormation detaches a role's policies before it deletes the role."""
    iam = iam_backends[account]["aws"]
    for arn in list(iam.get_role(name).managed_policies):
        iam.detach_role_policy(arn, name)
    original(cls, name, template, account, region)


def _delete_cluster(cluster: Any, account: str, region: str) -> None:
    client("ecs", region).delete_cluster(cluster=cluster.name)


Cluster.delete = _delete_cluster  # type: ignore[attr-defined]
InternetGateway.delete = _delete_gateway  # type: ignore[attr-defined]
ManagedPolicy.delete = _delete_policy  # type: ignore[attr-defined]
RouteTable.delete = _delete_route_table  # type: ignore[attr-defined]
Subnet.delete = _delete_subnet  # type: ignore[attr-defined]
SecurityGroupIngress.delete = _delete_ingress  # type: ignore[attr-defined]
