"""What an operator's commands ask beyond the fleet's own calls: limits, prices, images, IAM's simulator, Run Command.

Run Command runs the fleet's own document, its lines in a real shell, beside a stand-in for the engine that echoes.
"""

import base64
import http.server
import json
import re
import subprocess
import tempfile
import threading
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends
from moto.ssm.models import Parameter, ParameterDict, ssm_backends

from fleet.config.pools import POOLS
from fleet.core import names
from fleet.localaws import ACCOUNT, iam_policies
from fleet.localaws.calls import Call
from fleet.localaws.cloudformation import IMAGE
from fleet.localaws.denials import role_statements
from fleet.localaws.missing import ApiError, operation
from fleet.localaws.patching import extend

BOX_FILE = "/etc/fleet/box.json"
_invocations: dict[str, dict[str, Any]] = {}


@operation("lambda", "GetAccountSettings")
def get_account_settings(call: Call) -> dict[str, Any]:
    """An account with room to reserve."""
    return {"AccountLimit": {"ConcurrentExecutions": 1000, "UnreservedConcurrentExecutions": 999}}


@operation("ec2", "DescribeSpotPriceHistory")
def describe_spot_price_history(call: Call) -> dict[str, Any]:
    """The table's price in every zone (moto's is 0.00001)."""
    zones = {subnet.availability_zone for subnet in ec2_backends[ACCOUNT][call.region].describe_subnets()}
    types = [name for name in call.parameters.get("InstanceTypes", POOLS) if name in POOLS]
    line = {"ProductDescription": "Linux/UNIX", "Timestamp": datetime.now(UTC)}
    return {
        "SpotPriceHistory": [
            {**line, "InstanceType": name, "AvailabilityZone": zone, "SpotPrice": str(POOLS[name].spot_usd)}
            for name in types
            for zone in sorted(zones)
        ]
    }


@operation("cloudwatch", "DescribeAlarmHistory")
def describe_alarm_history(call: Call) -> dict[str, Any]:
    """State changes, as moto remembers them."""
    alarm = cloudwatch_backends[ACCOUNT][call.region].alarms.get(call.parameters["AlarmName"])
    changes = [(entry[4], entry[3]) for entry in alarm.history] if alarm else []
    if alarm:
        changes.append((alarm.state_updated_timestamp, alarm.state_value))
    return {
        "AlarmHistoryItems": [
            {
                "AlarmName": call.parameters["AlarmName"],
                "HistoryItemType": "StateUpdate",
                "Timestamp": at,
                "HistoryData": json.dumps({"newState": {"stateValue": state}}),
            }
            for at, state in changes[1:]  # the first is the alarm's birth
        ]
    }


@extend(ParameterDict, "_check_loading_status")
def _check_loading_status(original: Any, parameters: ParameterDict, key: str) -> None:
    """AWS's own deep-learning image parameter names an image that moto knows."""
    original(parameters, key)
    if key == names.DLAMI_PARAMETER and not dict.__contains__(parameters, key):
        fields = (ACCOUNT, key, IMAGE, "String", None, None, None, datetime.now(UTC), 1, "text")
        parameters[key] = [Parameter(*fields)]  # type: ignore[abstract]  # moto itself makes them so


@operation("iam", "SimulatePrincipalPolicy")
def simulate_principal_policy(call: Call) -> dict[str, Any]:
    """The role's own policies, evaluated."""
    asked = call.parameters
    context = {entry["ContextKeyName"]: entry["ContextKeyValues"] for entry in asked.get("ContextEntries", [])}
    statements = role_statements(asked["PolicySourceArn"].rpartition("/")[2])
    results = []
    for action in asked["ActionNames"]:
        for resource in asked.get("ResourceArns", ["*"]):
            verdict = "allowed" if iam_policies.allowed(statements, action, resource, context) else "implicitDeny"
            results.append({"EvalActionName": action, "EvalResourceName": resource, "EvalDecision": verdict})
    return {"EvaluationResults": results}


# --- Run Command -----------------------------------------------------------------------------------------------


@operation("ssm", "SendCommand")
def send_command(call: Call) -> dict[str, Any]:
    """Runs the document at once; GetCommandInvocation tells how it went."""
    asked, backend = call.parameters, ssm_backends[ACCOUNT][call.region]
    document = json.loads(backend.get_document(asked["DocumentName"], "$LATEST", "", "JSON")["Content"])
    values = {name: value[0] for name, value in asked.get("Parameters", {}).items()}
    for name, value in values.items():
        if not re.fullmatch(document["parameters"][name]["allowedPattern"], value):
            raise ApiError("InvalidParameters", f"Parameter {name} does not match its allowed pattern.")
    command = {"CommandId": str(uuid.uuid4()), "DocumentName": asked["DocumentName"], "Status": "Success"}
    for box in asked["InstanceIds"]:
        _invocations[f"{command['CommandId']} {box}"] = _run(document, values, box, call.region)
    return {"Command": command}


@operation("ssm", "GetCommandInvocation")
def get_command_invocation(call: Call) -> dict[str, Any]:
    """How a command went on one box."""
    asked = call.parameters
    found = _invocations.get(f"{asked['CommandId']} {asked['InstanceId']}")
    if found is None:
        raise ApiError("InvocationDoesNotExist", "The command does not exist on this instance.")
    return {"CommandId": asked["CommandId"], "InstanceId": asked["InstanceId"], **found}


def _run(document: dict[str, Any], values: dict[str, str], box: str, region: str) -> dict[str, Any]:
    """The document's lines, filled in as the agent does, in a shell beside a stand-in of engine and lane."""
    engine = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Engine)
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    first, *lines = document["mainSteps"][0]["inputs"]["runCommand"]
    script = "\n".join([first.replace(str(names.LANE_ADMIN_PORT), str(engine.server_port)), *lines])
    for name, value in values.items():
        script = script.replace(f"{{{{ {name} }}}}", value)
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "box.json"
        own.write_text(json.dumps({**_box_file(box, region), "port": engine.server_port}))
        shell = ["bash", "-c", script.replace(BOX_FILE, str(own))]
        done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603  (the fleet's)
    engine.shutdown()
    engine.server_close()
    return {
        "Status": "Success" if done.returncode == 0 else "Failed",
        "ResponseCode": done.returncode,
        "StandardOutputContent": done.stdout,
        "StandardErrorContent": done.stderr,
    }


def _box_file(box: str, region: str) -> dict[str, Any]:
    """The box's own settings, out of its user data."""
    instance = ec2_backends[ACCOUNT][region].get_instance(box)
    script = base64.b64decode(str(instance.user_data or "")).decode()
    found = re.search(rf"cat >{BOX_FILE} <<'BOX'\n(.*?)\nBOX\n", script, re.DOTALL)
    return dict(json.loads(found[1])) if found else {"model": "unknown"}


STAND_IN = "no-lane-runs-here"  # the one request in the stand-in's line


class _Engine(http.server.BaseHTTPRequestHandler):
    """A stand-in for engine and lane: no model runs here, and it says so."""

    def do_GET(self) -> None:
        """The line, of one request that is served for ever."""
        waiting = {"id": STAND_IN, "caller": "anybody", "class": "interactive", "state": "served", "tokens": 1}
        waiting |= {"limit": 64, "waited_seconds": 0.0, "expected_seconds": 9.4}
        self._answer(200, {"line": [waiting], "expected_wait_seconds": 9.4, "draining": False})

    def do_DELETE(self) -> None:
        """The end of that request."""
        there = self.path.endswith(f"/{STAND_IN}")
        self._answer(200 if there else 404, {"dropped": there})

    def do_POST(self) -> None:
        """Echo the prompt."""
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(200, {"response": f"(an echo, no model runs here) {question['prompt']}"})

    def _answer(self, status: int, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


for _role, _service in names.LINKED_ROLES.items():  # what an account that has run such fleets holds
    iam_backends[ACCOUNT]["aws"].create_role(
        role_name=_role,
        assume_role_policy_document="{}",
        path=f"/aws-service-role/{_service}/",
        permissions_boundary=None,
        description="",
        tags=[],
        max_session_duration="3600",
        linked_service=_service,
    )
