"""Where the fleet stands: public subnets without NAT, S3 by gateway endpoint, one way in.

The box reaches AWS's APIs from its public subnet; its files come through the gateway endpoint, never over the
internet. Callers are admitted on the balancer's group, and the box admits the serving port from that group alone.
With a gateway, callers are admitted on its balancer's group, and the fleet's own balancer admits the gateway's tasks;
so do the boxes, where there are several.
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

from fleet.config.cross_field_rules import SECURITY_GROUP, ZONE_BITS
from fleet.config.settings import Settings
from fleet.core import names
from stacks.base_stack import BaseStack, accept

HTTP, HTTPS = 80, 443


class FleetNetwork:
    """VPC (new or existing), S3 endpoint and the two security groups."""

    def __init__(self, stack: BaseStack, settings: Settings) -> None:
        self._stack = stack
        self.vpc = self._new_vpc(settings) if settings.network.vpc_id is None else self._existing_vpc(settings)
        if settings.network.vpc_id is None or settings.network.route_table_ids:
            self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
            if settings.gateway:
                self.vpc.add_gateway_endpoint("DynamoDb", service=ec2.GatewayVpcEndpointAwsService.DYNAMODB)

        self.balancer_group = self.security_group("BalancerGroup", "Callers of the model")
        self.box_group = self.security_group("BoxGroup", "GPU boxes: the serving port from the balancer only")
        if not settings.network.callers:
            cdk.Annotations.of(stack).add_warning_v2(
                "fleet:no-callers", "network.callers is empty: nobody may call the model, `fleetctl ask` apart."
            )
        serving = ec2.Port.tcp(settings.port)
        self.gateway = GatewayGroups(self, settings) if settings.gateway else None
        if self.gateway:
            self.balancer_group.add_ingress_rule(self.gateway.tasks, serving, "The gateway, and nobody else")
        else:
            self.admit(self.balancer_group, settings, serving)
        self.balancer_group.add_egress_rule(self.box_group, serving, "Requests and health checks to the boxes")
        self.box_group.add_ingress_rule(self.balancer_group, serving, "Requests and health checks")
        if self.gateway and settings.chooses_box:
            self.gateway.tasks.add_egress_rule(self.box_group, serving, "The box that the gateway chooses")
            self.box_group.add_ingress_rule(self.gateway.tasks, serving, "The gateway, which chooses among boxes")
        self.box_group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "AWS APIs, and S3 by the endpoint")

    def admit(self, group: ec2.SecurityGroup, settings: Settings, port: ec2.Port) -> None:
        """The callers of the settings, and nobody else."""
        for caller in settings.network.callers:
            is_group = SECURITY_GROUP.fullmatch(caller)
            peer = ec2.Peer.security_group_id(caller) if is_group else ec2.Peer.ipv4(caller)
            group.add_ingress_rule(peer, port, "Caller of the model")

    def _new_vpc(self, settings: Settings) -> ec2.Vpc:
        vpc = ec2.Vpc(
            self._stack,
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
            self._stack,
            "Vpc",
            vpc_id=str(network.vpc_id),
            availability_zones=list(settings.zones),
            public_subnet_ids=list(network.subnet_ids),
            public_subnet_route_table_ids=list(network.route_table_ids) or None,
        )

    def security_group(self, name: str, description: str) -> ec2.SecurityGroup:
        """A group of this network that lets nothing out by itself."""
        return ec2.SecurityGroup(self._stack, name, vpc=self.vpc, description=description, allow_all_outbound=False)


class GatewayGroups:
    """Who may reach the gateway, and whom it may: its balancer's group and its tasks'.

    Here and not in its own stack, since the fleet's balancer admits the tasks, and each stack would need the other.
    """

    def __init__(self, network: FleetNetwork, settings: Settings) -> None:
        self.balancer = network.security_group("GatewayBalancerGroup", "Callers of the gateway")
        self.tasks = network.security_group("GatewayGroup", "The gateway: its port from its balancer only")
        network.admit(self.balancer, settings, ec2.Port.tcp(balancer_port(settings)))
        if settings.gateway and settings.gateway.public:
            accept(self.balancer, "AwsSolutions-EC23", "A public gateway: TLS, and keys and caps behind it")
        serving = ec2.Port.tcp(names.GATEWAY_PORT)
        self.balancer.add_egress_rule(self.tasks, serving, "Requests and health checks to the tasks")
        self.tasks.add_ingress_rule(self.balancer, serving, "Requests and health checks")
        self.tasks.add_egress_rule(network.balancer_group, ec2.Port.tcp(settings.port), "The GPUs")
        self.tasks.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "AWS APIs, and the fallback")


def balancer_port(settings: Settings) -> int:
    """On which the gateway's balancer listens."""
    return HTTPS if settings.gateway and settings.gateway.certificate_arn else HTTP
