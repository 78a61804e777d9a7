"""What the templates must say: one named check per promise, for the real templates and for thousands of broken ones."""

import ipaddress
import itertools
import json
import re
from collections.abc import Callable
from typing import Any

from fleet import ask_document, box_config, names
from fleet.settings import Settings
from lambdas.watchdog.state import Mode, State, loads
from tests.infra.templates import Templates, grants, properties, resources, the

Check = Callable[[Templates, Settings], None]
CHECKS: list[Check] = []
GROUP = "AWS::AutoScaling::AutoScalingGroup"
TEMPLATE = "AWS::EC2::LaunchTemplate"
FUNCTION = "AWS::Lambda::Function"
ROLE = "AWS::IAM::Role"
ALARM = "AWS::CloudWatch::Alarm"
ACCOUNT = "us-east-2:<AWS::AccountId>"
NO_CONDITION = "{}"
# Types without tags, or whose tags CDK writes in a place of their own.
UNTAGGED = {
    "AWS::EC2::LaunchTemplate",
    "AWS::EC2::Route",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::VPCGatewayAttachment",
    "AWS::IAM::InstanceProfile",
    "AWS::IAM::ManagedPolicy",
    "AWS::IAM::Policy",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::Permission",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::TopicPolicy",
    "Custom::CreateIfAbsent",
    "Custom::RequireArtifacts",
}
FUNCTIONS = {"lever": "CreateIfAbsent", "group": "RequireArtifacts", "watchdog": "Watchdog"}
WRITE_LOG = ("logs:CreateLogStream", "logs:PutLogEvents")


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


# --- network ----------------------------------------------------------------------------------------------------


@check
def vpc_has_public_subnets_in_at_least_two_zones_and_no_nat(t: Templates, s: Settings) -> None:
    room = t["network"]
    vpc = properties(room, "AWS::EC2::VPC")
    assert vpc["CidrBlock"] == s.network.cidr
    assert vpc["EnableDnsSupport"] is vpc["EnableDnsHostnames"] is True
    assert vpc["InstanceTenancy"] == "default"
    subnets = [subnet["Properties"] for subnet in resources(room, "AWS::EC2::Subnet")]
    assert [subnet["AvailabilityZone"] for subnet in subnets] == list(s.zones)
    assert len(s.zones) >= 2
    ranges = [ipaddress.IPv4Network(subnet["CidrBlock"]) for subnet in subnets]
    assert all(part.subnet_of(ipaddress.IPv4Network(s.network.cidr)) for part in ranges)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(ranges, 2))
    assert {(subnet["VpcId"], subnet["MapPublicIpOnLaunch"]) for subnet in subnets} == {("<Vpc>", False)}
    assert not resources(room, "AWS::EC2::NatGateway")


@check
def every_subnet_reaches_the_internet_gateway(t: Templates, s: Settings) -> None:
    room = t["network"]
    attachment = properties(room, "AWS::EC2::VPCGatewayAttachment")
    assert attachment == {"InternetGatewayId": "<VpcIGW>", "VpcId": "<Vpc>"}
    the(room, "AWS::EC2::InternetGateway")
    for number in range(1, len(s.zones) + 1):
        subnet, table = f"VpcpublicSubnet{number}Subnet", f"VpcpublicSubnet{number}RouteTable"
        assert room["Resources"][table]["Type"] == "AWS::EC2::RouteTable"
        assert room["Resources"][table]["Properties"]["VpcId"] == "<Vpc>"
        association = room["Resources"][f"{table}Association"]
        assert association["Type"] == "AWS::EC2::SubnetRouteTableAssociation"
        assert association["Properties"] == {"RouteTableId": f"<{table}>", "SubnetId": f"<{subnet}>"}
        route = room["Resources"][f"VpcpublicSubnet{number}DefaultRoute"]
        assert route["Type"] == "AWS::EC2::Route"
        assert route["DependsOn"] == ["VpcVPCGW"]
        everywhere = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "<VpcIGW>"}
        assert route["Properties"] == {**everywhere, "RouteTableId": f"<{table}>"}


@check
def s3_is_reached_by_a_gateway_endpoint_from_every_subnet(t: Templates, s: Settings) -> None:
    endpoint = properties(t["network"], "AWS::EC2::VPCEndpoint")
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert endpoint["ServiceName"] == "com.amazonaws.<AWS::Region>.s3"
    assert endpoint["RouteTableIds"] == [f"<VpcpublicSubnet{n}RouteTable>" for n in range(1, len(s.zones) + 1)]
    assert endpoint["VpcId"] == "<Vpc>"


@check
def callers_are_admitted_on_the_balancers_group_alone(t: Templates, s: Settings) -> None:
    balancer = _security_group(t, "BalancerGroup")
    assert balancer["VpcId"] == "<Vpc>"
    rules = [(r["CidrIp"], r["IpProtocol"], r["FromPort"], r["ToPort"]) for r in balancer["SecurityGroupIngress"]]
    assert rules == [(caller, "tcp", s.port, s.port) for caller in s.network.callers]
    assert "SecurityGroupEgress" not in balancer


@check
def nothing_comes_into_a_box_but_the_serving_port_from_the_balancer(t: Templates, s: Settings) -> None:
    box = _security_group(t, "BoxGroup")
    assert box["VpcId"] == "<Vpc>"
    assert "SecurityGroupIngress" not in box
    serving = {"IpProtocol": "tcp", "FromPort": s.port, "ToPort": s.port}
    box_id, balancer_id = "<BoxGroup.GroupId>", "<BalancerGroup.GroupId>"
    ingress = properties(t["network"], "AWS::EC2::SecurityGroupIngress")
    egress = properties(t["network"], "AWS::EC2::SecurityGroupEgress")
    assert _without(ingress, "Description") == {
        **serving,
        "GroupId": box_id,
        "SourceSecurityGroupId": balancer_id,
    }
    assert _without(egress, "Description") == {
        **serving,
        "GroupId": balancer_id,
        "DestinationSecurityGroupId": box_id,
    }


@check
def a_box_goes_out_by_https_only(t: Templates, s: Settings) -> None:
    box = _security_group(t, "BoxGroup")
    (rule,) = box["SecurityGroupEgress"]
    assert _without(rule, "Description") == {"CidrIp": "0.0.0.0/0", "IpProtocol": "tcp", "FromPort": 443, "ToPort": 443}


# --- store ------------------------------------------------------------------------------------------------------


@check
def store_is_encrypted_versioned_private_and_kept(t: Templates, s: Settings) -> None:
    bucket = the(t["store"], "AWS::S3::Bucket")
    (encryption,) = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    assert bucket["Properties"]["VersioningConfiguration"] == {"Status": "Enabled"}
    assert bucket["Properties"]["PublicAccessBlockConfiguration"] == {
        "BlockPublicAcls": True,
        "BlockPublicPolicy": True,
        "IgnorePublicAcls": True,
        "RestrictPublicBuckets": True,
    }
    assert bucket["DeletionPolicy"] == bucket["UpdateReplacePolicy"] == "Retain"


@check
def store_takes_tls_only(t: Templates, s: Settings) -> None:
    policy = properties(t["store"], "AWS::S3::BucketPolicy")
    assert policy["Bucket"] == "<Bucket>"
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement == {
        "Action": "s3:*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Resource": ["<Bucket.Arn>", "<Bucket.Arn>/*"],
    }


@check
def store_forgets_old_versions_and_unfinished_uploads_in_a_week(t: Templates, s: Settings) -> None:
    (rule,) = properties(t["store"], "AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    assert rule == {
        "Status": "Enabled",
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 7},
    }


# --- lever ------------------------------------------------------------------------------------------------------


@check
def lever_and_state_are_created_if_absent_and_kept(t: Templates, s: Settings) -> None:
    room = t["lever"]
    assert not resources(room, "AWS::SSM::Parameter")
    parameters = the(room, "Custom::CreateIfAbsent")
    first_values = parameters["Properties"]["Parameters"]
    assert set(first_values) == {names.lever_parameter(s.fleet_name), names.state_parameter(s.fleet_name)}
    assert parameters["Properties"]["ServiceToken"] == "<CreateIfAbsent.Arn>"
    assert parameters["DeletionPolicy"] == parameters["UpdateReplacePolicy"] == "Retain"


@check
def first_values_follow_the_initial_mode(t: Templates, s: Settings) -> None:
    first_values = properties(t["lever"], "Custom::CreateIfAbsent")["Parameters"]
    percentage = {"spot-armed": "0", "on-demand-pinned": "100"}[s.initial_mode]
    assert first_values[names.lever_parameter(s.fleet_name)] == percentage
    assert loads(first_values[names.state_parameter(s.fleet_name)]) == State(Mode(s.initial_mode))


@check
def lever_function_may_create_the_two_parameters_only(t: Templates, s: Settings) -> None:
    paths = (names.lever_parameter(s.fleet_name), names.state_parameter(s.fleet_name))
    expected = {("ssm:PutParameter", f"arn:aws:ssm:{ACCOUNT}:parameter{path}", NO_CONDITION) for path in paths}
    assert _role_of_function(t, "lever") == expected
    assert properties(t["lever"], FUNCTION)["Handler"] == "lambdas.resources.create_if_absent.handler"


# --- launch template --------------------------------------------------------------------------------------------


@check
def metadata_service_takes_tokens_only_and_one_hop(t: Templates, s: Settings) -> None:
    assert _launch_data(t)["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}


@check
def root_disk_is_encrypted_gp3_and_goes_with_the_box(t: Templates, s: Settings) -> None:
    (disk,) = _launch_data(t)["BlockDeviceMappings"]
    assert disk["DeviceName"] == "/dev/xvda"
    ebs = {"Encrypted": True, "VolumeType": "gp3", "VolumeSize": s.root_volume_gib, "DeleteOnTermination": True}
    assert disk["Ebs"] == ebs


@check
def a_box_that_shuts_down_is_terminated(t: Templates, s: Settings) -> None:
    assert _launch_data(t)["InstanceInitiatedShutdownBehavior"] == "terminate"


@check
def a_box_has_a_public_address_the_box_group_and_its_role(t: Templates, s: Settings) -> None:
    (interface,) = _launch_data(t)["NetworkInterfaces"]
    groups = ["<BoxGroup.GroupId>"]
    assert interface == {"AssociatePublicIpAddress": True, "DeviceIndex": 0, "Groups": groups}
    assert _launch_data(t)["IamInstanceProfile"] == {"Arn": "<TemplateProfile.Arn>"}
    assert properties(t["group"], "AWS::IAM::InstanceProfile")["Roles"] == ["<BoxRole>"]


@check
def image_is_the_deep_learning_parameter_when_no_id_is_pinned(t: Templates, s: Settings) -> None:
    (reference,) = re.fullmatch("<(.+)>", _launch_data(t)["ImageId"]).groups()  # type: ignore[union-attr]
    parameter = t["group"]["Parameters"][reference]
    assert parameter["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    assert parameter["Default"] == (
        "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"
    )


@check
def user_data_fits_and_names_the_bundle_by_content_hash(t: Templates, s: Settings) -> None:
    text = _launch_data(t)["UserData"]
    # The written-out references are shorter than what stands there in the end: 63 a bucket, 200 an ARN.
    longest = re.sub("<[A-Za-z:.0-9]+>", "x" * 200, text)
    assert len(longest.encode()) <= 16_384
    assert re.search(r"'s3://cdk-hnb659fds-assets-<AWS::AccountId>-us-east-2/[0-9a-f]{64}\.zip'", text)
    assert text.startswith("#!/bin/bash\n")


@check
def user_data_carries_the_boxs_own_settings_and_no_others(t: Templates, s: Settings) -> None:
    text = _launch_data(t)["UserData"]
    bundle_bucket, bundle_key = re.search("s3://(cdk-[^/]+)/([^']+)", text).groups()  # type: ignore[union-attr]
    config = box_config.box_config(s, bucket="<Bucket>", target_group_arn="<TargetGroup>")
    assert text == box_config.user_data(config, bundle_bucket=bundle_bucket, bundle_key=bundle_key)
    assert not any(address in text for address in s.mail)


# --- group ------------------------------------------------------------------------------------------------------


@check
def group_launches_the_pools_by_a_permanent_mixed_policy(t: Templates, s: Settings) -> None:
    policy = _group(t)["MixedInstancesPolicy"]
    assert policy["LaunchTemplate"]["Overrides"] == [{"InstanceType": name} for name in s.pools]
    distribution = policy["InstancesDistribution"]
    assert distribution["SpotAllocationStrategy"] == "price-capacity-optimized"
    assert distribution["OnDemandAllocationStrategy"] == "prioritized"
    assert distribution["OnDemandBaseCapacity"] == s.capacity.on_demand_base
    assert "LaunchTemplate" not in _group(t)


@check
def template_version_is_a_number_and_never_latest(t: Templates, s: Settings) -> None:
    specification = _group(t)["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]
    assert specification == {
        "LaunchTemplateId": "<Template>",
        "Version": "<Template.LatestVersionNumber>",
    }


@check
def lever_is_read_from_its_parameter_on_every_deploy(t: Templates, s: Settings) -> None:
    distribution = _group(t)["MixedInstancesPolicy"]["InstancesDistribution"]
    assert distribution["OnDemandPercentageAboveBaseCapacity"] == "<Lever>"
    parameter = t["group"]["Parameters"]["Lever"]
    assert parameter["Type"] == "AWS::SSM::Parameter::Value<String>"
    assert parameter["Default"] == names.lever_parameter(s.fleet_name)


@check
def group_stands_in_every_zone_with_its_sizes_and_name(t: Templates, s: Settings) -> None:
    group = _group(t)
    assert group["AutoScalingGroupName"] == names.group(s.fleet_name)
    assert (group["MinSize"], group["MaxSize"]) == (str(s.capacity.min), str(s.capacity.max))
    assert group["VPCZoneIdentifier"] == _subnets(s)
    assert group["TargetGroupARNs"] == ["<TargetGroup>"]


@check
def no_deploy_resets_the_desired_capacity(t: Templates, s: Settings) -> None:
    assert "DesiredCapacity" not in _group(t)


@check
def capacity_rebalancing_is_on(t: Templates, s: Settings) -> None:
    assert _group(t)["CapacityRebalance"] is True


@check
def both_hooks_stand_inside_the_group(t: Templates, s: Settings) -> None:
    assert not resources(t["group"], "AWS::AutoScaling::LifecycleHook")
    launch, termination = _group(t)["LifecycleHookSpecificationList"]
    assert launch == {
        "LifecycleHookName": names.LAUNCH_HOOK,
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
        "DefaultResult": "ABANDON",
        "HeartbeatTimeout": s.boot.hook_heartbeat_seconds,
    }
    assert termination == {
        "LifecycleHookName": names.TERMINATION_HOOK,
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "DefaultResult": "CONTINUE",
        "HeartbeatTimeout": s.drain.termination_hook_seconds,
    }


@check
def replacements_are_launch_first(t: Templates, s: Settings) -> None:
    policy = {"MinHealthyPercentage": 100, "MaxHealthyPercentage": 200}
    assert _group(t)["InstanceMaintenancePolicy"] == policy


@check
def warm_up_is_60_s_and_elb_health_counts_after_300_s(t: Templates, s: Settings) -> None:
    group = _group(t)
    assert group["DefaultInstanceWarmup"] == 60
    assert (group["HealthCheckType"], group["HealthCheckGracePeriod"]) == ("ELB", 300)


@check
def update_policy_is_the_native_refresh_launch_first_without_alarms(t: Templates, s: Settings) -> None:
    assert the(t["group"], GROUP)["UpdatePolicy"] == {
        "AutoScalingInstanceRefresh": {
            "Strategy": "Rolling",
            "Preferences": {
                "MinHealthyPercentage": 100,
                "MaxHealthyPercentage": 200,
                "InstanceWarmup": 60,
                "SkipMatching": True,
            },
        }
    }


@check
def boxes_carry_the_fleets_tag_from_their_launch(t: Templates, s: Settings) -> None:
    tag = {"Key": names.TAG_FLEET, "Value": s.fleet_name}
    assert {**tag, "PropagateAtLaunch": True} in _group(t)["Tags"]
    tagged = {spec["ResourceType"]: spec["Tags"] for spec in _launch_data(t)["TagSpecifications"]}
    assert set(tagged) == {"instance", "volume"}
    assert tag in tagged["instance"]
    assert tag in tagged["volume"]


@check
def group_waits_for_a_filled_store_and_a_front_door(t: Templates, s: Settings) -> None:
    waits_for = {"StoreFilled", "Balancer", "BalancerListener", "LaunchGrants"}
    assert set(the(t["group"], GROUP)["DependsOn"]) == waits_for


@check
def store_check_looks_for_every_artifact(t: Templates, s: Settings) -> None:
    keys = [s.model.engine.key, s.model.gguf.key, s.model.modelfile.key]
    asked = properties(t["group"], "Custom::RequireArtifacts")
    assert asked == {"ServiceToken": "<RequireArtifacts.Arn>", "Bucket": "<Bucket>", "Keys": keys}
    expected = {("s3:GetObject", f"<Bucket.Arn>/{key}", NO_CONDITION) for key in keys}
    assert _role_of_function(t, "group") == {*expected, ("s3:ListBucket", "<Bucket.Arn>", NO_CONDITION)}
    assert properties(t["group"], FUNCTION)["Handler"] == "lambdas.resources.require_artifacts.handler"


# --- front door -------------------------------------------------------------------------------------------------


@check
def balancer_is_an_internal_network_balancer_with_its_group_across_zones(t: Templates, s: Settings) -> None:
    balancer = properties(t["group"], "AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert (balancer["Type"], balancer["Scheme"]) == ("network", "internal")
    assert balancer["SecurityGroups"] == ["<BalancerGroup.GroupId>"]
    assert balancer["Subnets"] == _subnets(s)
    assert _attributes(balancer["LoadBalancerAttributes"]) == {
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
    assert _attributes(target_group["TargetGroupAttributes"]) == {
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
def ask_document_holds_one_prompt_and_no_shell(t: Templates, s: Settings) -> None:
    assert _without(properties(t["group"], "AWS::SSM::Document"), "Tags") == {
        "Name": names.ask_document(s.fleet_name),
        "DocumentType": "Command",
        "TargetType": "/AWS::EC2::Instance",
        "UpdateMethod": "NewVersion",
        "Content": ask_document.document(),
    }


# --- the box's role ---------------------------------------------------------------------------------------------


@check
def box_may_do_what_its_code_calls_on_this_fleets_resources(t: Templates, s: Settings) -> None:
    box = t["group"]["Resources"]["BoxRole"]
    group = f"arn:aws:autoscaling:{ACCOUNT}:autoScalingGroup:*:autoScalingGroupName/{names.group(s.fleet_name)}"
    targets = "<TargetGroup>"
    own_tag = _condition(
        {
            "StringEquals": {f"aws:ResourceTag/{names.TAG_FLEET}": s.fleet_name},
            "ForAllValues:StringEquals": {"aws:TagKeys": [names.TAG_BOOT]},
        }
    )
    own_metrics = _condition({"StringEquals": {"cloudwatch:namespace": names.METRIC_NAMESPACE}})
    found = grants(box)
    assert {grant for grant in found if not grant[0].startswith(("s3:", "ssm"))} == {
        ("autoscaling:CompleteLifecycleAction", group, NO_CONDITION),
        ("autoscaling:RecordLifecycleActionHeartbeat", group, NO_CONDITION),
        ("autoscaling:TerminateInstanceInAutoScalingGroup", group, NO_CONDITION),
        ("cloudwatch:PutMetricData", "*", own_metrics),
        ("ec2:CreateTags", f"arn:aws:ec2:{ACCOUNT}:instance/*", own_tag),
        ("elasticloadbalancing:RegisterTargets", targets, NO_CONDITION),
        ("elasticloadbalancing:DeregisterTargets", targets, NO_CONDITION),
        ("elasticloadbalancing:DescribeTargetHealth", "*", NO_CONDITION),
        ("logs:CreateLogStream", "<BoxLog.Arn>", NO_CONDITION),
        ("logs:PutLogEvents", "<BoxLog.Arn>", NO_CONDITION),
    }
    assert {action for action, _, _ in found} >= {a for actions in box_config.ACTIONS.values() for a in actions}


@check
def box_reads_the_store_and_its_bundle_and_writes_the_cache_only(t: Templates, s: Settings) -> None:
    box = t["group"]["Resources"]["BoxRole"]
    found = {(action, resource) for action, resource, _ in grants(box) if action.startswith("s3:")}
    bundle = [resource for action, resource in found if resource.startswith("arn:aws:s3:::cdk-")]
    assert len(bundle) == 1
    assert re.fullmatch(r"arn:aws:s3:::cdk-hnb659fds-assets-<AWS::AccountId>-us-east-2/[0-9a-f]{64}\.zip", bundle[0])
    assert found == {
        ("s3:GetObject", bundle[0]),
        ("s3:GetObject", "<Bucket.Arn>"),
        ("s3:GetObject", "<Bucket.Arn>/*"),
        ("s3:ListBucket", "<Bucket.Arn>"),
        ("s3:ListBucket", "<Bucket.Arn>/*"),
        ("s3:PutObject", "<Bucket.Arn>/cache/*"),
        ("s3:AbortMultipartUpload", "<Bucket.Arn>/cache/*"),
    }


@check
def box_is_reached_by_session_manager_and_not_by_ssh(t: Templates, s: Settings) -> None:
    box = t["group"]["Resources"]["BoxRole"]
    channel = ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
    assert {grant for grant in grants(box) if grant[0].startswith("ssm")} == {
        ("ssm:UpdateInstanceInformation", "*", NO_CONDITION),
        *((f"ssmmessages:{name}", "*", NO_CONDITION) for name in channel),
    }
    assert "KeyName" not in _launch_data(t)
    assert box["Type"] == ROLE
    assert box["Properties"]["AssumeRolePolicyDocument"]["Statement"] == [_trust("ec2")]


@check
def box_log_group_is_the_fleets_and_ends_with_it(t: Templates, s: Settings) -> None:
    (log,) = [log for log in resources(t["group"], "AWS::Logs::LogGroup") if "LogGroupName" in log["Properties"]]
    assert log["Properties"]["LogGroupName"] == names.box_log_group(s.fleet_name)


# --- watchdog ---------------------------------------------------------------------------------------------------


@check
def alarm_fires_after_the_minutes_without_a_healthy_target(t: Templates, s: Settings) -> None:
    alarm = properties(t["watchdog"], ALARM)
    assert _without(alarm, "AlarmDescription", "Tags", "Dimensions") == {
        "AlarmName": names.no_healthy_target_alarm(s.fleet_name),
        "Namespace": "AWS/NetworkELB",
        "MetricName": "HealthyHostCount",
        "Statistic": "Maximum",
        "Period": 60,
        "ComparisonOperator": "LessThanThreshold",
        "Threshold": 1,
        "EvaluationPeriods": s.watchdog.alarm_minutes,
        "DatapointsToAlarm": s.watchdog.alarm_minutes,
        "TreatMissingData": "breaching",
    }
    assert _healthy_hosts(alarm)


@check
def alarm_wakes_the_watchdog_in_both_directions(t: Templates, s: Settings) -> None:
    assert _rule(t, "aws.cloudwatch")["EventPattern"] == {
        "source": ["aws.cloudwatch"],
        "detail-type": ["CloudWatch Alarm State Change"],
        "resources": ["<NoHealthyTarget.Arn>"],
    }


@check
def spot_notices_wake_the_watchdog(t: Templates, s: Settings) -> None:
    assert _rule(t, "aws.ec2")["EventPattern"] == {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"],
    }


@check
def launches_terminations_and_refreshes_of_the_group_wake_the_watchdog(t: Templates, s: Settings) -> None:
    pattern = _rule(t, "aws.autoscaling")["EventPattern"]
    assert pattern["detail"] == {"AutoScalingGroupName": [names.group(s.fleet_name)]}
    assert pattern["source"] == ["aws.autoscaling"]
    refresh = "EC2 Auto Scaling Instance Refresh"
    assert pattern["detail-type"] == [
        *(f"EC2 Instance {what}" for what in ("Launch Successful", "Launch Unsuccessful")),
        "EC2 Instance Terminate Successful",
        *(f"{refresh} {end}" for end in ("Succeeded", "Failed", "Cancelled")),
    ]


@check
def scan_is_another_input_of_the_same_function(t: Templates, s: Settings) -> None:
    (scan,) = [rule for rule in _rules(t) if "ScheduleExpression" in rule]
    assert scan["ScheduleExpression"] == f"rate({s.watchdog.scan_seconds // 60} minutes)"
    (target,) = scan["Targets"]
    assert target["Arn"] == "<Watchdog.Arn>"
    assert json.loads(target["Input"]) == {"command": "scan"}
    (function,) = resources(t["watchdog"], FUNCTION)
    assert function["Properties"]["Handler"] == "lambdas.watchdog.handler.handler"


@check
def every_rule_is_enabled_and_may_invoke_the_function(t: Templates, s: Settings) -> None:
    assert [rule["State"] for rule in _rules(t)] == ["ENABLED"] * 4
    events = [rule["Targets"] for rule in _rules(t) if "EventPattern" in rule]
    assert [_without(target, "Id") for (target,) in events] == [{"Arn": "<Watchdog.Arn>"}] * 3
    permissions = [found["Properties"] for found in resources(t["watchdog"], "AWS::Lambda::Permission")]
    rules = ("AlarmChanged", "SpotNotice", "GroupChanged", "Scan")
    assert [permission["SourceArn"] for permission in permissions] == [f"<{rule}.Arn>" for rule in rules]
    for permission in permissions:
        assert _without(permission, "SourceArn") == {
            "Action": "lambda:InvokeFunction",
            "FunctionName": "<Watchdog.Arn>",
            "Principal": "events.amazonaws.com",
        }


@check
def reserved_concurrency_of_one_is_the_mutex(t: Templates, s: Settings) -> None:
    assert properties(t["watchdog"], FUNCTION)["ReservedConcurrentExecutions"] == 1


@check
def stale_events_are_dropped_and_failures_are_mailed(t: Templates, s: Settings) -> None:
    assert properties(t["watchdog"], "AWS::Lambda::EventInvokeConfig") == {
        "FunctionName": "<Watchdog>",
        "Qualifier": "$LATEST",
        "MaximumEventAgeInSeconds": 900,
        "MaximumRetryAttempts": 2,
        "DestinationConfig": {"OnFailure": {"Destination": "<Mail>"}},
    }


@check
def watchdog_is_named_and_gets_its_settings_whole(t: Templates, s: Settings) -> None:
    function = properties(t["watchdog"], FUNCTION)
    assert function["FunctionName"] == names.watchdog_function(s.fleet_name)
    variables = function["Environment"]["Variables"]
    assert Settings.from_json(variables[names.ENV_SETTINGS]) == s
    arn = "<TargetGroup>"
    assert _without(variables, names.ENV_SETTINGS) == {names.ENV_TOPIC_ARN: "<Mail>", names.ENV_TARGET_GROUP_ARN: arn}


@check
def watchdog_has_one_grant_per_call(t: Templates, s: Settings) -> None:
    room = t["watchdog"]
    group = f"arn:aws:autoscaling:{ACCOUNT}:autoScalingGroup:*:autoScalingGroupName/{names.group(s.fleet_name)}"
    paths = (names.lever_parameter(s.fleet_name), names.state_parameter(s.fleet_name))
    parameters = [f"arn:aws:ssm:{ACCOUNT}:parameter{path}" for path in paths]
    on_group = ("UpdateAutoScalingGroup", "SuspendProcesses", "ResumeProcesses", "StartInstanceRefresh")
    assert _role_of_function(t, "watchdog") == {
        *(("ssm:GetParameters", parameter, NO_CONDITION) for parameter in parameters),
        *(("ssm:PutParameter", parameter, NO_CONDITION) for parameter in parameters),
        *((f"autoscaling:{action}", group, NO_CONDITION) for action in on_group),
        ("autoscaling:CancelInstanceRefresh", group, NO_CONDITION),
        ("autoscaling:TerminateInstanceInAutoScalingGroup", group, NO_CONDITION),
        ("autoscaling:DescribeAutoScalingGroups", "*", NO_CONDITION),
        ("autoscaling:DescribeInstanceRefreshes", "*", NO_CONDITION),
        (
            "cloudformation:DescribeStacks",
            f"arn:aws:cloudformation:{ACCOUNT}:stack/{s.fleet_name}-group/*",
            NO_CONDITION,
        ),
        ("cloudwatch:DescribeAlarms", f"arn:aws:cloudwatch:{ACCOUNT}:alarm:*", NO_CONDITION),
        ("ec2:DescribeAvailabilityZones", "*", NO_CONDITION),
        ("ec2:DescribeInstances", "*", NO_CONDITION),
        ("ec2:GetSpotPlacementScores", "*", NO_CONDITION),
        ("elasticloadbalancing:DescribeTargetHealth", "*", NO_CONDITION),
        ("sns:Publish", "<Mail>", NO_CONDITION),
    }
    assert the(room, ROLE)["Properties"]["ManagedPolicyArns"] == ["<LaunchGrants>"]


@check
def watchdog_may_try_the_launch_that_a_flip_is_checked_with(t: Templates, s: Settings) -> None:
    template = f"arn:aws:ec2:{ACCOUNT}:launch-template/<Template>"
    from_template = {"ArnEquals": {"ec2:LaunchTemplate": template}}
    of_pools = _condition({**from_template, "StringEquals": {"ec2:InstanceType": list(s.pools)}})
    at_launch = _condition({"StringEquals": {"ec2:CreateAction": "RunInstances"}})
    to_ec2 = _condition({"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}})
    created = [f"arn:aws:ec2:{ACCOUNT}:{kind}/*" for kind in ("instance", "network-interface", "volume")]
    policy = the(t["group"], "AWS::IAM::ManagedPolicy")
    assert grants({"Properties": {}}, policy) == {
        ("ec2:RunInstances", created[0], of_pools),
        ("ec2:RunInstances", created[1], _condition(from_template)),
        ("ec2:RunInstances", created[2], _condition(from_template)),
        ("ec2:RunInstances", "arn:aws:ec2:us-east-2::image/*", _condition(from_template)),
        ("ec2:RunInstances", template, NO_CONDITION),
        *(("ec2:RunInstances", f"arn:aws:ec2:{ACCOUNT}:subnet/{subnet}", NO_CONDITION) for subnet in _subnets(s)),
        ("ec2:RunInstances", f"arn:aws:ec2:{ACCOUNT}:security-group/<BoxGroup.GroupId>", NO_CONDITION),
        *(("ec2:CreateTags", resource, at_launch) for resource in created),
        ("iam:PassRole", "<BoxRole.Arn>", to_ec2),
    }


@check
def topic_takes_tls_only_and_the_accounts_own_alarms(t: Templates, s: Settings) -> None:
    the(t["watchdog"], "AWS::SNS::Topic")
    policy = properties(t["watchdog"], "AWS::SNS::TopicPolicy")
    assert policy["Topics"] == ["<Mail>"]
    tls, alarms = policy["PolicyDocument"]["Statement"]
    publish = {"Action": "sns:Publish", "Resource": "<Mail>"}
    insecure = {"Bool": {"aws:SecureTransport": "false"}}
    assert _without(tls, "Sid") == {**publish, "Effect": "Deny", "Principal": "*", "Condition": insecure}
    assert _without(alarms, "Sid") == {
        **publish,
        "Effect": "Allow",
        "Principal": {"Service": "cloudwatch.amazonaws.com"},
        "Condition": {"StringEquals": {"aws:SourceAccount": "<AWS::AccountId>"}},
    }


# --- all functions, all roles -----------------------------------------------------------------------------------


@check
def every_function_runs_its_own_zip_as_its_own_role_into_its_own_log(t: Templates, s: Settings) -> None:
    for room, name in FUNCTIONS.items():
        resource = the(t[room], FUNCTION)
        assert {f"{name}Role", f"{name}RoleDefaultPolicy"} == set(resource["DependsOn"])
        function = resource["Properties"]
        assert (function["Runtime"], function["Architectures"]) == ("python3.14", ["arm64"])
        assert (function["Timeout"], function["MemorySize"]) == (60, 256 if room == "watchdog" else 128)
        assert function["Role"] == f"<{name}Role.Arn>"
        assert function["LoggingConfig"] == {"LogGroup": f"<{name}Log>"}
        log = t[room]["Resources"][f"{name}Log"]
        assert log["Type"] == "AWS::Logs::LogGroup"
        named = names.watchdog_log_group(s.fleet_name) if room == "watchdog" else None  # where fleetctl reads decisions
        assert log["Properties"].get("LogGroupName") == named
        assert function["Code"]["S3Bucket"] == "cdk-hnb659fds-assets-<AWS::AccountId>-us-east-2"
        assert re.fullmatch(r"[0-9a-f]{64}\.zip", function["Code"]["S3Key"])
        role = t[room]["Resources"][f"{name}Role"]
        assert role["Properties"]["AssumeRolePolicyDocument"]["Statement"] == [_trust("lambda")]
        policy = the(t[room], "AWS::IAM::Policy")
        assert policy["Properties"]["Roles"] == [f"<{name}Role>"]
        written = {grant for grant in grants({"Properties": {}}, policy) if grant[0].startswith("logs:")}
        assert written == {(action, f"<{name}Log.Arn>", NO_CONDITION) for action in WRITE_LOG}


@check
def logs_are_kept_for_three_months_and_end_with_the_fleet(t: Templates, s: Settings) -> None:
    for room in ("lever", "group", "watchdog"):
        for log in resources(t[room], "AWS::Logs::LogGroup"):
            assert log["Properties"]["RetentionInDays"] == 90
            assert log["DeletionPolicy"] == log["UpdateReplacePolicy"] == "Delete"


@check
def every_policy_speaks_the_current_language(t: Templates, s: Settings) -> None:
    versions = [
        document.get("Version")
        for room in t.values()
        for resource in room["Resources"].values()
        for document in _documents(resource.get("Properties", {}))
    ]
    assert versions == ["2012-10-17"] * len(versions)
    assert len(versions) == 14


@check
def everything_that_can_be_tagged_names_its_fleet(t: Templates, s: Settings) -> None:
    tag = {"Key": names.TAG_FLEET, "Value": s.fleet_name}
    for room in t.values():
        for name, resource in room["Resources"].items():
            if resource["Type"] not in UNTAGGED:
                tags = resource["Properties"]["Tags"]
                assert tag in tags or {**tag, "PropagateAtLaunch": True} in tags, name


# --- monitoring -------------------------------------------------------------------------------------------------


@check
def function_failed_alarm_sees_the_first_error(t: Templates, s: Settings) -> None:
    alarm = _alarm(t, s, "function-failed")
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("AWS/Lambda", "Errors", "Sum")
    assert alarm["Dimensions"] == [{"Name": "FunctionName", "Value": "<Watchdog>"}]
    assert _at_once(alarm)


@check
def boot_failed_alarm_sees_the_first_failed_boot(t: Templates, s: Settings) -> None:
    alarm = _alarm(t, s, "boot-failed")
    metric = (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"])
    assert metric == (names.METRIC_NAMESPACE, names.METRIC_BOOT_FAILED, "Sum")
    assert alarm["Dimensions"] == [{"Name": names.DIMENSION_FLEET, "Value": s.fleet_name}]
    assert _at_once(alarm)


@check
def nothing_serves_alarm_waits_until_the_watchdog_had_its_time(t: Templates, s: Settings) -> None:
    alarm = _alarm(t, s, "nothing-serves")
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/NetworkELB", "HealthyHostCount")
    assert _healthy_hosts(alarm)
    assert (alarm["Statistic"], alarm["Period"], alarm["TreatMissingData"]) == ("Maximum", 60, "breaching")
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
    assert alarm["EvaluationPeriods"] == s.watchdog.alarm_minutes + s.watchdog.skip_cap_seconds // 60


@check
def every_alarm_names_its_page_and_mails_both_ways(t: Templates, s: Settings) -> None:
    alarms = [alarm["Properties"] for alarm in resources(t["monitoring"], ALARM)]
    assert len(alarms) == 3
    for alarm in [*alarms, properties(t["watchdog"], ALARM)]:
        page = alarm["AlarmName"].removeprefix(f"{s.fleet_name}-")
        assert alarm["AlarmDescription"].endswith(f"What to do: docs/runbook/{page}.md")
    for alarm in alarms:
        assert alarm["AlarmActions"] == alarm["OKActions"] == ["<Mail>"]


@check
def dashboard_shows_health_mode_lever_boots_failed_launches_and_reclaims(t: Templates, s: Settings) -> None:
    dashboard = properties(t["monitoring"], "AWS::CloudWatch::Dashboard")
    assert dashboard["DashboardName"] == s.fleet_name
    widgets = json.loads(dashboard["DashboardBody"])["widgets"]
    shown = json.dumps(widgets)
    metrics = (
        "HealthyHostCount",
        names.METRIC_MODE,
        names.METRIC_LEVER,
        names.METRIC_BOOT_STAGE_SECONDS,
        names.METRIC_LAUNCHES_FAILED,
        names.METRIC_INTERRUPTIONS,
        names.METRIC_REBALANCE_RECOMMENDATIONS,
    )
    assert all(f'"{name}"' in shown or f'\\"{name}\\"' in shown for name in metrics)
    assert len(widgets) == 5


# --- helpers ----------------------------------------------------------------------------------------------------


def _documents(properties: dict[str, Any]) -> list[dict[str, Any]]:
    """The policy documents of one resource."""
    keys = ("PolicyDocument", "AssumeRolePolicyDocument")
    inline = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
    return [properties[key] for key in keys if key in properties] + inline


def _security_group(t: Templates, name: str) -> dict[str, Any]:
    group = t["network"]["Resources"][name]
    assert group["Type"] == "AWS::EC2::SecurityGroup"
    found: dict[str, Any] = group["Properties"]
    return found


def _subnets(s: Settings) -> list[str]:
    return [f"<VpcpublicSubnet{number}Subnet>" for number in range(1, len(s.zones) + 1)]


def _without(mapping: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys}


def _condition(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def _trust(service: str) -> dict[str, Any]:
    return {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": f"{service}.amazonaws.com"}}


def _attributes(pairs: list[dict[str, str]]) -> dict[str, str]:
    return {pair["Key"]: pair["Value"] for pair in pairs}


def _launch_data(t: Templates) -> dict[str, Any]:
    data: dict[str, Any] = properties(t["group"], TEMPLATE)["LaunchTemplateData"]
    return data


def _group(t: Templates) -> dict[str, Any]:
    return properties(t["group"], GROUP)


def _role_of_function(t: Templates, room: str) -> set[tuple[str, str, str]]:
    """All that the room's function may do, its own log left out."""
    *_, role = resources(t[room], ROLE)
    found = grants(role, *resources(t[room], "AWS::IAM::Policy"))
    return {grant for grant in found if not grant[0].startswith("logs:")}


def _rules(t: Templates) -> list[dict[str, Any]]:
    return [rule["Properties"] for rule in resources(t["watchdog"], "AWS::Events::Rule")]


def _rule(t: Templates, source: str) -> dict[str, Any]:
    (rule,) = [rule for rule in _rules(t) if source in rule.get("EventPattern", {}).get("source", [])]
    return rule


def _alarm(t: Templates, s: Settings, page: str) -> dict[str, Any]:
    alarms = {alarm["Properties"]["AlarmName"]: alarm["Properties"] for alarm in resources(t["monitoring"], ALARM)}
    found: dict[str, Any] = alarms[f"{s.fleet_name}-{page}"]
    return found


def _healthy_hosts(alarm: dict[str, Any]) -> bool:
    dimensions: list[dict[str, str]] = alarm["Dimensions"]
    return dimensions == [
        {"Name": "LoadBalancer", "Value": "<Balancer.LoadBalancerFullName>"},
        {"Name": "TargetGroup", "Value": "<TargetGroup.TargetGroupFullName>"},
    ]


def _at_once(alarm: dict[str, Any]) -> bool:
    keys = ("ComparisonOperator", "Threshold", "EvaluationPeriods", "Period", "TreatMissingData")
    return [alarm[key] for key in keys] == ["GreaterThanOrEqualToThreshold", 1, 1, 60, "notBreaching"]
