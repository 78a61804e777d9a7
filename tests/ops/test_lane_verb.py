"""`fleetctl lane` before boxes that tell, do not tell, or tell what no lane would. Whole: test_embedded."""

import json
from typing import Any

import pytest

from fleet.account.aws_errors import MissingError, OperatorError
from fleet.core.errors import UserError
from fleet.ops import lane

LINE = {
    "expected_wait_seconds": 12.5,
    "draining": False,
    "line": [
        {"id": "stuck-one", "caller": "key:1", "class": "background", "state": "served", "tokens": 9, "limit": 64}
        | {"waited_seconds": 1.5, "expected_seconds": 9.4}
    ],
}


@pytest.fixture
def fleet(fleet_of: Any) -> Any:
    """A fleet of such boxes: what each prints, or how its command ends."""

    def make(**boxes: Any) -> Any:
        def invocation(InstanceId: str, **_: Any) -> dict[str, Any]:
            said = boxes[InstanceId]
            return said if "Status" in said else {"Status": "Success", "StandardOutputContent": json.dumps(said)}

        return fleet_of(dict.fromkeys(boxes, "healthy"), invocation)

    return make


def sent(aws: Any) -> dict[str, Any]:
    found: dict[str, Any] = dict(aws.asked)["ssm SendCommand"]
    return found


def test_every_serving_box_is_asked_in_one_command_and_one_that_does_not_tell_hides_no_other(
    fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "WAIT_SECONDS", 0.05)
    failed = {"Status": "Failed", "StandardErrorContent": "urllib.error.URLError: refused\n"}
    aws = fleet(i1=LINE, i2=failed, i3={"line": "none"}, i4={"Status": "InProgress"})
    told = {line.box: line for line in lane.lines(aws, "llm")}
    assert (sent(aws)["InstanceIds"], sent(aws)["DocumentName"]) == (["i1", "i2", "i3", "i4"], "llm-lane")
    assert told["i1"] == lane.Line(
        "i1", (lane.Waiting("stuck-one", "key:1", "background", "served", 1.5, 9.4, 9, 64),), 12.5
    )
    assert "URLError: refused" in told["i2"].problem
    assert "answered what our script there never does" in told["i3"].problem
    assert "has not answered within 0 s" in told["i4"].problem


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "x", None, [], {}])
def test_seconds_that_are_none_are_not_shown(bad: Any) -> None:
    with pytest.raises(OperatorError, match="answered what our script there never does"):
        lane.said("i1", json.dumps({**LINE, "expected_wait_seconds": bad}))


def test_a_request_is_ended_at_the_box_that_has_it(fleet: Any) -> None:
    aws = fleet(i1={"dropped": False}, i2={"dropped": True})
    assert lane.drop(aws, "llm", "stuck-one") == "i2"
    assert (sent(aws)["DocumentName"], sent(aws)["Parameters"]) == ("llm-lane-drop", {"id": ["stuck-one"]})


def test_a_request_that_no_box_has_is_the_users_fault_unless_a_box_did_not_tell(fleet: Any) -> None:
    with pytest.raises(MissingError, match="no box has stuck-one in line"):
        lane.drop(fleet(i1={"dropped": False}), "llm", "stuck-one")
    silent = fleet(i1={"dropped": False}, i2={"Status": "TimedOut"})
    with pytest.raises(OperatorError, match="the command on i2 ended as TimedOut"):
        lane.drop(silent, "llm", "stuck-one")


@pytest.mark.parametrize("id", ["", "short", "a b c d e", "'; reboot", "../../drain", "x" * 65, "ünïcödé-1"])
def test_an_id_that_no_line_shows_is_refused_before_any_command(fleet: Any, id: str) -> None:
    aws = fleet(i1=LINE)
    with pytest.raises(UserError, match="allowed: an id that `fleetctl lane` shows"):
        lane.drop(aws, "llm", id)
    assert "ssm SendCommand" not in dict(aws.asked)
