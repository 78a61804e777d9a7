"""How boxes are launched, held, replaced and rolled."""

from fleet.config.settings import Settings
from fleet.core import names
from tests.infra.checks.shared import (
    GROUP,
    OWN_BUCKETS,
    check,
    function_of,
    group_of,
    launch_data,
    role_of_function,
    subnets,
)
from tests.infra.templates import Templates, properties, resources, the


@check
def group_launches_the_pools_by_a_permanent_mixed_policy(t: Templates, s: Settings) -> None:
    policy = group_of(t)["MixedInstancesPolicy"]
    assert policy["LaunchTemplate"]["Overrides"] == [{"InstanceType": name} for name in s.pools]
    distribution = policy["InstancesDistribution"]
    assert distribution["SpotAllocationStrategy"] == "price-capacity-optimized"
    assert distribution["OnDemandAllocationStrategy"] == "prioritized"
    assert distribution["OnDemandBaseCapacity"] == s.capacity.on_demand_base
    assert "LaunchTemplate" not in group_of(t)


@check
def template_version_is_a_number_and_never_latest(t: Templates, s: Settings) -> None:
    specification = group_of(t)["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]
    assert specification == {
        "LaunchTemplateId": "<Template>",
        "Version": "<Template.LatestVersionNumber>",
    }


@check
def lever_is_read_from_its_parameter_on_every_deploy(t: Templates, s: Settings) -> None:
    distribution = group_of(t)["MixedInstancesPolicy"]["InstancesDistribution"]
    assert distribution["OnDemandPercentageAboveBaseCapacity"] == "<Lever>"
    parameter = t["group"]["Parameters"]["Lever"]
    assert parameter["Type"] == "AWS::SSM::Parameter::Value<String>"
    assert parameter["Default"] == names.lever_parameter(s.fleet_name)


@check
def group_stands_in_every_zone_with_its_sizes_and_name(t: Templates, s: Settings) -> None:
    group = group_of(t)
    assert group["AutoScalingGroupName"] == names.group(s.fleet_name)
    assert (group["MinSize"], group["MaxSize"]) == (str(s.capacity.min), str(s.capacity.max))
    assert group["VPCZoneIdentifier"] == subnets(s)
    assert group["TargetGroupARNs"] == ["<TargetGroup>"]


@check
def no_deploy_resets_the_desired_capacity(t: Templates, s: Settings) -> None:
    assert "DesiredCapacity" not in group_of(t)


@check
def capacity_rebalancing_is_on(t: Templates, s: Settings) -> None:
    assert group_of(t)["CapacityRebalance"] is True


@check
def both_hooks_stand_inside_the_group(t: Templates, s: Settings) -> None:
    assert not resources(t["group"], "AWS::AutoScaling::LifecycleHook")
    launch, termination = group_of(t)["LifecycleHookSpecificationList"]
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
    assert group_of(t)["InstanceMaintenancePolicy"] == policy


@check
def warm_up_is_60_s_and_elb_health_counts_after_300_s(t: Templates, s: Settings) -> None:
    group = group_of(t)
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
    assert {**tag, "PropagateAtLaunch": True} in group_of(t)["Tags"]
    tagged = {spec["ResourceType"]: spec["Tags"] for spec in launch_data(t)["TagSpecifications"]}
    assert set(tagged) == {"instance", "volume"}
    assert tag in tagged["instance"]
    assert tag in tagged["volume"]


@check
def group_waits_for_a_filled_store_and_a_balancer(t: Templates, s: Settings) -> None:
    waits_for = {"StoreFilled", "Balancer", "BalancerListener", "LaunchGrants"}
    assert set(the(t["group"], GROUP)["DependsOn"]) == waits_for


@check
def store_check_looks_for_every_artifact(t: Templates, s: Settings) -> None:
    keys = [s.model.engine.key, s.model.gguf.key, s.model.modelfile.key]
    asked = properties(t["group"], "Custom::RequireArtifacts")
    assert asked == {"ServiceToken": "<RequireArtifacts.Arn>", "Bucket": "<Bucket>", "Keys": keys}
    expected = {("s3:GetObject", f"<Bucket.Arn>/{key}", OWN_BUCKETS) for key in keys}
    assert role_of_function(t, "RequireArtifacts") == {*expected, ("s3:ListBucket", "<Bucket.Arn>", OWN_BUCKETS)}
    assert function_of(t, "RequireArtifacts")["Handler"] == "lambdas.resources.require_artifacts.handler"
