"""What the stacks share: how an app is run, where a stack stands, how a grant is written, how a function is made."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from fleet.config.settings import Settings
from fleet.config.validation import load
from fleet.core import names
from fleet.core.errors import UserError, exit_with
from stacks.package import Package

RUNTIME = lambda_.Runtime.PYTHON_3_14


class BaseStack(cdk.Stack):
    """One stack of the fleet. The CDK CLI names the account; the region and the zones are settings."""

    def __init__(self, app: cdk.App, stack: str, settings: Settings) -> None:
        self._zones = list(settings.zones)
        self.wildcards: dict[str, str] = {}  # resource with a * in a policy of this stack: why it is there
        super().__init__(
            app,
            names.stack(settings.fleet_name, stack),
            env=cdk.Environment(account=os.environ.get("CDK_DEFAULT_ACCOUNT"), region=settings.region),
            analytics_reporting=False,
            synthesizer=cdk.DefaultStackSynthesizer(bucket_prefix=names.asset_prefix(settings.fleet_name)),
        )

    @property
    def availability_zones(self) -> list[str]:
        """The settings' zones. Without this, CDK asks the account for them, and synth is no longer offline."""
        return self._zones

    def arn(self, service: str, resource: str) -> str:
        """ARN of something of this account and region: `resource` is all that follows the account."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    @property
    def own_buckets(self) -> dict[str, dict[str, str]]:
        """Condition of every grant on S3: a bucket that was deleted and made again by another account is not meant."""
        return {"StringEquals": {"aws:ResourceAccount": self.account}}

    def allow(
        self,
        *actions: str,
        on: str | Sequence[str],
        when: Mapping[str, Mapping[str, object]] | None = None,
        because: str = "",
    ) -> iam.PolicyStatement:
        """One grant: these actions, on these resources, under these conditions. A wildcard needs a written reason."""
        resources = [on] if isinstance(on, str) else list(on)
        wildcards = [resource for resource in resources if "*" in resource]
        if bool(wildcards) is not bool(because):
            raise ValueError(f"{', '.join(actions)} on {resources}: a reason for each wildcard, and for nothing else")
        self.wildcards.update(dict.fromkeys(wildcards, because))
        return iam.PolicyStatement(actions=list(actions), resources=resources, conditions=when)


def synthesize(build: Callable[[cdk.App, Settings], None]) -> None:
    """Build what `cdk.json` says and write the templates; a mistake in it is one message and an exit code."""
    try:
        settings = load()
    except UserError as error:
        exit_with(error)
    app = cdk.App()
    build(app, settings)
    app.synth()


def accept(construct: Construct, rule: str, reason: str) -> None:
    """Acknowledge a finding of a checker on this construct, with the reason why it stays."""
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=rule, reason=reason))


def python_function(
    scope: Construct,
    name: str,
    *,
    package: Package,
    handler: str,
    description: str,
    grants: Sequence[iam.PolicyStatement],
    timeout_seconds: int,
    memory_mib: int = 128,
    environment: Mapping[str, str] | None = None,
    log_group_name: str | None = None,
    **options: Any,
) -> lambda_.Function:
    """A function whose role holds `grants` and leave to write its own log, nothing else; `options` as Function's."""
    log = logs.LogGroup(
        scope,
        f"{name}Log",
        log_group_name=log_group_name,
        retention=logs.RetentionDays.THREE_MONTHS,
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    role = iam.Role(
        scope,
        f"{name}Role",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        inline_policies={"calls": iam.PolicyDocument(statements=list(grants))},
    )
    log.grant_write(role)
    with package.unpacked() as path:
        return lambda_.Function(
            scope,
            name,
            code=lambda_.Code.from_asset(path),
            handler=handler,
            runtime=RUNTIME,
            architecture=lambda_.Architecture.ARM_64,
            description=description,
            role=role,
            log_group=log,
            timeout=cdk.Duration.seconds(timeout_seconds),
            memory_size=memory_mib,
            environment=environment,
            **options,
        )
