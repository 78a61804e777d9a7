"""Every preflight check, brought to each of its ends; the remedy is part of the answer."""

import dataclasses
import json
import re
from typing import Any

import pytest

from fleet.account.aws_errors import AccessDeniedError, CredentialsError, MissingError
from fleet.config import box_config
from fleet.config.gateway_settings import Fallback, Gateway
from fleet.config.settings import Capacity, Network, Settings
from fleet.core import names
from fleet.ops import checks_account as account
from fleet.ops import checks_deploy as deploy
from fleet.ops import checks_fleet as fleet
from fleet.ops import checks_flip as flip
from fleet.ops import checks_network as network
from fleet.ops import preflight
from fleet.ops.checks import Finding, Ground, Level
from tests.ops.test_pin_ami import IMAGE
from tests.synth import ROOT

GONE = MissingError("not found", "look elsewhere")


@pytest.fixture
def ask(settings: Settings, answers: Any) -> Any:
    """Run one check against scripted answers; keyword `change` edits the settings."""

    def run(check: Any, scripted: dict[str, Any], **change: Any) -> Finding:
        found: Finding = check(Ground(dataclasses.replace(settings, **change), answers(scripted)))
        assert found.remedy or found.level is Level.PASS, "a finding that is no pass has a remedy"
        return found

    return run


def quota(value: float) -> dict[str, Any]:
    return {"service-quotas GetServiceQuota": {"Quota": {"Value": value}}}


def test_each_kind_asks_for_its_own_quota_code(settings: Settings, answers: Any) -> None:
    aws = answers(quota(8))
    for check in (account.spot_quota, account.on_demand_quota):
        assert check(Ground(settings, aws)).level is Level.PASS
    assert [arguments["QuotaCode"] for _, arguments in aws.asked] == ["L-3819A6DF", "L-DB2E81BA"]


KEY = "arn:aws:kms:us-east-2:123456789012:key/0a1b"
SCALING = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"


def offers(*pairs: tuple[str, str]) -> dict[str, Any]:
    rows = [{"Location": zone, "InstanceType": kind} for zone, kind in pairs]
    return {"ec2 DescribeInstanceTypeOfferings": {"InstanceTypeOfferings": rows}}


def an_image(**change: Any) -> dict[str, Any]:
    return {"ec2 DescribeImages": {"Images": [{**IMAGE, **change}]}}


def stored(**heads: Any) -> dict[str, Any]:
    outputs = [{"OutputKey": names.OUTPUT_BUCKET, "OutputValue": "store"}]
    return {
        "cloudformation DescribeStacks": {"Stacks": [{"Outputs": outputs}]},
        "s3 HeadObject": lambda Bucket, Key, ChecksumMode: heads[re.split("[.-]", Key.rpartition("/")[2])[0]],
    }


HEAD = {"ContentLength": 6_000_000_000, "Metadata": {"sha256": "0" * 64}}


def test_an_artifact_that_is_not_the_one_in_the_settings_fails(ask: Any, settings: Settings) -> None:
    pinned = dataclasses.replace(settings.model.gguf, sha256="1" * 64)
    model = dataclasses.replace(settings.model, gguf=pinned)
    found = ask(fleet.artifacts, stored(engine=HEAD, model=HEAD, Modelfile=HEAD), model=model)
    assert (found.level, "cdk.json says 1111" in found.found) == (Level.FAIL, True)


def test_a_fleet_whose_every_boot_is_cold_for_want_of_a_release_is_told(ask: Any) -> None:
    head = {**HEAD, "ETag": '"0"'}

    def heads(Bucket: str, Key: str) -> dict[str, Any]:
        if Key.startswith("artifacts/released/"):
            raise GONE
        return head

    deployed = {**stored(), "s3 HeadObject": heads}
    assert ask(fleet.released, deployed).level is Level.PASS, "no box has built anything yet"
    serving = {**deployed, "lambda GetFunctionConfiguration": {"Role": "watchdog"}}
    found = ask(fleet.released, serving)
    assert (found.level, "every boot is cold" in found.found) == (Level.WARN, True)
    assert "--built" in found.remedy
    assert ask(fleet.released, {**serving, "s3 HeadObject": lambda Bucket, Key: head}).level is Level.PASS
    assert ask(fleet.released, {}).level is Level.WARN, "nothing is deployed"


EXISTING = Network(vpc_id="vpc-0a1b2c3d", subnet_ids=("subnet-1", "subnet-2"))


PUBLIC = [{"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}]
MAIN = {"RouteTableId": "rtb-main", "Associations": [{"Main": True}], "Routes": PUBLIC}


def subnets(*rows: tuple[str, str, str], tables: Any = (MAIN,), endpoints: Any = ("rtb-main",)) -> dict[str, Any]:
    return {
        "ec2 DescribeRouteTables": {"RouteTables": list(tables)},
        "ec2 DescribeVpcEndpoints": {
            "VpcEndpoints": [{"ServiceName": "com.amazonaws.us-east-2.s3", "RouteTableIds": list(endpoints)}]
        },
        "ec2 DescribeSubnets": {
            "Subnets": [{"SubnetId": s, "AvailabilityZone": z, "VpcId": v} for s, z, v in rows],
        },
    }


RIGHT = (("subnet-1", "us-east-2a", "vpc-0a1b2c3d"), ("subnet-2", "us-east-2b", "vpc-0a1b2c3d"))


@pytest.mark.parametrize(("service", "gateway"), [("s3", None), ("dynamodb", Gateway())])
def test_an_endpoint_of_somebody_elses_where_a_deploy_would_make_one_fails(
    ask: Any, service: str, gateway: Gateway | None
) -> None:
    """Also of a fleet that stands: with a gateway it makes another one."""
    world = subnets(*RIGHT)
    (endpoint,) = world["ec2 DescribeVpcEndpoints"]["VpcEndpoints"]
    endpoint["ServiceName"] = f"com.amazonaws.us-east-2.{service}"
    made = dataclasses.replace(EXISTING, route_table_ids=("rtb-main", "rtb-main"))
    for tags in ([], [{"Key": names.TAG_FLEET, "Value": "other"}]):
        endpoint["Tags"] = tags
        found = ask(network.network, world, network=made, gateway=gateway)
        assert (found.level, "a gateway endpoint stands in rtb-main" in found.found) == (Level.FAIL, True)
    endpoint["Tags"] = [{"Key": names.TAG_FLEET, "Value": "llm"}]
    assert ask(network.network, world, network=made, gateway=gateway).level is Level.PASS, "its own"


def test_an_endpoint_of_the_fleets_own_that_goes_with_its_route_tables_is_none(ask: Any) -> None:
    world = subnets(*RIGHT)
    world["ec2 DescribeVpcEndpoints"]["VpcEndpoints"][0]["Tags"] = [{"Key": names.TAG_FLEET, "Value": "llm"}]
    found = ask(network.network, world, network=EXISTING)
    assert (found.level, found.found) == (Level.FAIL, "no S3 gateway endpoint: subnet-1, subnet-2")


PRIVATE = dataclasses.replace(EXISTING, private_subnets=True, route_table_ids=("rtb-main", "rtb-main"))


def main_table(*routes: dict[str, str]) -> dict[str, Any]:
    return {**MAIN, "Routes": [{"GatewayId": "local", "DestinationCidrBlock": "10.0.0.0/16"}, *routes]}


def without_a_nat(*endpoints: str, without_private_dns: str = "") -> dict[str, Any]:
    """Private subnets in which these interface endpoints stand."""
    world = subnets(*RIGHT, tables=(main_table(),))
    world["ec2 DescribeVpcEndpoints"] = {
        "VpcEndpoints": [
            {
                "ServiceName": f"com.amazonaws.us-east-2.{name}",
                "VpcEndpointType": "Interface",
                "PrivateDnsEnabled": name != without_private_dns,
            }
            for name in endpoints
        ]
    }
    return world


@pytest.mark.parametrize("lacking", [*box_config.ENDPOINTS, ""])
def test_private_subnets_without_a_nat_need_every_endpoint_that_a_box_calls(ask: Any, lacking: str) -> None:
    world = without_a_nat(*box_config.ENDPOINTS, without_private_dns=lacking)
    found = ask(network.network, world, network=PRIVATE)
    assert found.level is (Level.FAIL if lacking else Level.PASS), found
    assert not lacking or f"private DNS for {lacking}" in found.found


@pytest.mark.parametrize("lacking", ["ecr.api", "ecr.dkr", "secretsmanager", ""])
def test_private_subnets_without_a_nat_need_the_endpoints_of_a_gateways_tasks_as_well(ask: Any, lacking: str) -> None:
    fallback = Fallback(
        url="https://cloud.example/v1",
        model="m",
        key_secret="llm/fallback",  # pragma: allowlist secret
    )
    made = [*box_config.ENDPOINTS, "ecr.api", "ecr.dkr", "secretsmanager"]
    world = without_a_nat(*(name for name in made if name != lacking))
    found = ask(network.network, world, network=PRIVATE, gateway=Gateway(fallback=fallback))
    assert found.level is (Level.FAIL if lacking else Level.PASS), found
    assert not lacking or f"private DNS for {lacking}" in found.found
    assert ask(network.network, world, network=PRIVATE).level is Level.PASS, "boxes alone need none of them"


def test_a_gateway_in_private_subnets_without_a_nat_needs_a_way_to_its_table_and_to_bedrock(ask: Any) -> None:
    signed = Gateway(fallback=Fallback(url="https://cloud.example/v1", model="m", sign_as="bedrock"))
    world = subnets(*RIGHT, tables=(main_table(),))
    made = [*box_config.ENDPOINTS, "ecr.api", "ecr.dkr"]
    endpoints = [
        {"ServiceName": f"com.amazonaws.us-east-2.{name}", "VpcEndpointType": "Interface", "PrivateDnsEnabled": True}
        for name in made
    ]
    endpoints.append({"ServiceName": "com.amazonaws.us-east-2.s3", "RouteTableIds": ["rtb-main"]})
    world["ec2 DescribeVpcEndpoints"] = {"VpcEndpoints": endpoints}
    private = dataclasses.replace(PRIVATE, route_table_ids=())
    assert "private DNS for bedrock-runtime" in ask(network.network, world, network=private, gateway=signed).found
    found = ask(network.network, world, network=private, gateway=Gateway())
    assert (found.level, found.found) == (Level.FAIL, "no DynamoDB gateway endpoint: subnet-1, subnet-2")
    endpoints.append({"ServiceName": "com.amazonaws.us-east-2.dynamodb", "RouteTableIds": ["rtb-main"]})
    assert ask(network.network, world, network=private, gateway=Gateway()).level is Level.PASS


@pytest.mark.parametrize("off", ["EnableDnsHostnames", "EnableDnsSupport", ""])
def test_a_gateway_that_chooses_among_boxes_needs_a_vpc_that_knows_their_names(ask: Any, off: str) -> None:
    def told(VpcId: str, Attribute: str) -> dict[str, Any]:
        name = Attribute[0].upper() + Attribute[1:]
        return {name: {"Value": name != off}}

    world = {**subnets(*RIGHT), "ec2 DescribeVpcAttribute": told}
    two = Capacity(min=2, max=4)
    found = ask(network.network, world, network=EXISTING, gateway=Gateway(), capacity=two)
    assert found.level is (Level.FAIL if off else Level.PASS), found
    assert ask(network.network, world, network=EXISTING, gateway=Gateway()).level is Level.PASS, "one needs no name"


def test_the_endpoints_are_those_of_the_boxes_calls_and_the_page_lists_them() -> None:
    services = {action.partition(":")[0] for actions in box_config.ACTIONS.values() for action in actions}
    called = {"monitoring" if name == "cloudwatch" else name for name in services - {"s3"}}
    assert set(box_config.ENDPOINTS) == called | {"ssm", "ssmmessages"}
    page = (ROOT / "docs/deploys.md").read_text().split("## Private subnets")[1].split("\n## ")[0]
    assert [name for name in box_config.ENDPOINTS if f"`{name}`" not in page] == []


FUNCTION = {
    "lambda GetFunctionConfiguration": {
        "Role": "arn:aws:iam::123456789012:role/llm-watchdog-role",
        "FunctionArn": "arn:aws:lambda:us-east-2:123456789012:function:llm-watchdog",
        "Environment": {"Variables": {names.ENV_TOPIC_ARN: "arn:aws:sns:us-east-2:123456789012:mail"}},
    }
}


def subscribed(*rows: tuple[str, str]) -> dict[str, Any]:
    found = [{"Endpoint": who, "SubscriptionArn": arn, "Protocol": "email"} for who, arn in rows]
    return {**FUNCTION, "sns ListSubscriptionsByTopic": {"Subscriptions": found}}


def told(state: str | None, lever: str | None, live: int | None) -> dict[str, Any]:
    pairs = ((names.state_parameter("llm"), state), (names.lever_parameter("llm"), lever))
    distribution = {"InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": live}}
    groups = [] if live is None else [{"MixedInstancesPolicy": distribution}]
    return {
        "ssm GetParameters": {"Parameters": [{"Name": name, "Value": value} for name, value in pairs if value]},
        "autoscaling DescribeAutoScalingGroups": {"AutoScalingGroups": groups},
    }


ARMED, FAILED_OVER, PINNED = (
    json.dumps({"version": 1, "mode": mode}) for mode in ("spot-armed", "on-demand-failover", "on-demand-pinned")
)
PART = json.dumps({"version": 1, "mode": "on-demand-failover", "part": 50})


def stack_states(**states: str) -> dict[str, Any]:
    def describe(StackName: str) -> Any:
        room = StackName.removeprefix("llm-")
        return {"Stacks": [{"StackStatus": states[room]}]} if room in states else GONE

    return {"cloudformation DescribeStacks": describe}


FLIP = {
    **FUNCTION,
    "autoscaling DescribeAutoScalingGroups": {
        "AutoScalingGroups": [
            {
                "AutoScalingGroupARN": "arn:group",
                "VPCZoneIdentifier": "subnet-1,subnet-2",
                "MixedInstancesPolicy": {
                    "LaunchTemplate": {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "3"}}
                },
            }
        ]
    },
    "ec2 DescribeLaunchTemplateVersions": {
        "LaunchTemplateVersions": [
            {
                "LaunchTemplateData": {
                    "IamInstanceProfile": {"Name": "box"},
                    "ImageId": "ami-1",
                    "NetworkInterfaces": [{"Groups": ["sg-1"]}],
                }
            }
        ]
    },
    "iam GetInstanceProfile": {"InstanceProfile": {"Roles": [{"Arn": "arn:aws:iam::123456789012:role/box"}]}},
}


EC2 = "arn:aws:ec2:us-east-2:123456789012:"
PARAMETER = "arn:aws:ssm:us-east-2:123456789012:parameter/llm/"
NEEDED = [  # action, resource, and the context that tells two questions about one resource apart
    ("autoscaling:UpdateAutoScalingGroup", "arn:group", ""),
    ("ec2:RunInstances", EC2 + "instance/*", "g6.xlarge"),
    ("ec2:RunInstances", EC2 + "instance/*", "g5.xlarge"),
    ("ec2:RunInstances", EC2 + "launch-template/lt-1", ""),
    ("ec2:RunInstances", EC2 + "subnet/subnet-1", ""),
    ("ec2:RunInstances", EC2 + "subnet/subnet-2", ""),
    ("ec2:RunInstances", EC2 + "security-group/sg-1", ""),
    ("ec2:RunInstances", "arn:aws:ec2:us-east-2::image/ami-1", ""),
    ("ec2:RunInstances", EC2 + "network-interface/*", ""),
    ("ec2:RunInstances", EC2 + "volume/*", ""),
    ("ec2:CreateTags", EC2 + "instance/*", ""),
    ("ec2:CreateTags", EC2 + "volume/*", ""),
    ("iam:PassRole", "arn:aws:iam::123456789012:role/box", ""),
    ("ssm:PutParameter", PARAMETER + "on-demand-percentage", ""),
    ("ssm:PutParameter", PARAMETER + "watchdog-state", ""),
]


@pytest.mark.parametrize(("action", "resource", "context"), NEEDED, ids=str)
def test_a_role_that_could_not_flip_fails_on_the_grant_it_lacks(
    ask: Any, action: str, resource: str, context: str
) -> None:
    def simulate(ActionNames: list[str], ResourceArns: list[str], ContextEntries: Any = (), **_: Any) -> Any:
        denied = ActionNames == [action] and context in str(ContextEntries)
        return {
            "EvaluationResults": [
                {"EvalResourceName": arn, "EvalDecision": "implicitDeny" if denied and arn == resource else "allowed"}
                for arn in ResourceArns
            ]
        }

    found = ask(flip.watchdog_role, {**FLIP, "iam SimulatePrincipalPolicy": simulate})
    said = f"may not {action} on {resource.split(':')[-1]}"
    assert (found.level, said in found.found) == (Level.FAIL, True), found


def test_a_role_that_may_flip_passes_and_a_fleet_not_deployed_does_not(ask: Any) -> None:
    allowed = {"iam SimulatePrincipalPolicy": {"EvaluationResults": [{"EvalDecision": "allowed"}]}}
    assert ask(flip.watchdog_role, {**FLIP, **allowed}).level is Level.PASS
    assert ask(flip.watchdog_role, {}).level is Level.WARN


def test_a_role_in_another_partition_is_asked_about_that_partitions_resources(ask: Any) -> None:
    asked: list[str] = []

    def simulate(ResourceArns: list[str], **_: Any) -> Any:
        asked.extend(ResourceArns)
        return {"EvaluationResults": [{"EvalDecision": "allowed"}]}

    there = json.loads(json.dumps(FLIP).replace("arn:aws:", "arn:aws-us-gov:"))
    assert ask(flip.watchdog_role, {**there, "iam SimulatePrincipalPolicy": simulate}).level is Level.PASS
    assert [arn for arn in asked if not arn.startswith(("arn:aws-us-gov:", "arn:group"))] == []
    key = KEY.replace("arn:aws:", "arn:aws-us-gov:")
    bare = {"kms ListGrants": {"Grants": []}, "kms GetKeyPolicy": {"Policy": "{}"}}
    assert "arn:aws-us-gov:iam::ACCOUNT" in ask(account.ebs_key, bare, ebs_key_arn=key).remedy


def test_a_check_that_could_not_be_made_has_not_passed(settings: Settings, answers: Any) -> None:
    denied = AccessDeniedError("servicequotas:GetServiceQuota", "grant it")
    aws = answers({"service-quotas GetServiceQuota": denied})
    (found,) = preflight.run({"spot quota": account.spot_quota}, Ground(settings, aws)).values()
    assert found.level is Level.FAIL
    assert found.found == "could not be checked: servicequotas:GetServiceQuota"


def test_a_check_that_stumbles_is_one_failed_line_and_the_others_are_heard(settings: Settings, answers: Any) -> None:
    identity = {"sts GetCallerIdentity": {"Account": "1", "Arn": "a"}}
    aws = answers({"service-quotas GetServiceQuota": {"Quota": {}}, **identity})
    checks = {"spot quota": account.spot_quota, "credentials": account.credentials}
    stumbled, heard = preflight.run(checks, Ground(settings, aws)).values()
    assert stumbled.level is Level.FAIL
    assert stumbled.found == "could not be checked: KeyError: 'Value'"
    assert heard.level is Level.PASS


def test_without_credentials_there_is_one_message_instead_of_fifteen(settings: Settings, answers: Any) -> None:
    aws = answers({"sts GetCallerIdentity": CredentialsError("no credentials", "sign in")})
    with pytest.raises(CredentialsError):
        preflight.run({"credentials": account.credentials, "bootstrap": account.bootstrap}, Ground(settings, aws))


# --- what stands in the way of a deploy --------------------------------------------------------------------------


def group_with(*suspended: str) -> dict[str, Any]:
    told = [{"ProcessName": process, "SuspensionReason": "User suspended"} for process in suspended]
    return {"autoscaling DescribeAutoScalingGroups": {"AutoScalingGroups": [{"SuspendedProcesses": told}]}}


@pytest.mark.parametrize(
    ("state", "refresh", "found"),
    [
        ({"rearm_from": "2026-07-22T02:10:00Z"}, "Successful", "a re-arm is under way since 02:10 UTC, for 45 min at"),
        ({}, "InProgress", "instance refresh r-1 is InProgress"),
        ({}, "Pending", "instance refresh r-1 is Pending"),
        ({}, "Failed", ""),
    ],
)
def test_a_rearm_or_a_refresh_under_way_fails(ask: Any, state: dict[str, str], refresh: str, found: str) -> None:
    text = json.dumps({"version": 1, "mode": "on-demand-failover", **state})
    scripted = {
        **group_with(),
        "ssm GetParameters": {"Parameters": [{"Name": names.state_parameter("llm"), "Value": text}]},
        "autoscaling DescribeInstanceRefreshes": {
            "InstanceRefreshes": [{"InstanceRefreshId": "r-1", "Status": refresh}]
        },
    }
    answer = ask(deploy.rolling, scripted)
    assert (answer.level is Level.FAIL) is bool(found)
    assert answer.found.startswith(found)


def test_a_state_that_cannot_be_read_hides_no_refresh(ask: Any) -> None:
    scripted = {**group_with(), "ssm GetParameters": {"Parameters": []}}
    scripted["autoscaling DescribeInstanceRefreshes"] = {"InstanceRefreshes": []}
    assert ask(deploy.rolling, scripted).level is Level.PASS


# --- one check, one world, what it finds; the last words stand in what was found or in its remedy ---------------------

FEW = {"pools": ("g6.xlarge",), "score_types": ("g6.xlarge",)}
MADE = dataclasses.replace(EXISTING, route_table_ids=("rtb-main", "rtb-main"))
BARE_KEY: dict[str, Any] = {"kms ListGrants": {"Grants": []}, "kms GetKeyPolicy": {"Policy": "{}"}}
CUSTOMER_KEY = {
    "ec2 GetEbsEncryptionByDefault": {"EbsEncryptionByDefault": True},
    "ec2 GetEbsDefaultKmsKeyId": {"KmsKeyId": KEY},
}
NEWEST = {"ssm GetParameter": {"Parameter": {"Value": "ami-0a1b2c3d"}}}
PINNED_AMI = {"ami_id": "ami-0a1b2c3d"}
BIG = [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 150}}]
ALL = {"engine": HEAD, "model": HEAD, "Modelfile": HEAD}
SWAPPED = (("subnet-1", "us-east-2b", "vpc-0a1b2c3d"), ("subnet-2", "us-east-2a", "vpc-0a1b2c3d"))
FOREIGN = (RIGHT[0], ("subnet-2", "us-east-2b", "vpc-ffff"))
LOCAL = {"RouteTableId": "rtb-p", "Associations": [{"SubnetId": "subnet-2"}], "Routes": [{"GatewayId": "local"}]}
NAT = main_table({"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"})
CONFIRMED = subscribed(("b@example.org", "arn:b"))
UNFINISHED = {"kind": "failover", "at": "2026-07-22T00:35:43Z", "why": "x"}
NO_GROUP: dict[str, Any] = {"autoscaling DescribeAutoScalingGroups": {"AutoScalingGroups": []}}
FAIL, WARN, PASS = Level.FAIL, Level.WARN, Level.PASS


def without_role(service: str) -> dict[str, Any]:
    return {"iam GetRole": lambda RoleName: GONE if RoleName.endswith(service) else {"Role": {}}}


def bootstrapped(version: str) -> dict[str, Any]:
    return {"ssm GetParameter": {"Parameter": {"Value": version}}}


def free(executions: int) -> dict[str, Any]:
    return {"lambda GetAccountSettings": {"AccountLimit": {"UnreservedConcurrentExecutions": executions}}}


def store_is(status: str) -> dict[str, Any]:
    return {"cloudformation DescribeStacks": {"Stacks": [{"StackStatus": status}]}}


def lit(*states: str) -> dict[str, Any]:
    return {"cloudwatch DescribeAlarms": {"MetricAlarms": [{"StateValue": state} for state in states]}}


FOUND: tuple[tuple[Any, dict[str, Any], dict[str, Any], Level, str], ...] = (
    (account.spot_quota, quota(8), {"pools": ("g6.xlarge", "g6.2xlarge")}, WARN, "2 x 4, not 2 x 8"),
    (account.spot_quota, quota(8), {"pools": ("g6.xlarge", "g6.2xlarge")}, WARN, "--desired-value 16"),
    (account.bootstrap, {}, {}, FAIL, ""),
    (account.bootstrap, bootstrapped("5"), {}, FAIL, "bootstrap version 5, needed 6"),
    (account.bootstrap, bootstrapped("21"), {}, PASS, ""),
    *((account.lambda_concurrency, free(n), {}, FAIL, "") for n in (10, 100)),
    *((account.lambda_concurrency, free(n), {}, PASS, "") for n in (101, 1000)),
    (account.lambda_concurrency, {"lambda GetFunctionConcurrency": {"ReservedConcurrentExecutions": 1}}, {}, PASS, ""),
    (
        account.linked_roles,
        without_role("EC2Spot"),
        {},
        WARN,
        "aws iam create-service-linked-role --aws-service-name spot",
    ),
    (account.linked_roles, without_role("ECS"), {}, PASS, ""),  # a gateway's first cluster needs it, a fleet does not
    (account.linked_roles, without_role("ECS"), {"gateway": Gateway()}, WARN, "--aws-service-name ecs.amazonaws.com"),
    (account.ebs_key, BARE_KEY, {"ebs_key_arn": KEY}, FAIL, "aws kms create-grant"),
    (account.ebs_key, {"kms ListGrants": {"Grants": [{"GranteePrincipal": SCALING}]}}, {"ebs_key_arn": KEY}, PASS, ""),
    (
        account.ebs_key,
        {**BARE_KEY, "kms GetKeyPolicy": {"Policy": json.dumps({"Principal": SCALING})}},
        {"ebs_key_arn": KEY},
        PASS,
        "",
    ),
    (account.ebs_key, {**BARE_KEY, **CUSTOMER_KEY}, {}, FAIL, ""),  # as if it stood in the settings
    (fleet.offerings, offers(), FEW, FAIL, ""),
    (fleet.offerings, offers(("us-east-2a", "g6.xlarge")), FEW, WARN, "not offered: g6.xlarge in us-east-2b"),
    (fleet.offerings, offers(("us-east-2a", "g6.xlarge"), ("us-east-2b", "g6.xlarge")), FEW, PASS, ""),
    (fleet.image, an_image(Architecture="arm64"), PINNED_AMI, FAIL, "its architecture is arm64"),
    (fleet.image, an_image(State="pending"), PINNED_AMI, FAIL, "its state is pending"),
    (
        fleet.image,
        an_image(BlockDeviceMappings=BIG),
        PINNED_AMI,
        FAIL,
        "its root volume needs 150 GiB, root_volume_gib is 100",
    ),
    (fleet.image, {**an_image(), **NEWEST}, {}, WARN, "run `fleetctl pin-ami`"),
    (fleet.image, an_image(), PINNED_AMI, PASS, ""),
    (fleet.artifacts, stored(**{**ALL, "model": GONE}), {}, FAIL, "s3://store lacks artifacts/model.gguf"),
    (fleet.artifacts, stored(**{**ALL, "model": {**HEAD, "Metadata": {}}}), {}, WARN, ""),
    (fleet.artifacts, stored(**ALL), {}, PASS, "18.0 GB"),
    (fleet.artifacts, {}, {}, WARN, ""),
    *(
        (fleet.artifacts, store_is(status), {}, WARN, f"llm-store is {status}: it has no BucketName yet")
        for status in ("REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE")
    ),
    (
        network.network,
        subnets(*SWAPPED),
        {"network": EXISTING},
        FAIL,
        "subnet-1 is in us-east-2b, the settings say us-",
    ),
    (network.network, subnets(*FOREIGN), {"network": EXISTING}, FAIL, "subnet-2 is in vpc-ffff, not vpc-0a1b2c3d"),
    (network.network, subnets(*RIGHT), {"network": EXISTING}, PASS, ""),
    (
        network.network,
        subnets(*RIGHT, tables=(MAIN, LOCAL)),
        {"network": EXISTING},
        FAIL,
        "no route to an internet gateway: subnet-2",
    ),
    (
        network.network,
        subnets(*RIGHT, endpoints=()),
        {"network": EXISTING},
        FAIL,
        "no S3 gateway endpoint: subnet-1, subnet-2",
    ),
    (network.network, subnets(*RIGHT, endpoints=()), {"network": MADE}, PASS, ""),  # the fleet makes it
    (network.network, subnets(*RIGHT, tables=(NAT,), endpoints=()), {"network": PRIVATE}, PASS, ""),
    (
        network.network,
        subnets(*RIGHT),
        {"network": PRIVATE},
        FAIL,
        "which takes no private address: subnet-1, subnet-2",
    ),
    (
        fleet.subscriptions,
        subscribed(("a@example.org", "PendingConfirmation"), ("b@example.org", "arn:b")),
        {},
        FAIL,
        "not confirmed: a@example.org",
    ),
    (fleet.subscriptions, CONFIRMED, {"mail": ("b@example.org",)}, PASS, ""),
    (
        fleet.subscriptions,
        CONFIRMED,
        {"mail": ("a@example.org", "b@example.org")},
        FAIL,
        "in cdk.json but not subscribed: a@example.org",
    ),
    (fleet.subscriptions, CONFIRMED, {}, WARN, "subscribed but not in cdk.json: b@example.org"),
    (fleet.subscriptions, {}, {}, WARN, ""),
    (fleet.subscriptions, subscribed(), {}, WARN, ""),
    (
        fleet.subscriptions,
        {},
        {"mail": ("a@example.org",)},
        WARN,
        "not deployed yet: a@example.org will be asked to confirm",
    ),
    (fleet.lever, told(None, None, None), {}, WARN, "not deployed yet"),
    (fleet.lever, told(ARMED, "0", 0), {}, PASS, "spot-armed: parameter 0, group 0, expected 0"),
    (fleet.lever, told(FAILED_OVER, "100", 100), {}, PASS, "expected 100"),
    (fleet.lever, told(ARMED, "100", 0), {}, FAIL, "parameter 100, group 0, expected 0"),
    (fleet.lever, told(PART, "50", 50), {}, PASS, "parameter 50, group 50, expected 50"),
    (fleet.lever, told(PART, "50", 100), {}, FAIL, "group 100, expected 50"),
    (fleet.lever, told(FAILED_OVER, "100", 0), {}, FAIL, "group 0, expected 100"),
    (fleet.lever, told(PINNED, "100", 0), {}, FAIL, "on-demand-pinned"),
    (fleet.lever, told("{", "0", 0), {}, FAIL, "cannot be read"),
    (fleet.lever, told(json.dumps({"version": 9, "mode": "spot-armed"}), "0", 0), {}, FAIL, "schema version 9"),
    (fleet.lever, told(None, "0", 0), {}, FAIL, "does not exist"),
    (fleet.lever, told(json.dumps({**json.loads(FAILED_OVER), "unfinished": UNFINISHED}), "0", 0), {}, WARN, ""),
    (fleet.stacks, stack_states(), {}, PASS, ""),
    (fleet.stacks, stack_states(store="CREATE_COMPLETE"), {}, PASS, ""),
    (fleet.stacks, stack_states(group="UPDATE_IN_PROGRESS"), {}, WARN, ""),
    (fleet.stacks, stack_states(group="ROLLBACK_COMPLETE"), {}, FAIL, ""),
    (fleet.stacks, stack_states(group="UPDATE_ROLLBACK_FAILED"), {}, FAIL, ""),
    (fleet.stacks, stack_states(group="UPDATE_ROLLBACK_COMPLETE"), {}, PASS, ""),
    (deploy.alarm, lit("ALARM"), {}, WARN, "hold the watchdog back"),
    (deploy.alarm, lit("OK"), {}, PASS, ""),
    (deploy.alarm, lit(), {}, PASS, ""),
    (deploy.launching, NO_GROUP, {}, WARN, ""),
    (deploy.rolling, NO_GROUP, {}, WARN, ""),
    (deploy.launching, group_with("AZRebalance", "Launch"), {}, FAIL, "Launch is suspended (User suspended)"),
    (
        deploy.launching,
        group_with("AZRebalance", "Terminate"),
        {},
        WARN,
        "suspended, and not by the watchdog: Terminate\n"
        "aws autoscaling resume-processes --auto-scaling-group-name llm-gpu --scaling-processes Terminate",
    ),
    (deploy.launching, group_with("AZRebalance"), {}, PASS, ""),
)


@pytest.mark.parametrize(("check", "world", "change", "level", "words"), FOUND)
def test_a_check_finds_in_each_world_what_is_there_and_how_to_mend_it(
    ask: Any, check: Any, world: dict[str, Any], change: dict[str, Any], level: Level, words: str
) -> None:
    found = ask(check, world, **change)
    assert (found.level, words in f"{found.found}\n{found.remedy}") == (level, True), found
