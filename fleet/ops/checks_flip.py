"""Preflight check of the one call that matters: whether the watchdog's own role could flip the group tonight."""

from collections.abc import Iterator
from typing import Any

from fleet.core import names
from fleet.ops.checks import Finding, Ground, failed, not_deployed, passed

Question = tuple[str, dict[str, Any]]  # an action, and what IAM's simulator is told beside it


def watchdog_role(ground: Ground) -> Finding:
    """Whether the function's own role can make the flip, with all that AWS checks inside it."""
    function = ground.function
    group = ground.group if function else None
    if function is None or group is None:
        return not_deployed("the app grants the flip, and the tests hold the grants to the calls")
    role = function["Role"]
    denied = dict.fromkeys(
        f"{action} on {resource}"
        for action, question in _questions(ground, function, group)
        for resource in _denied(ground, role, action, question)
    )
    if denied:
        return failed(
            f"{role.split('/')[-1]} may not {', '.join(denied)}: the next failover would die on it",
            "deploy the app as it is; a permission boundary or an organization's policy may stand in the way",
        )
    return passed("the role may flip the group (policy simulation); `fleetctl probe` sends the real call")


def _denied(ground: Ground, role: str, action: str, question: dict[str, Any]) -> Iterator[str]:
    verdicts = ground.aws.call(
        "iam", "SimulatePrincipalPolicy", PolicySourceArn=role, ActionNames=[action], **question
    )["EvaluationResults"]
    for verdict in verdicts:
        if verdict["EvalDecision"] != "allowed":
            yield verdict.get("EvalResourceName", "*").split(":")[-1]


def _questions(ground: Ground, function: dict[str, Any], group: dict[str, Any]) -> Iterator[Question]:
    """Every grant that a flip needs, with its resources and context as AWS would check them."""
    settings = ground.settings  # aws-behaviours: flip-dry-runs-launch
    _, partition, _, _, account, *_ = function["FunctionArn"].split(":")
    specification = group["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]
    data = ground.aws.call(
        "ec2",
        "DescribeLaunchTemplateVersions",
        LaunchTemplateId=specification["LaunchTemplateId"],
        Versions=[specification["Version"]],
    )["LaunchTemplateVersions"][0]["LaunchTemplateData"]

    def arn(service: str, resource: str) -> str:
        return f"arn:{partition}:{service}:{settings.region}:{account}:{resource}"

    def asked(action: str, *resources: str, **context: str) -> Question:
        entries = [
            {"ContextKeyName": key.replace("__", ":"), "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in context.items()
        ]
        return action, {"ResourceArns": list(resources), **({"ContextEntries": entries} if entries else {})}

    template = arn("ec2", f"launch-template/{specification['LaunchTemplateId']}")
    created = [arn("ec2", f"{kind}/*") for kind in ("network-interface", "volume")]
    (interface,) = data["NetworkInterfaces"]
    yield asked("autoscaling:UpdateAutoScalingGroup", group["AutoScalingGroupARN"])
    for pool in settings.pools:
        yield asked("ec2:RunInstances", arn("ec2", "instance/*"), ec2__LaunchTemplate=template, ec2__InstanceType=pool)
    yield asked(
        "ec2:RunInstances",
        template,
        *(arn("ec2", f"subnet/{subnet}") for subnet in group["VPCZoneIdentifier"].split(",")),
    )
    image = f"arn:{partition}:ec2:{settings.region}::image/{data['ImageId']}"
    security_groups = [arn("ec2", f"security-group/{name}") for name in interface["Groups"]]
    of_template = {"ec2__LaunchTemplate": template, "ec2__IsLaunchTemplateResource": "true"}
    yield asked("ec2:RunInstances", image, *security_groups, **of_template)
    yield asked("ec2:RunInstances", *created, ec2__LaunchTemplate=template)
    yield asked("ec2:CreateTags", arn("ec2", "instance/*"), *created, ec2__CreateAction="RunInstances")
    yield asked("iam:PassRole", _box_role(ground.aws, data), iam__PassedToService="ec2.amazonaws.com")
    parameters = (names.lever_parameter(settings.fleet_name), names.state_parameter(settings.fleet_name))
    yield asked("ssm:PutParameter", *(arn("ssm", f"parameter{name}") for name in parameters))


def _box_role(aws: Any, data: dict[str, Any]) -> str:
    """The role that boxes get: what the flip passes on."""
    profile = data["IamInstanceProfile"]
    name = profile.get("Name") or profile["Arn"].split("/")[-1]
    return str(aws.call("iam", "GetInstanceProfile", InstanceProfileName=name)["InstanceProfile"]["Roles"][0]["Arn"])
