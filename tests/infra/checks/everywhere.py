"""What holds for every function, role, log and tag."""

import re

from fleet.config.settings import Settings
from fleet.core import names
from tests.infra.checks.shared import FUNCTION, FUNCTIONS, NO_CONDITION, UNTAGGED, WRITE_LOG, check, documents, trust
from tests.infra.templates import Templates, grants, resources


@check
def every_function_runs_its_own_zip_as_its_own_role_into_its_own_log(t: Templates, s: Settings) -> None:
    for name, stack in FUNCTIONS.items():
        resource = t[stack]["Resources"][name]
        assert resource["Type"] == FUNCTION
        assert {f"{name}Role", f"{name}RoleDefaultPolicy"} == set(resource["DependsOn"])
        function = resource["Properties"]
        assert (function["Runtime"], function["Architectures"]) == ("python3.14", ["arm64"])
        assert (function["Timeout"], function["MemorySize"]) == (60, 256 if name == "Watchdog" else 128)
        assert function["Role"] == f"<{name}Role.Arn>"
        assert function["LoggingConfig"] == {"LogGroup": f"<{name}Log>"}
        log = t[stack]["Resources"][f"{name}Log"]
        assert log["Type"] == "AWS::Logs::LogGroup"
        named = names.watchdog_log_group(s.fleet_name) if name == "Watchdog" else None  # where fleetctl reads decisions
        assert log["Properties"].get("LogGroupName") == named
        assert function["Code"]["S3Bucket"] == "cdk-hnb659fds-assets-<AWS::AccountId>-us-east-2"
        assert re.fullmatch(rf"{s.fleet_name}/[0-9a-f]{{64}}\.zip", function["Code"]["S3Key"])
        role = t[stack]["Resources"][f"{name}Role"]
        assert role["Properties"]["AssumeRolePolicyDocument"]["Statement"] == [trust("lambda")]
        policy = t[stack]["Resources"][f"{name}RoleDefaultPolicy"]
        assert policy["Properties"]["Roles"] == [f"<{name}Role>"]
        written = {grant for grant in grants({"Properties": {}}, policy) if grant[0].startswith("logs:")}
        assert written == {(action, f"<{name}Log.Arn>", NO_CONDITION) for action in WRITE_LOG}


@check
def logs_are_kept_for_three_months_and_end_with_the_fleet(t: Templates, s: Settings) -> None:
    for stack in ("lever", "group"):
        for log in resources(t[stack], "AWS::Logs::LogGroup"):
            assert log["Properties"]["RetentionInDays"] == 90
            assert log["DeletionPolicy"] == log["UpdateReplacePolicy"] == "Delete"


@check
def every_policy_speaks_the_current_language(t: Templates, s: Settings) -> None:
    versions = [
        document.get("Version")
        for stack in t.values()
        for resource in stack["Resources"].values()
        for document in documents(resource.get("Properties", {}))
    ]
    assert versions == ["2012-10-17"] * len(versions)
    assert len(versions) == 14


@check
def everything_that_can_be_tagged_names_its_fleet(t: Templates, s: Settings) -> None:
    tag = {"Key": names.TAG_FLEET, "Value": s.fleet_name}
    for stack in t.values():
        for name, resource in stack["Resources"].items():
            if resource["Type"] not in UNTAGGED:
                tags = resource["Properties"]["Tags"]
                assert tag in tags or {**tag, "PropagateAtLaunch": True} in tags, name
