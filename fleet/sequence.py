"""`make deploy` and `make destroy`: the CDK CLI in the one order that works, and what each leaves behind.

Deploy: the model store; then, once `fleetctl publish` has filled it, everything else. CloudFormation waits for the
first box to serve, and a box without a model never does. An empty store ends the deploy here, with the next command.
Destroy: every stack, then by listing what is kept on purpose and what that costs.
Arguments after the verb go to the CLI (`make deploy ARGS="--require-approval never"`).
"""

import subprocess
import sys
from collections.abc import Sequence

import boto3
from botocore.exceptions import ClientError

from fleet import names, validation
from fleet.cdk_cli import ROOT, program
from fleet.errors import UserError, exit_with
from fleet.settings import Settings
from lambdas.resources.require_artifacts import exists

ASSEMBLY = "cdk.out"
S3_USD_PER_GB_MONTH = 0.023  # S3 Standard, us-east-2, July 2026


class StoreEmptyError(UserError):
    """The model store lacks files that the first box needs."""


def deploy(settings: Settings, arguments: Sequence[str]) -> None:
    """Synthesize once; store, check, rest."""
    _cdk("list", "--output", ASSEMBLY)
    _cdk("deploy", "--app", ASSEMBLY, names.stack(settings.fleet_name, "store"), *arguments)
    missing = missing_artifacts(settings)
    if missing:
        raise StoreEmptyError(
            f"The model store lacks {', '.join(missing)}.\n"
            "Fill it with `fleetctl publish`, then run `make deploy` again: nothing else was deployed."
        )
    _cdk("deploy", "--app", ASSEMBLY, "--all", "--concurrency=4", *arguments)


def missing_artifacts(settings: Settings) -> list[str]:
    """Keys that the settings name and the store does not hold."""
    bucket = _bucket(settings)
    s3 = boto3.client("s3", region_name=settings.region)
    model = settings.model
    keys = [artifact.key for artifact in (model.engine, model.gguf, model.modelfile)]
    return [key for key in keys if not exists(s3, bucket, key)]


def destroy(settings: Settings, arguments: Sequence[str]) -> None:
    """Delete every stack; say what stays."""
    bucket = _bucket(settings)
    _cdk("destroy", "--all", *arguments)
    sys.stdout.write("\n".join(("Kept on purpose:", *kept(settings, bucket))) + "\n")


def kept(settings: Settings, bucket: str) -> list[str]:
    """What still stands of the fleet, by listing, with what it costs and the command that removes it."""
    lines = []
    s3 = boto3.client("s3", region_name=settings.region)
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket)
    size = sum(version["Size"] for page in pages for version in page.get("Versions", []))
    gigabytes = size / 1e9
    lines.append(
        f"  s3://{bucket}: {gigabytes:.1f} GB, about ${gigabytes * S3_USD_PER_GB_MONTH:.2f} a month until you empty "
        f"and delete it (aws s3 rb --force s3://{bucket})"
    )
    ssm = boto3.client("ssm", region_name=settings.region)
    wanted = [names.lever_parameter(settings.fleet_name), names.state_parameter(settings.fleet_name)]
    found = ssm.get_parameters(Names=wanted)["Parameters"]
    lines += [f"  {item['Name']} = {item['Value']}: free; a new deploy goes on from it" for item in found]
    lines.append("  CDKToolkit, the account's own CDK bucket and roles: cents a month, shared with every CDK app")
    return lines


def _bucket(settings: Settings) -> str:
    stack = names.stack(settings.fleet_name, "store")
    cloudformation = boto3.client("cloudformation", region_name=settings.region)
    try:
        outputs = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["Outputs"]
    except ClientError as error:
        raise UserError(f"{stack} cannot be read: {error.response['Error']['Message']}") from None
    return str(next(item["OutputValue"] for item in outputs if item["OutputKey"] == names.OUTPUT_BUCKET))


def _cdk(*arguments: str) -> None:
    """One CLI command on the user's own terminal; its failure is its own last word."""
    command = [*program(), *arguments, "--no-notices"]
    done = subprocess.run(command, cwd=ROOT, check=False)  # noqa: S603  (our own, and the arguments of the user)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    """`python -m fleet.sequence deploy|destroy [arguments for the CLI]`."""
    verb, *arguments = sys.argv[1:]
    try:
        {"deploy": deploy, "destroy": destroy}[verb](validation.load(), arguments)
    except UserError as error:
        exit_with(error)


if __name__ == "__main__":
    main()
