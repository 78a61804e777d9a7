"""Custom resource: creates SSM parameters where they do not exist, on the first deploy; later ones change nothing."""

from typing import Any

import boto3

from lambdas.resources.answer import answered


def work(event: dict[str, Any]) -> None:
    """Create each parameter of the request; one that exists keeps its value."""
    if event["RequestType"] != "Create":
        return
    ssm = boto3.client("ssm")
    for name, value in event["ResourceProperties"]["Parameters"].items():
        try:
            ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=False)
        except ssm.exceptions.ParameterAlreadyExists:
            print(f"{name} exists and is kept")  # noqa: T201  the function's log


handler = answered(work)
