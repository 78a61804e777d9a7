"""How callers reach a box, and an operator too."""

from fleet.config.settings import Settings
from fleet.core import ask_document, lane_documents, names
from tests.infra.checks.shared import attributes, check, subnets, without
from tests.infra.templates import Templates, properties, resources


@check
def balancer_is_an_internal_network_balancer_with_its_group_across_zones(t: Templates, s: Settings) -> None:
    balancer = properties(t["group"], "AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert (balancer["Type"], balancer["Scheme"]) == ("network", "internal")
    assert balancer["SecurityGroups"] == ["<BalancerGroup.GroupId>"]
    assert balancer["Subnets"] == subnets(s)
    assert attributes(balancer["LoadBalancerAttributes"]) == {
        "load_balancing.cross_zone.enabled": "true",
        "deletion_protection.enabled": "false",
    }


@check
def listener_forwards_tcp_on_the_serving_port(t: Templates, s: Settings) -> None:
    listener = properties(t["group"], "AWS::ElasticLoadBalancingV2::Listener")
    assert (listener["Protocol"], listener["Port"]) == ("TCP", s.port)
    assert listener["LoadBalancerArn"] == "<Balancer>"
    (action,) = listener["DefaultActions"]
    assert action == {"Type": "forward", "TargetGroupArn": "<TargetGroup>"}


@check
def targets_keep_their_streams_while_they_drain(t: Templates, s: Settings) -> None:
    target_group = properties(t["group"], "AWS::ElasticLoadBalancingV2::TargetGroup")
    assert attributes(target_group["TargetGroupAttributes"]) == {
        "deregistration_delay.timeout_seconds": str(s.drain.deregistration_delay_seconds),
        "preserve_client_ip.enabled": "true",
        "target_health_state.unhealthy.connection_termination.enabled": "false",
    }
    assert s.drain.deregistration_delay_seconds >= s.drain.budget_seconds


@check
def targets_are_instances_probed_on_the_serving_port(t: Templates, s: Settings) -> None:
    target_group = properties(t["group"], "AWS::ElasticLoadBalancingV2::TargetGroup")
    assert (target_group["TargetType"], target_group["Protocol"], target_group["Port"]) == ("instance", "TCP", s.port)
    assert target_group["VpcId"] == "<Vpc>"
    probe = [target_group[f"HealthCheck{name}"] for name in ("Protocol", "IntervalSeconds")]
    assert [*probe, target_group["HealthyThresholdCount"], target_group["UnhealthyThresholdCount"]] == ["TCP", 10, 2, 2]


@check
def endpoint_is_an_output(t: Templates, s: Settings) -> None:
    value = t["group"]["Outputs"]["Endpoint"]["Value"]
    assert value == f"http://<Balancer.DNSName>:{s.port}"


@check
def documents_take_one_prompt_one_id_or_nothing_and_no_shell(t: Templates, s: Settings) -> None:
    found = {each["Properties"]["Name"]: each["Properties"] for each in resources(t["group"], "AWS::SSM::Document")}
    content = {
        names.ask_document(s.fleet_name): ask_document.document(),
        names.lane_document(s.fleet_name): lane_documents.show(),
        names.lane_drop_document(s.fleet_name): lane_documents.drop(),
    }
    assert found.keys() == content.keys()
    for name, document in found.items():
        assert without(document, "Tags") == {
            "Name": name,
            "DocumentType": "Command",
            "TargetType": "/AWS::EC2::Instance",
            "UpdateMethod": "NewVersion",
            "Content": content[name],
        }
