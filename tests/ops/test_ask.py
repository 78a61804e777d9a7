"""`fleetctl ask`: the document's own shell lines, run by a real shell against a real HTTP server on loopback."""

import base64
import http.server
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleet.account.aws_errors import MissingError, OperatorError
from fleet.core import ask_document
from fleet.ops import ask
from tests.box import servers

# What a shell would act on, if it ever read the prompt.
NASTY = "'; touch /tmp/owned; $(reboot) `id` \\ \" \n {{ prompt }} ASK\n$HOME ünïcödé ☃"


def run_document(prompt: str, port: int, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """What the agent on the box does: fill in the parameter, run the lines as a script."""
    box = tmp_path / "box.json"
    box.write_text(json.dumps({"model": "house-model:31b-q4", "port": port}))
    content = ask_document.document()
    value = ask_document.encode(prompt)
    assert re.fullmatch(content["parameters"]["prompt"]["allowedPattern"], value)
    lines = "\n".join(content["mainSteps"][0]["inputs"]["runCommand"])
    assert lines.count("{{") == 1, "nothing but the prompt is filled in"
    script = lines.replace("{{ prompt }}", value).replace("/etc/fleet/box.json", str(box))
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("prompt", ["hello", NASTY, "x" * 4096])
def test_the_prompt_reaches_the_engine_byte_for_byte_and_no_shell_reads_it(prompt: str, tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def echo(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append({"path": handler.path, **servers.body_of(handler)})
        servers.reply(handler, json.dumps({"response": f"heard: {asked[-1]['prompt']}"}).encode())

    with servers.local(echo) as port:
        done = run_document(prompt, port, tmp_path)
    assert done.stderr == ""
    assert json.loads(done.stdout)["answer"] == f"heard: {prompt}"
    (question,) = asked
    assert (question["path"], question["model"], question["stream"]) == ("/api/generate", "house-model:31b-q4", False)


def test_an_engine_that_does_not_answer_fails_the_command(tmp_path: Path) -> None:
    done = run_document("hello", 1, tmp_path)
    assert done.returncode != 0
    assert "Connection refused" in done.stderr


@pytest.mark.parametrize("value", ["it's", "a b", "$(id)", "a\nb", "", "ab=c", "a" * 5465, "x\n"])
def test_the_documents_pattern_admits_base64_and_nothing_else(value: str) -> None:
    pattern = ask_document.document()["parameters"]["prompt"]["allowedPattern"]
    assert not re.fullmatch(pattern, value)


def test_a_serving_box_is_asked_and_its_answer_returned(fleet_of: Any) -> None:
    said = json.dumps({"model": "m", "answer": "hi", "seconds": 0.4})
    states = iter(
        [
            MissingError("InvocationDoesNotExist", ""),
            {"Status": "InProgress"},
            {"Status": "Success", "StandardOutputContent": said},
        ]
    )
    aws = fleet_of({"i-cold": "initial", "i-warm": "healthy"}, lambda **_: next(states))
    assert ask.ask(aws, "llm", "hello") == ask.Answer("i-warm", "m", "hi", 0.4)
    sent = dict(aws.asked)["ssm SendCommand"]
    assert (sent["InstanceIds"], sent["DocumentName"]) == (["i-warm"], "llm-ask")
    assert base64.b64decode(sent["Parameters"]["prompt"][0]) == b"hello"


def test_no_serving_box_is_said_before_any_command_is_sent(fleet_of: Any) -> None:
    aws = fleet_of({"i-cold": "initial"})
    with pytest.raises(OperatorError, match="no box of llm serves now"):
        ask.ask(aws, "llm", "hello")
    assert "ssm SendCommand" not in dict(aws.asked)


def test_a_fleet_that_does_not_exist_is_named(answers: Any) -> None:
    with pytest.raises(MissingError, match="the group llm-gpu does not exist"):
        ask.ask(answers({"autoscaling DescribeAutoScalingGroups": {"AutoScalingGroups": []}}), "llm", "hello")
