"""Failures an operator meets, each one sentence plus its remedy; `fleetctl` prints them and exits with their code.

OperatorError            message, remedy, exit code 1 (ours or AWS's)
  CredentialsError       2: no usable credentials
  AccessDeniedError      2: a permission is missing; names call and permission
  MissingError           2: what the call asked about does not exist; names the setting or the step that makes it
  RefusedError           2: AWS refused the request as it stands
  RateExceededError      1: AWS asked for patience, retries included
  UnreachableError       1: no answer from the endpoint
"""

import re
from typing import ClassVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from fleet.core.errors import EXIT_INTERNAL, EXIT_USAGE


class OperatorError(Exception):
    """A failure with a remedy. `code` is the process's exit code."""

    code: ClassVar[int] = EXIT_INTERNAL

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}"


class CredentialsError(OperatorError):
    """No usable credentials."""

    code = EXIT_USAGE


class AccessDeniedError(OperatorError):
    """A permission is missing."""

    code = EXIT_USAGE


class MissingError(OperatorError):
    """What the call asked about does not exist."""

    code = EXIT_USAGE


class RefusedError(OperatorError):
    """AWS refused the request as it stands."""

    code = EXIT_USAGE


class RateExceededError(OperatorError):
    """AWS asked for patience."""


class UnreachableError(OperatorError):
    """No answer."""


# Where the service's name in IAM is not the client's name in boto3.
_IAM_PREFIX = {"elbv2": "elasticloadbalancing", "service-quotas": "servicequotas"}
# Where the permission is not named as the call.
_PERMISSION = {
    "s3:HeadObject": "s3:GetObject",
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "s3:ListObjectVersions": "s3:ListBucketVersions",
    "s3:ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "s3:ListParts": "s3:ListMultipartUploadParts",
    **dict.fromkeys(("s3:CreateMultipartUpload", "s3:UploadPart", "s3:CompleteMultipartUpload"), "s3:PutObject"),
    "lambda:Invoke": "lambda:InvokeFunction",
    "dynamodb:TransactWriteItems": "dynamodb:PutItem",
}
# Error codes as words, by what they mean; every service has its own.
_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "AuthorizationError",
    "AuthorizationErrorException",
    "403",
}
_CREDENTIALS = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "InvalidAccessKeyId",
    "AuthFailure",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "RequestExpired",
    "IncompleteSignature",
}
_THROTTLED = {
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestLimitExceeded",
    "TooManyRequestsException",
    "SlowDown",
    "RequestThrottled",
    "PriorRequestNotComplete",
}
_MISSING = re.compile(r"NotFound|NoSuch|DoesNotExist|^404$|InvalidGroup\.NotFound|InvalidInstanceID")
_NAMED_ACTION = re.compile(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z0-9]+)(?: on resource:? (\S+))?")


def permission(service: str, operation: str) -> str:
    """The IAM action a call needs."""
    action = f"{_IAM_PREFIX.get(service, service)}:{operation}"
    return _PERMISSION.get(action, action)


def explain(error: Exception, *, service: str, operation: str) -> OperatorError:
    """One botocore failure as one of ours, naming the call and what is missing."""
    call = f"{service} {operation}"
    if isinstance(error, (NoCredentialsError, PartialCredentialsError, ProfileNotFound, CredentialRetrievalError)):
        return CredentialsError(
            f"{call}: no usable AWS credentials ({error})",
            "sign in (aws sso login, or export AWS_PROFILE) and check with `aws sts get-caller-identity`",
        )
    if isinstance(error, (SSOError, TokenRetrievalError)):
        return CredentialsError(f"{call}: the sign-in has expired ({error})", "run `aws sso login` again")
    if isinstance(error, (ConnectionError, HTTPClientError)):
        return UnreachableError(
            f"{call}: no answer ({error})",
            "check the network, the `region` in cdk.json, and AWS_ENDPOINT_URL if you set it",
        )
    if isinstance(error, ClientError):
        return _explain_answer(error, call=call, needed=permission(service, operation))
    if isinstance(error, BotoCoreError):
        return OperatorError(f"{call}: {error}", "report this: the call itself is built wrongly")
    if isinstance(error, ValueError):  # botocore's own for an endpoint without a scheme
        return RefusedError(f"{call}: {error}", "correct AWS_ENDPOINT_URL, or unset it: an address as http://HOST:PORT")
    raise error


def _explain_answer(error: ClientError, *, call: str, needed: str) -> OperatorError:
    code, text = str(error.response["Error"].get("Code", "")), str(error.response["Error"].get("Message", ""))
    if code in _DENIED or code.endswith("AccessDenied"):
        named = _NAMED_ACTION.search(text)
        action, resource = (named[1], named[2]) if named else (needed, None)
        where = f" on {resource}" if resource else ""
        return AccessDeniedError(
            f"{call} was denied: your credentials lack {action}{where}", f"grant {action} to whom you run as"
        )
    if code in _CREDENTIALS:
        return CredentialsError(
            f"{call}: AWS does not accept these credentials ({code})",
            "sign in again, or check AWS_PROFILE and the clock",
        )
    if code in _THROTTLED:
        return RateExceededError(
            f"{call} was throttled, retries included ({code})", "wait a minute and run the command again"
        )
    if _MISSING.search(code) or "does not exist" in text or "not found" in text:
        return MissingError(
            f"{call}: {text or code}", "check `fleet_name` and `region` in cdk.json; `make deploy` makes it"
        )
    if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
        return OperatorError(
            f"{call} failed inside AWS ({code}: {text})", "run the command again; see health.aws.amazon.com"
        )
    return RefusedError(
        f"{call} was refused ({code}): {text}", "change what the message names, then run the command again"
    )
