"""Where the fleet stands: public subnets without NAT, S3 by gateway endpoint, one way in.

The box reaches AWS's APIs from its public subnet; its files come through the gateway endpoint, never over the
internet. Callers are admitted on the balancer's group, and the box admits the serving port from that group alone.
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

from fleet.contradictions import SECURITY_GROUP, ZONE_BITS
from fleet.settings import Settings
from stacks.room import Room, accept

HTTPS = 443


class Network:
    """VPC (new or existing), S3 endpoint and the two security groups."""

    def __init__(self, room: Room, settings: Settings) -> None:
        self._room = room
        self.vpc = self._new_vpc(settings) if settings.network.vpc_id is None else self._existing_vpc(settings)
        if settings.network.vpc_id is None or settings.network.route_table_ids:
            self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)

        self.balancer_group = self._security_group("BalancerGroup", "Callers of the model")
        self.box_group = self._security_group("BoxGroup", "GPU boxes: the serving port from the balancer only")
        if not settings.network.callers:
            cdk.Annotations.of(room).add_warning_v2(
                "fleet:no-callers", "network.callers is empty: nobody may call the model, `fleetctl ask` apart."
            )
        serving = ec2.Port.tcp(settings.port)
        for caller in settings.network.callers:
            is_group = SECURITY_GROUP.fullmatch(caller)
            peer = ec2.Peer.security_group_id(caller) if is_group else ec2.Peer.ipv4(caller)
            self.balancer_group.add_ingress_rule(peer, serving, "Caller of the model")
        self.balancer_group.add_egress_rule(self.box_group, serving, "Requests and health checks to the boxes")
        self.box_group.add_ingress_rule(self.balancer_group, serving, "Requests and health checks")
        self.box_group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "AWS APIs, and S3 by the endpoint")

    def _new_vpc(self, settings: Settings) -> ec2.Vpc:
        vpc = ec2.Vpc(
            self._room,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(settings.network.cidr),
            availability_zones=list(settings.zones),
            nat_gateways=0,
            # The launch template gives a box its address; nothing else that starts here gets one by accident.
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    map_public_ip_on_launch=False,
                    # One after the other, so that a zone at the end of the list moves no other zone's range.
                    cidr_mask=int(settings.network.cidr.partition("/")[2]) + ZONE_BITS,
                )
            ],
        )
        accept(vpc, "CloudFormation-Validate::W3010", "Zones are a setting: not every zone sells the pools")
        accept(vpc, "AwsSolutions-VPC7", "One port, one caller group: flow logs would cost more than they could tell")
        return vpc

    def _existing_vpc(self, settings: Settings) -> ec2.IVpc:
        network = settings.network
        return ec2.Vpc.from_vpc_attributes(
            self._room,
            "Vpc",
            vpc_id=str(network.vpc_id),
            availability_zones=list(settings.zones),
            public_subnet_ids=list(network.subnet_ids),
            public_subnet_route_table_ids=list(network.route_table_ids) or None,
        )

    def _security_group(self, name: str, description: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(self._room, name, vpc=self.vpc, description=description, allow_all_outbound=False)
