"""Who reaches the embedded AWS's port and was not told its keys: a web page, a local user, an old key."""

import http.client
import json
import stat
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from fleet.localaws import foreground
from fleet.localaws.admission import TOKEN_HEADER, Keys
from fleet.localaws.deployed import Deployed
from tests.e2e.small_stack import template

pytestmark = pytest.mark.slow

LIST_BUCKETS = b"Action=DescribeStacks&Version=2010-05-15"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def ask(live: Deployed, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], str]:
    """One raw request, as any program of this machine can send it: status, headers, body."""
    connection = http.client.HTTPConnection(live.aws.endpoint.removeprefix("http://"), timeout=20)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, dict(answer.headers), answer.read().decode()


def signed(live: Deployed) -> dict[str, str]:
    """The headers of an operator's DescribeStacks."""
    request = AWSRequest("POST", live.aws.endpoint + "/", headers=FORM, data=LIST_BUCKETS)
    keys = Credentials(live.aws.keys.id, live.aws.keys.secret)
    SigV4Auth(keys, "cloudformation", live.aws.region).add_auth(request)
    return {name.replace("-", "_"): value for name, value in request.headers.items()}


def stands(live: Deployed) -> bool:
    return bool(live.aws.client("sts").get_caller_identity()["Account"])


@pytest.mark.parametrize(
    ("method", "headers"),
    [("GET", {}), ("POST", {}), ("POST", {"X_Embedded_Token": "guessed"}), ("POST", {"X_Embedded_Token": ""})],
)
@pytest.mark.parametrize("verb", ["stop", "fork", "keys", "deliver", "no-such-verb"])
def test_a_switch_is_turned_by_post_and_by_the_token_of_the_run_alone(
    live: Deployed, verb: str, method: str, headers: dict[str, str]
) -> None:
    assert ask(live, method, f"/embedded/{verb}", b"{}", **headers)[0] == 403
    assert stands(live)


def test_a_get_turns_no_switch_even_with_the_token(live: Deployed) -> None:
    token = {TOKEN_HEADER.replace("-", "_"): live.aws.keys.secret}
    assert ask(live, "GET", "/embedded/clear_faults", **token)[0] == 403
    assert ask(live, "POST", "/embedded/clear_faults", **token)[0] == 200


@pytest.mark.parametrize(
    "foreign",
    [
        {"Host": "attacker.example"},
        {"Host": "127.0.0.1.attacker.example:80"},
        {"Host": "[::1"},
        {"Host": ""},
        {"Origin": "https://attacker.example"},
        {"Origin": "http://127.0.0.1.attacker.example"},
        {"Origin": "null"},
    ],
)
def test_a_web_page_is_refused_by_its_host_and_origin_whatever_it_knows(
    live: Deployed, foreign: dict[str, str]
) -> None:
    own = signed(live)
    assert ask(live, "POST", "/", LIST_BUCKETS, **own)[0] == 200
    assert ask(live, "POST", "/", LIST_BUCKETS, **{**own, **foreign})[0] == 403
    token = {TOKEN_HEADER.replace("-", "_"): live.aws.keys.secret}
    assert ask(live, "POST", "/embedded/stop", b"{}", **{**token, **foreign})[0] == 403
    assert stands(live)


def test_no_answer_invites_a_page_of_elsewhere_to_read_it(live: Deployed) -> None:
    for method in ("POST", "OPTIONS"):
        status, headers, _ = ask(live, method, "/", LIST_BUCKETS, **signed(live), Origin="http://localhost:3000")
        assert [name for name in headers if name.lower().startswith("access-control-")] == [], status


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/moto-api/reset"), ("GET", "/moto-api/data.json"), ("GET", "/"), ("PUT", "/a-bucket"), ("POST", "/")],
)
def test_a_request_that_is_not_signed_is_refused(live: Deployed, method: str, path: str) -> None:
    assert ask(live, method, path, LIST_BUCKETS, **FORM)[0] == 403
    assert live.group()


def test_a_key_of_no_run_or_of_an_earlier_one_deploys_nothing(live: Deployed) -> None:
    """A stack with a custom resource runs its function on this machine."""

    def client(service: str, key: str) -> Any:
        keys = {"aws_access_key_id": key, "aws_secret_access_key": "guessed"}
        return boto3.client(service, region_name=live.aws.region, endpoint_url=live.aws.endpoint, **keys)

    for key in ("AKIA" + "FLEETOPERATOR000", "test", Keys().id):  # the first stood in the code once
        with pytest.raises(ClientError, match="InvalidClientTokenId"):
            client("cloudformation", key).create_stack(StackName="small", TemplateBody=json.dumps(template()))
        with pytest.raises(ClientError, match="InvalidClientTokenId"):
            client("lambda", key).invoke(FunctionName="llm-watchdog", Payload=b'{"command": "pin"}')
    found = live.aws.client("cloudformation").describe_stacks()["Stacks"]
    assert "small" not in [stack["StackName"] for stack in found]
    assert live.decisions() == []


def test_no_answer_of_a_custom_resource_is_taken_that_nobody_asked_for(live: Deployed) -> None:
    answer = json.dumps({"RequestId": "guessed", "Status": "SUCCESS"}).encode()
    assert ask(live, "PUT", "/embedded/respond?guessed", answer)[0] == 400


def test_every_run_has_keys_of_its_own_and_shows_them_to_its_owner_alone(live: Deployed, tmp_path: Path) -> None:
    assert Keys() != Keys()
    assert live.aws.keys.secret not in repr(live)
    assert stat.S_IMODE(live.aws.log_dir.stat().st_mode) == 0o700
    foreground.export(tmp_path / "env", live.aws.environment())
    assert stat.S_IMODE((tmp_path / "env").stat().st_mode) == 0o600
    assert live.aws.keys.secret in (tmp_path / "env").read_text()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        foreground.export(tmp_path / "link", {})
