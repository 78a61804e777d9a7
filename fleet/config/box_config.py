"""What a box is given at synth: its few settings (box.json), user data, bundle, and leave for its AWS calls."""

import hashlib
import io
import json
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import jinja2

from fleet.config.settings import Settings
from fleet.core import names
from fleet.core.errors import UserError

ASSETS = Path(__file__).parents[2] / "assets"
BUNDLE = ASSETS / "bootstrap"  # links are followed
PACKAGES = Path(sys.prefix, "lane-packages")  # installed for the box's platform and Python: see the Makefile
# What travels as one zip: folders by their place in it, and which of their files. A cache in it would roll every box.
PACKED = {
    "": (BUNDLE, ("*.py", "*.service")),
    "lane": (ASSETS / "lane", ("*.py",)),
    "relay": (ASSETS / "relay", ("*.py",)),
    "packages": (PACKAGES, ("*.py", "*.so", "LICENSE*", "NOTICE*")),
}

# Every AWS action that code on the box calls, by what it acts on: the role grants these and no others.
ACTIONS = {
    "bundle": ("s3:GetObject",),
    "store": ("s3:ListBucket",),  # a missing cache must answer 404, not 403
    "store's objects": ("s3:GetObject",),
    "store's cache": ("s3:PutObject", "s3:AbortMultipartUpload"),
    "group": (
        "autoscaling:CompleteLifecycleAction",
        "autoscaling:RecordLifecycleActionHeartbeat",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
    ),
    "target group": ("elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeregisterTargets"),
    "any": ("elasticloadbalancing:DescribeTargetHealth",),  # has no resource-level permission
    "own instance, tag fleet:boot": ("ec2:CreateTags",),
    "box log group": ("logs:CreateLogStream", "logs:PutLogEvents"),
    "metric namespace": ("cloudwatch:PutMetricData",),
}

# Interface endpoints by which a box without any way to the internet makes those calls, Session Manager's among them.
ENDPOINTS = ("autoscaling", "ec2", "elasticloadbalancing", "logs", "monitoring", "ssm", "ssmmessages")


def box_config(settings: Settings, *, bucket: str, target_group_arn: str, **overrides: Any) -> dict[str, Any]:
    """The box's few values. `bucket` and `target_group_arn` may be CDK tokens; tests override timings."""
    model = settings.model
    return {
        "fleet": settings.fleet_name,
        "region": settings.region,
        "bucket": bucket,
        "target_group_arn": target_group_arn,
        "port": settings.port,
        "model": model.name,
        "quantize": model.quantize,
        "context_length": model.context_length,
        "engine_version": model.engine_version,
        **{
            name: {"key": artifact.key, "sha256": artifact.sha256}
            for name, artifact in (("engine", model.engine), ("gguf", model.gguf), ("modelfile", model.modelfile))
        },
        "warm_budget_seconds": settings.boot.warm_budget_seconds,
        "cold_budget_seconds": settings.boot.cold_budget_seconds,
        "drain_budget_seconds": settings.drain.budget_seconds,
        "safety_margin_seconds": settings.drain.safety_margin_seconds,
        "planned_seconds": settings.drain.planned_seconds,
        "gateway": settings.gateway is not None,
        "lane_deadline_seconds": settings.lane.deadline_seconds,
        "lane_inexact_slices": settings.lane.inexact_slices,
        **overrides,
    }


def bundle() -> bytes:
    """The zip of the box's programs, units and packages. The same files make the same bytes, whatever machine packs
    them: without times, modes or compression. Raises UserError where the packages were not installed.
    """
    if not (PACKAGES / "httptools").is_dir():
        raise UserError("the packages of the boxes' lane are not installed: run `make setup`")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for place, (folder, kept) in PACKED.items():
            for path in sorted(folder.rglob("*")):
                if path.is_file() and any(fnmatch(path.name, each) for each in kept):
                    name = Path(place, path.relative_to(folder)).as_posix()
                    archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
    return packed.getvalue()


def user_data(config: dict[str, Any], *, bundle_bucket: str, bundle_key: str) -> str:
    """The rendered user data, which holds the bundle by its digest; tokens in the values pass through untouched."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(BUNDLE),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - a shell script, not HTML; values are validated settings
    )
    return environment.get_template("user_data.sh.j2").render(
        fleet=config["fleet"],
        group=names.group(config["fleet"]),
        launch_hook=names.LAUNCH_HOOK,
        boot_tag=names.TAG_BOOT,
        boot_failed=names.BOOT_FAILED,
        region=config["region"],
        box_json=json.dumps(config, indent=1, sort_keys=True),
        bundle_bucket=bundle_bucket,
        bundle_key=bundle_key,
        bundle_sha256=hashlib.sha256(bundle()).hexdigest(),
    )
