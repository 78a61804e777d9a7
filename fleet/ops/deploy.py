"""`make deploy` and `make destroy`: the CDK CLI in the one order that works, and what each leaves behind.

Deploy: the model store; then, once `fleetctl publish` has filled it, everything else. CloudFormation waits for the
first box to serve (aws-behaviours: first-box-awaited), and a box without a model never does. An empty store ends the
deploy here, with the next command.
While launching is suspended, or something else rolls the group, a deploy is refused: it would wait and roll back.
A gateway that stands although `cdk.json` has none any more is deleted first, after asking.
Destroy: every stack, a game day's faults first, then by listing what is kept on purpose and what that costs.
Arguments after the verb go to the CLI (`make deploy ARGS="--require-approval never"`).
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence

from fleet.account.access import Aws
from fleet.account.aws_errors import OperatorError
from fleet.config import validation
from fleet.config.settings import Settings
from fleet.core import names
from fleet.core.cdk_cli import program
from fleet.core.errors import UserError, exit_with
from fleet.core.untrusted import printable
from fleet.modelstore import release, upload
from fleet.ops import checks_deploy
from fleet.ops.checks import Ground

ASSEMBLY = "cdk.out"
FAULTS = ("--app", "python -m stacks.faults", "--output", "build/faults")  # an app of its own: as `make faults`
TABLE_USD_PER_GB_MONTH = 0.45  # DynamoDB Standard and its point-in-time recovery, us-east-2, July 2026, from memory
DELETED_SECONDS = 1800  # streams end within 10 minutes, balancer and tasks after them
POLL_SECONDS = 5.0
GONE = "DELETE_COMPLETE"  # of a stack that nobody knows, too
EXIT_INTERRUPTED = 130  # as a shell tells of Ctrl-C
S3_USD_PER_GB_MONTH = 0.023  # S3 Standard, us-east-2, July 2026


def deploy(settings: Settings, arguments: Sequence[str]) -> None:
    """Refuse what would hang or be refused; synthesize once; store, check, rest."""
    aws = _account(settings, arguments)
    checks_deploy.require_clear(Ground(settings, aws))
    if settings.gateway is None:
        end_gateway(aws, settings, arguments)
    profile = _profile(arguments)  # the templates name the account of the credentials that they are made with
    _cdk("list", "--output", ASSEMBLY, *(("--profile", profile) if profile else ()))
    _cdk("deploy", "--app", ASSEMBLY, names.stack(settings.fleet_name, "store"), *arguments)
    bucket = upload.store_bucket(aws, settings.fleet_name)
    missing = upload.missing(aws, bucket, settings)
    if missing:
        raise UserError(
            f"The model store lacks {', '.join(missing)}.\n"
            "Fill it with `fleetctl publish`, then run `make deploy` again: nothing else was deployed."
        )
    # Side by side only where nothing is asked: the CLI puts no question about one of several stacks, it fails.
    together = ("--concurrency=4",) if any("never" in argument for argument in arguments) else ()
    _cdk("deploy", "--app", ASSEMBLY, "--all", *together, *arguments)
    if release.awaits_release(aws, bucket, settings):
        sys.stdout.write("Boots are cold until `fleetctl publish --built` has released what the first box built.\n")


def destroy(settings: Settings, arguments: Sequence[str]) -> None:
    """Delete every stack, those of a half-done destroy too; say what stays."""
    aws = _account(settings, arguments)
    if settings.gateway is None:
        end_gateway(aws, settings, arguments)
    if _stands(aws, names.stack(settings.fleet_name, names.STACK_FAULTS)):
        _cdk("destroy", *FAULTS, *arguments)
    _cdk("destroy", "--all", *arguments)
    stacks = (*names.ALL_STACKS, names.STACK_FAULTS)
    if left := [name for stack in stacks if _stands(aws, name := names.stack(settings.fleet_name, stack))]:
        raise UserError(f"Still standing: {', '.join(left)}. Run `make destroy` again to delete the rest.")
    sys.stdout.write("\n".join(("Kept on purpose:", *kept(aws, settings))) + "\n")


def end_gateway(aws: Aws, settings: Settings, arguments: Sequence[str]) -> None:
    """Delete a gateway that stands although the settings have none: what it imports of the group can then change.

    Asks, unless the CLI is told not to; its table is kept. UserError where it stays.
    """
    stack = names.stack(settings.fleet_name, names.STACK_GATEWAY)
    if not _stands(aws, stack):
        return
    sys.stdout.write(
        f"cdk.json has no gateway any more, and {stack} stands: it is deleted first. Requests under way have 10 "
        f"minutes; the table {names.gateway_table(settings.fleet_name)} with keys, caps and ledger is kept.\n"
    )
    if not any("never" in argument or argument in ("--force", "-f") for argument in arguments):
        try:
            said = input(f"Delete {stack} (y/n)? ")
        except EOFError:
            said = ""
        if said.strip().lower() not in ("y", "yes"):
            raise UserError(f"{stack} stands: put the section back into cdk.json, or answer with y.")
    aws.call("cloudformation", "DeleteStack", StackName=stack)
    until = time.monotonic() + DELETED_SECONDS
    while _stands(aws, stack):
        if time.monotonic() > until or _status(aws, stack) == "DELETE_FAILED":
            raise UserError(f"{stack} still stands: its events in CloudFormation say why.")
        time.sleep(POLL_SECONDS)


def _status(aws: Aws, stack: str) -> str:
    found = aws.find("cloudformation", "DescribeStacks", StackName=stack)
    return str(found["Stacks"][0]["StackStatus"]) if found else GONE


def _account(settings: Settings, arguments: Sequence[str]) -> Aws:
    """AWS as the CLI will see it: with the profile that it is given, which wins over keys in the environment."""
    profile = _profile(arguments)
    return Aws(settings.region, {"AWS_PROFILE": profile} if profile else None)


def _profile(arguments: Sequence[str]) -> str | None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--profile")
    profile: str | None = parser.parse_known_args(list(arguments))[0].profile
    return profile


def _stands(aws: Aws, stack: str) -> bool:
    return _status(aws, stack) != GONE


def kept(aws: Aws, settings: Settings) -> list[str]:
    """What still stands of the fleet, by listing, with what it costs and the command that removes it."""
    # As CloudFormation named it: the stack that knew is gone. A fleet that was deployed twice has left two.
    prefix = f"{names.stack(settings.fleet_name, 'store')}-bucket"
    buckets = aws.call("s3", "ListBuckets", Prefix=prefix, BucketRegion=settings.region)["Buckets"]
    # A fleet whose name begins alike has a store whose name does: what follows is CloudFormation's own alone.
    stores = [bucket["Name"] for bucket in buckets if re.fullmatch(f"{prefix}[0-9a-f]+-[a-z0-9]+", bucket["Name"])]
    wanted = [names.lever_parameter(settings.fleet_name), names.state_parameter(settings.fleet_name)]
    found = aws.call("ssm", "GetParameters", Names=wanted)["Parameters"]
    return [
        *(_store(aws, bucket) for bucket in stores),
        *_table(aws, names.gateway_table(settings.fleet_name)),
        *(f"  {item['Name']}: free; a new deploy goes on from it" for item in found),
        "  CDKToolkit, the account's own CDK bucket and roles: cents a month, shared with every CDK app",
    ]


def _table(aws: Aws, name: str) -> list[str]:
    found = aws.find("dynamodb", "DescribeTable", TableName=name)
    if found is None:
        return []
    gigabytes = found["Table"].get("TableSizeBytes", 0) / 1e9
    dollars = f"about ${gigabytes * TABLE_USD_PER_GB_MONTH:.2f} a month"
    return [f"  table {name}: {gigabytes:.1f} GB, {dollars}; a gateway that comes back takes it up (docs/teardown.md)"]


def _store(aws: Aws, bucket: str) -> str:
    gigabytes = sum(found["Size"] for found in aws.items("s3", "ListObjectVersions", "Versions", Bucket=bucket)) / 1e9
    dollars = f"about ${gigabytes * S3_USD_PER_GB_MONTH:.2f} a month"
    return f"  s3://{bucket}: {gigabytes:.1f} GB, {dollars} until you empty and delete it (docs/teardown.md)"


def _cdk(*arguments: str) -> None:
    """One CLI command on the user's own terminal; its failure is its own last word."""
    command = [*program(), *arguments, "--no-notices"]
    done = subprocess.run(command, check=False)  # noqa: S603  (our own, and the arguments of the user)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    """`python -m fleet.ops.deploy deploy|destroy [arguments for the CLI]`."""
    verb, *arguments = sys.argv[1:]
    try:
        {"deploy": deploy, "destroy": destroy}[verb](validation.load(), arguments)
    except UserError as error:
        exit_with(error)
    except OperatorError as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\n{verb}: interrupted; what CloudFormation has begun goes on without us. "
            f"`fleetctl preflight` tells how the stacks stand; then run it again.\n"
        )
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
