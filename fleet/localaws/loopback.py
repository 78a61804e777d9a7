"""A boto3 client of this very server, for extensions that are simplest as API calls. Logged as CloudFormation's."""

import os
from typing import Any

import boto3

from fleet.localaws.credentials import CLOUDFORMATION_KEY


def client(service: str, region: str) -> Any:
    """A client whose calls come back in through the endpoint."""
    return boto3.client(
        service,
        region_name=region,
        endpoint_url=f"http://127.0.0.1:{os.environ['MOTO_PORT']}",
        aws_access_key_id=CLOUDFORMATION_KEY,
        aws_secret_access_key="not-a-secret",  # noqa: S106  # pragma: allowlist secret
    )
