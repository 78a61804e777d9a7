"""Every setting, by name, changed on a standing fleet: it deploys and every consumer follows, or it is refused before.

Synthesized templates through the embedded CloudFormation, which replaces, orders and refuses as AWS does. One deploy of
each class by the real CLI stands in tests/e2e/test_cdk_cli.py.
"""

import base64
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.account.access import Aws
from fleet.config import immutable, validation
from fleet.config.settings import Settings
from fleet.core import names
from fleet.localaws import assembly as cloud_assembly
from fleet.localaws.deployed import Deployed, fill_store
from fleet.ops import checks_deploy
from fleet.ops import review as comparison
from fleet.ops.checks import Ground, Level
from tests.synth import CDK_JSON, in_process

pytestmark = pytest.mark.slow

Raw = dict[str, Any]
BASE: Raw = json.loads(CDK_JSON.read_text())["context"]["fleet"]
OWN_POOL = {
    "instance_type": "g6.2xlarge",
    "vcpus": 8,
    "gpu_memory_gib": 22.0,
    "on_demand_usd": 1.0,
    "spot_usd": 0.5,
}
# Class of change -> what is changed together. Each deploys, and the standing fleet serves on.
TAKEN: dict[str, Raw] = {
    "function": {
        "watchdog": {
            "alarm_minutes": 13,
            "grace_seconds": 960,
            "skip_cap_seconds": 1860,
            "scan_seconds": 1860,
            "rearm_score": 4,
            "rearm_streak": 3,
            "cooldown_seconds": 10801,
            "valve_failovers": 3,
            "valve_window_seconds": 86401,
            "rearm_timeout_seconds": 2701,
            "boot_loop_launches": 6,
            "on_demand_hours_per_day": 23,
            "served_percent": 1,
            "served_window_seconds": 14401,
            "trial_return_seconds": 43201,
            "replacements_per_day": 5,
        },
        "mail": ["oncall@example.org"],
        "score_types": ["g6.xlarge", "g5.xlarge", "g6.2xlarge"],
        "initial_mode": "on-demand-pinned",  # written once: changes nothing
        "policy": "bridge",
        "bridge": {
            "patience_seconds": 131,
            "scan_seconds": 180,
            "return_after_seconds": 3301,
            "stale_event_seconds": 16,
            "on_warning": False,
            "warning_settles_seconds": 7,
            "false_warnings": 6,
            "valve_failovers": 9,
        },
    },
    "boxes": {
        "pools": ["g6.2xlarge", "g6.xlarge"],
        "own_pools": [OWN_POOL],
        "capacity": {"min": 2, "max": 4, "on_demand_base": 1, "grow_to": 3},
        "boot": {"warm_budget_seconds": 890, "cold_budget_seconds": 1501, "hook_heartbeat_seconds": 1801},
        "drain": {
            "budget_seconds": 104,
            "safety_margin_seconds": 16,
            "planned_seconds": 601,
            "deregistration_delay_seconds": 121,
            "termination_hook_seconds": 961,
        },
        "lane": {"deadline_seconds": 601, "inexact_slices": True},
        "model": {
            "name": "other-model:8b",
            "engine_version": "0.11.5",
            "engine": {"key": "artifacts/other-0.11.5.tgz", "sha256": "a" * 64},
            "gguf": {"key": "artifacts/other.gguf", "sha256": "b" * 64},
            "modelfile": {"key": "artifacts/Modelfile-other", "sha256": "c" * 64},
            "quantize": "q4_K_M",
            "context_length": 4096,
            "gpu_memory_gib": 12.5,
        },
        "ami_id": "ami-0a1b2c3d4e5f60718",
        "root_volume_gib": 120,
        "ebs_key_arn": "arn:aws:kms:us-east-2:123456789012:key/0a1b2c3d-0000-0000-0000-000000000000",
    },
    "port": {"port": 12000},
    "callers and public": {"network": {"callers": ["10.1.0.0/16"], "allow_public": True}},
    "a zone less": {"zones": BASE["zones"][:-1]},
}
# What the standing fleet cannot take, and the key that is named.
REFUSED: dict[str, tuple[Raw, str]] = {
    "another range": ({"network": {"cidr": "10.43.0.0/20"}}, "network.cidr"),
    "another VPC": (
        {"network": {"vpc_id": "vpc-0a1b2c3d", "subnet_ids": [f"subnet-0a1b2c3{n}" for n in "def"]}},
        "network.vpc_id",
    ),
    "other zones first": ({"zones": BASE["zones"][::-1]}, "zones"),
    "a zone less at the front": ({"zones": BASE["zones"][1:]}, "zones"),
}
ANOTHER_FLEET = {"fleet_name", "region"}  # their change makes a second fleet; this one stands as it is
IN_A_VPC_OF_ITS_OWN = {
    "network.subnet_ids",
    "network.route_table_ids",
    "network.private_subnets",
}  # the last test
# Given, changed and taken out in tests/gateway/test_deployed.py; each of its settings reaches its tasks:
# tests/infra/checks/gateway.py
OF_THE_GATEWAY = {"gateway"}


@pytest.fixture(autouse=True)
def roles_of_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The permission check knows the roles of the tests' own settings: what others call is none of its business."""
    monkeypatch.delenv("REQUEST_LOGS", raising=False)


def merged(raw: Raw, change: Raw) -> Raw:
    return {
        **raw,
        **{key: merged(raw.get(key, {}), value) if isinstance(value, dict) else value for key, value in change.items()},
    }


def every_setting(kind: Any = Settings, prefix: str = "") -> Iterator[str]:
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.type):
            yield from every_setting(field.type, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def flat(raw: Raw, prefix: str = "") -> Iterator[str]:
    for key, value in raw.items():
        yield from flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]


def test_the_table_covers_every_setting_by_name() -> None:
    changed = {name for change in [*TAKEN.values(), *(raw for raw, _ in REFUSED.values())] for name in flat(change)}
    assert changed | ANOTHER_FLEET | IN_A_VPC_OF_ITS_OWN | OF_THE_GATEWAY == set(every_setting())
    for raw in TAKEN.values():
        assert not any(same(raw, BASE, name) for name in flat(raw))


def same(raw: Raw, base: Raw, name: str) -> bool:
    for part in name.split("."):
        if part not in base:
            return False
        raw, base = raw[part], base[part]
    return raw == base


@pytest.mark.parametrize("name", TAKEN)
def test_a_standing_fleet_takes_it_and_every_consumer_follows(name: str, live: Deployed, tmp_path: Path) -> None:
    before = physical_ids(live)
    raw = merged(BASE, TAKEN[name])
    assembly, settings = in_process(tmp_path, raw), validation.check(raw)
    after = dataclasses.replace(live, settings=settings)
    fill_store(after)
    if name == "a zone less":
        live.reclaim()  # a box stands in the first subnet here
    assert checks_deploy.settings(ground(live, settings)).level is Level.PASS
    for stack in cloud_assembly.stacks(assembly):
        cloud_assembly.deploy(live.aws, assembly, stack)
        assert live.aws.control("unresolved", stack=stack, region=live.aws.region) == []
    assert_consumers_agree(after)
    gone = before - physical_ids(live)
    assert gone or name not in ("port", "callers and public", "a zone less")
    assert {old for old in gone if old in consumers(after)} == set()


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_cannot_take_is_refused_before_and_named(name: str, live: Deployed) -> None:
    change, key = REFUSED[name]
    settings = validation.check(merged(BASE, change))
    finding = checks_deploy.settings(ground(live, settings))
    assert finding.level is Level.FAIL
    assert finding.found.startswith(f"{key} = ")

    told = reviewed(settings.to_json(), live.settings.to_json())
    assert f"- **The standing fleet cannot take:**\n  - `{key} = " in comparison.markdown(told)


@pytest.mark.parametrize("text", ["", "{", "1", "[]", '{"zones": 3}', '{"zones": [{}], "network": []}'])
def test_settings_in_a_strangers_template_that_do_not_hold_stop_no_review(text: str) -> None:
    assert reviewed(text, validation.check(BASE).to_json()).refused == ()


def reviewed(proposed: str, standing: str) -> comparison.Review:
    """A review of two templates that hold these settings and nothing else."""

    def template(text: str) -> Raw:
        variables = {names.ENV_SETTINGS: text}
        function = {"Type": "AWS::Lambda::Function", "Properties": {"Environment": {"Variables": variables}}}
        return {"Resources": {"Watchdog": function}}

    return comparison.review((comparison.Stack("llm-group", template(proposed), template(standing)),))


def test_a_zone_in_which_a_box_runs_is_not_removed(live: Deployed) -> None:
    (zone,) = {box["AvailabilityZone"] for box in live.group()["Instances"]}
    settings = dataclasses.replace(live.settings, zones=(*(z for z in live.settings.zones if z != zone), zone))
    fewer = dataclasses.replace(settings, zones=settings.zones[:-1])
    (problem,) = immutable.refused(settings, fewer, {zone})
    assert f"{zone} among them while a box runs there" in problem.allowed
    assert immutable.refused(settings, fewer) == ()


def test_in_a_vpc_of_its_own_zones_come_and_go_with_their_subnets(live: Deployed, tmp_path: Path) -> None:
    ec2 = live.aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.60.0.0/20")["Vpc"]["VpcId"]
    tables = [ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"] for _ in BASE["zones"]]
    subnets = [
        ec2.create_subnet(VpcId=vpc, AvailabilityZone=zone, CidrBlock=f"10.60.{number}.0/24")["Subnet"]["SubnetId"]
        for number, zone in enumerate(BASE["zones"])
    ]
    own = {"fleet_name": "own", "zones": BASE["zones"][:2], "network": {"vpc_id": vpc, "subnet_ids": subnets[:2]}}
    reached = {"route_table_ids": tables, "private_subnets": True}
    grown = {"fleet_name": "own", "network": {"vpc_id": vpc, "subnet_ids": subnets, **reached}}
    for number, change in enumerate([own, grown]):
        out = in_process(tmp_path / str(number), change)
        fleet = Deployed(live.aws, validation.check({**BASE, **change}))
        for stack in cloud_assembly.stacks(out):
            if stack == "own-group":
                fill_store(fleet)
            cloud_assembly.deploy(live.aws, out, stack)
        assert_consumers_agree(fleet)
        (interface,) = launch_data(fleet)["NetworkInterfaces"]
        assert interface["AssociatePublicIpAddress"] is not fleet.settings.network.private_subnets
    moved = dataclasses.replace(fleet.settings.network, subnet_ids=(subnets[2], *subnets[1:]))
    (problem,) = immutable.refused(fleet.settings, dataclasses.replace(fleet.settings, network=moved))
    assert problem.key == "network.subnet_ids"


def test_a_group_grows_and_shrinks_by_its_policies_and_no_deploy_resets_it(live: Deployed, tmp_path: Path) -> None:
    out = in_process(tmp_path, merged(BASE, {"capacity": {"grow_to": 2, "max": 3}}))
    cloud_assembly.deploy(live.aws, out, "llm-group")
    scaling, alarms = live.aws.client("autoscaling"), live.aws.client("cloudwatch")
    policies = {each["PolicyARN"]: each for each in scaling.describe_policies()["ScalingPolicies"]}
    moved_by = {each["AlarmName"]: each for each in alarms.describe_alarms(AlarmNamePrefix="llm-")["MetricAlarms"]}

    def act(alarm: str) -> int:
        """What the alarm's action makes of the group."""
        (action,) = moved_by[alarm]["AlarmActions"]
        group, name = live.group()["AutoScalingGroupName"], policies[action]["PolicyName"]
        scaling.execute_policy(AutoScalingGroupName=group, PolicyName=name)
        return int(live.group()["DesiredCapacity"])

    assert act("llm-grow") == 2
    assert len(live.group()["Instances"]) == 2
    path = out / "llm-group.template.json"
    path.write_text(path.read_text().replace('"MaxSize": "3"', '"MaxSize": "4"'))
    cloud_assembly.deploy(live.aws, out, "llm-group")
    group = live.group()
    assert (group["MaxSize"], group["DesiredCapacity"]) == (4, 2)
    assert (act("llm-shrink"), act("llm-shrink")) == (1, 1)

    cloud_assembly.deploy(live.aws, in_process(tmp_path / "without", {}), "llm-group")
    assert scaling.describe_policies()["ScalingPolicies"] == []


# --- what follows ----------------------------------------------------------------------------------------------


def ground(live: Deployed, settings: Settings) -> Ground:
    return Ground(settings, Aws(live.aws.region, live.aws.environment()))


def physical_ids(live: Deployed) -> set[str]:
    found = live.aws.client("cloudformation").describe_stack_resources(StackName=f"{live.settings.fleet_name}-group")
    return {each["PhysicalResourceId"] for each in found["StackResources"] if "PhysicalResourceId" in each}


def consumers(live: Deployed) -> str:
    """Everything that names something else, as the services themselves tell it."""
    fleet, aws = live.settings.fleet_name, live.aws
    iam, elb = aws.client("iam"), aws.client("elbv2")
    balancers = [b for b in elb.describe_load_balancers()["LoadBalancers"] if b["LoadBalancerName"].startswith(fleet)]
    roles = [role["RoleName"] for role in iam.list_roles()["Roles"] if role["RoleName"].startswith(f"{fleet}-group")]
    told = [
        live.group(),
        user_data(live),
        aws.client("lambda").get_function_configuration(FunctionName=names.watchdog_function(fleet))["Environment"],
        aws.client("cloudwatch").describe_alarms(AlarmNamePrefix=f"{fleet}-")["MetricAlarms"],
        aws.client("cloudwatch").get_dashboard(DashboardName=fleet)["DashboardBody"],
        [elb.describe_listeners(LoadBalancerArn=balancer["LoadBalancerArn"]) for balancer in balancers],
        [
            iam.get_role_policy(RoleName=role, PolicyName=policy)
            for role in roles
            for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]
        ],
        launch_grants(live),
    ]
    return json.dumps(told, default=str)


def launch_grants(live: Deployed) -> str:
    iam, arn = live.aws.client("iam"), live.resource("group", "AWS::IAM::ManagedPolicy")
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    return json.dumps(iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"])


def launch_data(live: Deployed) -> Raw:
    specification = live.group()["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]
    found = live.aws.client("ec2").describe_launch_template_versions(
        LaunchTemplateId=specification["LaunchTemplateId"], Versions=[specification["Version"]]
    )
    data: Raw = found["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    return data


def user_data(live: Deployed) -> str:
    return base64.b64decode(launch_data(live)["UserData"]).decode()


def assert_consumers_agree(live: Deployed) -> None:
    """Each value where it is used is the one where it is made, and the one that the settings ask for."""
    s, aws = live.settings, live.aws
    elb, ec2, fleet = aws.client("elbv2"), aws.client("ec2"), live.settings.fleet_name
    group = live.group()
    (target_group,) = elb.describe_target_groups(TargetGroupArns=group["TargetGroupARNs"])["TargetGroups"]
    balancer = elb.describe_load_balancers(
        LoadBalancerArns=[live.resource("group", "AWS::ElasticLoadBalancingV2::LoadBalancer")]
    )["LoadBalancers"][0]
    (listener,) = elb.describe_listeners(LoadBalancerArn=balancer["LoadBalancerArn"])["Listeners"]
    assert (target_group["Port"], listener["Port"]) == (s.port, s.port)
    assert listener["DefaultActions"][0]["TargetGroupArn"] == target_group["TargetGroupArn"]
    assert balancer["Scheme"] == ("internet-facing" if s.network.allow_public else "internal")
    assert {zone["ZoneName"] for zone in balancer["AvailabilityZones"]} == set(s.zones)

    subnets = ec2.describe_subnets(SubnetIds=group["VPCZoneIdentifier"].split(","))["Subnets"]
    assert {subnet["AvailabilityZone"] for subnet in subnets} == set(s.zones)
    grants = launch_grants(live)
    assert {subnet["SubnetId"] for subnet in subnets} == {
        part.partition('"')[0] for part in grants.split(":subnet/")[1:]
    }
    assert json.dumps(list(s.pools)) in grants

    variables = aws.client("lambda").get_function_configuration(FunctionName=names.watchdog_function(fleet))[
        "Environment"
    ]["Variables"]
    assert Settings.from_json(variables[names.ENV_SETTINGS]) == Settings.from_json(s.to_json())
    assert variables[names.ENV_TARGET_GROUP_ARN] == target_group["TargetGroupArn"]
    measured = {
        "LoadBalancer": balancer["LoadBalancerArn"].split(":loadbalancer/")[1],
        "TargetGroup": target_group["TargetGroupArn"].split(":", 5)[5],
    }
    alarms = aws.client("cloudwatch").describe_alarms(AlarmNamePrefix=f"{fleet}-n")["MetricAlarms"]
    assert [{d["Name"]: d["Value"] for d in alarm["Dimensions"]} for alarm in alarms] == [measured, measured]
    dashboard = aws.client("cloudwatch").get_dashboard(DashboardName=fleet)["DashboardBody"]
    assert all(value in dashboard for value in measured.values())

    told = user_data(live)
    assert target_group["TargetGroupArn"] in told
    assert f'"port": {s.port}' in told or f'"port":{s.port}' in told
    admitted = ec2.describe_security_groups(GroupIds=balancer["SecurityGroups"])["SecurityGroups"][0]["IpPermissions"]
    peers = {
        peer.get("CidrIp") or peer["GroupId"]
        for rule in admitted
        for peer in (*rule["IpRanges"], *rule["UserIdGroupPairs"])
    }
    assert peers == set(s.network.callers)
    assert {rule["ToPort"] for rule in admitted} == ({s.port} if s.network.callers else set())
    (box_group,) = launch_data(live)["NetworkInterfaces"][0]["Groups"]
    entry = ec2.describe_security_groups(GroupIds=[box_group])["SecurityGroups"][0]["IpPermissions"]
    assert [rule["ToPort"] for rule in entry] == [s.port]
