"""`make deploy` and `make destroy`: the CDK CLI in the one order that works, and what each leaves behind.

Deploy: the model store; then, once `fleetctl publish` has filled it, everything else. CloudFormation waits for the
first box to serve, and a box without a model never does. An empty store ends the deploy here, with the next command.
Destroy: every stack, then by listing what is kept on purpose and what that costs.
Arguments after the verb go to the CLI (`make deploy ARGS="--require-approval never"`).
"""

import subprocess
import sys
from collections.abc import Sequence

from fleet import names, publish, validation
from fleet.cdk_cli import ROOT, program
from fleet.errors import UserError, exit_with
from fleet.ops.aws import Aws
from fleet.ops.errors import OperatorError
from fleet.settings import Settings

ASSEMBLY = "cdk.out"
S3_USD_PER_GB_MONTH = 0.023  # S3 Standard, us-east-2, July 2026


class StoreEmptyError(UserError):
    """The model store lacks files that the first box needs."""


def deploy(settings: Settings, arguments: Sequence[str]) -> None:
    """Synthesize once; store, check, rest."""
    _cdk("list", "--output", ASSEMBLY)
    _cdk("deploy", "--app", ASSEMBLY, names.stack(settings.fleet_name, "store"), *arguments)
    aws = Aws(settings.region)
    missing = publish.missing(aws, publish.store_bucket(aws, settings.fleet_name), settings)
    if missing:
        raise StoreEmptyError(
            f"The model store lacks {', '.join(missing)}.\n"
            "Fill it with `fleetctl publish`, then run `make deploy` again: nothing else was deployed."
        )
    _cdk("deploy", "--app", ASSEMBLY, "--all", "--concurrency=4", *arguments)


def destroy(settings: Settings, arguments: Sequence[str]) -> None:
    """Delete every stack; say what stays."""
    aws = Aws(settings.region)
    bucket = publish.store_bucket(aws, settings.fleet_name)
    _cdk("destroy", "--all", *arguments)
    sys.stdout.write("\n".join(("Kept on purpose:", *kept(aws, settings, bucket))) + "\n")


def kept(aws: Aws, settings: Settings, bucket: str) -> list[str]:
    """What still stands of the fleet, by listing, with what it costs and the command that removes it."""
    size = sum(version["Size"] for version in aws.items("s3", "ListObjectVersions", "Versions", Bucket=bucket))
    gigabytes = size / 1e9
    wanted = [names.lever_parameter(settings.fleet_name), names.state_parameter(settings.fleet_name)]
    found = aws.call("ssm", "GetParameters", Names=wanted)["Parameters"]
    return [
        f"  s3://{bucket}: {gigabytes:.1f} GB, about ${gigabytes * S3_USD_PER_GB_MONTH:.2f} a month until you empty "
        "and delete it, with all versions, in the S3 console",
        *(f"  {item['Name']}: free; a new deploy goes on from it" for item in found),
        "  CDKToolkit, the account's own CDK bucket and roles: cents a month, shared with every CDK app",
    ]


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
    except OperatorError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.code)


if __name__ == "__main__":
    main()
