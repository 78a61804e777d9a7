"""Permissions both ways, over the request logs of a whole test run: no call without a grant, no grant without a call.

The last step of `make test`: `python -m tests.permissions FOLDER`. That folder holds one log for every embedded
AWS and copy of it that a test ran (see `fleet.localaws.server`), and `roles.json`: what the synthesized roles may do,
as they were deployed, with every reference written out. Exceptions stand below with their reasons; one that no longer
excuses anything is a finding too.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fleet.localaws import ACCOUNT, REGION, iam_policies
from fleet.localaws.deployed import Deployed
from fleet.localaws.iam_policies import listed

ROLES_FILE = "roles.json"

# Box tests boot boxes of a fleet of their own, whose role stands for the synthesized one.
BOX_ROLE = "BoxRole"
STANDS_FOR_BOX = "boxes-box"
BOX_BUCKET = "boxes-models"
BOX_FLEET = "boxes"
BOX_BUNDLE = "bundle.zip"

# Operations whose IAM action has another name.
ACTIONS = {
    "s3:HeadObject": "s3:GetObject",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:ListObjects": "s3:ListBucket",
    "s3:CreateMultipartUpload": "s3:PutObject",
    "s3:UploadPart": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject",
}

DRY_RUN = "AWS tries the launch in the caller's name inside UpdateAutoScalingGroup: no call of its own in any log"
LOG_DELIVERY = "Lambda delivers the function's log in its name"
SESSION_MANAGER = "Session Manager's own agent calls it, not our code"
NOT_FOUND = "makes S3 answer 404 for a missing key where it would answer 403: the call is the HeadObject"
# (logical id of the role begins with, action, resource) -> why there is no call of it in the logs.
UNCALLED = {
    ("Watchdog", "ec2:RunInstances", "*"): DRY_RUN,
    ("Watchdog", "ec2:CreateTags", "*"): DRY_RUN,
    ("Watchdog", "iam:PassRole", "*"): DRY_RUN,
    ("RequireArtifacts", "s3:ListBucket", "*"): NOT_FOUND,
    (BOX_ROLE, "s3:ListBucket", "*"): NOT_FOUND,
    (BOX_ROLE, "s3:AbortMultipartUpload", "*"): "the AWS CLI's own way out of a large upload that failed for good",
    ("", "logs:CreateLogStream", "*:log-group:*"): LOG_DELIVERY,
    ("", "logs:PutLogEvents", "*:log-group:*"): LOG_DELIVERY,
    (BOX_ROLE, "ssm:UpdateInstanceInformation", "*"): SESSION_MANAGER,
    (BOX_ROLE, "ssmmessages:*", "*"): SESSION_MANAGER,
}


@dataclass(frozen=True)
class Role:
    """A synthesized role as deployed."""

    name: str
    logical_id: str
    statements: list[dict[str, Any]]

    def grants(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(action, its statement), one by one."""
        for statement in self.statements:
            if statement["Effect"] == "Allow":
                for action in listed(statement["Action"]):
                    yield action, statement

    def denies(self, call: dict[str, Any]) -> bool:
        """Whether a Deny is about this call, whatever else grants it."""
        return any(
            statement["Effect"] == "Deny" and _covers(statement, action, call)
            for statement in self.statements
            for action in _actions(call)
        )


def roles_of(fleet: Deployed) -> list[dict[str, Any]]:
    """What the fleet's roles may do, as they stand."""
    iam = fleet.aws.client("iam")
    cloudformation = fleet.aws.client("cloudformation")
    roles = []
    for stack in cloudformation.describe_stacks()["Stacks"]:
        for item in cloudformation.describe_stack_resources(StackName=stack["StackName"])["StackResources"]:
            if item["ResourceType"] != "AWS::IAM::Role":
                continue
            name = item["PhysicalResourceId"]
            documents = [
                iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
                for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]
            ]
            for policy in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
                version = iam.get_policy(PolicyArn=policy["PolicyArn"])["Policy"]["DefaultVersionId"]
                found = iam.get_policy_version(PolicyArn=policy["PolicyArn"], VersionId=version)
                documents.append(found["PolicyVersion"]["Document"])
            statements = [statement for document in documents for statement in _statements(document)]
            roles.append({"name": name, "logical_id": item["LogicalResourceId"], "statements": statements})
    return roles


def save_roles(fleet: Deployed, folder: Path) -> None:
    """Write that down, for `main`."""
    roles = roles_of(fleet)
    bucket = fleet.resource("store", "AWS::S3::Bucket")
    content = {"fleet": fleet.settings.fleet_name, "bucket": bucket, "roles": roles}
    (folder / ROLES_FILE).write_text(json.dumps(content, indent=1))


def findings(
    roles: Iterable[Role],
    calls: Iterable[dict[str, Any]],
    uncalled: Mapping[tuple[str, str, str], str] | None = None,
) -> list[str]:
    """Calls without a grant, grants without a call, exceptions without use. A call's principal is a role's name."""
    uncalled = UNCALLED if uncalled is None else uncalled
    by_name = {role.name: role for role in roles}
    used: set[tuple[str, str, str]] = set()
    found = set()
    for call in calls:
        role = by_name.get(call["principal"])
        if role is None:
            continue
        for action in _actions(call):
            matching = [statement for _, statement in role.grants() if _covers(statement, action, call)]
            if not matching or role.denies(call):
                found.add(f"call without a grant: {role.logical_id} {action} on {json.dumps(call['resources'])}")
            used |= {(role.name, action, json.dumps(statement)) for statement in matching}
    excused: set[tuple[str, str, str]] = set()
    for role in by_name.values():
        for granted, statement in role.grants():
            if any(
                name == role.name and fnmatchcase(action, granted) and text == json.dumps(statement)
                for name, action, text in used
            ):
                continue
            excuse = _excuse(role, granted, statement, uncalled)
            if excuse:
                excused.add(excuse)
            else:
                resources = ", ".join(listed(statement["Resource"]))
                found.add(f"grant without a call: {role.logical_id} {granted} on {resources}")
    found |= {f"exception without use: {' '.join(excuse)}" for excuse in uncalled.keys() - excused}
    return sorted(found)


def _excuse(
    role: Role, granted: str, statement: dict[str, Any], uncalled: Iterable[tuple[str, str, str]]
) -> tuple[str, str, str] | None:
    resources = listed(statement["Resource"])
    for excuse in uncalled:
        prefix, action, pattern = excuse
        known = role.logical_id.startswith(prefix) and fnmatchcase(granted, action)
        if known and all(fnmatchcase(resource, pattern) for resource in resources):
            return excuse
    return None


def _actions(call: dict[str, Any]) -> list[str]:
    """What IAM judges a call as: itself, or each step of a transaction."""
    action = f"{call['service']}:{call['action']}"
    steps = call["resources"].get("TransactItems")
    return [f"{call['service']}:{step}" for step in steps] if steps else [ACTIONS.get(action, action)]


def _covers(statement: dict[str, Any], action: str, call: dict[str, Any]) -> bool:
    """Whether a statement is about this call. A condition on what its log line does not tell does not hold."""
    resources = call["resources"]
    context = {f"aws:ResourceTag/{key}": [value] for key, value in resources.get("ResourceTags", {}).items()}
    if call["service"] == "s3":
        context["aws:ResourceAccount"] = [ACCOUNT]  # the embedded AWS has one
    for key, told in (("cloudwatch:namespace", "Namespace"), ("aws:TagKeys", "TagKeys")):
        if told in resources:
            context[key] = listed(resources[told])
    return all(iam_policies.applies(statement, action, arn, context) for arn in _arns(call) or ["*"])


def _arns(call: dict[str, Any]) -> list[str]:
    """What the call acts on, as far as its log line tells; nothing where the API knows no resource."""
    resources, here = call["resources"], f"{REGION}:{ACCOUNT}"
    match call["service"]:
        case "ssm":
            names = listed(resources.get("Names") or resources.get("Name") or [])
            return [f"arn:aws:ssm:{here}:parameter/{name.lstrip('/')}" for name in names]
        case "s3":
            bucket, key = resources.get("Bucket"), resources.get("Key")
            return [f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"]
        case "dynamodb":
            return [f"arn:aws:dynamodb:{here}:table/{resources['TableName']}"]
        case "secretsmanager":
            return [f"arn:aws:secretsmanager:{here}:secret:{resources['SecretId']}-a1b2C3"]
        case "sns":
            return [resources["TopicArn"]] if "TopicArn" in resources else []
        case "autoscaling" if "AutoScalingGroupName" in resources:
            group = resources["AutoScalingGroupName"]
            return [f"arn:aws:autoscaling:{here}:autoScalingGroup:0:autoScalingGroupName/{group}"]
        case "cloudformation":
            return [f"arn:aws:cloudformation:{here}:stack/{resources['StackName']}/0"]
        case "elasticloadbalancing" if call["action"] in ("RegisterTargets", "DeregisterTargets"):
            return [resources["TargetGroupArn"]]
        case "ec2" if "Resources" in resources:
            return [f"arn:aws:ec2:{here}:instance/{name}" for name in resources["Resources"]]
        case "cloudwatch" if "AlarmNames" in resources:
            return [f"arn:aws:cloudwatch:{here}:alarm:{name}" for name in resources["AlarmNames"]]
        case "logs" if "logGroupName" in resources:
            stream = resources.get("logStreamName", "")
            return [f"arn:aws:logs:{here}:log-group:{resources['logGroupName']}:log-stream:{stream}"]
    return []


def _statements(document: Any) -> list[dict[str, Any]]:
    return listed((json.loads(document) if isinstance(document, str) else document)["Statement"])


def read(roles_file: Path) -> tuple[list[Role], list[dict[str, Any]]]:
    """Roles of one deployment and the calls of a run; the box tests' stand-in becomes the role that it stands for."""
    folder, raw = roles_file.parent, json.loads(roles_file.read_text())
    roles = [Role(**item) for item in raw["roles"]]
    box = next(role for role in roles if role.logical_id.startswith(BOX_ROLE))
    assets = [resource for _, statement in box.grants() for resource in listed(statement["Resource"])]
    targets = next(s["Resource"] for action, s in box.grants() if action.endswith(":RegisterTargets"))
    bundle = next(resource for resource in assets if "-assets-" in resource).removeprefix("arn:aws:s3:::").split("/", 1)
    calls = []
    for log in sorted(folder.glob("*.jsonl")):
        for line in log.read_text().splitlines():
            if f'"{STANDS_FOR_BOX}"' in line:
                line = line.replace(STANDS_FOR_BOX, box.name).replace(BOX_BUCKET, raw["bucket"])
                line = re.sub(rf"\b{BOX_FLEET}\b", raw["fleet"], line)
            call = json.loads(line)
            if f":targetgroup/{raw['fleet']}/" in call["resources"].get("TargetGroupArn", ""):
                call["resources"]["TargetGroupArn"] = targets
            if call["resources"].get("Key") == BOX_BUNDLE:  # deployed, it is an asset of the stack
                call["resources"].update(Bucket=bundle[0], Key=bundle[1])
            calls.append(call)
    return roles, calls


def main() -> int:
    """1 where a finding is left."""
    file = Path(sys.argv[1], ROLES_FILE)
    if not file.exists():
        sys.exit(f"permissions: no test of this run deployed a fleet: {file} is not there")
    roles, calls = read(file)
    found = findings(roles, calls)
    names = {role.name for role in roles}
    own = sum(call["principal"] in names for call in calls)
    grants = sum(1 for role in roles for _ in role.grants())
    summary = f"permissions both ways: {own} calls of {len(roles)} roles against {grants} grants, {len(found)} findings"
    sys.stdout.write("\n".join([*found, summary]) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
