"""Preflight checks of one fleet: what it would launch, from what, and whether its watchdog could act tonight."""

from fleet.account.aws_errors import MissingError
from fleet.core import names
from fleet.modelstore import release
from fleet.modelstore.upload import store_bucket
from fleet.ops import pin_ami
from fleet.ops.checks import Finding, Ground, failed, not_deployed, passed, warned
from lambdas.watchdog.state import Mode, StateError, loads


def stacks(ground: Ground) -> Finding:
    """Whether every stack stands, and none is stuck half-way."""
    fleet = ground.settings.fleet_name
    stacks = names.ALL_STACKS if ground.settings.gateway else names.STACKS
    states = {}
    for stack in stacks:
        described = ground.aws.find("cloudformation", "DescribeStacks", StackName=names.stack(fleet, stack))
        if described:
            states[stack] = described["Stacks"][0]["StackStatus"]
    if not states:
        return passed("no stack yet: a first deploy")
    bad = {stack: status for stack, status in states.items() if "FAILED" in status or status == "ROLLBACK_COMPLETE"}
    if bad:
        return failed(
            "; ".join(f"{names.stack(fleet, stack)} is {status}" for stack, status in bad.items()),
            "read its events in CloudFormation; ROLLBACK_COMPLETE: `make deploy`, which deletes what is left of it; "
            "UPDATE_ROLLBACK_FAILED: aws cloudformation continue-update-rollback --stack-name NAME",
        )
    moving = [stack for stack, status in states.items() if status.endswith("_IN_PROGRESS")]
    if moving:
        return warned(f"a deploy is under way: {', '.join(moving)}", "wait; the watchdog waits too, up to its skip cap")
    absent = [stack for stack in stacks if stack not in states]
    return passed(f"{len(states)} of {len(stacks)} stand" + (f"; to come: {', '.join(absent)}" if absent else ""))


def offerings(ground: Ground) -> Finding:
    """Whether AWS offers the pools in the zones at all."""
    settings = ground.settings
    offered = {
        (offer["Location"], offer["InstanceType"])
        for offer in ground.aws.items(
            "ec2",
            "DescribeInstanceTypeOfferings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": sorted({*settings.pools, *settings.score_types})}],
        )
    }
    remedy = "choose zones and pools from: aws ec2 describe-instance-type-offerings --location-type availability-zone"
    bare = [zone for zone in settings.zones if not any((zone, pool) in offered for pool in settings.pools)]
    if len(bare) == len(settings.zones):
        return failed(f"none of {', '.join(settings.pools)} is offered in {', '.join(settings.zones)}", remedy)
    missing = [f"{pool} in {zone}" for zone in settings.zones for pool in settings.pools if (zone, pool) not in offered]
    unknown = [kind for kind in settings.score_types if not any(kind == offer[1] for offer in offered)]
    if missing or unknown:
        unscored = [f"{kind} (score type) anywhere" for kind in unknown]
        return warned(f"not offered: {', '.join(missing + unscored)}", remedy)
    return passed(f"{', '.join(settings.pools)} in {', '.join(settings.zones)}")


def image(ground: Ground) -> Finding:
    """Whether the machine image exists and fits the root volume."""
    pinned = ground.settings.ami_id
    found = pin_ami.describe(ground.aws, pinned or pin_ami.newest(ground.aws))
    if problems := found.problems(ground.settings):
        return failed(f"{found.id}: {'; '.join(problems)}", "pin another: `fleetctl pin-ami`, or raise root_volume_gib")
    if pinned is None:
        return warned(
            f"{found.id} ({found.name}) today: not pinned, a new image rolls the fleet by itself",
            "run `fleetctl pin-ami`",
        )
    return passed(f"{found.id} ({found.name}), {found.root_gib} of {ground.settings.root_volume_gib} GiB")


def artifacts(ground: Ground) -> Finding:
    """Whether the store holds every file that the first box needs, each with its checksum."""
    model = ground.settings.model
    try:
        bucket = store_bucket(ground.aws, ground.settings.fleet_name)
    except MissingError as error:
        return warned(
            f"no model store yet ({error.message})",
            "run `make deploy`: it makes the store first, then asks for `fleetctl publish`",
        )
    absent, unchecked, size = [], [], 0
    for artifact in (model.engine, model.gguf, model.modelfile):
        head = ground.aws.find("s3", "HeadObject", Bucket=bucket, Key=artifact.key, ChecksumMode="ENABLED")
        if head is None:
            absent.append(artifact.key)
            continue
        size += head["ContentLength"]
        recorded = head.get("Metadata", {}).get("sha256")
        if artifact.sha256 and recorded != artifact.sha256:
            return failed(
                f"s3://{bucket}/{artifact.key} has sha256 {recorded}, cdk.json says {artifact.sha256}",
                "publish the file that cdk.json names: `fleetctl publish`",
            )
        if not recorded:
            unchecked.append(artifact.key)
    if absent:
        return failed(f"s3://{bucket} lacks {', '.join(absent)}", "run `fleetctl publish`")
    if unchecked:
        return warned(f"no checksum on {', '.join(unchecked)}", "run `fleetctl publish` again: it records them")
    return passed(f"3 files, {size / 1e9:.1f} GB, each with its checksum, in s3://{bucket}")


def released(ground: Ground) -> Finding:
    """Whether later boxes may restore what the first one built, or every boot is cold."""
    try:
        waits = release.awaits_release(
            ground.aws, store_bucket(ground.aws, ground.settings.fleet_name), ground.settings
        )
    except MissingError:
        return not_deployed("there is nothing to release yet")
    if waits and ground.function:
        return warned("nothing is released: every boot is cold, about 15 min", "run `fleetctl publish --built`")
    return passed("the first box has built nothing yet" if waits else "boxes restore what was released")


def subscriptions(ground: Ground) -> Finding:
    """Whether the mails reach anybody."""
    function = ground.function
    if function is None:
        if not ground.settings.mail:
            return warned("no mail address: nobody hears of a failover", "set `mail` in cdk.json")
        return not_deployed(f"{', '.join(ground.settings.mail)} will be asked to confirm")
    topic = function["Environment"]["Variables"][names.ENV_TOPIC_ARN]
    found = list(ground.aws.items("sns", "ListSubscriptionsByTopic", "Subscriptions", TopicArn=topic))
    pending = [s["Endpoint"] for s in found if s["SubscriptionArn"] in ("PendingConfirmation", "Deleted")]
    if not found:
        return warned("no mail address: nobody hears of a failover", "set `mail` in cdk.json and deploy")
    if pending:
        return failed(
            f"not confirmed: {', '.join(pending)}",
            "open the mail `AWS Notification - Subscription Confirmation` and confirm",
        )
    if absent := sorted(set(ground.settings.mail) - {s["Endpoint"] for s in found}):
        return failed(
            f"in cdk.json but not subscribed: {', '.join(absent)}", "run `make deploy`, then confirm the mail"
        )
    if unknown := sorted({s["Endpoint"] for s in found if s["Protocol"] == "email"} - set(ground.settings.mail)):
        return warned(
            f"subscribed but not in cdk.json: {', '.join(unknown)}", "add to `mail` in cdk.json, or unsubscribe"
        )
    return passed(f"{len(found)} confirmed: {', '.join(s['Endpoint'] for s in found)}")


def lever(ground: Ground) -> Finding:
    """Whether state, parameter and group say the same."""
    fleet = ground.settings.fleet_name
    text = ground.parameters.get(names.state_parameter(fleet))
    parameter = ground.parameters.get(names.lever_parameter(fleet))
    if text is None and parameter is None:
        return not_deployed("the first deploy writes lever and state")
    try:
        state = loads(text)
    except StateError as error:
        return failed(str(error), "docs/runbook/state-unreadable.md")
    distribution = ground.group["MixedInstancesPolicy"]["InstancesDistribution"] if ground.group else {}
    live = distribution.get("OnDemandPercentageAboveBaseCapacity")
    group = "absent" if live is None else live
    said = f"{state.mode}: parameter {parameter}, group {group}, expected {state.expected_lever}"
    if state.unfinished:
        return warned(
            f"{said}; unfinished {state.unfinished.kind}", "the next event or scan finishes it: `fleetctl scan`"
        )
    if parameter == str(state.expected_lever) and live in (None, state.expected_lever):
        return passed(said)
    if state.mode is Mode.PINNED:
        return failed(said, "pinned reports and does not repair: `fleetctl pin` again, or `fleetctl arm`")
    return failed(said, "the next scan repairs it and mails: `fleetctl scan`")
