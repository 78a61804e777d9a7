"""The table of launch failures, by code: what each means for the policy, what its mail says and what mends it.

Read off AWS's own words: a group's status message, or an instance's state reason. What has a headline is mailed under
it, and has its row in docs/runbook/mail-launch-refused.md. Sources of the words, each held against its page:
  [A] EC2 Auto Scaling User Guide, "Troubleshoot: EC2 instance launch failures" and "Troubleshoot: AMI issues"; a group
      with a mixed policy puts EC2's code before these sentences, one without says the sentence alone
  [E] Amazon EC2 API Reference, "Error codes for the Amazon EC2 API"
  [R] Amazon EC2 API Reference, "StateReason", which botocore repeats
  [S] Amazon EC2 User Guide, "Spot request status codes"
  [G] status messages of groups that people have put into public issues and notes; AWS lists them nowhere
"""

import re
from dataclasses import dataclass
from datetime import datetime

from fleet.config.settings import Settings
from fleet.core import names
from lambdas.watchdog.cloud import Instance
from lambdas.watchdog.world import boot_budget_seconds

CODE_WITHIN = 100  # characters of a mailed reason, which is cut after 120 bytes
ANY_CODE = re.compile(r"\b(?:Client|Server)\.[A-Za-z.]+|\b[A-Z][A-Za-z.]+(?= - )")  # a state reason; an error's own


@dataclass(frozen=True)
class Failure:
    """One class of failures."""

    name: str
    codes: tuple[str, ...]
    headline: str = ""  # of the mail; empty: a failure that is no news
    remedy: str = ""
    lasting: bool = False  # time does not mend it: a return to spot that met it is not repeated on a good score
    refuses: bool = False  # no box comes of it, whatever id it names
    fails_boot: bool = False  # a box that ended of it has failed its boot


RECLAIM = Failure("reclaim", ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"))  # [R]
# By a call: the box's own as it leaves, the group's, an operator's or ours. It says nothing of why.
# aws-behaviours: abandon-told
ENDED = Failure("ended", ("Client.UserInitiatedShutdown", "abandoned", "ABANDON"))  # [R] [G]
CAPACITY = Failure(
    "capacity",
    (
        # [E]; the last is a zone that lacks the type, and "UnsupportedOperation" something else
        "InsufficientInstanceCapacity", "UnfulfillableCapacity", "InsufficientVolumeCapacity", "Unsupported -",
        "do not have sufficient", "no Spot capacity available", "Insufficient capacity",  # [A] [A] [G]
        "not supported in your requested", "configuration is currently not supported",  # [A]
        "capacity-not-available",  # [S]
    ),
    refuses=True,
)  # fmt: skip
QUOTA = Failure(
    "quota",
    (
        "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "InstanceLimitExceeded", "VolumeLimitExceeded",  # [E]
        "MaxIOPSLimitExceeded", "NetworkInterfaceLimitExceeded",  # [E]
        "Max spot instance count exceeded", "You've reached your quota",  # [G]
    ),
    headline="a quota of the account is used up",
    remedy="Raise the quota: fleetctl preflight says which, and by what command.",
    lasting=True,
    refuses=True,
)  # fmt: skip
ADDRESSES = Failure(
    "addresses",
    ("InsufficientFreeAddressesInSubnet",),  # [E]
    headline="the subnet has no free address",
    remedy="Free addresses in the fleet's subnets, or add a zone.",
    refuses=True,
)
PRICE = Failure(
    "price",
    ("SpotMaxPriceTooLow", "lower than the minimum required Spot request", "price-too-low"),  # [E] [A] [S]
    headline="the maximum price of spot is too low",
    remedy="Take SpotMaxPrice off the group: the fleet sets none.",
    lasting=True,
    refuses=True,
)
ACCOUNT = Failure(
    "account",
    (
        "OptInRequired",
        "PendingVerification",
        "Blocked",
        "not subscribed",
        "not eligible for Free Tier",
    ),  # [E] ... [A] [G]
    headline="AWS holds the account back",
    remedy="The reason says what AWS waits for: a verification, a subscription, a paid plan, an answer to its support.",
    lasting=True,
    refuses=True,
)
PERMISSION = Failure(
    "permission",
    ("UnauthorizedOperation", "AuthFailure", "AccessDenied", "not authorized", "Authentication Failure"),  # [E] ... [G]
    headline="a permission is missing",
    remedy="fleetctl preflight names the grant; a changed policy of account or organization is the usual cause.",
    lasting=True,
    refuses=True,
)
IMAGE = Failure(
    "image",
    (
        "InvalidAMIID", "InvalidSnapshot", "InvalidBlockDeviceMapping", "InvalidSubnet", "InvalidGroup",  # [E]
        "InvalidSecurityGroup", "InvalidLaunchTemplate", "Invalid IAM Instance Profile",  # [E] [G] [G]
        "does not exist", "Invalid device name",  # [A]
    ),
    headline="the launch template names what is not there",
    remedy="Pin an image that exists (fleetctl pin-ami) and deploy; a deleted snapshot, subnet or group: deploy again.",
    lasting=True,
    fails_boot=True,
)  # fmt: skip
KEY = Failure(
    "key",
    ("Client.InternalError", "InvalidKMSKey"),  # [A] [R], [G]
    headline="the disk's key cannot be used",
    remedy="Grant the EBS key to the group's service-linked role (fleetctl preflight, line EBS key), or enable it.",
    lasting=True,
    fails_boot=True,
)
BOOT = Failure("boot", ("Client.InstanceInitiatedShutdown",), fails_boot=True)  # [R]: it powered itself off
UNKNOWN = Failure(
    "unknown",
    (),
    headline="a reason that the watchdog does not know",
    remedy="fleetctl history --days 1 has the refusals in AWS's words.",
    fails_boot=True,
)
# An account that is held back is also "not authorized".
TABLE = (RECLAIM, ENDED, CAPACITY, QUOTA, ADDRESSES, PRICE, ACCOUNT, PERMISSION, IMAGE, KEY, BOOT, UNKNOWN)


def read(words: str) -> Failure:
    """The class of a failure in AWS's words; the first row of the table that has a code in them."""
    return next((row for row in TABLE if any(code in words for code in row.codes)), UNKNOWN)


def purchase(words: str, expected_lever: int, base: int) -> str:
    """Which kind was refused: the one that the lever asks for; between its ends, and of a base, AWS says."""
    of_base = base > 0 and "On-Demand Instances" in words
    spot = not of_base if expected_lever == 0 else expected_lever < 100 and "Spot Instances" in words
    return "spot" if spot else "on-demand"


def with_code_first(words: str) -> str:
    """The words, their code in front where a mail would cut it off: AWS puts it last as well."""
    # aws-behaviours: cancelled-told
    codes = [code for code in read(words).codes if code in words] or ANY_CODE.findall(words)
    if not codes or any(code in words[:CODE_WITHIN] for code in codes):
        return words
    return f"{codes[0]}: {words}"


def failed_boot(box: Instance | None, words: str, at: datetime, settings: Settings) -> str:
    """How it is known that a box which ended at that time, before it served, failed in its boot; empty: it is not.

    `words` are the group's. A reclaim, an end by somebody's call and the lack of an event are no evidence; the box's
    own word, its budget used up and any other state reason are.
    """
    # aws-behaviours: ended-described, tag-seen
    if box is not None and box.boot == names.BOOT_FAILED:
        return f"the box says {names.TAG_BOOT}={names.BOOT_FAILED}"
    reason = box.reason if box is not None else ""
    told = reason if reason and read(reason) is not ENDED else words
    why = read(told)
    if why is RECLAIM:
        return ""
    if box is not None and (at - box.launched_at).total_seconds() >= boot_budget_seconds(box, settings):
        return f"it did not serve in {(at - box.launched_at).total_seconds():.0f} s"
    return told if why.fails_boot and (why is not UNKNOWN or told == reason) else ""
