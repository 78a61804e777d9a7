"""Who may come in, and how a box gets out."""

import ipaddress
import itertools

from fleet.config.settings import Settings
from tests.infra.checks.shared import (
    check,
    security_group,
    without,
)
from tests.infra.templates import Templates, properties, resources, the


@check
def vpc_has_public_subnets_in_at_least_two_zones_and_no_nat(t: Templates, s: Settings) -> None:
    stack = t["group"]
    vpc = properties(stack, "AWS::EC2::VPC")
    assert vpc["CidrBlock"] == s.network.cidr
    assert vpc["EnableDnsSupport"] is vpc["EnableDnsHostnames"] is True
    assert vpc["InstanceTenancy"] == "default"
    subnets = [subnet["Properties"] for subnet in resources(stack, "AWS::EC2::Subnet")]
    assert [subnet["AvailabilityZone"] for subnet in subnets] == list(s.zones)
    assert len(s.zones) >= 2
    ranges = [ipaddress.IPv4Network(subnet["CidrBlock"]) for subnet in subnets]
    assert all(part.subnet_of(ipaddress.IPv4Network(s.network.cidr)) for part in ranges)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(ranges, 2))
    assert {(subnet["VpcId"], subnet["MapPublicIpOnLaunch"]) for subnet in subnets} == {("<Vpc>", False)}
    assert not resources(stack, "AWS::EC2::NatGateway")


@check
def every_subnet_reaches_the_internet_gateway(t: Templates, s: Settings) -> None:
    stack = t["group"]
    attachment = properties(stack, "AWS::EC2::VPCGatewayAttachment")
    assert attachment == {"InternetGatewayId": "<VpcIGW>", "VpcId": "<Vpc>"}
    the(stack, "AWS::EC2::InternetGateway")
    for number in range(1, len(s.zones) + 1):
        subnet, table = f"VpcpublicSubnet{number}Subnet", f"VpcpublicSubnet{number}RouteTable"
        assert stack["Resources"][table]["Type"] == "AWS::EC2::RouteTable"
        assert stack["Resources"][table]["Properties"]["VpcId"] == "<Vpc>"
        association = stack["Resources"][f"{table}Association"]
        assert association["Type"] == "AWS::EC2::SubnetRouteTableAssociation"
        assert association["Properties"] == {"RouteTableId": f"<{table}>", "SubnetId": f"<{subnet}>"}
        route = stack["Resources"][f"VpcpublicSubnet{number}DefaultRoute"]
        assert route["Type"] == "AWS::EC2::Route"
        assert route["DependsOn"] == ["VpcVPCGW"]
        everywhere = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "<VpcIGW>"}
        assert route["Properties"] == {**everywhere, "RouteTableId": f"<{table}>"}


@check
def s3_is_reached_by_a_gateway_endpoint_from_every_subnet(t: Templates, s: Settings) -> None:
    endpoint = properties(t["group"], "AWS::EC2::VPCEndpoint")
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert endpoint["ServiceName"] == "com.amazonaws.<AWS::Region>.s3"
    assert endpoint["RouteTableIds"] == [f"<VpcpublicSubnet{n}RouteTable>" for n in range(1, len(s.zones) + 1)]
    assert endpoint["VpcId"] == "<Vpc>"


@check
def callers_are_admitted_on_the_balancers_group_alone(t: Templates, s: Settings) -> None:
    balancer = security_group(t, "BalancerGroup")
    assert balancer["VpcId"] == "<Vpc>"
    rules = [(r["CidrIp"], r["IpProtocol"], r["FromPort"], r["ToPort"]) for r in balancer["SecurityGroupIngress"]]
    assert rules == [(caller, "tcp", s.port, s.port) for caller in s.network.callers]
    assert "SecurityGroupEgress" not in balancer


@check
def nothing_comes_into_a_box_but_the_serving_port_from_the_balancer(t: Templates, s: Settings) -> None:
    box = security_group(t, "BoxGroup")
    assert box["VpcId"] == "<Vpc>"
    assert "SecurityGroupIngress" not in box
    serving = {"IpProtocol": "tcp", "FromPort": s.port, "ToPort": s.port}
    box_id, balancer_id = "<BoxGroup.GroupId>", "<BalancerGroup.GroupId>"
    ingress = properties(t["group"], "AWS::EC2::SecurityGroupIngress")
    egress = properties(t["group"], "AWS::EC2::SecurityGroupEgress")
    assert without(ingress, "Description") == {
        **serving,
        "GroupId": box_id,
        "SourceSecurityGroupId": balancer_id,
    }
    assert without(egress, "Description") == {
        **serving,
        "GroupId": balancer_id,
        "DestinationSecurityGroupId": box_id,
    }


@check
def a_box_goes_out_by_https_only(t: Templates, s: Settings) -> None:
    box = security_group(t, "BoxGroup")
    (rule,) = box["SecurityGroupEgress"]
    assert without(rule, "Description") == {"CidrIp": "0.0.0.0/0", "IpProtocol": "tcp", "FromPort": 443, "ToPort": 443}
