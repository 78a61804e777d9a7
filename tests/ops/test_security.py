"""What docs/security.md claims of the deployed roles, asked of IAM's simulator on the embedded AWS, role by role."""

import json
from collections.abc import Callable

import pytest

from fleet.core import names
from fleet.localaws.deployed import Deployed

HERE = "arn:aws:{}:us-east-2:123456789012:{}"
PARAMETERS = [HERE.format("ssm", f"parameter{name('llm')}") for name in (names.lever_parameter, names.state_parameter)]
GROUP = HERE.format("autoscaling", "autoScalingGroup:x:autoScalingGroupName/llm-gpu")
HERE_S3 = "arn:aws:s3:::cdk-hnb659fds-assets-123456789012-{}"
Ask = Callable[..., bool]


@pytest.fixture
def may(live: Deployed) -> Ask:
    """Whether a deployed role may do something to something, in a context."""

    def ask(role: str, action: str, resource: str = "*", **context: str) -> bool:
        entries = [
            {"ContextKeyName": key.replace("__", ":"), "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in context.items()
        ]
        found = live.aws.client("iam").simulate_principal_policy(
            PolicySourceArn=f"arn:aws:iam::123456789012:role/{role}",
            ActionNames=[action],
            ResourceArns=[resource],
            ContextEntries=entries,
        )
        return bool(found["EvaluationResults"][0]["EvalDecision"] == "allowed")

    return ask


@pytest.fixture
def box(live: Deployed) -> str:
    return live.role("group", "BoxRole")


@pytest.fixture
def watchdog(live: Deployed) -> str:
    return live.role("group", "WatchdogRole")


def test_no_role_but_the_watchdogs_may_write_lever_or_state(live: Deployed, may: Ask, watchdog: str) -> None:
    roles = [
        role["RoleName"] for role in live.aws.client("iam").list_roles()["Roles"] if role["RoleName"].startswith("llm-")
    ]
    writers = {role for role in roles for path in PARAMETERS if may(role, "ssm:PutParameter", path)}
    creators = {role for role in writers if "CreateIfAbsent" in role}
    assert writers - creators == {watchdog}
    assert len(roles) >= 4


def test_only_this_accounts_rules_may_invoke_the_watchdog(live: Deployed) -> None:
    policy = json.loads(live.aws.client("lambda").get_policy(FunctionName="llm-watchdog")["Policy"])
    for statement in policy["Statement"]:
        assert statement["Principal"] == {"Service": "events.amazonaws.com"}
        (condition,) = statement["Condition"].values()
        assert condition["AWS:SourceArn"].startswith(HERE.format("events", "rule/llm-group-"))


def test_the_watchdog_launches_this_fleets_template_and_pools_only(live: Deployed, may: Ask, watchdog: str) -> None:
    specification = live.group()["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]
    own = HERE.format("ec2", f"launch-template/{specification['LaunchTemplateId']}")
    instance = HERE.format("ec2", "instance/*")

    def launches(template: str, kind: str) -> bool:
        return may(watchdog, "ec2:RunInstances", instance, ec2__LaunchTemplate=template, ec2__InstanceType=kind)

    assert launches(own, "g6.xlarge")
    assert not launches(own, "p5.48xlarge")
    assert not launches(HERE.format("ec2", "launch-template/lt-other"), "g6.xlarge")
    assert not may(watchdog, "ec2:RunInstances", instance)
    image, group = "arn:aws:ec2:us-east-2::image/ami-0a1b2c3d", HERE.format("ec2", "security-group/sg-0a1b2c3d")
    for overridden in ("true", "false"):  # true: it stands in the template
        context = {"ec2__LaunchTemplate": own, "ec2__IsLaunchTemplateResource": overridden}
        assert may(watchdog, "ec2:RunInstances", image, **context) is (overridden == "true")
        assert not may(watchdog, "ec2:RunInstances", group, **context)  # another fleet's, by itself or by a template


def test_the_watchdog_passes_the_box_role_to_ec2_and_no_other(may: Ask, watchdog: str, box: str) -> None:
    own = f"arn:aws:iam::123456789012:role/{box}"
    assert may(watchdog, "iam:PassRole", own, iam__PassedToService="ec2.amazonaws.com")
    assert not may(watchdog, "iam:PassRole", own, iam__PassedToService="lambda.amazonaws.com")
    assert not may(watchdog, "iam:PassRole", f"{own}-other", iam__PassedToService="ec2.amazonaws.com")


def test_a_stolen_box_role_cannot_replace_the_source_artifacts(live: Deployed, may: Ask, box: str) -> None:
    bucket = f"arn:aws:s3:::{live.output('store', names.OUTPUT_BUCKET)}"
    here = {"aws__ResourceAccount": "123456789012"}
    assert may(box, "s3:GetObject", f"{bucket}/{live.settings.model.gguf.key}", **here)
    assert may(box, "s3:PutObject", f"{bucket}/cache/manifest", **here)
    for artifact in (live.settings.model.engine, live.settings.model.gguf, live.settings.model.modelfile):
        assert not may(box, "s3:PutObject", f"{bucket}/{artifact.key}", **here)
    assert not may(box, "s3:DeleteObject", f"{bucket}/cache/manifest", **here)


def test_a_bucket_that_another_account_made_anew_is_nobodys_here(live: Deployed, may: Ask, box: str) -> None:
    """The CDK's bucket, above all: its name is known, and what a box takes from it runs as root."""
    store = f"arn:aws:s3:::{live.output('store', names.OUTPUT_BUCKET)}"
    grants = live.aws.client("iam").get_role_policy(RoleName=box, PolicyName="calls")["PolicyDocument"]["Statement"]
    (bundle,) = [s["Resource"] for s in grants if "-assets-" in s["Resource"]]
    check = next(
        r["RoleName"] for r in live.aws.client("iam").list_roles()["Roles"] if "RequireArtifacts" in r["RoleName"]
    )
    key = live.settings.model.gguf.key
    for role, action, resource in (
        (box, "s3:GetObject", bundle),
        (box, "s3:GetObject", f"{store}/{key}"),
        (box, "s3:PutObject", f"{store}/cache/manifest"),
        (box, "s3:ListBucket", store),
        (check, "s3:GetObject", f"{store}/{key}"),
    ):
        assert may(role, action, resource, aws__ResourceAccount="123456789012")
        assert not may(role, action, resource, aws__ResourceAccount="999999999999")


def test_a_box_reads_the_bundle_of_the_template_before_a_deploy_and_after_it(
    live: Deployed, may: Ask, box: str
) -> None:
    """The role changes first: a reclaim in between launches from the old template with the new role, or the reverse."""
    bucket = HERE_S3.format("us-east-2")
    for key in ("llm/old.zip", "llm/new.zip"):
        assert may(box, "s3:GetObject", f"{bucket}/{key}", aws__ResourceAccount="123456789012")
    for other in ("llm-2/old.zip", "other/old.zip", "old.zip"):
        assert not may(box, "s3:GetObject", f"{bucket}/{other}", aws__ResourceAccount="123456789012")


def test_a_stolen_box_role_cannot_touch_another_group(live: Deployed, may: Ask, box: str) -> None:
    own = live.group()["AutoScalingGroupARN"]
    other = own.replace("/llm-gpu", "/other-gpu")
    for action in ("CompleteLifecycleAction", "TerminateInstanceInAutoScalingGroup"):
        assert may(box, f"autoscaling:{action}", own)
        assert not may(box, f"autoscaling:{action}", other)
    target_group = live.group()["TargetGroupARNs"][0]
    assert may(box, "elasticloadbalancing:DeregisterTargets", target_group)
    assert not may(box, "elasticloadbalancing:DeregisterTargets", target_group.replace("llm-group", "other"))


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("ec2:RunInstances", HERE.format("ec2", "instance/*")),
        ("autoscaling:UpdateAutoScalingGroup", GROUP),
        ("ssm:PutParameter", PARAMETERS[0]),
        ("ssm:GetParameter", PARAMETERS[1]),
        ("lambda:InvokeFunction", HERE.format("lambda", "function:llm-watchdog")),
        ("iam:PassRole", "arn:aws:iam::123456789012:role/x"),
        ("sts:AssumeRole", "arn:aws:iam::123456789012:role/x"),
        ("ssm:SendCommand", HERE.format("ssm", "document/llm-ask")),
        ("sns:Publish", HERE.format("sns", "llm")),
    ],
)
def test_a_stolen_box_role_cannot_launch_flip_invoke_or_pass(may: Ask, box: str, action: str, resource: str) -> None:
    assert not may(box, action, resource)
