"""Custom resource: fails the deploy within seconds while the model store lacks a file that the first box would need.

CloudFormation would wait for that box (aws-behaviours: first-box-awaited).
"""

from typing import Any

import boto3
from botocore.exceptions import ClientError

from lambdas.resources.answer import answered


class StoreIncompleteError(Exception):
    """The store lacks files; the message names them and the command that brings them."""


def work(event: dict[str, Any]) -> None:
    """Look for every key of the request, at create and whenever the keys change."""
    if event["RequestType"] == "Delete":
        return
    bucket, keys = (event["ResourceProperties"][name] for name in ("Bucket", "Keys"))
    s3 = boto3.client("s3")
    missing = [key for key in keys if not exists(s3, bucket, key)]
    if missing:
        raise StoreIncompleteError(
            f"s3://{bucket} lacks {', '.join(missing)}: run `fleetctl publish`, then deploy again"
        )


def exists(s3: Any, bucket: str, key: str) -> bool:
    """Whether the object is there."""
    try:
        s3.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return False
        raise
    return True


handler = answered(work)
