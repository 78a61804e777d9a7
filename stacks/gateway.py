"""The gateway: its tasks, their balancer, the table of keys, caps and ledger, and the alarms that mail for it.

It needs the group's stack, and nothing there needs it: two zones, two subnets, which no change of a standing fleet
moves. The table is kept when this stack goes, and taken up when it returns.
"""

import dataclasses
import json
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_logs as logs

from fleet.config.gateway_settings import BALANCER_IDLE_SECONDS, Gateway
from fleet.config.settings import Settings
from fleet.core import names
from stacks.base_stack import BaseStack, accept, python_function
from stacks.gateway_alarms import GatewayAlarms
from stacks.gateway_grants import execution_role, task_role
from stacks.group import GroupStack
from stacks.image import gateway_image
from stacks.network import HTTPS, balancer_port
from stacks.package import CUSTOM_RESOURCES
from stacks.store import StoreStack

TASKS = 2  # in as many zones
CPU, MEMORY_MIB = 256, 512  # 1,000 streams took 89 MB
LONGEST_STREAM_SECONDS = 600  # aws-behaviours: delay-before-stop
STOP_SECONDS = 120  # the most that Fargate gives after SIGTERM
FIRST_CHECK_SECONDS = 120  # until Python has compiled what it imports, on a quarter of a core
HEALTH_INTERVAL_SECONDS, HEALTH_PROBES = 10, 2
NOBODY = "65532:65532"
HTTP_OK = "200"
PARTITION_KEY, SORT_KEY, EXPIRY = "pk", "sk", "ttl"  # as assets/gateway/store.py writes them


class GatewayStack(BaseStack):
    """Everything between callers and the fleet's own balancer."""

    def __init__(
        self, app: cdk.App, settings: Settings, gateway: Gateway, *, store: StoreStack, group: GroupStack
    ) -> None:
        super().__init__(app, names.STACK_GATEWAY, settings)
        self._settings, self._gateway, self._store, self._group = settings, gateway, store, group
        if group.network.gateway is None:
            raise ValueError("the group's network was made without a gateway")
        self._groups = group.network.gateway
        self._subnets = ec2.SubnetSelection(subnets=group.network.vpc.public_subnets[:TASKS])
        self.table_arn = self.arn("dynamodb", f"table/{names.gateway_table(settings.fleet_name)}")
        table = self._table()
        self.balancer, self.target_group = self._make_balancer()
        service = self._service()
        service.node.add_dependency(table)
        GatewayAlarms(
            self,
            settings,
            topic=group.topic,
            balancer=self.balancer,
            target_group=self.target_group,
            service=service,
        )

    def _table(self) -> cdk.CustomResource:
        function = python_function(
            self,
            "CreateTable",
            package=CUSTOM_RESOURCES,
            handler="lambdas.resources.create_table.handler",
            description="Creates the gateway's table where there is none",
            grants=[
                self.allow(
                    "dynamodb:CreateTable",
                    "dynamodb:DescribeTable",
                    "dynamodb:DescribeTimeToLive",
                    "dynamodb:UpdateTimeToLive",
                    "dynamodb:UpdateContinuousBackups",
                    on=self.table_arn,
                )
            ],
            timeout_seconds=300,  # aws-behaviours: backups-after-table
        )
        return cdk.CustomResource(
            self,
            "Table",
            service_token=function.function_arn,
            resource_type="Custom::CreateTable",
            removal_policy=cdk.RemovalPolicy.RETAIN,  # a gateway that comes back knows its callers
            properties={
                "Table": names.gateway_table(self._settings.fleet_name),
                "PartitionKey": PARTITION_KEY,
                "SortKey": SORT_KEY,
                "Expiry": EXPIRY,
            },
        )

    def _make_balancer(self) -> tuple[elbv2.ApplicationLoadBalancer, elbv2.ApplicationTargetGroup]:
        vpc, gateway = self._group.network.vpc, self._gateway
        target_group = elbv2.ApplicationTargetGroup(
            self,
            "PublicTargetGroup" if gateway.public else "TargetGroup",  # aws-behaviours: target-group-one-balancer
            vpc=vpc,
            port=names.GATEWAY_PORT,
            protocol=elbv2.ApplicationProtocol.HTTP,
            target_type=elbv2.TargetType.IP,
            # Answers last for seconds or minutes: the task with fewer of them has room.
            load_balancing_algorithm_type=elbv2.TargetGroupLoadBalancingAlgorithmType.LEAST_OUTSTANDING_REQUESTS,
            deregistration_delay=cdk.Duration.seconds(LONGEST_STREAM_SECONDS),
            health_check=elbv2.HealthCheck(
                path="/v1/health",
                healthy_http_codes=HTTP_OK,
                interval=cdk.Duration.seconds(HEALTH_INTERVAL_SECONDS),
                healthy_threshold_count=HEALTH_PROBES,
                unhealthy_threshold_count=HEALTH_PROBES,
            ),
        )
        balancer = elbv2.ApplicationLoadBalancer(
            self,
            "Balancer",
            vpc=vpc,
            vpc_subnets=self._subnets,
            internet_facing=gateway.public,
            security_group=self._groups.balancer,
            idle_timeout=cdk.Duration.seconds(BALANCER_IDLE_SECONDS),
            drop_invalid_header_fields=True,
        )
        accept(balancer, "AwsSolutions-ELB2", "Each request is a line of the gateway's own log")
        certificate = gateway.certificate_arn
        balancer.add_listener(
            "Listener",
            port=balancer_port(self._settings),
            protocol=elbv2.ApplicationProtocol.HTTPS if certificate else elbv2.ApplicationProtocol.HTTP,
            certificates=[elbv2.ListenerCertificate.from_arn(certificate)] if certificate else None,
            ssl_policy=elbv2.SslPolicy.RECOMMENDED_TLS if certificate else None,
            open=False,  # callers are admitted by name
            default_target_groups=[target_group],
        )
        scheme = "https" if balancer_port(self._settings) == HTTPS else "http"
        url = f"{scheme}://{balancer.load_balancer_dns_name}/v1"
        where = "Where callers find the gateway; with a certificate, by a name that it holds"
        cdk.CfnOutput(self, names.OUTPUT_ENDPOINT, value=url, description=where)
        return balancer, target_group

    def _service(self) -> ecs.FargateService:
        fleet = self._settings.fleet_name
        log = logs.LogGroup(
            self,
            "Log",
            log_group_name=names.gateway_log_group(fleet),
            retention=logs.RetentionDays.THREE_MONTHS,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        image = gateway_image(self)
        bucket = self._store.bucket
        modelfile = self._settings.model.modelfile.key
        definition = ecs.FargateTaskDefinition(
            self,
            "Task",
            family=names.gateway_service(fleet),
            cpu=CPU,
            memory_limit_mib=MEMORY_MIB,
            runtime_platform=ecs.RuntimePlatform(
                cpu_architecture=ecs.CpuArchitecture.ARM64,
                operating_system_family=ecs.OperatingSystemFamily.LINUX,
            ),
            task_role=task_role(
                self,
                self._gateway,
                table_arn=self.table_arn,
                modelfile_arn=bucket.arn_for_objects(modelfile),
                chooses_box=self._settings.chooses_box,
            ).without_policy_updates(),
            execution_role=execution_role(
                self, repository_arn=image.repository.repository_arn, log_group_arn=log.log_group_arn
            ).without_policy_updates(),
        )
        linux = ecs.LinuxParameters(self, "Linux", init_process_enabled=True)
        linux.drop_capabilities(ecs.Capability.ALL)
        definition.add_container(
            "gateway",
            image=ecs.ContainerImage.from_registry(image.image_uri),  # its pull is granted by name, above
            environment={
                names.ENV_GATEWAY: json.dumps(self._config(f"{bucket.bucket_name}/{modelfile}"), separators=(",", ":")),
                "AWS_REGION": self.region,
            },
            logging=ecs.LogDrivers.aws_logs(log_group=log, stream_prefix="gateway"),
            port_mappings=[ecs.PortMapping(container_port=names.GATEWAY_PORT)],
            readonly_root_filesystem=True,
            user=NOBODY,
            linux_parameters=linux,
            stop_timeout=cdk.Duration.seconds(STOP_SECONDS),
        )
        accept(
            definition, "AwsSolutions-ECS2", "Its settings, no secret: a key is read from Secrets Manager at run time"
        )
        cluster = ecs.CfnCluster(self, "Cluster", cluster_name=names.gateway_service(fleet))
        accept(cluster, "AwsSolutions-ECS4", "Two tasks whose own metrics say more than their processors'")
        service = ecs.FargateService(
            self,
            "Service",
            service_name=names.gateway_service(fleet),
            cluster=ecs.Cluster.from_cluster_attributes(
                self, "InCluster", cluster_name=cluster.ref, vpc=self._group.network.vpc, security_groups=[]
            ),
            task_definition=definition,
            desired_count=TASKS,
            min_healthy_percent=100,
            max_healthy_percent=200,
            circuit_breaker=ecs.DeploymentCircuitBreaker(enable=True, rollback=True),
            health_check_grace_period=cdk.Duration.seconds(FIRST_CHECK_SECONDS),
            availability_zone_rebalancing=ecs.AvailabilityZoneRebalancing.ENABLED,
            # Without NAT a public address is the way to the image and to the fallback; nothing comes in by it.
            assign_public_ip=not self._settings.network.private_subnets,
            vpc_subnets=self._subnets,
            security_groups=[self._groups.tasks],
        )
        self.target_group.add_target(service)
        return service

    def _config(self, modelfile: str) -> dict[str, Any]:
        """What `python -m gateway` reads; see assets/gateway/config.py."""
        settings, model = self._settings, self._settings.model
        domain = "ec2.internal" if settings.region == "us-east-1" else f"{settings.region}.compute.internal"
        boxes = {  # aws-behaviours: box-by-name
            "target_group": self._group.target_group.target_group_arn,
            "box_url": f"http://{{}}.{domain}:{settings.port}",
        }
        return {
            "fleet": self._settings.fleet_name,
            "gpu_url": self._group.url,
            **(boxes if settings.chooses_box else {}),
            "models": dict.fromkeys((model.name, *self._gateway.aliases), model.name),
            "model_revision": model.gguf.sha256 or model.gguf.key,
            "modelfile": modelfile if self._gateway.fallback.url else "",
            "table": names.gateway_table(self._settings.fleet_name),
            "gateway": dataclasses.asdict(self._gateway),
        }
