"""What a box may do, and what a launch needs of whoever asks for it: the two policies of the group's stack."""

from collections.abc import Sequence
from typing import Any

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets

from fleet.config import box_config
from fleet.config.settings import Settings
from fleet.core import names
from stacks.base_stack import BaseStack

GROUP_ARN_WILDCARD = "an Auto Scaling group's ARN holds an id that only AWS knows; the name is the fleet's"


def box_role(
    stack: BaseStack,
    settings: Settings,
    *,
    bucket: s3.Bucket,
    bundle: assets.Asset,
    group_arn: str,
    target_group_arn: str,
    log_group_arn: str,
) -> iam.Role:
    """What a box may do: what its code calls, on this fleet's resources, and Session Manager's own channel."""
    scopes: dict[str, Any] = {
        # Not the one key: a deploy changes the role first, and a box of the template before would get a 403.
        "bundle": {
            "on": f"{bundle.bucket.bucket_arn}/{names.asset_prefix(settings.fleet_name)}*",
            "when": stack.own_buckets,
            "because": "a bundle is named by its content: this fleet's own files in the CDK's bucket, old and new",
        },
        "store": {"on": bucket.bucket_arn, "when": stack.own_buckets},
        "store's objects": {
            "on": bucket.arn_for_objects("*"),
            "when": stack.own_buckets,
            "because": "artifacts and cache: all objects of the fleet's own bucket",
        },
        "store's cache": {
            "on": bucket.arn_for_objects(f"{names.CACHE_PREFIX}*"),
            "when": stack.own_buckets,
            "because": "the blobs of the cache are named by their digests",
        },
        "group": {"on": group_arn, "because": GROUP_ARN_WILDCARD},
        "target group": {"on": target_group_arn},
        "any": {"on": "*", "because": "DescribeTargetHealth knows no resource"},
        "own instance, tag fleet:boot": {
            "on": stack.arn("ec2", "instance/*"),
            "when": {
                "StringEquals": {f"aws:ResourceTag/{names.TAG_FLEET}": settings.fleet_name},
                "ForAllValues:StringEquals": {"aws:TagKeys": [names.TAG_BOOT]},
            },
            "because": "a box learns its id at launch; boxes of this fleet only, and this one tag",
        },
        "box log group": {"on": log_group_arn},
        "metric namespace": {
            "on": "*",
            "when": {"StringEquals": {"cloudwatch:namespace": names.METRIC_NAMESPACE}},
            "because": "PutMetricData knows no resource; the condition holds it to the fleet's namespace",
        },
    }
    grants = [stack.allow(*actions, **scopes[kind]) for kind, actions in box_config.ACTIONS.items()]
    session_manager = stack.allow(  # aws-behaviours: run-command-channel
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
        on="*",
        because="Session Manager's channel knows no resource",
    )
    return iam.Role(
        stack,
        "BoxRole",
        assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        inline_policies={"calls": iam.PolicyDocument(statements=[*grants, session_manager])},
    )


def launch_grants(
    stack: BaseStack,
    settings: Settings,
    *,
    template_id: str,
    subnet_ids: Sequence[str],
    security_group_id: str,
    box_role: iam.Role,
) -> iam.ManagedPolicy:
    """What a caller needs who changes the group's policy (aws-behaviours: flip-dry-runs-launch).

    A policy of this stack, so that it changes together with the pools and subnets that it names.
    """
    template = stack.arn("ec2", f"launch-template/{template_id}")
    from_template = {"ArnEquals": {"ec2:LaunchTemplate": template}}
    # aws-behaviours: flip-keeps-template-resources
    not_overridden = {**from_template, "Bool": {"ec2:IsLaunchTemplateResource": "true"}}
    of_our_types = {"StringEquals": {"ec2:InstanceType": list(settings.pools)}}
    statements = [
        stack.allow(
            "ec2:RunInstances",
            on=stack.arn("ec2", "instance/*"),
            when={**from_template, **of_our_types},
            because="instances that do not exist yet: of this template and the fleet's pools only",
        ),
        stack.allow(
            "ec2:RunInstances",
            on=[
                template,
                *(
                    stack.arn("ec2", f"subnet/{subnet_id}") for subnet_id in subnet_ids
                ),  # the group's, not the template's
            ],
        ),
        stack.allow(
            "ec2:RunInstances", on=stack.arn("ec2", f"security-group/{security_group_id}"), when=not_overridden
        ),
        stack.allow(
            "ec2:RunInstances",
            on=f"arn:{stack.partition}:ec2:{stack.region}::image/*",
            when=not_overridden,
            because="the image may be newer: the template's own",
        ),
        stack.allow(
            "ec2:RunInstances",
            on=[stack.arn("ec2", "network-interface/*"), stack.arn("ec2", "volume/*")],
            when=from_template,
            because="disks and interfaces do not exist yet: of this template only",
        ),
        stack.allow(
            "ec2:CreateTags",
            on=[stack.arn("ec2", f"{kind}/*") for kind in ("instance", "network-interface", "volume")],
            when={"StringEquals": {"ec2:CreateAction": "RunInstances"}},
            because="what a launch creates does not exist yet: at its launch only",
        ),
        stack.allow(
            "iam:PassRole",
            on=box_role.role_arn,
            when={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        ),
    ]
    return iam.ManagedPolicy(
        stack,
        "LaunchGrants",
        statements=statements,
        description="The launch that a change of the group is tried with",
    )
