"""What the gateway's tasks may do, and what ECS may on their behalf before they run."""

from typing import Any

from aws_cdk import aws_iam as iam

from fleet.config.gateway_settings import Fallback, Gateway
from stacks.base_stack import BaseStack

ECS_TASKS = "ecs-tasks.amazonaws.com"


def task_role(room: BaseStack, gateway: Gateway, *, table_arn: str, modelfile_arn: str) -> iam.Role:
    """One grant for each call of assets/gateway; a transaction is granted as what it puts and updates."""
    statements = [
        room.allow("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", on=table_arn)
    ]
    if gateway.fallback.url:
        statements.append(room.allow("s3:GetObject", on=modelfile_arn, when=room.own_buckets))
        statements.append(_proof(room, gateway.fallback))
    return _role(room, "TaskRole", statements)


def _proof(room: BaseStack, fallback: Fallback) -> iam.PolicyStatement:
    """How the fallback is asked: by a key that is read, or by a call of AWS that is signed."""
    if fallback.key_secret:
        # aws-behaviours: secret-suffix
        return room.allow(
            "secretsmanager:GetSecretValue", on=room.arn("secretsmanager", f"secret:{fallback.key_secret}-??????")
        )
    if fallback.sign_as == "bedrock-mantle":
        return room.allow(  # aws-behaviours: bedrock-grants
            "bedrock-mantle:CreateInference",
            on=room.arn("bedrock-mantle", "project/*"),
            because="the account's default project, whose id only AWS knows",
        )
    return room.allow(
        "bedrock:InvokeModel",
        "bedrock:InvokeModelWithResponseStream",
        on=f"arn:{room.partition}:bedrock:{room.region}::foundation-model/{fallback.model}*",
        because="the endpoint's name of the model lacks the version that ends its ARN",
    )


def execution_role(room: BaseStack, *, repository_arn: str, log_group_arn: str) -> iam.Role:
    """What ECS does before and beside the tasks: pull their image, deliver their log."""
    return _role(
        room,
        "ExecutionRole",
        [
            room.allow(
                "ecr:BatchCheckLayerAvailability",
                "ecr:GetDownloadUrlForLayer",
                "ecr:BatchGetImage",
                on=repository_arn,
            ),
            room.allow("ecr:GetAuthorizationToken", on="*", because="GetAuthorizationToken knows no resource"),
            room.allow("logs:CreateLogStream", "logs:PutLogEvents", on=log_group_arn),
        ],
    )


def _role(room: BaseStack, name: str, statements: list[iam.PolicyStatement]) -> Any:
    return iam.Role(
        room,
        name,
        assumed_by=iam.ServicePrincipal(ECS_TASKS),
        inline_policies={"calls": iam.PolicyDocument(statements=statements)},
    )
