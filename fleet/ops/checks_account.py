"""Preflight checks of the account: who we are, what it may run, what must exist in it before the fleet does."""

from dataclasses import fields

from fleet.config.settings import Capacity
from fleet.core import names
from fleet.ops.checks import Finding, Ground, failed, passed, warned

BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
BOOTSTRAP_NEEDED = 6  # what the CDK's default synthesizer asks for; a test compares it with the synthesized manifest

# aws-behaviours: new-account-concurrency
# Reserving one execution must leave this many unreserved (Lambda's own rule); new accounts may have 10 in all.
UNRESERVED_FLOOR = 100

MOST_BOXES = next(field.metadata["le"] for field in fields(Capacity) if field.name == "max")

# With an account's first cluster AWS makes the role and fails on it, as it is not known everywhere yet.
LINKED_ROLES_GATEWAY = {"AWSServiceRoleForECS": "ecs.amazonaws.com"}


def credentials(ground: Ground) -> Finding:
    """Whose account this is."""
    who = ground.aws.call("sts", "GetCallerIdentity")
    return passed(f"account {who['Account']}, region {ground.settings.region}, as {who['Arn']}")


def bootstrap(ground: Ground) -> Finding:
    """Whether the CDK can deploy here."""
    remedy = f"run `cdk bootstrap aws://ACCOUNT/{ground.settings.region}`"
    answer = ground.aws.find("ssm", "GetParameter", Name=BOOTSTRAP_PARAMETER)
    if answer is None:
        return failed("the CDK's bootstrap stack is not in this account and region", remedy)
    found = f"bootstrap version {answer['Parameter']['Value']}, needed {BOOTSTRAP_NEEDED}"
    return passed(found) if int(answer["Parameter"]["Value"]) >= BOOTSTRAP_NEEDED else failed(found, remedy)


def spot_quota(ground: Ground) -> Finding:
    """Whether spot may run the fleet and its successors."""
    return _quota(ground, names.QUOTA_SPOT, "spot")


def on_demand_quota(ground: Ground) -> Finding:
    """Whether on-demand may; it is another quota, so both kinds can run at once while one hands over to the other."""
    return _quota(ground, names.QUOTA_ON_DEMAND, "on-demand")


def _quota(ground: Ground, code: str, kind: str) -> Finding:
    """Launch-first needs room for `max` boxes of the same kind, of the largest pool that may be drawn.

    On-demand may have to carry the whole fleet; spot never carries the on-demand base. A successor that capacity
    rebalancing launches may pass `max` by a tenth, by at least one: without room for it, it waits for its predecessor.
    """
    capacity, pools = ground.settings.capacity, [ground.settings.pool(name) for name in ground.settings.pools]
    smallest, largest = min(pool.vcpus for pool in pools), max(pool.vcpus for pool in pools)
    value = int(
        ground.aws.call("service-quotas", "GetServiceQuota", ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"]
    )
    base = capacity.on_demand_base if kind == "spot" else 0
    least, most = capacity.min - base, capacity.max - base
    if kind == "spot" and capacity.most == base:
        return passed("no box above the on-demand base: spot is never asked")
    over = most + max(1, capacity.max // 10) if capacity.most > 1 else most
    remedy = (
        f"request {over * largest} vCPUs: aws service-quotas request-service-quota-increase --service-code ec2 "
        f"--quota-code {code} --desired-value {over * largest} --region {ground.settings.region}"
    )
    arithmetic = f"{kind} G/VT quota {value} vCPUs"
    if value < least * smallest:
        return failed(f"{arithmetic}: not even {least} x {smallest} for the boxes that should serve", remedy)
    if least and value < (least + 1) * smallest:
        return failed(f"{arithmetic}: no room for a successor beside its predecessor ({most} x {smallest})", remedy)
    if value < (capacity.most - base + 1) * smallest:
        grown = f"{capacity.most - base} x {smallest} that `grow_to` allows, and a successor"
        return failed(f"{arithmetic}: no room for {grown}", remedy)
    if value < most * largest:
        fits = value // smallest
        return warned(f"{arithmetic}: launch-first fits {min(fits, most)} x {smallest}, not {most} x {largest}", remedy)
    if value < over * largest:
        return warned(
            f"{arithmetic}: {most} x {largest} for launch-first; rebalancing may pass max to {over}: such a successor "
            "waits for its predecessor",
            remedy,
        )
    return passed(f"{arithmetic}: {over} x {largest} for launch-first")


def room(ground: Ground) -> Finding:
    """How many successors `max` lets launch before their predecessors end: a zone that falls takes several at once."""
    capacity = ground.settings.capacity
    beside, boxes = capacity.max - capacity.most, capacity.most
    said = f"{boxes} to {capacity.max} boxes: {beside} of {boxes} successors may launch ahead"
    if beside >= boxes:
        return passed(said)
    more = min(2 * boxes, MOST_BOXES)
    remedy = f"set capacity.max to {more}" if more > capacity.max else "set a smaller capacity.grow_to"
    return warned(f"{said}, the others once their predecessors are gone", remedy)


def lambda_concurrency(ground: Ground) -> Finding:
    """Whether one execution is left to reserve: the watchdog's own mutex."""
    function = names.watchdog_function(ground.settings.fleet_name)
    deployed = ground.aws.find("lambda", "GetFunctionConcurrency", FunctionName=function)
    if deployed and deployed.get("ReservedConcurrentExecutions") == 1:
        return passed("the watchdog has its one reserved execution")
    free = int(ground.aws.call("lambda", "GetAccountSettings")["AccountLimit"]["UnreservedConcurrentExecutions"])
    if free <= UNRESERVED_FLOOR:
        return failed(
            f"{free} unreserved Lambda executions: reserving 1 must leave {UNRESERVED_FLOOR}",
            "request more: aws service-quotas request-service-quota-increase --service-code lambda "
            "--quota-code L-B99A9384 --desired-value 1000",
        )
    return passed(f"{free} unreserved Lambda executions, 1 to reserve")


def linked_roles(ground: Ground) -> Finding:
    """Whether the roles that AWS's own services act through exist."""
    roles = {**names.LINKED_ROLES, **(LINKED_ROLES_GATEWAY if ground.settings.gateway else {})}
    missing = [role for role in roles if ground.aws.find("iam", "GetRole", RoleName=role) is None]
    if missing:
        make = "aws iam create-service-linked-role --aws-service-name"
        commands = "; ".join(f"{make} {roles[role]}" for role in missing)
        return warned(f"missing: {', '.join(missing)}; a deploy makes them if it can", commands)
    return passed(", ".join(roles))


def ebs_key(ground: Ground) -> Finding:
    """Whether launches may use the key that volumes are encrypted with: the account's default, or the settings' own."""
    key = ground.settings.ebs_key_arn  # aws-behaviours: ebs-key-grant
    if key is None:
        if not ground.aws.call("ec2", "GetEbsEncryptionByDefault").get("EbsEncryptionByDefault"):
            return passed("volumes use AWS's own key")
        key = str(ground.aws.call("ec2", "GetEbsDefaultKmsKeyId")["KmsKeyId"])
        if key.endswith("alias/aws/ebs"):
            return passed("volumes use AWS's own key")
    role = "aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
    grants = ground.aws.items("kms", "ListGrants", "Grants", KeyId=key)
    if any(role in grant.get("GranteePrincipal", "") for grant in grants):
        return passed(f"{key}: granted to AWSServiceRoleForAutoScaling")
    if role in ground.aws.call("kms", "GetKeyPolicy", KeyId=key, PolicyName="default")["Policy"]:
        return passed(f"{key}: its policy names AWSServiceRoleForAutoScaling")
    partition = key.split(":")[1] if key.startswith("arn:") else "aws"
    return failed(
        f"{key}: no grant for AWSServiceRoleForAutoScaling; every launch would die",
        f"aws kms create-grant --key-id {key} --grantee-principal arn:{partition}:iam::ACCOUNT:role/{role} "
        "--operations Encrypt Decrypt ReEncryptFrom ReEncryptTo GenerateDataKeyWithoutPlaintext DescribeKey "
        "CreateGrant",
    )
