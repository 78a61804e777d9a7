"""Every error of AWS as an operator reads it: the call, what is missing, the exit code."""

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ProfileNotFound,
    UnauthorizedSSOTokenError,
)

from fleet.account import aws_errors
from fleet.account.aws_errors import explain, permission


def answered(code: str, message: str = "", status: int = 400) -> ClientError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "DescribeThings")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "kind", "code", "words"),
    [
        (NoCredentialsError(), aws_errors.CredentialsError, 2, "no usable AWS credentials"),
        (ProfileNotFound(profile="work"), aws_errors.CredentialsError, 2, "work"),
        (UnauthorizedSSOTokenError(), aws_errors.CredentialsError, 2, "aws sso login"),
        (answered("ExpiredToken"), aws_errors.CredentialsError, 2, "does not accept these credentials (ExpiredToken)"),
        (answered("InvalidClientTokenId"), aws_errors.CredentialsError, 2, "AWS_PROFILE"),
        (answered("Throttling"), aws_errors.RateExceededError, 1, "throttled, retries included"),
        (answered("TooManyRequestsException"), aws_errors.RateExceededError, 1, "wait a minute"),
        (answered("ResourceNotFoundException", "Function not found"), aws_errors.MissingError, 2, "Function not found"),
        (
            answered("ValidationError", "Stack x does not exist"),
            aws_errors.MissingError,
            2,
            "`fleet_name` and `region`",
        ),
        (answered("404"), aws_errors.MissingError, 2, "`make deploy` makes it"),
        (answered("InternalFailure", "oops", 500), aws_errors.OperatorError, 1, "failed inside AWS"),
        (
            answered("InvalidValue", "bad zone"),
            aws_errors.RefusedError,
            2,
            "was refused (InvalidValue): bad zone",
        ),
        (EndpointConnectionError(endpoint_url="http://x"), aws_errors.UnreachableError, 1, "AWS_ENDPOINT_URL"),
        (ConnectTimeoutError(endpoint_url="http://x"), aws_errors.UnreachableError, 1, "no answer"),
        (ValueError("Invalid endpoint: localhost:5000"), aws_errors.RefusedError, 2, "correct AWS_ENDPOINT_URL"),
        (ParamValidationError(report="missing"), aws_errors.OperatorError, 1, "built wrongly"),
    ],
)
def test_each_failure_names_the_call_and_its_remedy(error: Exception, kind: type, code: int, words: str) -> None:
    explained = explain(error, service="ec2", operation="DescribeThings")
    assert type(explained) is kind
    assert explained.code == code
    assert "ec2 DescribeThings" in explained.message
    assert words in str(explained)
    assert "\n  remedy: " in str(explained)


@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation"])
def test_a_denial_names_the_permission_even_where_aws_does_not(code: str) -> None:
    explained = explain(answered(code, "no"), service="service-quotas", operation="GetServiceQuota")
    assert isinstance(explained, aws_errors.AccessDeniedError)
    assert "your credentials lack servicequotas:GetServiceQuota" in explained.message
    assert explained.remedy == "grant servicequotas:GetServiceQuota to whom you run as"


def test_a_denial_quotes_the_action_and_the_resource_that_aws_names() -> None:
    message = "User: x is not authorized to perform: kms:Decrypt on resource: arn:aws:kms:x because"
    explained = explain(answered("AccessDeniedException", message), service="ssm", operation="GetParameter")
    assert "lack kms:Decrypt on arn:aws:kms:x" in explained.message


@pytest.mark.parametrize(
    ("service", "operation", "action"),
    [
        ("s3", "HeadObject", "s3:GetObject"),
        ("s3", "ListBuckets", "s3:ListAllMyBuckets"),
        ("s3", "ListObjectVersions", "s3:ListBucketVersions"),
        ("s3", "ListMultipartUploads", "s3:ListBucketMultipartUploads"),
        ("s3", "ListParts", "s3:ListMultipartUploadParts"),
        ("s3", "CreateMultipartUpload", "s3:PutObject"),
        ("s3", "UploadPart", "s3:PutObject"),
        ("s3", "CompleteMultipartUpload", "s3:PutObject"),
        ("lambda", "Invoke", "lambda:InvokeFunction"),
        ("elbv2", "DescribeTargetHealth", "elasticloadbalancing:DescribeTargetHealth"),
        ("cloudwatch", "DescribeAlarms", "cloudwatch:DescribeAlarms"),
    ],
)
def test_the_permission_is_named_as_iam_names_it(service: str, operation: str, action: str) -> None:
    assert permission(service, operation) == action


def test_an_error_that_is_not_of_aws_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        explain(ZeroDivisionError(), service="ec2", operation="DescribeThings")
