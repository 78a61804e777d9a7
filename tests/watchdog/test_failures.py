"""Launches and boots that fail, by AWS's own words: what counts as a failed boot, what is mailed, and how."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lambdas.watchdog import failures
from lambdas.watchdog.cloud import Alarm, Instance
from lambdas.watchdog.failures import TABLE, failed_boot, read
from lambdas.watchdog.state import Mode
from tests.watchdog.still_cloud import NOW, SETTINGS, StillCloud, ago, event, group_event, wake
from tests.watchdog.test_group_events import failed_over, notice

PAGE = Path(__file__).parents[2] / "docs" / "runbook" / "mail-launch-refused.md"
ABANDONED = "Lifecycle Action with token 2c4b was abandoned: Lifecycle Action Completed with ABANDON Result"
REFUSALS = {  # as EC2 Auto Scaling words them
    "capacity": "Could not launch {} Instances. InsufficientInstanceCapacity - There is no capacity in your zone.",
    "quota": "Could not launch {} Instances. VcpuLimitExceeded - You have requested more vCPU capacity than your cap.",
    "price": "Could not launch {} Instances. SpotMaxPriceTooLow - Your Spot request price of 0.01 is too low.",
    "permission": "You are not authorized to use launch template: lt-0abc",
    "image": "The image id '[ami-0abc]' does not exist. InvalidAMIID.NotFound - Launching EC2 instance failed.",
    "key": "Could not launch {} Instances. InvalidKMSKey.InvalidState - The KMS key is disabled.",
    "unknown": "Could not launch {} Instances. BrandNewError - Launching EC2 instance failed.",
}


@pytest.mark.parametrize(("name", "words"), REFUSALS.items())
def test_words_of_aws_are_read_by_their_code(name: str, words: str) -> None:
    assert read(words).name == name


# As AWS spells them; a letter wrong, and a refusal is "unknown".
CODES = {
    "reclaim": "Server.SpotInstanceTermination; Server.SpotInstanceShutdown",
    "ended": "Client.UserInitiatedShutdown; abandoned; ABANDON",
    "capacity": "InsufficientInstanceCapacity; UnfulfillableCapacity; InsufficientVolumeCapacity; Unsupported -; "
    "do not have sufficient; no Spot capacity available; Insufficient capacity; not supported in your requested; "
    "configuration is currently not supported; capacity-not-available",
    "quota": "MaxSpotInstanceCountExceeded; VcpuLimitExceeded; InstanceLimitExceeded; VolumeLimitExceeded; "
    "MaxIOPSLimitExceeded; NetworkInterfaceLimitExceeded; Max spot instance count exceeded; You've reached your quota",
    "addresses": "InsufficientFreeAddressesInSubnet",
    "price": "SpotMaxPriceTooLow; lower than the minimum required Spot request; price-too-low",
    "account": "OptInRequired; PendingVerification; Blocked; not subscribed; not eligible for Free Tier",
    "permission": "UnauthorizedOperation; AuthFailure; AccessDenied; not authorized; Authentication Failure",
    "image": "InvalidAMIID; InvalidSnapshot; InvalidBlockDeviceMapping; InvalidSubnet; InvalidGroup; "
    "InvalidSecurityGroup; InvalidLaunchTemplate; Invalid IAM Instance Profile; does not exist; Invalid device name",
    "key": "Client.InternalError; InvalidKMSKey",
    "boot": "Client.InstanceInitiatedShutdown",
    "unknown": "",
}
MEANS = {  # for the policy
    "capacity": "refuses", "quota": "lasting refuses", "addresses": "refuses", "price": "lasting refuses",
    "account": "lasting refuses", "permission": "lasting refuses", "image": "lasting fails_boot",
    "key": "lasting fails_boot", "boot": "fails_boot", "unknown": "fails_boot",
}  # fmt: skip
# Status messages as they stand in AWS's own pages and in public reports: some have a code, some are a sentence alone.
WORDS = [
    ("capacity", "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity due to your "
     "request configuration. Please adjust your request and try again. Launching EC2 instance failed."),
    ("capacity", "We currently do not have sufficient g6.xlarge capacity in the Availability Zone you requested "
     "(us-east-2a). Our system will be working on provisioning additional capacity."),
    ("capacity", "There is no Spot capacity available that matches your request. Launching EC2 instance failed."),
    ("capacity", "Your requested instance type (g6.xlarge) is not supported in your requested Availability Zone (x)."),
    ("capacity", "The requested configuration is currently not supported. Launching EC2 instance failed."),
    ("capacity", "Insufficient capacity. Launching EC2 instance failed."),
    ("capacity", "Could not launch Spot Instances. Unsupported - The requested configuration is not offered here."),
    ("unknown", "Could not launch Spot Instances. UnsupportedOperation - The instance type has no such disk."),
    ("quota", "Could not launch On-Demand Instances. VcpuLimitExceeded - You have requested more vCPU capacity than "
     "your current vCPU limit of 0 allows for the instance bucket that the specified instance type belongs to."),
    ("quota", "Max spot instance count exceeded. Launching EC2 instance failed."),
    ("quota", "You've reached your quota for maximum Fleet Requests for this account. Launching EC2 instance failed."),
    ("quota", "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: "
     "Client.VolumeLimitExceeded: Volume limit exceeded"),
    ("price", "Your Spot request price of 0.015 is lower than the minimum required Spot request fulfillment price of "
     "0.0735. Launching EC2 instance failed."),
    ("account", "Could not launch Spot Instances. InvalidParameterCombination - The specified instance type is not "
     "eligible for Free Tier. Launching EC2 instance failed."),
    ("account", "You are not subscribed to this service. Please see https://aws.amazon.com/."),
    ("account", "OptInRequired - You are not authorized to use the requested service."),
    ("permission", "Authentication Failure. Launching EC2 instance failed."),
    ("image", "The image id 'ami-4edb0327' does not exist. Launching EC2 instance failed."),
    ("image", "The security group 'sg-3d7bcc4d' does not exist in VPC 'vpc-be5433da'. Launching EC2 instance failed."),
    ("image", "Invalid device name /dev/x. Launching EC2 instance failed."),
    ("key", "Client.InternalError: Client error on launch."),
    ("key", "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: "
     "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "words"), WORDS)
def test_status_messages_from_the_wild_are_read_for_what_they_are(name: str, words: str) -> None:
    assert read(words).name == name


def test_codes_are_spelt_as_aws_does() -> None:
    assert {row.name: row.codes for row in TABLE} == {
        name: tuple(filter(None, codes.split("; "))) for name, codes in CODES.items()
    }


def test_each_row_says_what_it_means_for_the_policy() -> None:
    flags = ("lasting", "refuses", "fails_boot")
    said = {row.name: " ".join(flag for flag in flags if getattr(row, flag)) for row in TABLE}
    assert {name: means for name, means in said.items() if means} == MEANS


def test_every_code_leads_to_its_own_row_and_every_mailed_row_has_its_headline_and_its_place_on_the_page() -> None:
    for row in TABLE:
        assert all(read(f"Reason: {code}: words") is row for code in row.codes)
    mailed = [row for row in TABLE if row.headline]
    page = PAGE.read_text(encoding="utf-8")
    assert len(mailed) == 8
    for row in mailed:
        assert f"| {row.name} | {row.headline} |" in page
        assert row.remedy.endswith(".")
    assert all(not row.remedy for row in TABLE if row not in mailed)


@pytest.mark.parametrize(
    ("words", "lever", "base", "kind"),
    [
        ("Could not launch Spot Instances. UnfulfillableCapacity - words", 50, 0, "spot"),
        ("Could not launch Spot Instances. UnfulfillableCapacity - words", 100, 0, "on-demand"),
        ("Could not launch On-Demand Instances. VcpuLimitExceeded - words", 50, 0, "on-demand"),
        ("Could not launch On-Demand Instances. VcpuLimitExceeded - words", 0, 1, "on-demand"),
        ("Could not launch On-Demand Instances. VcpuLimitExceeded - words", 0, 0, "spot"),
        ("We currently do not have sufficient g6.xlarge capacity", 0, 1, "spot"),
        ("We currently do not have sufficient g6.xlarge capacity", 50, 0, "on-demand"),
    ],
)
def test_kind_that_was_refused_is_the_levers_and_between_its_ends_or_of_a_base_the_one_that_aws_names(
    words: str, lever: int, base: int, kind: str
) -> None:
    assert failures.purchase(words, lever, base) == kind


# --- failed boots -----------------------------------------------------------------------------------------------


def ended(age: float = 240, boot: str | None = "warm", reason: str = "") -> Instance:
    return Instance(ago(age), True, boot, "shutting-down", reason=reason)


@pytest.mark.parametrize(
    ("box", "words", "why"),
    [
        (ended(boot="failed"), ABANDONED, "the box says fleet:boot=failed"),
        (ended(boot="failed", reason="Client.UserInitiatedShutdown"), ABANDONED, "the box says fleet:boot=failed"),
        (ended(900), ABANDONED, "it did not serve in 900 s"),
        (ended(899), ABANDONED, ""),
        (ended(900, boot=None), ABANDONED, "it did not serve in 900 s"),
        (ended(1500, boot="cold"), ABANDONED, "it did not serve in 1500 s"),
        (ended(1499, boot="cold"), ABANDONED, ""),
        (ended(reason="Client.InstanceInitiatedShutdown"), ABANDONED, "Client.InstanceInitiatedShutdown"),
        (ended(reason="Server.InternalError"), ABANDONED, "Server.InternalError"),
        (ended(reason="Client.InternalError"), ABANDONED, "Client.InternalError"),
        (ended(), "Termination Reason: Client.InternalError", "Termination Reason: Client.InternalError"),
        (ended(reason="Client.UserInitiatedShutdown"), "Client.InternalError: words", "Client.InternalError: words"),
        (None, "Termination Reason: Client.InternalError", "Termination Reason: Client.InternalError"),
        (ended(), ABANDONED, ""),
        (ended(reason="Client.UserInitiatedShutdown"), ABANDONED, ""),
        (ended(reason="Server.SpotInstanceTermination"), ABANDONED, ""),
        (ended(2000, reason="Server.SpotInstanceTermination"), ABANDONED, ""),
        (ended(reason="Server.InsufficientInstanceCapacity"), ABANDONED, ""),
        (ended(), "a reason of AWS's that nobody knows", ""),
        (None, ABANDONED, ""),
        (None, "a reason of AWS's that nobody knows", ""),
    ],
)
def test_failed_boot_needs_evidence_of_the_boot(box: Instance | None, words: str, why: str) -> None:
    assert failed_boot(box, words, NOW, SETTINGS) == why


def told(cloud: StillCloud, number: int, words: str = ABANDONED) -> str:
    payload = group_event("launch-abandoned", at=ago(500 - number), box=f"i-0{number}")
    payload["detail"]["StatusMessage"] = words
    action: str = wake(cloud, payload)["action"]
    return action


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("notices", [range(20), []])
def test_reclaims_of_booting_boxes_never_suspend_launch(listed: bool, notices: Any) -> None:
    """Whether or not the group still lists the box when its notice comes, and whether or not the notice comes."""
    cloud = StillCloud(live_alarm=Alarm("OK", ago(10)))
    for number in range(20):
        cloud.known[f"i-0{number}"] = replace(ended(150), state="running")
        if listed:
            cloud.put_box(f"i-0{number}", age=150, lifecycle="Terminating")
        if number in notices:
            assert notice(cloud, f"i-0{number}") == "recorded"
    assert {told(cloud, number) for number in range(20)} == {"recorded"}
    assert (cloud.parsed.abandoned, cloud.mails, "Launch" in cloud.live_group.suspended) == ((), [], False)


def test_launches_cancelled_with_a_client_error_are_failed_boots_and_their_mail_says_what_mends_them() -> None:
    cloud = StillCloud(live_alarm=Alarm("OK", ago(10)))
    words = "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: "
    for number in range(5):
        cloud.known[f"i-0{number}"] = ended(20, None, "Client.InternalError")
    told_so = [told(cloud, number, words + "Client.InternalError: Client error on launch") for number in range(5)]
    assert told_so == ["recorded"] * 4 + ["boot-loop"]
    [(subject, body)] = cloud.mails
    assert subject == "[llm] boots keep failing, launching is suspended"
    assert "Why: 5 consecutive boots failed, the last: Client.InternalError\n" in body
    assert f"What you may do: {failures.KEY.remedy} Read the boot log" in body


# --- refusals ---------------------------------------------------------------------------------------------------


def refuse(cloud: StillCloud, words: str, at: float = 30) -> str:
    payload = group_event("launch-no-capacity", at=ago(at), box="")
    payload["detail"]["StatusMessage"] = words
    action: str = wake(cloud, payload)["action"]
    return action


@pytest.mark.parametrize(("name", "words"), [item for item in REFUSALS.items() if item[0] != "capacity"])
@pytest.mark.parametrize("purchase", ["Spot", "On-Demand"])
def test_refusal_that_is_no_drought_is_mailed_once_under_its_own_headline(purchase: str, name: str, words: str) -> None:
    cloud = failed_over() if purchase == "On-Demand" else StillCloud(live_alarm=Alarm("OK", ago(10)))
    actions = [refuse(cloud, words.format(purchase), at) for at in (50, 40)]
    assert actions == ["launch-refused", "recorded" if purchase == "Spot" else "waiting"]
    [(subject, body)] = cloud.mails
    row = next(row for row in TABLE if row.name == name)
    assert subject == f"[llm] launches are refused: {row.headline}"
    assert f"What you may do: {row.remedy}\n" in body
    assert f"Why: {purchase.lower()}: " in body
    assert "dry" not in body
    assert cloud.parsed.expected_lever == (100 if purchase == "On-Demand" else 0)


def test_each_refusal_is_mailed_of_each_kind_until_a_launch_reaches_service() -> None:
    cloud = failed_over()
    told_of = [REFUSALS["quota"], REFUSALS["capacity"], REFUSALS["image"]]
    actions = [refuse(cloud, words, at) for at, words in zip((50, 40, 30), told_of, strict=True)]
    assert actions == ["launch-refused", "on-demand-dry", "launch-refused"]
    assert cloud.parsed.refused == ("on-demand quota", "on-demand capacity", "on-demand image")
    wake(cloud, group_event("launch-successful", at=ago(20)))
    assert cloud.parsed.refused == ()
    assert refuse(cloud, REFUSALS["quota"], 10) == "launch-refused"


def test_spot_that_is_dry_is_no_news() -> None:
    assert refuse(StillCloud(), REFUSALS["capacity"].format("Spot")) == "recorded"


def test_refusal_beside_a_full_group_is_no_news() -> None:
    cloud = StillCloud()
    cloud.put_box(age=3000, health="healthy")
    assert refuse(cloud, REFUSALS["quota"]) == "recorded"


def test_operators_words_are_not_read_for_codes() -> None:
    cloud = StillCloud()
    wake(cloud, {**event("pin"), "why": "VcpuLimitExceeded"})
    assert "Raise the quota" not in cloud.mails[0][1]
    assert cloud.parsed.mode is Mode.PINNED
