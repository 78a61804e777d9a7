"""What the gateway's tasks may do, and what ECS may on their behalf before they run."""

from typing import Any

from aws_cdk import aws_iam as iam

from fleet.config.gateway_settings import Fallback, Gateway
from stacks.base_stack import BaseStack

ECS_TASKS = "ecs-tasks.amazonaws.com"


def task_role(stack: BaseStack, gateway: Gateway, *, table_arn: str, modelfile_arn: str, chooses_box: bool) -> iam.Role:
    """One grant for each call of assets/gateway; a transaction is granted as what it puts and updates."""
    statements = [
        stack.allow("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", on=table_arn)
    ]
    if chooses_box:
        because = "DescribeTargetHealth knows no resource"
        statements.append(stack.allow("elasticloadbalancing:DescribeTargetHealth", on="*", because=because))
    if gateway.fallback.url:
        statements.append(stack.allow("s3:GetObject", on=modelfile_arn, when=stack.own_buckets))
        statements.append(_proof(stack, gateway.fallback))
    return _role(stack, "TaskRole", statements)


def _proof(stack: BaseStack, fallback: Fallback) -> iam.PolicyStatement:
    """How the fallback is asked: by a key that is read, or by a call of AWS that is signed."""
    if fallback.key_secret:
        # aws-behaviours: secret-suffix
        return stack.allow(
            "secretsmanager:GetSecretValue", on=stack.arn("secretsmanager", f"secret:{fallback.key_secret}-??????")
        )
    if fallback.sign_as == "bedrock-mantle":
        return stack.allow(  # aws-behaviours: bedrock-grants
            "bedrock-mantle:CreateInference",
            on=stack.arn("bedrock-mantle", "project/*"),
            because="the account's default project, whose id only AWS knows",
        )
    return stack.allow(
        "bedrock:InvokeModel",
        "bedrock:InvokeModelWithResponseStream",
        on=f"arn:{stack.partition}:bedrock:{stack.region}::foundation-model/{fallback.model}*",
        because="the endpoint's name of the model lacks the version that ends its ARN",
    )


def execution_role(stack: BaseStack, *, repository_arn: str, log_group_arn: str) -> iam.Role:
    """What ECS does before and beside the tasks: pull their image, deliver their log."""
    return _role(
        stack,
        "ExecutionRole",
        [
            stack.allow(
                "ecr:BatchCheckLayerAvailability",
                "ecr:GetDownloadUrlForLayer",
                "ecr:BatchGetImage",
                on=repository_arn,
            ),
            stack.allow("ecr:GetAuthorizationToken", on="*", because="GetAuthorizationToken knows no resource"),
            stack.allow("logs:CreateLogStream", "logs:PutLogEvents", on=log_group_arn),
        ],
    )


def _role(stack: BaseStack, name: str, statements: list[iam.PolicyStatement]) -> Any:
    return iam.Role(
        stack,
        name,
        assumed_by=iam.ServicePrincipal(ECS_TASKS),
        inline_policies={"calls": iam.PolicyDocument(statements=statements)},
    )
