"""The operator's commands on the embedded AWS, against the deployed fleet and the deployed function's own zip."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.fleetctl import main
from fleet.core import names
from fleet.localaws import iam_policies
from fleet.localaws.deployed import Deployed
from fleet.ops import fleet_view

READS = ("Get", "List", "Describe", "Filter", "Head", "Simulate")
Fleetctl = Callable[..., Result]


@pytest.fixture
def fleetctl(live: Deployed) -> Fleetctl:
    """The command line in this process, as the operator of the copy."""

    def run(*arguments: str, **more: Any) -> Result:
        return CliRunner().invoke(main, arguments, env={**live.aws.environment(), "COLUMNS": "200"}, **more)

    return run


def asked(fleet: Deployed, since: int) -> list[str]:
    """Calls of the operator after the first `since` lines of the request log."""
    log = fleet.aws.requests()[since:]
    return [f"{line['service']}:{line['action']}" for line in log if line["principal"] == "operator"]


def measured(fleet: Deployed, metric: str, *values: tuple[float, float]) -> None:
    """What the boxes told: seconds ago, and the value."""
    for ago, value in values:
        datum = {"MetricName": metric, "Dimensions": [{"Name": "Fleet", "Value": "llm"}], "Value": value}
        datum |= {"Timestamp": datetime.now(UTC) - timedelta(seconds=ago)}
        fleet.aws.client("cloudwatch").put_metric_data(Namespace=names.METRIC_NAMESPACE, MetricData=[datum])


# --- status ----------------------------------------------------------------------------------------------------


def test_status_of_a_healthy_fleet_is_all_right_in_at_most_thirteen_reads(live: Deployed, fleetctl: Fleetctl) -> None:
    before = len(live.aws.requests())
    done = fleetctl("status", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["mode"], found["agreed"], found["serving"], found["problems"]) == ("spot-armed", True, 1, [])
    (box,) = found["boxes"]
    assert (box["purchase"], box["pool"], box["health"], box["usd_per_hour"]) == ("spot", "g6.xlarge", "healthy", 0.34)
    assert (found["usd_per_day"], found["usd_per_day_on_demand"]) == (8.16, 19.32)
    calls = asked(live, before)
    assert 0 < len(calls) <= 13, calls
    assert all(call.split(":")[1].startswith(READS) for call in calls), calls


def test_status_runs_as_a_program_too(live: Deployed) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "fleetctl", "status"],
        capture_output=True,
        text=True,
        env={**os.environ, **live.aws.environment()},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "all right" in done.stdout


def test_status_after_a_failover_tells_mode_lever_price_and_the_reason(live: Deployed, fleetctl: Fleetctl) -> None:
    live.age_group(7200)
    live.age_boxes(3600)
    live.set_health("unhealthy")
    live.set_alarm("ALARM", seconds_ago=60)
    assert live.decisions()[-1]["result"]["action"] == "failover", live.decisions()[-1]
    found = json.loads(fleetctl("status", "--json").stdout)
    assert (found["mode"], found["lever"]["group"], found["failovers_counted"]) == ("on-demand-failover", 100, 1)
    assert found["decisions"][-1]["action"] == "failover"
    assert "no healthy target, alarm lit for" in found["decisions"][-1]["reason"]
    assert "alarm is ALARM: docs/runbook/no-healthy-target.md" in found["problems"]
    fleetctl("arm", "--why", "the count begins anew", "--yes")
    assert json.loads(fleetctl("status", "--json").stdout)["failovers_counted"] == 0
    assert "0 in 24 h that the valve counts" in fleetctl("status").stdout


def test_status_says_that_the_log_was_not_read_to_its_end(fleetctl: Fleetctl, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not read to its end" not in fleetctl("status").stdout
    monkeypatch.setattr(fleet_view, "last_decisions", lambda *_: ((), False))
    assert "log not read to its end: decisions may be missing" in fleetctl("status").stdout
    assert json.loads(fleetctl("status", "--json").stdout)["decisions_complete"] is False


def test_status_tells_a_generation_that_does_not_end_with_its_age(live: Deployed, fleetctl: Fleetctl) -> None:
    measured(live, names.METRIC_RUNAWAY_GENERATION_SECONDS, (3600, 900), (130, 2340), (70, 2400))
    done = fleetctl("status", "--json")
    told = "a generation has run for 40 min and does not end: docs/runbook/runaway-generation.md"
    assert (done.exit_code, json.loads(done.stdout)["problems"]) == (3, [told])


@pytest.mark.parametrize(("values", "told"), [((), ""), ((0, 1), "streamed"), ((1, 0), "downloaded")])
def test_status_tells_how_the_last_warm_boot_came_by_its_model(
    live: Deployed, fleetctl: Fleetctl, values: tuple[int, ...], told: str
) -> None:
    measured(live, names.METRIC_BOOT_STREAMED, *zip((30 * 3600, 3 * 3600), values, strict=False))
    assert json.loads(fleetctl("status", "--json").stdout)["last_warm_boot"] == told
    assert ("the model was downloaded, which takes" in fleetctl("status").stdout) is (told == "downloaded")


def test_status_ends_with_three_when_the_lever_disagrees(live: Deployed, fleetctl: Fleetctl) -> None:
    live.aws.client("ssm").put_parameter(Name="/llm/on-demand-percentage", Value="100", Type="String", Overwrite=True)
    done = fleetctl("status")
    assert done.exit_code == 3
    assert "lever disagrees: parameter 100, group 0, expected 0; the next scan repairs it" in done.output


def test_status_of_a_fleet_that_is_not_there_names_the_setting(live: Deployed, tmp_path: Path) -> None:
    other = tmp_path / "cdk.json"
    other.write_text(Path("cdk.json").read_text().replace('"fleet_name": "llm"', '"fleet_name": "nobody"'))
    done = CliRunner().invoke(main, ["--settings", str(other), "status"], env=live.aws.environment())
    assert done.exit_code == 2
    assert "lambda GetFunctionConfiguration" in done.output
    assert "check `fleet_name` and `region` in cdk.json" in done.output


def test_status_without_the_permission_names_it(live: Deployed, fleetctl: Fleetctl) -> None:
    live.aws.control("fault", service="autoscaling", action="DescribeAutoScalingGroups", code="AccessDenied", times=-1)
    done = fleetctl("status")
    assert done.exit_code == 2
    assert "your credentials lack autoscaling:DescribeAutoScalingGroups" in done.output


# --- operator commands ---------------------------------------------------------------------------------------------


def test_pin_moves_the_lever_and_the_mail_says_who_and_why(live: Deployed, fleetctl: Fleetctl) -> None:
    done = fleetctl("pin", "--why", "board meeting", "--yes")
    assert done.exit_code == 0, done.output
    assert (live.lever(), live.percentage(), live.state()["mode"]) == ("100", 100, "on-demand-pinned")
    (mail,) = live.mails()
    assert "board meeting" in mail["body"]
    assert live.decisions()[-1]["event"]["who"].count("@") == 1


def test_an_operator_command_asks_first_and_a_no_changes_nothing(live: Deployed, fleetctl: Fleetctl) -> None:
    done = fleetctl("pin", "--why", "x", input="n\n")
    assert done.exit_code == 2
    assert "moves the fleet to on-demand" in done.output
    assert live.decisions() == []
    assert fleetctl("pin", "--why", "x", input="y\n").exit_code == 0
    assert live.lever() == "100"


def test_arm_after_pin_waits_for_the_scores(live: Deployed, fleetctl: Fleetctl) -> None:
    fleetctl("pin", "--why", "x", "--yes")
    done = fleetctl("arm", "--why", "over", "--yes", "--json")
    assert json.loads(done.stdout)["action"] == "armed"
    assert (live.lever(), live.state()["mode"]) == ("100", "on-demand-failover")


def test_scan_and_probe_answer_with_their_decision(live: Deployed, fleetctl: Fleetctl) -> None:
    assert "spot-armed; nothing to do" in fleetctl("scan", "--why", "look", "--yes").output
    assert "sent the group its own 0 % again" in fleetctl("probe", "--why", "proof", "--yes").output
    assert (live.lever(), live.percentage(), live.mails()) == ("0", 0, [])


def test_a_command_that_the_role_cannot_carry_out_fails_with_the_call(live: Deployed, fleetctl: Fleetctl) -> None:
    live.aws.control("fault", service="autoscaling", action="UpdateAutoScalingGroup", code="AccessDenied", times=-1)
    done = fleetctl("probe", "--why", "proof", "--yes")
    assert done.exit_code == 1
    assert "update_auto_scaling_group: AccessDenied" in done.output
    assert "docs/runbook/function-failed.md" in done.output


def test_nothing_but_the_operators_commands_invokes_a_function(live: Deployed, fleetctl: Fleetctl) -> None:
    before = len(live.aws.requests())
    for command in (["status"], ["preflight"], ["ask", "hello"]):
        fleetctl(*command)
    assert "lambda:Invoke" not in asked(live, before)


# --- preflight, ask, pin-ami -----------------------------------------------------------------------------------


def test_preflight_of_the_deployed_fleet_fails_nothing_and_only_reads(live: Deployed, fleetctl: Fleetctl) -> None:
    before = len(live.aws.requests())
    done = fleetctl("preflight", "--json")
    lines = {line["check"]: line for line in json.loads(done.stdout)}
    assert done.exit_code == 0, lines
    assert {name for name, line in lines.items() if line["level"] == "warn"} <= {
        "machine image",
        "artifacts",
        "release",
        "subscriptions",
    }
    assert lines["watchdog's role"]["level"] == "pass"
    assert all(call.split(":")[1].startswith(READS) for call in asked(live, before))


def test_preflight_sees_a_role_that_lost_its_launch_grants(live: Deployed, fleetctl: Fleetctl) -> None:
    iam, role = live.aws.client("iam"), live.role("group", "WatchdogRole")
    for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=role, PolicyArn=policy["PolicyArn"])
    done = fleetctl("preflight")
    assert done.exit_code == 3
    assert "may not ec2:RunInstances on instance/*, ec2:RunInstances on launch-template/" in done.output
    assert "the next failover would die on it" in " ".join(done.output.split())


def test_ask_puts_the_prompt_to_the_fleets_own_document(live: Deployed, fleetctl: Fleetctl) -> None:
    done = fleetctl("ask", "it's $(me)", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["model"], found["text"]) == ("house-model:31b-q4", "(an echo, no model runs here) it's $(me)")


def test_lane_shows_the_line_of_every_box_and_drop_ends_one_request(live: Deployed, fleetctl: Fleetctl) -> None:
    before = len(live.aws.requests())
    done = fleetctl("lane")
    assert done.exit_code == 0, done.output
    assert "1 in line, 9 s for who comes now" in done.output
    assert "no-lane-runs-here" in done.output
    ((line,),) = (each["line"] for each in json.loads(fleetctl("lane", "--json").stdout))
    assert (line["caller"], line["kind"], line["expected"]) == ("anybody", "interactive", 9.4)
    assert fleetctl("lane", "drop", line["id"], input="n\n").exit_code == 2
    assert "has ended on i-" in fleetctl("lane", "drop", line["id"], "--yes").output
    gone = fleetctl("lane", "drop", "another-one", "--yes")
    assert (gone.exit_code, "no box has another-one in line" in gone.output) == (2, True)
    assert {call for call in asked(live, before) if not call.split(":")[1].startswith(READS)} == {"ssm:SendCommand"}


def test_status_tells_the_line_that_a_box_told_in_the_last_minutes(live: Deployed, fleetctl: Fleetctl) -> None:
    assert json.loads(fleetctl("status", "--json").stdout)["line"] == ""
    measured(live, names.METRIC_LANE_DEPTH, (150, 9), (70, 3))
    measured(live, names.METRIC_LANE_EXPECTED_WAIT_SECONDS, (150, 99.0), (70, 28.2))
    assert "3 in it, 28 s for who comes now" in fleetctl("status").stdout


def test_pin_ami_pins_the_image_that_the_parameter_names(live: Deployed, tmp_path: Path) -> None:
    own = tmp_path / "cdk.json"
    own.write_text(Path("cdk.json").read_text())
    run = CliRunner()
    done = run.invoke(main, ["--settings", str(own), "pin-ami", "--yes"], env=live.aws.environment())
    assert done.exit_code == 0, done.output
    assert "ami_id null -> ami-" in done.output
    again = run.invoke(main, ["--settings", str(own), "pin-ami", "--yes"], env=live.aws.environment())
    assert "already" in again.output


# --- the policy evaluation behind the simulator -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "context", "verdict"),
    [
        ({"Action": "ec2:Run*", "Resource": "*"}, {}, True),
        ({"Action": "ec2:CreateTags", "Resource": "*"}, {}, False),
        ({"Action": "ec2:RunInstances", "Resource": "arn:other"}, {}, False),
        ({"Action": "ec2:RunInstances", "Condition": {"StringEquals": {"k": "v"}}}, {}, False),
        ({"Action": "ec2:RunInstances", "Condition": {"StringEquals": {"k": "v"}}}, {"k": ["v"]}, True),
        ({"Action": "ec2:RunInstances", "Condition": {"StringEquals": {"k": ["u", "v"]}}}, {"k": ["w"]}, False),
        ({"Action": "ec2:RunInstances", "Condition": {"ForAllValues:StringEquals": {"k": "v"}}}, {}, True),
    ],
)
def test_a_statement_allows_what_it_says_and_no_more(statement: Any, context: Any, verdict: bool) -> None:
    allow = {"Effect": "Allow", **statement}
    assert iam_policies.allowed([allow], "ec2:RunInstances", "arn:x", context) is verdict
    assert not iam_policies.allowed([allow, {"Effect": "Deny", "Action": "*"}], "ec2:RunInstances", "arn:x", context)


def test_an_unknown_condition_is_refused_rather_than_guessed() -> None:
    statement = {"Effect": "Allow", "Action": "*", "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}
    with pytest.raises(ValueError, match="IpAddress"):
        iam_policies.allowed([statement], "ec2:RunInstances", "arn:x", {"aws:SourceIp": ["10.0.0.1"]})
