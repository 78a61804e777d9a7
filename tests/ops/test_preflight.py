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
from fleet.ops import checks_roll as roll
from fleet.ops import preflight
from fleet.ops.checks import Finding, Ground, Level
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


def test_a_quota_that_fits_the_small_pool_only_warns(ask: Any) -> None:
    found = ask(account.spot_quota, quota(8), pools=("g6.xlarge", "g6.2xlarge"))
    assert (found.level, "2 x 4, not 2 x 8" in found.found) == (Level.WARN, True)
    assert "--desired-value 16" in found.remedy


def test_each_kind_asks_for_its_own_quota_code(settings: Settings, answers: Any) -> None:
    aws = answers(quota(8))
    for check in (account.spot_quota, account.on_demand_quota):
        assert check(Ground(settings, aws)).level is Level.PASS
    assert [arguments["QuotaCode"] for _, arguments in aws.asked] == ["L-3819A6DF", "L-DB2E81BA"]


def test_a_missing_bootstrap_fails_and_an_old_one_too(ask: Any) -> None:
    assert ask(account.bootstrap, {}).level is Level.FAIL
    old = ask(account.bootstrap, {"ssm GetParameter": {"Parameter": {"Value": "5"}}})
    assert (old.level, old.found) == (Level.FAIL, "bootstrap version 5, needed 6")
    assert ask(account.bootstrap, {"ssm GetParameter": {"Parameter": {"Value": "21"}}}).level is Level.PASS


@pytest.mark.parametrize(
    ("free", "level"), [(10, Level.FAIL), (100, Level.FAIL), (101, Level.PASS), (1000, Level.PASS)]
)
def test_reserving_one_execution_must_leave_a_hundred(ask: Any, free: int, level: Level) -> None:
    limit = {"lambda GetAccountSettings": {"AccountLimit": {"UnreservedConcurrentExecutions": free}}}
    assert ask(account.lambda_concurrency, limit).level is level


def test_a_function_with_its_reservation_needs_no_more(ask: Any) -> None:
    scripted = {"lambda GetFunctionConcurrency": {"ReservedConcurrentExecutions": 1}}
    assert ask(account.lambda_concurrency, scripted).level is Level.PASS


def test_a_missing_linked_role_warns_with_the_command_that_makes_it(ask: Any) -> None:
    found = ask(
        account.linked_roles, {"iam GetRole": lambda RoleName: GONE if RoleName.endswith("EC2Spot") else {"Role": {}}}
    )
    assert found.level is Level.WARN
    assert found.remedy == "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"


def test_a_gateways_first_cluster_in_an_account_needs_a_role_that_a_fleet_alone_does_not(ask: Any) -> None:
    without_ecs = {"iam GetRole": lambda RoleName: GONE if RoleName.endswith("ECS") else {"Role": {}}}
    assert ask(account.linked_roles, without_ecs).level is Level.PASS
    found = ask(account.linked_roles, without_ecs, gateway=Gateway())
    assert (found.level, found.remedy) == (
        Level.WARN,
        "aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com",
    )


KEY = "arn:aws:kms:us-east-2:123456789012:key/0a1b"
SCALING = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"


def test_an_ebs_key_without_a_grant_for_the_groups_role_fails(ask: Any) -> None:
    scripted = {"kms ListGrants": {"Grants": []}, "kms GetKeyPolicy": {"Policy": "{}"}}
    found = ask(account.ebs_key, scripted, ebs_key_arn=KEY)
    assert (found.level, "aws kms create-grant" in found.remedy) == (Level.FAIL, True)


@pytest.mark.parametrize(
    "scripted",
    [
        {"kms ListGrants": {"Grants": [{"GranteePrincipal": SCALING}]}},
        {"kms ListGrants": {"Grants": []}, "kms GetKeyPolicy": {"Policy": json.dumps({"Principal": SCALING})}},
    ],
)
def test_a_grant_or_a_key_policy_for_the_groups_role_passes(ask: Any, scripted: dict[str, Any]) -> None:
    assert ask(account.ebs_key, scripted, ebs_key_arn=KEY).level is Level.PASS


def test_an_account_wide_customer_key_is_checked_as_if_it_stood_in_the_settings(ask: Any) -> None:
    scripted = {
        "ec2 GetEbsEncryptionByDefault": {"EbsEncryptionByDefault": True},
        "ec2 GetEbsDefaultKmsKeyId": {"KmsKeyId": KEY},
        "kms ListGrants": {"Grants": []},
        "kms GetKeyPolicy": {"Policy": "{}"},
    }
    assert ask(account.ebs_key, scripted).level is Level.FAIL


def offers(*pairs: tuple[str, str]) -> dict[str, Any]:
    rows = [{"Location": zone, "InstanceType": kind} for zone, kind in pairs]
    return {"ec2 DescribeInstanceTypeOfferings": {"InstanceTypeOfferings": rows}}


def test_pools_that_no_zone_offers_fail_and_a_zone_without_one_warns(ask: Any) -> None:
    change = {"pools": ("g6.xlarge",), "score_types": ("g6.xlarge",)}
    assert ask(fleet.offerings, offers(), **change).level is Level.FAIL
    found = ask(fleet.offerings, offers(("us-east-2a", "g6.xlarge")), **change)
    assert (found.level, found.found) == (Level.WARN, "not offered: g6.xlarge in us-east-2b")
    both = offers(("us-east-2a", "g6.xlarge"), ("us-east-2b", "g6.xlarge"))
    assert ask(fleet.offerings, both, **change).level is Level.PASS


def an_image(**change: Any) -> dict[str, Any]:
    image = {
        "Architecture": "x86_64",
        "State": "available",
        "Name": "dlami",
        "RootDeviceName": "/dev/xvda",
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 75}}],
    }
    return {"ec2 DescribeImages": {"Images": [{**image, **change}]}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Architecture": "arm64"}, "its architecture is arm64"),
        ({"State": "pending"}, "its state is pending"),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 150}}]},
            "its root volume needs 150 GiB, root_volume_gib is 100",
        ),
    ],
)
def test_an_image_that_no_box_could_start_from_fails(ask: Any, change: dict[str, Any], words: str) -> None:
    found = ask(fleet.image, an_image(**change), ami_id="ami-0a1b2c3d")
    assert (found.level, words in found.found) == (Level.FAIL, True)


def test_an_image_that_is_not_pinned_warns(ask: Any) -> None:
    scripted = {**an_image(), "ssm GetParameter": {"Parameter": {"Value": "ami-0a1b2c3d"}}}
    found = ask(fleet.image, scripted)
    assert (found.level, found.remedy) == (Level.WARN, "run `fleetctl pin-ami`")
    assert ask(fleet.image, an_image(), ami_id="ami-0a1b2c3d").level is Level.PASS


def test_an_image_of_another_region_is_missing_by_name(settings: Settings, answers: Any) -> None:
    aws = answers({"ec2 DescribeImages": {"Images": []}})
    (line,) = preflight.run(
        [("machine image", fleet.image)], Ground(dataclasses.replace(settings, ami_id="ami-0a1b2c3d"), aws)
    )
    assert line.finding.level is Level.FAIL
    assert "ami-0a1b2c3d does not exist in us-east-2" in line.finding.found


def stored(**heads: Any) -> dict[str, Any]:
    outputs = [{"OutputKey": names.OUTPUT_BUCKET, "OutputValue": "store"}]
    return {
        "cloudformation DescribeStacks": {"Stacks": [{"Outputs": outputs}]},
        "s3 HeadObject": lambda Bucket, Key, ChecksumMode: heads[re.split("[.-]", Key.rpartition("/")[2])[0]],
    }


HEAD = {"ContentLength": 6_000_000_000, "Metadata": {"sha256": "0" * 64}}


def test_missing_artifacts_fail_by_name(ask: Any) -> None:
    found = ask(fleet.artifacts, stored(engine=HEAD, model=GONE, Modelfile=HEAD))
    assert (found.level, found.found) == (Level.FAIL, "s3://store lacks artifacts/model.gguf")


def test_artifacts_without_checksums_warn_and_with_them_pass(ask: Any) -> None:
    bare = {**HEAD, "Metadata": {}}
    assert ask(fleet.artifacts, stored(engine=HEAD, model=bare, Modelfile=HEAD)).level is Level.WARN
    found = ask(fleet.artifacts, stored(engine=HEAD, model=HEAD, Modelfile=HEAD))
    assert (found.level, "18.0 GB" in found.found) == (Level.PASS, True)


def test_an_artifact_that_is_not_the_one_in_the_settings_fails(ask: Any, settings: Settings) -> None:
    pinned = dataclasses.replace(settings.model.gguf, sha256="1" * 64)
    model = dataclasses.replace(settings.model, gguf=pinned)
    found = ask(fleet.artifacts, stored(engine=HEAD, model=HEAD, Modelfile=HEAD), model=model)
    assert (found.level, "cdk.json says 1111" in found.found) == (Level.FAIL, True)


def test_no_store_yet_warns(ask: Any) -> None:
    assert ask(fleet.artifacts, {}).level is Level.WARN


@pytest.mark.parametrize("status", ["REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE"])
def test_a_store_stack_without_a_bucket_is_told_with_its_status(ask: Any, status: str) -> None:
    found = ask(fleet.artifacts, {"cloudformation DescribeStacks": {"Stacks": [{"StackStatus": status}]}})
    assert (found.level, f"llm-store is {status}: it names no bucket" in found.found) == (Level.WARN, True)


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


def test_subnets_in_another_order_than_the_zones_fail(ask: Any) -> None:
    swapped = subnets(("subnet-1", "us-east-2b", "vpc-0a1b2c3d"), ("subnet-2", "us-east-2a", "vpc-0a1b2c3d"))
    assert (
        "subnet-1 is in us-east-2b, the settings say us-east-2a"
        in ask(network.network, swapped, network=EXISTING).found
    )


def test_a_subnet_of_another_vpc_fails(ask: Any) -> None:
    foreign = subnets(("subnet-1", "us-east-2a", "vpc-0a1b2c3d"), ("subnet-2", "us-east-2b", "vpc-ffff"))
    assert ask(network.network, foreign, network=EXISTING).found == "subnet-2 is in vpc-ffff, not vpc-0a1b2c3d"


RIGHT = (("subnet-1", "us-east-2a", "vpc-0a1b2c3d"), ("subnet-2", "us-east-2b", "vpc-0a1b2c3d"))


def test_subnets_as_the_settings_say_pass(ask: Any) -> None:
    assert ask(network.network, subnets(*RIGHT), network=EXISTING).level is Level.PASS


def test_a_subnet_without_a_way_to_the_internet_fails(ask: Any) -> None:
    private = {"RouteTableId": "rtb-p", "Associations": [{"SubnetId": "subnet-2"}], "Routes": [{"GatewayId": "local"}]}
    found = ask(network.network, subnets(*RIGHT, tables=(MAIN, private)), network=EXISTING)
    assert (found.level, found.found) == (Level.FAIL, "no route to an internet gateway: subnet-2")


def test_subnets_without_an_s3_endpoint_fail_unless_the_fleet_makes_it(ask: Any) -> None:
    found = ask(network.network, subnets(*RIGHT, endpoints=()), network=EXISTING)
    assert (found.level, found.found) == (Level.FAIL, "no S3 gateway endpoint: subnet-1, subnet-2")
    made = dataclasses.replace(EXISTING, route_table_ids=("rtb-main", "rtb-main"))
    assert ask(network.network, subnets(*RIGHT, endpoints=()), network=made).level is Level.PASS


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


def test_private_subnets_pass_by_a_nat_and_fail_by_an_internet_gateway(ask: Any) -> None:
    nat = main_table({"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"})
    assert ask(network.network, subnets(*RIGHT, tables=(nat,), endpoints=()), network=PRIVATE).level is Level.PASS
    public = ask(network.network, subnets(*RIGHT), network=PRIVATE)
    assert (public.level, "which takes no private address: subnet-1, subnet-2" in public.found) == (Level.FAIL, True)


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


def test_an_address_that_never_confirmed_fails_by_name(ask: Any) -> None:
    found = ask(fleet.subscriptions, subscribed(("a@example.org", "PendingConfirmation"), ("b@example.org", "arn:b")))
    assert (found.level, found.found) == (Level.FAIL, "not confirmed: a@example.org")
    confirmed = subscribed(("b@example.org", "arn:b"))
    assert ask(fleet.subscriptions, confirmed, mail=("b@example.org",)).level is Level.PASS


def test_the_topics_list_is_compared_with_the_settings(ask: Any) -> None:
    confirmed = subscribed(("b@example.org", "arn:b"))
    new = ask(fleet.subscriptions, confirmed, mail=("a@example.org", "b@example.org"))
    assert (new.level, new.found) == (Level.FAIL, "in cdk.json but not subscribed: a@example.org")
    old = ask(fleet.subscriptions, confirmed)
    assert (old.level, old.found) == (Level.WARN, "subscribed but not in cdk.json: b@example.org")


def test_nobody_to_mail_warns_before_and_after_the_deploy(ask: Any) -> None:
    assert ask(fleet.subscriptions, {}).level is Level.WARN
    assert ask(fleet.subscriptions, subscribed()).level is Level.WARN
    asked = ask(fleet.subscriptions, {}, mail=("a@example.org",))
    assert (asked.level, asked.found) == (Level.WARN, "not deployed yet: a@example.org will be asked to confirm")


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


@pytest.mark.parametrize(
    ("world", "level", "words"),
    [
        (told(None, None, None), Level.WARN, "not deployed yet"),
        (told(ARMED, "0", 0), Level.PASS, "spot-armed: parameter 0, group 0, expected 0"),
        (told(FAILED_OVER, "100", 100), Level.PASS, "expected 100"),
        (told(ARMED, "100", 0), Level.FAIL, "parameter 100, group 0, expected 0"),
        (told(PART, "50", 50), Level.PASS, "parameter 50, group 50, expected 50"),
        (told(PART, "50", 100), Level.FAIL, "group 100, expected 50"),
        (told(FAILED_OVER, "100", 0), Level.FAIL, "group 0, expected 100"),
        (told(PINNED, "100", 0), Level.FAIL, "on-demand-pinned"),
        (told("{", "0", 0), Level.FAIL, "cannot be read"),
        (told(json.dumps({"version": 9, "mode": "spot-armed"}), "0", 0), Level.FAIL, "schema version 9"),
        (told(None, "0", 0), Level.FAIL, "does not exist"),
    ],
)
def test_state_parameter_and_group_must_say_the_same(ask: Any, world: Any, level: Level, words: str) -> None:
    found = ask(fleet.lever, world)
    assert (found.level, words in found.found) == (level, True), found


def test_an_unfinished_transition_warns(ask: Any) -> None:
    unfinished = {"kind": "failover", "at": "2026-07-22T00:35:43Z", "why": "x"}
    state = json.dumps({"version": 1, "mode": "on-demand-failover", "unfinished": unfinished})
    assert ask(fleet.lever, told(state, "0", 0)).level is Level.WARN


def stack_states(**states: str) -> dict[str, Any]:
    def describe(StackName: str) -> Any:
        room = StackName.removeprefix("llm-")
        return {"Stacks": [{"StackStatus": states[room]}]} if room in states else GONE

    return {"cloudformation DescribeStacks": describe}


@pytest.mark.parametrize(
    ("states", "level"),
    [
        ({}, Level.PASS),
        ({"store": "CREATE_COMPLETE"}, Level.PASS),
        ({"group": "UPDATE_IN_PROGRESS"}, Level.WARN),
        ({"group": "ROLLBACK_COMPLETE"}, Level.FAIL),
        ({"group": "UPDATE_ROLLBACK_FAILED"}, Level.FAIL),
        ({"group": "UPDATE_ROLLBACK_COMPLETE"}, Level.PASS),
    ],
)
def test_a_stack_that_no_deploy_can_update_fails(ask: Any, states: dict[str, str], level: Level) -> None:
    assert ask(fleet.stacks, stack_states(**states)).level is level


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


def lit(state: str) -> dict[str, Any]:
    return {"cloudwatch DescribeAlarms": {"MetricAlarms": [{"StateValue": state}]}}


def test_a_deploy_while_the_alarm_is_lit_is_warned_of(ask: Any) -> None:
    found = ask(deploy.alarm, lit("ALARM"))
    assert (found.level, "hold the watchdog back" in found.found) == (Level.WARN, True)
    assert ask(deploy.alarm, lit("OK")).level is Level.PASS
    assert ask(deploy.alarm, {"cloudwatch DescribeAlarms": {"MetricAlarms": []}}).level is Level.PASS


def test_a_check_that_could_not_be_made_has_not_passed(settings: Settings, answers: Any) -> None:
    denied = AccessDeniedError("servicequotas:GetServiceQuota", "grant it")
    aws = answers({"service-quotas GetServiceQuota": denied})
    (line,) = preflight.run([("spot quota", account.spot_quota)], Ground(settings, aws))
    assert line.finding.level is Level.FAIL
    assert line.finding.found == "could not be checked: servicequotas:GetServiceQuota"
    assert not preflight.all_right([line])


def test_a_check_that_stumbles_is_one_failed_line_and_the_others_are_heard(settings: Settings, answers: Any) -> None:
    identity = {"sts GetCallerIdentity": {"Account": "1", "Arn": "a"}}
    aws = answers({"service-quotas GetServiceQuota": {"Quota": {}}, **identity})
    checks = [("spot quota", account.spot_quota), ("credentials", account.credentials)]
    stumbled, heard = preflight.run(checks, Ground(settings, aws))
    assert stumbled.finding.level is Level.FAIL
    assert stumbled.finding.found == "could not be checked: KeyError: 'Value'"
    assert heard.finding.level is Level.PASS


def test_without_credentials_there_is_one_message_instead_of_fifteen(settings: Settings, answers: Any) -> None:
    aws = answers({"sts GetCallerIdentity": CredentialsError("no credentials", "sign in")})
    with pytest.raises(CredentialsError):
        preflight.run(preflight.CHECKS[:2], Ground(settings, aws))


# --- what stands in the way of a deploy --------------------------------------------------------------------------


def group_with(*suspended: str) -> dict[str, Any]:
    told = [{"ProcessName": process, "SuspensionReason": "User suspended"} for process in suspended]
    return {"autoscaling DescribeAutoScalingGroups": {"AutoScalingGroups": [{"SuspendedProcesses": told}]}}


@pytest.mark.parametrize("check", [roll.launching, roll.rolling])
def test_before_the_first_deploy_nothing_stands_in_the_way(ask: Any, check: Any) -> None:
    assert ask(check, {"autoscaling DescribeAutoScalingGroups": {"AutoScalingGroups": []}}).level is Level.WARN


def test_a_suspended_launch_fails_and_names_the_way(ask: Any) -> None:
    found = ask(roll.launching, group_with("AZRebalance", "Launch"))
    assert (found.level, "Launch is suspended (User suspended)" in found.found) == (Level.FAIL, True)
    assert "`fleetctl resume" in found.remedy


def test_another_suspended_process_warns(ask: Any) -> None:
    found = ask(roll.launching, group_with("AZRebalance", "Terminate"))
    assert (found.level, found.found) == (Level.WARN, "suspended, and not by the watchdog: Terminate")
    assert "resume-processes --auto-scaling-group-name llm-gpu --scaling-processes Terminate" in found.remedy
    assert ask(roll.launching, group_with("AZRebalance")).level is Level.PASS


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
    answer = ask(roll.rolling, scripted)
    assert (answer.level is Level.FAIL) is bool(found)
    assert answer.found.startswith(found)


def test_a_state_that_cannot_be_read_hides_no_refresh(ask: Any) -> None:
    scripted = {**group_with(), "ssm GetParameters": {"Parameters": []}}
    scripted["autoscaling DescribeInstanceRefreshes"] = {"InstanceRefreshes": []}
    assert ask(roll.rolling, scripted).level is Level.PASS
