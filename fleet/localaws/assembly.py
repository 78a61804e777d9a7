"""Put a synthesized app on an embedded AWS without the CDK CLI: the fast way, for fixtures.

The end-to-end run and the demo use the real CLI; what is deployed is the same assembly.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.localaws import ACCOUNT, Aws, EmbeddedError


def stacks(assembly: Path) -> dict[str, dict[str, Any]]:
    """Artifacts of the assembly's stacks, each after those that it depends on."""
    artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    wanted = {name: item for name, item in artifacts.items() if item["type"] == "aws:cloudformation:stack"}
    ordered: dict[str, dict[str, Any]] = {}
    while len(ordered) < len(wanted):
        for name, item in wanted.items():
            if name not in ordered and not (set(item.get("dependencies", [])) & wanted.keys()) - ordered.keys():
                ordered[name] = item
    return ordered


def template(assembly: Path, stack: str) -> dict[str, Any]:
    """The synthesized template of one stack."""
    found: dict[str, Any] = json.loads((assembly / f"{stack}.template.json").read_text())
    return found


def upload_assets(aws: Aws, assembly: Path, stack: str) -> None:
    """What `cdk deploy` publishes before a stack: zipped folders and files, under their content hashes."""
    s3 = aws.client("s3")
    assets = json.loads((assembly / f"{stack}.assets.json").read_text())["files"]
    for asset in assets.values():
        source = assembly / asset["source"]["path"]
        body = _zipped(source) if asset["source"]["packaging"] == "zip" else source.read_bytes()
        for place in asset["destinations"].values():
            bucket = place["bucketName"].replace("${AWS::AccountId}", ACCOUNT)
            s3.put_object(Bucket=bucket, Key=place["objectKey"], Body=body)


def bootstrap(aws: Aws) -> None:
    """As much of `cdk bootstrap` as the templates ask for: the asset bucket and the version parameter."""
    location = {"LocationConstraint": aws.region}
    bucket = f"cdk-hnb659fds-assets-{ACCOUNT}-{aws.region}"
    aws.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=location)
    aws.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")


def deploy(aws: Aws, assembly: Path, stack: str, tags: Mapping[str, str] | None = None) -> None:
    """Create one stack, or update it; an update without changes is fine. Raises with CloudFormation's reasons.

    `tags` are the stack's own; None: those of the assembly.
    """
    upload_assets(aws, assembly, stack)
    cloudformation = aws.client("cloudformation")
    if tags is None:
        tags = stacks(assembly)[stack]["properties"].get("tags", {})
    request = {
        "StackName": stack,
        "TemplateBody": json.dumps(template(assembly, stack)),
        "Capabilities": ["CAPABILITY_NAMED_IAM"],
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    names = {found["StackName"] for found in cloudformation.describe_stacks()["Stacks"]}
    try:
        (cloudformation.update_stack if stack in names else cloudformation.create_stack)(**request)
    except cloudformation.exceptions.ClientError as error:
        if "No updates are to be performed" not in str(error):
            raise
    status = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
    if status not in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}:
        events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
        reasons = [event["ResourceStatusReason"] for event in events if event.get("ResourceStatusReason")]
        raise EmbeddedError(f"{stack} is {status}: {'; '.join(reasons)}")


def _zipped(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return buffer.getvalue()
