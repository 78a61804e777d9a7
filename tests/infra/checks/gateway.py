"""What the gateway's stack must say; a register of its own, since it stands with a `gateway` section alone."""

import json
import re
from typing import Any

from fleet.config.gateway_settings import Gateway
from fleet.config.section import from_plain
from fleet.config.settings import Settings
from fleet.core import names
from fleet.ops.fleet_view import GATEWAY_PAGES
from tests.infra.checks.shared import (
    ACCOUNT,
    ALARM,
    FUNCTION,
    NO_CONDITION,
    OWN_BUCKETS,
    UNTAGGED,
    Check,
    attributes,
    documents,
    trust,
    without,
)
from tests.infra.templates import Templates, grants, properties, resources, the

GATEWAY_CHECKS: list[Check] = []
TASKS = "<GatewayGroup.GroupId>"
BALANCER = "<GatewayBalancerGroup.GroupId>"
SUBNETS = ["<VpcpublicSubnet1Subnet>", "<VpcpublicSubnet2Subnet>"]
REPOSITORY = f"arn:aws:ecr:{ACCOUNT}:repository/cdk-hnb659fds-container-assets-<AWS::AccountId>-us-east-2"


def check(function: Check) -> Check:
    """Register a promise of the gateway's stack."""
    GATEWAY_CHECKS.append(function)
    return function


def untagged(t: Templates, kind: str) -> dict[str, Any]:
    return without(properties(t["gateway"], kind), "Tags")


@check
def service_keeps_two_tasks_in_two_zones_and_rolls_back_what_does_not_come_up(t: Templates, s: Settings) -> None:
    assert untagged(t, "AWS::ECS::Cluster") == {"ClusterName": "llm-gateway"}
    service = the(t["gateway"], "AWS::ECS::Service")
    assert without(service["Properties"], "Tags") == {
        "AvailabilityZoneRebalancing": "ENABLED",
        "Cluster": "<Cluster>",
        "DeploymentConfiguration": {
            "Alarms": {"AlarmNames": [], "Enable": False, "Rollback": False},
            "DeploymentCircuitBreaker": {"Enable": True, "Rollback": True},
            "MaximumPercent": 200,
            "MinimumHealthyPercent": 100,
        },
        "DeploymentController": {"Type": "ECS"},
        "DesiredCount": 2,
        "EnableECSManagedTags": False,
        "HealthCheckGracePeriodSeconds": 120,
        "LaunchType": "FARGATE",
        "LoadBalancers": [{"ContainerName": "gateway", "ContainerPort": 8080, "TargetGroupArn": "<TargetGroup>"}],
        "NetworkConfiguration": {
            "AwsvpcConfiguration": {"AssignPublicIp": "ENABLED", "SecurityGroups": [TASKS], "Subnets": SUBNETS}
        },
        "ServiceName": "llm-gateway",
        "TaskDefinition": "<Task>",
    }
    assert set(service["DependsOn"]) == {"BalancerListener", "Table", "TaskRole"}


@check
def task_is_arm64_nobody_and_cannot_write(t: Templates, s: Settings) -> None:
    task = untagged(t, "AWS::ECS::TaskDefinition")
    (container,) = map(dict, task.pop("ContainerDefinitions"))
    assert task == {
        "Cpu": "256",
        "ExecutionRoleArn": "<ExecutionRole.Arn>",
        "Family": "llm-gateway",
        "Memory": "512",
        "NetworkMode": "awsvpc",
        "RequiresCompatibilities": ["FARGATE"],
        "RuntimePlatform": {"CpuArchitecture": "ARM64", "OperatingSystemFamily": "LINUX"},
        "TaskRoleArn": "<TaskRole.Arn>",
    }
    image = container.pop("Image")
    registry = "<AWS::AccountId>.dkr.ecr.us-east-2.${AWS::URLSuffix}"
    repository = "cdk-hnb659fds-container-assets-<AWS::AccountId>-us-east-2"
    assert re.fullmatch(re.escape(f"{registry}/{repository}:") + "[0-9a-f]{64}", image)
    config, region = container.pop("Environment")
    assert region == {"Name": "AWS_REGION", "Value": "us-east-2"}
    assert config["Name"] == names.ENV_GATEWAY
    assert container == {
        "Essential": True,
        "LinuxParameters": {"Capabilities": {"Drop": ["ALL"]}, "InitProcessEnabled": True},
        "LogConfiguration": {
            "LogDriver": "awslogs",
            "Options": {
                "awslogs-group": "<Log>",
                "awslogs-stream-prefix": "gateway",
                "awslogs-region": "us-east-2",
            },
        },
        "Name": "gateway",
        "PortMappings": [{"ContainerPort": 8080, "Protocol": "tcp"}],
        "ReadonlyRootFilesystem": True,
        "StopTimeout": 120,
        "User": "65532:65532",
    }


@check
def task_is_told_the_settings_and_where_it_stands(t: Templates, s: Settings) -> None:
    (container,) = properties(t["gateway"], "AWS::ECS::TaskDefinition")["ContainerDefinitions"]
    config = json.loads(container["Environment"][0]["Value"])
    assert s.gateway is not None
    assert from_plain(Gateway, config.pop("gateway")) == s.gateway
    model = s.model.name
    assert config == {
        "fleet": s.fleet_name,
        "gpu_url": f"http://<Balancer.DNSName>:{s.port}",
        "models": dict.fromkeys((model, *s.gateway.aliases), model),
        "model_revision": s.model.gguf.key,
        "modelfile": f"<Bucket>/{s.model.modelfile.key}",
        "table": "llm-gateway",
    }


@check
def balancer_is_internal_patient_and_lets_streams_end(t: Templates, s: Settings) -> None:
    balancer = untagged(t, "AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert attributes(balancer.pop("LoadBalancerAttributes")) == {
        "deletion_protection.enabled": "false",
        "idle_timeout.timeout_seconds": "120",
        "routing.http.drop_invalid_header_fields.enabled": "true",
    }
    assert balancer == {
        "Scheme": "internal",
        "SecurityGroups": [BALANCER],
        "Subnets": SUBNETS,
        "Type": "application",
    }
    group = untagged(t, "AWS::ElasticLoadBalancingV2::TargetGroup")
    assert attributes(group.pop("TargetGroupAttributes")) == {
        "deregistration_delay.timeout_seconds": "600",
        "stickiness.enabled": "false",
        "load_balancing.algorithm.type": "least_outstanding_requests",
    }
    assert group == {
        "HealthCheckIntervalSeconds": 10,
        "HealthCheckPath": "/v1/health",
        "HealthyThresholdCount": 2,
        "Matcher": {"HttpCode": "200"},
        "Port": 8080,
        "Protocol": "HTTP",
        "TargetType": "ip",
        "UnhealthyThresholdCount": 2,
        "VpcId": "<Vpc>",
    }
    listener = untagged(t, "AWS::ElasticLoadBalancingV2::Listener")
    assert listener == {
        "DefaultActions": [{"TargetGroupArn": "<TargetGroup>", "Type": "forward"}],
        "LoadBalancerArn": "<Balancer>",
        "Port": 80,
        "Protocol": "HTTP",
    }


@check
def table_is_created_if_absent_and_kept(t: Templates, s: Settings) -> None:
    table = the(t["gateway"], "Custom::CreateTable")
    wanted = {"Table": "llm-gateway", "PartitionKey": "pk", "SortKey": "sk", "Expiry": "ttl"}
    assert table["Properties"] == {"ServiceToken": "<CreateTable.Arn>", **wanted}
    assert table["DeletionPolicy"] == table["UpdateReplacePolicy"] == "Retain"
    function = the(t["gateway"], FUNCTION)
    code = function["Properties"]["Code"]
    assert code["S3Bucket"] == "cdk-hnb659fds-assets-<AWS::AccountId>-us-east-2"
    assert re.fullmatch(r"llm/[0-9a-f]{64}\.zip", code["S3Key"])
    assert without(function["Properties"], "Tags", "Description", "Code") == {
        "Architectures": ["arm64"],
        "Handler": "lambdas.resources.create_table.handler",
        "LoggingConfig": {"LogGroup": "<CreateTableLog>"},
        "MemorySize": 128,
        "Role": "<CreateTableRole.Arn>",
        "Runtime": "python3.14",
        "Timeout": 300,
    }
    assert set(function["DependsOn"]) == {"CreateTableRoleDefaultPolicy", "CreateTableRole"}


@check
def roles_may_do_exactly_what_is_called(t: Templates, s: Settings) -> None:
    stack, table = t["gateway"]["Resources"], f"arn:aws:dynamodb:{ACCOUNT}:table/llm-gateway"
    expected = {
        "TaskRole": {
            *((f"dynamodb:{call}Item", table, NO_CONDITION) for call in ("Get", "Put", "Update", "Delete")),
            ("s3:GetObject", f"<Bucket.Arn>/{s.model.modelfile.key}", OWN_BUCKETS),
            (
                "secretsmanager:GetSecretValue",
                f"arn:aws:secretsmanager:{ACCOUNT}:secret:llm/fallback-??????",
                NO_CONDITION,
            ),
        },
        "ExecutionRole": {
            *(
                (f"ecr:{call}", REPOSITORY, NO_CONDITION)
                for call in ("BatchCheckLayerAvailability", "GetDownloadUrlForLayer", "BatchGetImage")
            ),
            ("ecr:GetAuthorizationToken", "*", NO_CONDITION),
            *((f"logs:{call}", "<Log.Arn>", NO_CONDITION) for call in ("CreateLogStream", "PutLogEvents")),
        },
        "CreateTableRole": {
            (f"dynamodb:{call}", table, NO_CONDITION)
            for call in (
                "CreateTable",
                "DescribeTable",
                "DescribeTimeToLive",
                "UpdateTimeToLive",
                "UpdateContinuousBackups",
            )
        },
    }
    assert {name for name, resource in stack.items() if resource["Type"] == "AWS::IAM::Role"} == set(expected)
    for name, allowed in expected.items():
        assert grants(stack[name]) == allowed, name
        service = "lambda" if name == "CreateTableRole" else "ecs-tasks"
        assert stack[name]["Properties"]["AssumeRolePolicyDocument"]["Statement"] == [trust(service)]
        assert without(stack[name]["Properties"], "Tags", "Policies", "AssumeRolePolicyDocument") == {}
    log = properties(t["gateway"], "AWS::IAM::Policy")
    assert log["Roles"] == ["<CreateTableRole>"]
    assert grants({"Properties": {}}, the(t["gateway"], "AWS::IAM::Policy")) == {
        (f"logs:{call}", "<CreateTableLog.Arn>", NO_CONDITION) for call in ("CreateLogStream", "PutLogEvents")
    }


@check
def logs_are_kept_for_three_months(t: Templates, s: Settings) -> None:
    stack = t["gateway"]["Resources"]
    assert without(stack["Log"]["Properties"], "Tags") == {"LogGroupName": "/llm/gateway", "RetentionInDays": 90}
    assert without(stack["CreateTableLog"]["Properties"], "Tags") == {"RetentionInDays": 90}
    for name in ("Log", "CreateTableLog"):
        assert stack[name]["Type"] == "AWS::Logs::LogGroup"
        assert stack[name]["DeletionPolicy"] == stack[name]["UpdateReplacePolicy"] == "Delete"


@check
def alarms_mail_both_ways_and_name_their_page(t: Templates, s: Settings) -> None:
    alarms = {found["Properties"]["AlarmName"]: found["Properties"] for found in resources(t["gateway"], ALARM)}
    waits = {found["Properties"]["AlarmName"] for found in resources(t["gateway"], ALARM) if "DependsOn" in found}
    assert waits == {"llm-gateway-down"}
    assert "Service" in t["gateway"]["Resources"]["gatewaydown"]["DependsOn"], "no task yet is no news"
    ours = {"Namespace": names.METRIC_NAMESPACE, "Dimensions": [{"Name": "Fleet", "Value": "llm"}], "Statistic": "Sum"}
    first = {"Threshold": 1, "EvaluationPeriods": 1, "Period": 300, "TreatMissingData": "notBreaching"}
    reached = {"ComparisonOperator": "GreaterThanOrEqualToThreshold"}
    expected: dict[str, dict[str, Any]] = {
        "gateway-errors": {**ours, **first, **reached, "MetricName": names.METRIC_ANSWERS_BROKEN, "Threshold": 5},
        "gateway-nobody-answers": {**ours, **first, **reached, "MetricName": names.METRIC_NOBODY_ANSWERED},
        "gateway-fallback": {
            **ours,
            **first,
            **reached,
            "MetricName": names.METRIC_FALLBACK_MISCONFIGURED,
            "Threshold": 5,
        },
        "gateway-spend": {**ours, **first, **reached, "MetricName": names.METRIC_FALLBACK_SPENT},
        "gateway-down": {
            "Namespace": "AWS/ApplicationELB",
            "MetricName": "HealthyHostCount",
            "Dimensions": [
                {"Name": "LoadBalancer", "Value": "<Balancer.LoadBalancerFullName>"},
                {"Name": "TargetGroup", "Value": "<TargetGroup.TargetGroupFullName>"},
            ],
            "Statistic": "Maximum",
            "Period": 60,
            "EvaluationPeriods": 3,
            "Threshold": 1,
            "ComparisonOperator": "LessThanThreshold",
            "TreatMissingData": "breaching",
        },
    }
    assert set(alarms) == {f"llm-{page}" for page in expected}
    assert set(expected) == set(GATEWAY_PAGES), "status tells of each"
    for page, wanted in expected.items():
        alarm = alarms[f"llm-{page}"]
        assert alarm["AlarmDescription"].endswith(f"What to do: docs/runbook/{page}.md")
        assert alarm["AlarmActions"] == alarm["OKActions"] == ["<Mail>"]
        rest = without(alarm, "Tags", "AlarmName", "AlarmDescription", "AlarmActions", "OKActions")
        assert rest == wanted, page


@check
def everything_of_it_names_its_fleet_and_speaks_the_current_language(t: Templates, s: Settings) -> None:
    for name, resource in t["gateway"]["Resources"].items():
        assert all(document["Version"] == "2012-10-17" for document in documents(resource.get("Properties", {}))), name
        if resource["Type"] not in UNTAGGED | {"Custom::CreateTable"}:
            assert {"Key": names.TAG_FLEET, "Value": s.fleet_name} in resource["Properties"]["Tags"], name
