"""`fleetctl key` and `fleetctl requests`, on a table that the gateway itself writes and reads (moto's DynamoDB)."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import moto
import pytest
from click.testing import CliRunner, Result

from fleet.account.access import Aws
from fleet.account.aws_errors import AccessDeniedError, explain
from fleet.cli.fleetctl import main
from fleet.core import cdk_cli, names
from fleet.ops import gateway_table
from gateway import callers, store
from gateway.ledger import LEASE_SECONDS, Line, State
from gateway.store import DynamoStore
from tests.gateway.running import today

pytestmark = pytest.mark.slow  # loads moto

CDK_JSON = Path(__file__).parents[1] / "cdk.json"
Fleetctl = Callable[..., Result]


@pytest.fixture
def fleetctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleetctl]:
    """The command line on a fleet with a gateway, whose table stands."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setattr(store, "ANSWER_SECONDS", 5.0)  # moto is slower than what it stands for
    settings = cdk_cli.with_settings(tmp_path / "app", {"gateway": {}}, CDK_JSON) / "cdk.json"
    with moto.mock_aws():
        yield lambda *words, **more: CliRunner().invoke(main, ["--settings", str(settings), *words], **more)


@pytest.fixture
def table(fleetctl: Fleetctl) -> DynamoStore:
    """The same table, as the gateway has it."""
    fleet = json.loads(CDK_JSON.read_text())["context"]["fleet"]
    name, client = names.gateway_table(fleet["fleet_name"]), boto3.client("dynamodb", region_name=fleet["region"])
    key = [{"AttributeName": each, "KeyType": kind} for each, kind in (("pk", "HASH"), ("sk", "RANGE"))]
    kinds = [{"AttributeName": each, "AttributeType": "S"} for each in ("pk", "sk")]
    client.create_table(TableName=name, KeySchema=key, AttributeDefinitions=kinds, BillingMode="PAY_PER_REQUEST")
    return DynamoStore(name, client)


def told(done: Result) -> Any:
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_key_is_shown_once_and_the_gateway_knows_it_by_its_hash(fleetctl: Fleetctl, table: DynamoStore) -> None:
    done = fleetctl("key", "add", "--name", "ann's notebook", "--tier", "pro", "--class", "background", "--days", "90")
    secret = done.stdout.strip()
    assert secret.startswith(callers.PREFIX)
    found = asyncio.run(table.key(callers.key_hash(secret)))
    assert found is not None
    assert (found.name, found.tier, found.kind, found.revoked) == ("ann's notebook", "pro", "background", False)
    assert found.expires is not None
    assert 89 * 86400 < found.expires.timestamp() - time.time() <= 90 * 86400
    items = boto3.client("dynamodb", region_name="us-east-2").scan(TableName=table._table)["Items"]
    assert secret not in str(items), "kept nowhere"
    assert secret not in fleetctl("key", "list").output


def test_revoked_key_is_known_as_revoked_and_an_unknown_one_is_the_users_mistake(
    fleetctl: Fleetctl, table: DynamoStore
) -> None:
    made = told(fleetctl("key", "add", "--name", "bob", "--json"))
    assert fleetctl("key", "revoke", made["id"], input="n\n").exit_code == 2
    assert [key["state"] for key in told(fleetctl("key", "list", "--json"))] == ["valid"]
    assert fleetctl("key", "revoke", made["id"], "--yes").exit_code == 0
    assert [key["state"] for key in told(fleetctl("key", "list", "--json"))] == ["revoked"]
    found = asyncio.run(table.key(callers.key_hash(made["key"])))
    assert found is not None
    assert found.revoked
    for verb in ("revoke", "usage"):
        done = fleetctl("key", verb, "0000", *(["--yes"] if verb == "revoke" else []))
        assert (done.exit_code, "there is no key 0000" in done.stderr) == (2, True)


def test_usage_is_what_the_gateway_counted(
    fleetctl: Fleetctl, table: DynamoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_table, "BATCH_MOST", 2)  # several reads
    ann, bob = (told(fleetctl("key", "add", "--name", name, "--json")) for name in ("ann", "bob"))

    async def day() -> None:
        for number in range(3):
            line = Line(id=f"request-{number}", caller=f"key:{ann['id']}", began=int(time.time()), until=0)
            await table.admit(line, 10, "", today())
        await table.take_fallback(f"key:{ann['id']}", 10, today())
        await table.spend(today(), 1234, 10**6)

    asyncio.run(day())
    found = told(fleetctl("key", "usage", "--json"))
    assert found["uses"] == [{"day": today(), "id": ann["id"], "name": "ann", "requests": 3, "fallbacks": 1}]
    assert found["fallback_dollars_today"] == 0.001234
    assert told(fleetctl("key", "usage", bob["id"], "--json"))["uses"] == []
    assert "ann" in fleetctl("key", "usage").stdout


def test_requests_that_a_caller_named_alike_are_told_once(fleetctl: Fleetctl, table: DynamoStore) -> None:
    """A program that tries again sends its x-request-id again; DynamoDB refuses a read of one key twice."""
    now = int(time.time())

    async def wrote() -> None:
        for began in (now - 60, now - 5):
            done = {"state": State.DONE, "answered_by": "fallback"}
            await table.write(Line(id="trace-0001", caller="key:a", began=began, until=began, **done))

    asyncio.run(wrote())
    assert [(line["id"]) for line in told(fleetctl("requests", "--json"))] == ["trace-0001"]


def test_requests_tells_of_one_of_the_last_that_failed_over_or_of_all(
    fleetctl: Fleetctl, table: DynamoStore, tmp_path: Path
) -> None:
    now = int(time.time())
    day = 86400

    async def wrote() -> None:
        for number, (by, began) in enumerate((("gpu", now), ("fallback", now - 2 * day), ("fallback", now - 5))):
            line = Line(
                id=f"request-{number}", caller="key:a", began=began, until=began, state=State.DONE, answered_by=by,
                micro_dollars=12, tokens=7,
            )  # fmt: skip
            await table.write(line)
        await table.write(Line(id="killed-1", caller="key:a", began=now, until=now - LEASE_SECONDS, state=State.SENT))

    asyncio.run(wrote())
    lines = told(fleetctl("requests", "--json"))
    assert [line["id"] for line in lines] == ["request-2", "request-1"]
    assert [line["id"] for line in told(fleetctl("requests", "--last", "1", "--json"))] == ["request-2"]
    one = told(fleetctl("requests", "request-1", "--json"))
    assert (one["state"], one["answered_by"], one["dollars"], one["tokens"]) == ("done", "fallback", 0.000012, 7)
    assert told(fleetctl("requests", "killed-1", "--json"))["state"] == "lost"
    assert "request-2" in fleetctl("requests").stdout
    ledger = tmp_path / "ledger.jsonl"
    assert fleetctl("requests", "--export", str(ledger)).exit_code == 0
    exported = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert {line["id"] for line in exported} >= {"request-1", "request-2", "killed-1"}
    assert all({"began", "caller", "until"} <= line.keys() for line in exported)
    nowhere = fleetctl("requests", "--export", str(tmp_path / "no" / "ledger.jsonl"))
    assert (nowhere.exit_code, "allowed: a file that can be written" in nowhere.output) == (2, True)
    unknown = fleetctl("requests", "\x1b[31mred")
    assert (unknown.exit_code, "\x1b" in unknown.output) == (2, False)


def test_without_a_gateway_or_its_table_one_message_says_what_to_do(fleetctl: Fleetctl) -> None:
    for words in (["key", "list"], ["requests"], ["key", "add", "--name", "x"]):
        none = CliRunner().invoke(main, ["--settings", str(CDK_JSON), *words])
        assert (none.exit_code, none.stderr.startswith("gateway: missing in the settings")) == (2, True)
        undeployed = fleetctl(*words)
        assert (undeployed.exit_code, "one deleted since: docs/runbook/gateway-down.md" in undeployed.stderr) == (
            2,
            True,
        )


def test_key_of_a_tier_that_is_off_or_of_nobody_is_not_made(tmp_path: Path, table: DynamoStore) -> None:
    off = {"gateway": {"tiers": {"pro": {"requests_per_day": 0}}}}
    settings = cdk_cli.with_settings(tmp_path / "off", off, CDK_JSON) / "cdk.json"
    run = CliRunner().invoke(main, ["--settings", str(settings), "key", "add", "--name", "x", "--tier", "pro"])
    assert (run.exit_code, "which the settings turn off" in run.stderr) == (2, True)
    run = CliRunner().invoke(main, ["--settings", str(settings), "key", "add", "--name", " "])
    assert (run.exit_code, "--name is blank" in run.stderr) == (2, True)


def test_missing_permission_is_named_as_iam_names_it(
    fleetctl: Fleetctl, table: DynamoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ClientError

    def denied(self: Aws, service: str, operation: str, **_: Any) -> Any:
        error = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
        raise explain(ClientError(error, operation), service=service, operation=operation)

    monkeypatch.setattr(Aws, "call", denied)
    done = fleetctl("key", "add", "--name", "x")
    assert (done.exit_code, "dynamodb:PutItem" in done.stderr) == (AccessDeniedError.code, True)
