"""The custom resources' functions on moto: what they do, what they leave alone, and what CloudFormation is told."""

from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from moto import mock_aws

from lambdas.resources import create_if_absent, create_table, require_artifacts
from tests.box import servers

pytestmark = pytest.mark.slow  # loads moto

PARAMETERS = {"/llm/on-demand-percentage": "0", "/llm/watchdog-state": '{"version": 1}'}
KEYS = ["artifacts/engine.tgz", "artifacts/model.gguf"]
TABLE = {"Table": "llm-gateway", "PartitionKey": "pk", "SortKey": "sk", "Expiry": "ttl"}


@dataclass
class Answers:
    """Where CloudFormation waits for the answer: a presigned address, stood in for by a local server."""

    port: int
    received: list[dict[str, Any]]


@pytest.fixture
def cloudformation() -> Iterator[Answers]:
    received: list[dict[str, Any]] = []

    def receive(handler: BaseHTTPRequestHandler) -> None:
        received.append(servers.body_of(handler))
        servers.reply(handler, b"")

    with servers.local(receive) as port:
        yield Answers(port, received)


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (
        ("ACCESS_KEY_ID", "testing"),
        ("SECRET_ACCESS_KEY", "testing"),
        ("DEFAULT_REGION", "us-east-2"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    with mock_aws(config={"core": {"passthrough": {"urls": [r"http://127\\.0\\.0\\.1.*"]}}}):
        yield


def request(cloudformation: Answers, kind: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "RequestType": kind,
        "ResponseURL": f"http://127.0.0.1:{cloudformation.port}/answer?signature=x",
        "StackId": "arn:aws:cloudformation:us-east-2:123456789012:stack/llm-lever/1",
        "RequestId": "r-1",
        "LogicalResourceId": "Parameters",
        "ResourceProperties": properties,
    }


def stored() -> dict[str, str]:
    found = boto3.client("ssm").get_parameters(Names=list(PARAMETERS))["Parameters"]
    return {parameter["Name"]: parameter["Value"] for parameter in found}


def test_first_deploy_creates_lever_and_state(cloudformation: Answers) -> None:
    create_if_absent.handler(request(cloudformation, "Create", {"Parameters": PARAMETERS}), None)
    assert stored() == PARAMETERS
    (answer,) = cloudformation.received
    assert answer == {
        "Status": "SUCCESS",
        "PhysicalResourceId": "Parameters",
        "StackId": "arn:aws:cloudformation:us-east-2:123456789012:stack/llm-lever/1",
        "RequestId": "r-1",
        "LogicalResourceId": "Parameters",
    }


@pytest.mark.parametrize("kind", ["Create", "Update", "Delete"])
def test_no_request_touches_what_exists(kind: str, cloudformation: Answers) -> None:
    lever, state = PARAMETERS
    boto3.client("ssm").put_parameter(Name=lever, Value="100", Type="String")
    boto3.client("ssm").put_parameter(Name=state, Value="last night's", Type="String")
    create_if_absent.handler(request(cloudformation, kind, {"Parameters": PARAMETERS}), None)
    assert stored() == {lever: "100", state: "last night's"}
    assert [answer["Status"] for answer in cloudformation.received] == ["SUCCESS"]


def test_a_missing_one_of_the_two_is_created_beside_the_other(cloudformation: Answers) -> None:
    lever, state = PARAMETERS
    boto3.client("ssm").put_parameter(Name=lever, Value="100", Type="String")
    create_if_absent.handler(request(cloudformation, "Create", {"Parameters": PARAMETERS}), None)
    assert stored() == {lever: "100", state: PARAMETERS[state]}


@pytest.mark.parametrize("kind", ["Create", "Update", "Delete"])
def test_a_gateway_that_returns_takes_up_its_table_with_everything_in_it(kind: str, cloudformation: Answers) -> None:
    create_table.handler(request(cloudformation, "Create", TABLE), None)
    dynamodb = boto3.client("dynamodb")
    key = {"pk": {"S": "key#1"}, "sk": {"S": "-"}}
    dynamodb.put_item(TableName="llm-gateway", Item=key)
    create_table.handler(request(cloudformation, kind, TABLE), None)
    assert [answer["Status"] for answer in cloudformation.received] == ["SUCCESS", "SUCCESS"]
    assert dynamodb.get_item(TableName="llm-gateway", Key=key)["Item"] == key
    assert dynamodb.describe_time_to_live(TableName="llm-gateway")["TimeToLiveDescription"] == {
        "TimeToLiveStatus": "ENABLED",
        "AttributeName": "ttl",
    }


def test_backups_that_come_after_the_table_are_waited_for(
    cloudformation: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    call = BaseClient._make_api_call

    def late(client: Any, operation: str, arguments: Any) -> Any:
        asked.append(operation)
        if operation == "UpdateContinuousBackups" and asked.count(operation) < 3:
            error = {"Code": "ContinuousBackupsUnavailableException", "Message": "Backups are being enabled"}
            raise client.exceptions.from_code(error["Code"])({"Error": error}, operation)
        return call(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", late)
    monkeypatch.setattr(create_table, "WAIT_SECONDS", 0)
    create_table.handler(request(cloudformation, "Create", TABLE), None)
    assert [answer["Status"] for answer in cloudformation.received] == ["SUCCESS"]
    assert asked.count("UpdateContinuousBackups") == 3


def test_empty_store_fails_the_deploy_naming_keys_and_remedy(cloudformation: Answers) -> None:
    s3 = bucket()
    s3.put_object(Bucket="store", Key=KEYS[0], Body=b"x")
    require_artifacts.handler(request(cloudformation, "Create", {"Bucket": "store", "Keys": KEYS}), None)
    (answer,) = cloudformation.received
    assert answer["Status"] == "FAILED"
    assert answer["Reason"] == (
        "StoreIncompleteError: s3://store lacks artifacts/model.gguf: run `fleetctl publish`, then deploy again"
    )


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_filled_store_lets_the_group_be_made(kind: str, cloudformation: Answers) -> None:
    s3 = bucket()
    for key in KEYS:
        s3.put_object(Bucket="store", Key=key, Body=b"x")
    require_artifacts.handler(request(cloudformation, kind, {"Bucket": "store", "Keys": KEYS}), None)
    assert [answer["Status"] for answer in cloudformation.received] == ["SUCCESS"]


def test_emptied_store_never_blocks_a_destroy(cloudformation: Answers) -> None:
    bucket()
    require_artifacts.handler(request(cloudformation, "Delete", {"Bucket": "store", "Keys": KEYS}), None)
    assert [answer["Status"] for answer in cloudformation.received] == ["SUCCESS"]


def test_denied_read_is_told_as_what_it_is_and_not_as_an_empty_store(cloudformation: Answers) -> None:
    class Denied:
        def head_object(self, **_arguments: str) -> None:
            response = {"Error": {"Code": "403"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
            raise ClientError(response, "HeadObject")

    with pytest.raises(ClientError, match="403"):
        require_artifacts.exists(Denied(), "store", "key")


def bucket() -> Any:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="store", CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    return s3
