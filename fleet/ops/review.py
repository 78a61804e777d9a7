"""Says what a deploy of this checkout would do to the stacks that stand: the comment on a pull request.

Reads only (GetTemplate, DescribeStacks, GetParameters): without a change set, the reviewing role can change nothing.
Whether a changed property replaces its resource is as CloudFormation's own schemas say (`replacements`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, assert_never

from fleet.config import immutable as changes
from fleet.config.problem import Problem
from fleet.config.settings import Settings
from fleet.config.validation import check
from fleet.core import names
from fleet.core.errors import UserError
from fleet.core.replacements import create_only
from fleet.core.untrusted import code

Template = Mapping[str, Any]
MARKER = "<!-- fleet review -->"  # finds our own comment again
# GitHub takes 65,536 characters: no list of names may push the answers out.
COMMENT_MOST, LINE_MOST, LINES_MOST = 60_000, 400, 20

GROUP = "AWS::AutoScaling::AutoScalingGroup"
LAUNCH_TEMPLATE = "AWS::EC2::LaunchTemplate"
FUNCTION = "AWS::Lambda::Function"
# What the group's refresh compares; a moved lever or another distribution replaces no box by it (skip-matching is on).
_ROLLING = {LAUNCH_TEMPLATE: ("LaunchTemplateData",), GROUP: ("MixedInstancesPolicy/LaunchTemplate",)}
# Types whose loss costs more than the deploy that makes them again, and what it costs.
_LOSS = {
    GROUP: "every box, serving ones included",
    "AWS::ElasticLoadBalancingV2::LoadBalancer": "the address that callers use",
    "AWS::ElasticLoadBalancingV2::Listener": "the port, until it is made again",
    "AWS::ElasticLoadBalancingV2::TargetGroup": "every registration: no box serves until it registers again",
    "AWS::S3::Bucket": "the model store",
    "AWS::SSM::Parameter": "the value it holds",
    "AWS::EC2::VPC": "the network and everything in it",
    "AWS::EC2::Subnet": "the boxes that run in it",
    "AWS::Logs::LogGroup": "the log",
    "AWS::SNS::Topic": "every confirmed subscription",
    "AWS::ECS::Service": "the gateway: its callers get 503 until it is made again",
}
_PERMISSIONS = (
    "AWS::IAM::",
    "AWS::EC2::SecurityGroup",
    "AWS::Lambda::Permission",
    "AWS::S3::BucketPolicy",
    "AWS::KMS::",
)
_SILENT = {"AWS::CDK::Metadata"}


class ResourceAction(Enum):
    """What happens to one resource."""

    ADD = "added"
    UPDATE = "updated"
    REPLACE = "replaced"
    MAY_REPLACE = "may be replaced"
    REMOVE = "removed"
    FORGET = "left behind, kept"


@dataclass(frozen=True)
class Change:
    """One resource that a deploy touches. `properties` are the paths that differ, deepest first difference."""

    stack: str
    logical_id: str
    type: str
    action: ResourceAction
    properties: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Where it stands."""
        return f"{self.stack}/{self.logical_id}"


@dataclass(frozen=True)
class Stack:
    """One stack, before and after. `deployed` is None for a new one; `moved` are its SSM inputs that changed since."""

    name: str
    proposed: Template
    deployed: Template | None = None
    moved: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    status: str = "CREATE_COMPLETE"
    left_out: bool = False  # of the assembly: a deploy does not touch it
    taken_out: bool = False  # of the settings: a deploy deletes it before anything else


@dataclass(frozen=True)
class Review:
    """The answer to the three questions of a reviewer, and the list behind it."""

    changes: tuple[Change, ...]
    rolls: tuple[str, ...]
    launch_first: bool | None  # None: no group in the app
    destructive: tuple[str, ...]
    permissions: tuple[str, ...]
    notes: tuple[str, ...]
    refused: tuple[str, ...] = ()  # settings that the standing fleet cannot take


def review(stacks: tuple[Stack, ...]) -> Review:
    """Compare every stack. Pure: the templates travel in."""
    changes = tuple(change for stack in stacks for change in _stack_changes(stack))
    return Review(
        changes=changes,
        rolls=tuple(_rolls(stacks, changes)),
        launch_first=_launch_first(stacks),
        destructive=tuple(_destructive(changes)),
        permissions=tuple(
            change.name
            for change in changes
            if change.type.startswith(_PERMISSIONS) and change.action is not ResourceAction.FORGET
        ),
        notes=tuple(_notes(stacks)),
        refused=tuple(str(problem) for stack in stacks for problem in _refused(stack)),
    )


def _refused(stack: Stack) -> tuple[Problem, ...]:
    """By the settings in the function's environment, before and after. Where boxes run, only `preflight` can tell."""
    standing, wanted = _settings(stack.deployed or {}), _settings(stack.proposed)
    return changes.refused(standing, wanted) if standing and wanted else ()


def _settings(template: Template) -> Settings | None:
    """Checked like cdk.json, since a template may be a stranger's; None where there are none that hold."""
    for resource in _resources(template).values():
        if resource.get("Type") != FUNCTION:
            continue
        variables = resource.get("Properties", {}).get("Environment", {}).get("Variables", {})
        if isinstance(text := variables.get(names.ENV_SETTINGS), str):
            try:
                raw = json.loads(text)
                return check(raw) if isinstance(raw, dict) else None
            except (UserError, ValueError, TypeError):
                return None
    return None


def _stack_changes(stack: Stack) -> Iterator[Change]:
    before, after = _resources(stack.deployed or {}), _resources(stack.proposed)
    for logical_id in sorted(before.keys() | after.keys()):
        old, new = before.get(logical_id), after.get(logical_id)
        if old is None and new is not None:
            yield Change(stack.name, logical_id, new["Type"], ResourceAction.ADD)
        elif new is None and old is not None:
            kept = old.get("DeletionPolicy") in ("Retain", "RetainExceptOnCreate")
            yield Change(stack.name, logical_id, old["Type"], ResourceAction.FORGET if kept else ResourceAction.REMOVE)
        elif old is not None and new is not None:
            paths = tuple(_differences(old.get("Properties", {}), new.get("Properties", {})))
            policies = tuple(key for key in ("UpdatePolicy", "DeletionPolicy") if old.get(key) != new.get(key))
            if old["Type"] != new["Type"]:
                yield Change(stack.name, logical_id, new["Type"], ResourceAction.REPLACE, ("Type",))
            elif paths or policies:
                action = _update_action(new["Type"], paths, old, new)
                yield Change(stack.name, logical_id, new["Type"], action, paths + policies)


def _resources(template: Template) -> dict[str, Any]:
    resources: dict[str, Any] = template.get("Resources", {})
    return {name: body for name, body in resources.items() if body["Type"] not in _SILENT}


def _differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Paths of the values that differ; a list of another length is one difference."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not _is_function(old) and not _is_function(new):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), f"{path}/{key}".lstrip("/"))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, f"{path}/{index}")
    elif old != new:
        yield path


def _is_function(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and (next(iter(value)) == "Ref" or next(iter(value)).startswith("Fn::"))


def _update_action(resource_type: str, paths: tuple[str, ...], old: Any, new: Any) -> ResourceAction:
    certain, perhaps = create_only(resource_type)
    if any(_touches(path, certain) for path in paths):
        return ResourceAction.REPLACE
    # A conditional property replaces when it appears or vanishes (a group that changes to a mixed policy, say).
    appeared = old.get("Properties", {}).keys() ^ new.get("Properties", {}).keys()
    if any(path.split("/")[0] in appeared and _touches(path, perhaps) for path in paths):
        return ResourceAction.MAY_REPLACE
    return ResourceAction.UPDATE


def _touches(path: str, prefixes: tuple[str, ...]) -> bool:
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)


def _rolls(stacks: tuple[Stack, ...], changes: tuple[Change, ...]) -> Iterator[str]:
    """Why boxes are replaced, if they are."""
    for change in changes:
        if change.action in (ResourceAction.REPLACE, ResourceAction.MAY_REPLACE) and change.type in _ROLLING:
            yield f"{change.name} is replaced"
        elif change.action is ResourceAction.UPDATE:
            rolling = [path for path in change.properties if _touches(path, _ROLLING.get(change.type, ()))]
            if rolling:
                yield f"{change.name} changes {', '.join(rolling)}"
    for stack in stacks:
        for parameter, (old, new) in stack.moved.items():
            users = [
                r for r in _resources(stack.proposed).values() if r["Type"] == LAUNCH_TEMPLATE and refers(r, parameter)
            ]
            if users:
                yield f"{stack.name} reads {parameter} anew: {old} -> {new}"


def refers(value: Any, parameter: str) -> bool:
    """Whether a piece of template takes a template parameter."""
    return f'{{"Ref": "{parameter}"}}' in json.dumps(value)


def _launch_first(stacks: tuple[Stack, ...]) -> bool | None:
    """Whether the group's update policy keeps all boxes healthy and adds before it ends; None without a group."""
    groups = [r for stack in stacks for r in _resources(stack.proposed).values() if r["Type"] == GROUP]
    return all(_policy_is_launch_first(group.get("UpdatePolicy", {})) for group in groups) if groups else None


def _policy_is_launch_first(policy: Any) -> bool:
    try:
        preferences = policy["AutoScalingInstanceRefresh"]["Preferences"]
        return float(preferences["MinHealthyPercentage"]) >= 100 and float(preferences["MaxHealthyPercentage"]) > 100
    except (KeyError, TypeError, ValueError):
        return False


def _destructive(changes: tuple[Change, ...]) -> Iterator[str]:
    for change in changes:
        match change.action:
            case ResourceAction.REPLACE | ResourceAction.MAY_REPLACE | ResourceAction.REMOVE:
                loss = f": loses {_LOSS[change.type]}" if change.type in _LOSS else ""
                why = f" ({', '.join(change.properties)})" if change.properties else ""
                yield f"{change.name} ({change.type}) is {change.action.value}{loss}{why}".replace(
                    "is may be", "may be"
                )
            case ResourceAction.ADD | ResourceAction.UPDATE | ResourceAction.FORGET:
                pass
            case _:
                assert_never(change.action)


def _notes(stacks: tuple[Stack, ...]) -> Iterator[str]:
    for stack in stacks:
        if stack.taken_out:
            yield f"{stack.name} is not in the settings any more: `make deploy` deletes it first, after asking"
        if stack.left_out:
            yield f"{stack.name} is not synthesized: a deploy of all stacks leaves it as it stands"
        if stack.status.endswith("_IN_PROGRESS"):
            yield f"{stack.name} is {stack.status}: a deploy is under way, this comparison may be of half of it"
        elif "FAILED" in stack.status:
            yield f"{stack.name} is {stack.status}: repair it before the next deploy"
        for parameter, (old, new) in stack.moved.items():
            yield f"{stack.name}: {parameter} moved {old} -> {new} since the last deploy; the next one carries it"


# --- the comment -----------------------------------------------------------------------------------------------


def markdown(result: Review) -> str:
    """The comment of a pull request: three answers first, the list after. What the templates name stands as code."""
    lines = [MARKER, "### What a deploy of this change does", ""]
    if not result.changes and not result.rolls:
        lines += ["**Nothing**: the deployed stacks are what this change synthesizes.", ""]
    if result.refused:
        lines += ["- **The standing fleet cannot take:**", *_told(result.refused)]
    lines += [f"- **Rolls boxes:** {_roll_answer(result)}", *_told(result.rolls)]
    lines += [
        f"- **Destructive:** {'yes' if result.destructive else 'no'}",
        *_told(result.destructive),
    ]
    opened = "yes, read them:" if result.permissions else "no"
    lines += [f"- **Permissions or network openings change:** {opened}", *_told(result.permissions)]
    lines += ["- **Notes:**", *_told(result.notes)] if result.notes else []
    if result.changes:
        lines += ["", "| stack | resource | type | what | properties |", "|---|---|---|---|---|"]
        lines += [
            f"| {code(c.stack)} | {code(c.logical_id)} | {code(c.type)} | {c.action.value} | "
            f"{code(', '.join(c.properties), LINE_MOST) if c.properties else ' '} |"
            for c in result.changes
        ]
    text = "\n".join(lines) + "\n"
    return text if len(text) <= COMMENT_MOST else text[: text.rindex("\n", 0, COMMENT_MOST)] + "\n\nand more\n"


def _told(lines: tuple[str, ...]) -> list[str]:
    more = [f"  - and {len(lines) - LINES_MOST} more"] if len(lines) > LINES_MOST else []
    return [*(f"  - {code(line, LINE_MOST)}" for line in lines[:LINES_MOST]), *more]


def _roll_answer(result: Review) -> str:
    if not result.rolls:
        return "no"
    if result.launch_first:
        return "yes, launch-first (a successor serves before its predecessor ends)"
    return "yes, and **not launch-first**: callers will see an outage"
