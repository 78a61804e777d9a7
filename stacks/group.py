"""The spot group and its load balancer: launch template, mixed-instances group with its hooks, the box's role.

The lever is read from its parameter on every deploy, so that no deploy undoes a failover. See docs/decisions.
"""

import tempfile
from pathlib import Path
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_ssm as ssm

from fleet.config import box_config
from fleet.config.settings import Settings
from fleet.core import ask_document, lane_documents, names
from stacks.base_stack import BaseStack, accept, python_function
from stacks.grants import box_role, launch_grants
from stacks.growth import GROUP_METRICS, Growth
from stacks.monitoring import Monitoring
from stacks.network import FleetNetwork
from stacks.package import CUSTOM_RESOURCES
from stacks.store import StoreStack
from stacks.watchdog import WatchdogFunction

ROOT_DEVICE = "/dev/xvda"
# With the launch hook this grace begins when the box serves already: long enough for a blip, not to hide early deaths.
HEALTH_CHECK_GRACE_SECONDS = 300
WARM_UP_SECONDS = 60  # unset, it would fall back to the grace above
HEALTH_INTERVAL_SECONDS = 10
HEALTH_PROBES = 2  # the least that a network balancer takes


class GroupStack(BaseStack):
    """Everything that launches, routes to and ends a box."""

    def __init__(self, app: cdk.App, settings: Settings, *, store: StoreStack) -> None:
        super().__init__(app, "group", settings)
        self._settings, self._store = settings, store
        self.network = network = FleetNetwork(self, settings)
        self.group_arn = self.arn(
            "autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{names.group(settings.fleet_name)}"
        )
        self.box_log = logs.LogGroup(
            self,
            "BoxLog",
            log_group_name=names.box_log_group(settings.fleet_name),
            retention=logs.RetentionDays.THREE_MONTHS,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        self.balancer, self.target_group = self._make_balancer()
        self.healthy_targets = cloudwatch.Metric(
            namespace="AWS/NetworkELB",
            metric_name="HealthyHostCount",
            dimensions_map={
                "LoadBalancer": self.balancer.load_balancer_full_name,
                "TargetGroup": self.target_group.target_group_full_name,
            },
            statistic="Maximum",
            period=cdk.Duration.minutes(1),
        )
        self.template = self._launch_template()
        self.launch_grants = launch_grants(
            self,
            settings,
            template_id=str(self.template.launch_template_id),
            subnet_ids=[subnet.subnet_id for subnet in network.vpc.public_subnets],
            security_group_id=network.box_group.security_group_id,
            box_role=self.box_role,
        )
        self.group = self._group()
        self.group.node.add_dependency(self._store_check(), self.launch_grants)
        if settings.capacity.grow_to:
            Growth(self, settings, self.group)
        for id, name, content in (
            ("Ask", names.ask_document, ask_document.document()),
            ("Lane", names.lane_document, lane_documents.show()),
            ("LaneDrop", names.lane_drop_document, lane_documents.drop()),
        ):
            ssm.CfnDocument(
                self,
                id,
                name=name(settings.fleet_name),
                document_type="Command",
                content=content,
                target_type="/AWS::EC2::Instance",
                update_method="NewVersion",  # a changed script is a new version, not a new document
            )
        watchdog = WatchdogFunction(
            self,
            settings,
            healthy_targets=self.healthy_targets,
            target_group_arn=self.target_group.target_group_arn,
            group_arn=self.group_arn,
            launch_grants=self.launch_grants,
        )
        self.topic = watchdog.topic
        Monitoring(self, settings, healthy=self.healthy_targets, watchdog=watchdog)

    def _make_balancer(self) -> tuple[elbv2.NetworkLoadBalancer, elbv2.NetworkTargetGroup]:
        s, vpc = self._settings, self.network.vpc
        target_group = elbv2.NetworkTargetGroup(
            self,
            # aws-behaviours: target-group-one-balancer; allow_public makes another balancer beside the first.
            "PublicTargetGroup" if s.network.allow_public else "TargetGroup",
            vpc=vpc,
            port=s.port,
            protocol=elbv2.Protocol.TCP,
            target_type=elbv2.TargetType.INSTANCE,
            preserve_client_ip=True,  # aws-behaviours: client-address
            deregistration_delay=cdk.Duration.seconds(s.drain.deregistration_delay_seconds),
            # The port gate is the health signal: it opens once the box has answered, and shuts when it should not.
            health_check=elbv2.HealthCheck(
                protocol=elbv2.Protocol.TCP,
                interval=cdk.Duration.seconds(HEALTH_INTERVAL_SECONDS),
                healthy_threshold_count=HEALTH_PROBES,
                unhealthy_threshold_count=HEALTH_PROBES,
            ),
        )
        # On by default, and then a target that turns unhealthy while it drains loses its live streams.
        # aws-behaviours: deregistered-keeps-connections
        target_group.set_attribute("target_health_state.unhealthy.connection_termination.enabled", "false")
        balancer = elbv2.NetworkLoadBalancer(
            self,
            "Balancer",
            vpc=vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC),
            internet_facing=s.network.allow_public,
            cross_zone_enabled=True,
            security_groups=[self.network.balancer_group],
        )
        accept(balancer, "AwsSolutions-ELB2", "A network balancer logs TLS connections only; this one carries TCP")
        balancer.add_listener(
            "Listener", port=s.port, protocol=elbv2.Protocol.TCP, default_target_groups=[target_group]
        )
        if s.gateway:  # with one box as well: an export that is read cannot go (aws-behaviours: export-in-use)
            self.export_value(target_group.target_group_arn)
        self.url = f"http://{balancer.load_balancer_dns_name}:{s.port}"
        cdk.CfnOutput(self, names.OUTPUT_ENDPOINT, value=self.url, description="Where callers find the model")
        return balancer, target_group

    def _launch_template(self) -> ec2.LaunchTemplate:
        s = self._settings
        with tempfile.TemporaryDirectory() as folder:  # packed here and not by the CLI: user data names its digest
            packed = Path(folder, "bundle.zip")
            packed.write_bytes(box_config.bundle())
            bundle = assets.Asset(self, "Bundle", path=str(packed))
        self.box_role = box_role(
            self,
            s,
            bucket=self._store.bucket,
            bundle=bundle,
            group_arn=self.group_arn,
            target_group_arn=self.target_group.target_group_arn,
            log_group_arn=self.box_log.log_group_arn,
        )
        config = box_config.box_config(
            s, bucket=self._store.bucket.bucket_name, target_group_arn=self.target_group.target_group_arn
        )
        script = box_config.user_data(config, bundle_bucket=bundle.s3_bucket_name, bundle_key=bundle.s3_object_key)
        if s.ami_id is None:
            image = ec2.MachineImage.from_ssm_parameter(names.DLAMI_PARAMETER)
            cdk.Annotations.of(self).add_warning_v2(
                "fleet:unpinned-image",
                "ami_id is null: each new deep-learning image rolls the fleet at the next deploy, whatever that "
                "deploy is about. Pin an id once the fleet serves.",
            )
        else:
            image = ec2.MachineImage.generic_linux({s.region: s.ami_id})
        key = kms.Key.from_key_arn(self, "EbsKey", s.ebs_key_arn) if s.ebs_key_arn else None
        root = ec2.BlockDeviceVolume.ebs(
            s.root_volume_gib,
            encrypted=True,
            kms_key=key,
            volume_type=ec2.EbsDeviceVolumeType.GP3,
            delete_on_termination=True,
        )
        template = ec2.LaunchTemplate(
            self,
            "Template",
            machine_image=image,
            # The overrides win. A launch that is tried without them must be one that the flip's grant allows.
            # aws-behaviours: bare-template-type
            instance_type=ec2.InstanceType(s.pools[0]),
            role=self.box_role,
            user_data=ec2.UserData.custom(script),
            security_group=self.network.box_group,
            associate_public_ip_address=not s.network.private_subnets,
            block_devices=[ec2.BlockDevice(device_name=ROOT_DEVICE, volume=root)],
            require_imdsv2=True,
            http_put_response_hop_limit=1,
            instance_initiated_shutdown_behavior=ec2.InstanceInitiatedShutdownBehavior.TERMINATE,
        )
        if s.chooses_box:
            cast(ec2.CfnLaunchTemplate, template.node.default_child).add_property_override(
                "LaunchTemplateData.PrivateDnsNameOptions.EnableResourceNameDnsARecord", True
            )  # aws-behaviours: box-by-name
        return template

    def _group(self) -> autoscaling.CfnAutoScalingGroup:
        s = self._settings
        lever = cdk.CfnParameter(  # aws-behaviours: lever-read-anew
            self,
            "Lever",
            type="AWS::SSM::Parameter::Value<String>",
            default=names.lever_parameter(s.fleet_name),
            description="Read anew on every deploy: the watchdog moves it",
        )
        cfn = autoscaling.CfnAutoScalingGroup
        group = cfn(
            self,
            "Group",
            auto_scaling_group_name=names.group(s.fleet_name),
            min_size=str(s.capacity.min),
            max_size=str(s.capacity.max),
            # aws-behaviours: zones-of-a-standing-group
            vpc_zone_identifier=[subnet.subnet_id for subnet in self.network.vpc.public_subnets],
            mixed_instances_policy=cfn.MixedInstancesPolicyProperty(
                instances_distribution=cfn.InstancesDistributionProperty(
                    on_demand_allocation_strategy="prioritized",
                    on_demand_base_capacity=s.capacity.on_demand_base,
                    on_demand_percentage_above_base_capacity=cdk.Token.as_number(lever.value_as_string),
                    spot_allocation_strategy="price-capacity-optimized",
                ),
                launch_template=cfn.LaunchTemplateProperty(
                    launch_template_specification=cfn.LaunchTemplateSpecificationProperty(
                        launch_template_id=self.template.launch_template_id,
                        version=self.template.latest_version_number,
                    ),
                    overrides=[cfn.LaunchTemplateOverridesProperty(instance_type=name) for name in s.pools],
                ),
            ),
            capacity_rebalance=True,
            # aws-behaviours: hooks-before-first-box, hooks-follow, in-service-at-once
            lifecycle_hook_specification_list=[
                cfn.LifecycleHookSpecificationProperty(
                    lifecycle_hook_name=names.LAUNCH_HOOK,
                    lifecycle_transition="autoscaling:EC2_INSTANCE_LAUNCHING",
                    default_result="ABANDON",
                    heartbeat_timeout=s.boot.hook_heartbeat_seconds,
                ),
                cfn.LifecycleHookSpecificationProperty(
                    lifecycle_hook_name=names.TERMINATION_HOOK,
                    lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
                    default_result="CONTINUE",
                    heartbeat_timeout=s.drain.termination_hook_seconds,  # aws-behaviours: delay-beside-hook
                ),
            ],
            instance_maintenance_policy=cfn.InstanceMaintenancePolicyProperty(
                min_healthy_percentage=names.MIN_HEALTHY_PERCENT, max_healthy_percentage=names.MAX_HEALTHY_PERCENT
            ),
            default_instance_warmup=WARM_UP_SECONDS,
            health_check_type="ELB",
            health_check_grace_period=HEALTH_CHECK_GRACE_SECONDS,
            target_group_arns=[self.target_group.target_group_arn],
            metrics_collection=[GROUP_METRICS] if s.capacity.grow_to else None,
            # No desired_capacity: a template that holds one resets the group on every deploy.
        )
        accept(group, "AwsSolutions-AS3", "Its events reach the watchdog by EventBridge, which mails what matters")
        accept(group, "AwsSolutions-EC26", "The rule trips over the lever's parameter; the disk is encrypted")
        group.cfn_options.update_policy = cdk.CfnUpdatePolicy(
            auto_scaling_instance_refresh=cdk.CfnAutoScalingInstanceRefresh(  # aws-behaviours: native-refresh
                strategy="Rolling",
                preferences=cdk.CfnAutoScalingInstanceRefreshPreferences(
                    min_healthy_percentage=names.MIN_HEALTHY_PERCENT,
                    max_healthy_percentage=names.MAX_HEALTHY_PERCENT,
                    instance_warmup=WARM_UP_SECONDS,
                    # A deploy replaces boxes of an older template; a lever that moved since the last one is no reason.
                    skip_matching=True,  # aws-behaviours: skip-matching-compares
                ),
            )
        )
        group.node.add_dependency(self.balancer)  # a group that routes nowhere would never see a healthy target
        return group

    def _store_check(self) -> cdk.CustomResource:
        """CloudFormation waits for the first box to serve: without its files that wait would end in a roll-back."""
        # aws-behaviours: first-box-awaited
        model, bucket = self._settings.model, self._store.bucket
        keys = [artifact.key for artifact in (model.engine, model.gguf, model.modelfile)]
        function = python_function(
            self,
            "RequireArtifacts",
            package=CUSTOM_RESOURCES,
            handler="lambdas.resources.require_artifacts.handler",
            description="Fails a deploy at once while the model store lacks a file",
            grants=[
                self.allow("s3:GetObject", on=[bucket.arn_for_objects(key) for key in keys], when=self.own_buckets),
                self.allow(
                    "s3:ListBucket", on=bucket.bucket_arn, when=self.own_buckets
                ),  # so that a missing file answers 404, not 403
            ],
            timeout_seconds=60,
        )
        return cdk.CustomResource(
            self,
            "StoreFilled",
            service_token=function.function_arn,
            resource_type="Custom::RequireArtifacts",
            properties={"Bucket": bucket.bucket_name, "Keys": keys},
        )
